"""From the tables of a study to the objects that `run` takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hushgrad import graphs
from hushgrad.algorithms.base import Algorithm
from hushgrad.errors import HushgradError
from hushgrad.mixing import Network
from hushgrad.problems import Problem
from hushgrad.schema.algorithms import build_algorithm, without
from hushgrad.schema.builders import Builder, check_call, parameters
from hushgrad.schema.places import Mistakes, Source, shown
from hushgrad.schema.references import load
from hushgrad.studies.check import GRAPH_KEYS, WEIGHT_KEYS, graph_builders, problem_builders

type Table = Mapping[str, Any]


def build_network(source: Source, table: Table) -> Network:
    rest = without(table, *GRAPH_KEYS, *WEIGHT_KEYS)
    with source.telling(("network",), table):
        if "graph" in table:
            graph = graph_builders()[table["graph"]](**rest)
        elif "edges" in table:
            graph = graphs.from_edges(table["edges"], **rest)
        else:
            graph = graphs.from_file(source.directory / table["file"], **rest)
        mixing = np.array(table["matrix"], float) if "matrix" in table else table.get("mixing")
        if isinstance(mixing, dict):
            mixing = {
                role: rule if isinstance(rule, str) else np.array(rule, float)
                for role, rule in mixing.items()
            }
        return Network(graph, mixing=mixing)


def build_problem(source: Source, table: Table, network: Network) -> Problem:
    """The problem for the agents of a network."""
    if "kind" in table:
        arguments = without(table, "kind")
        builder = problem_builders()[table["kind"]]
        if _asks_for_agents(builder, arguments):
            arguments["n_agents"] = network.n_agents
        with source.telling(("problem",), table):
            problem = builder(**arguments)
    else:
        problem = _from_function(source, table, network)
    if problem.n_agents != network.n_agents:
        key = ("n_agents",) if "n_agents" in table else ()
        raise source.error(
            ("problem", *key),
            f"gives the problem {problem.n_agents} agents, but the network has {network.n_agents}. "
            "Give both the same number.",
        )
    return problem


def _asks_for_agents(builder: Builder, arguments: Table) -> bool:
    """Whether the network decides n_agents; data written into the study has its own number."""
    if "n_agents" in arguments or "n_agents" not in parameters(builder):
        return False
    if "dataset" in parameters(builder):
        return "dataset" in arguments
    return not any(isinstance(value, list) for value in arguments.values())


def _from_function(source: Source, table: Table, network: Network) -> Problem:
    keys = ("problem", "function")
    function = load(source, keys, table["function"])
    arguments = without(table, "function")
    findings = Mistakes(source)
    if "n_agents" in parameters(function) and "n_agents" not in arguments:
        arguments["n_agents"] = network.n_agents
    what = f"the function {table['function']}"
    check_call(findings, function, arguments, ("problem",), what=what, also=["function"])
    findings.throw()
    try:
        problem = function(**arguments)
    except HushgradError as error:
        raise source.error(keys, f"= {shown(table['function'])}: {error}") from error
    except Exception as error:  # the user's code may raise anything
        said = f"raised {type(error).__name__}: {error}"
        raise source.error(keys, f"= {shown(table['function'])} {said}") from error
    if not isinstance(problem, Problem):
        kind = type(problem).__name__
        raise source.error(
            keys, f"= {shown(table['function'])} returned a {kind}, not an hg.Problem."
        )
    return problem


def build_algorithms(source: Source, tables: Sequence[Table]) -> dict[str, Algorithm]:
    """Algorithms by label: the given one, or the algorithm's own, numbered where two are equal."""
    built = [build_algorithm(source, table, ("algorithm", i)) for i, table in enumerate(tables)]
    labels = [t.get("label", a.label) for t, a in zip(tables, built, strict=True)]
    named: dict[str, Algorithm] = {}
    for i, (label, algorithm) in enumerate(zip(labels, built, strict=True)):
        is_own = "label" not in tables[i] and labels.count(label) > 1
        named[f"{label} #{labels[:i].count(label) + 1}" if is_own else label] = algorithm
    return named


def build_options(source: Source, table: Table) -> dict[str, Any]:
    """The options of `run`, metrics loaded."""
    metrics = {
        name: load(source, ("run", "metrics", name), reference)
        for name, reference in table.get("metrics", {}).items()
    }
    options: dict[str, Any] = without(table, "metrics")
    return options | ({"metrics": _named_errors(source, metrics)} if metrics else {})


def _named_errors(source: Source, metrics: Mapping[str, Callable[..., Any]]) -> dict[str, Any]:
    """Metrics whose own mistakes say where in the study they come from."""

    def guarded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def metric(x: Any, problem: Problem) -> Any:
            try:
                return function(x, problem)
            except Exception as error:  # the user's code may raise anything
                said = f"raised {type(error).__name__}: {error}"
                raise source.error(("run", "metrics", name), said) from error

        return metric

    return {name: guarded(name, function) for name, function in metrics.items()}
