"""The check of a study: its tables, keys and values, before build.py makes anything of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from hushgrad import graphs, problems
from hushgrad.graphs import Graph
from hushgrad.mixing import RULES
from hushgrad.problems import Problem
from hushgrad.report.export import FORMATS
from hushgrad.schema.algorithms import check_algorithm, without
from hushgrad.schema.builders import Builder, builders, check_call, check_value, parameters
from hushgrad.schema.places import Keys, Mistakes, shown
from hushgrad.schema.references import is_reference
from hushgrad.simulate.run import run
from hushgrad.simulate.tuning import tune

TABLES = ("network", "problem", "algorithm", "run", "sweep", "tune", "output")
TUNE_KEYS = ("stepsizes", "grid", "target", "by")
GRAPH_KEYS = ("graph", "edges", "file")
WEIGHT_KEYS = ("mixing", "matrix")
# Arguments of run that [run] does not have: the parts have tables of their own, the command sets
# the others.
NOT_IN_RUN = (
    "algorithm", "problem", "network", "progress", "label", "metrics", "checkpoint", "driver",
    "tamper", "mesh", "checkpoint_every",
)  # fmt: skip

type Table = Mapping[str, Any]


def graph_builders() -> dict[str, Builder]:
    """The graphs that are made from numbers alone."""
    return {n: b for n, b in builders(graphs, Graph).items() if not n.startswith("from_")}


def problem_builders() -> dict[str, Builder]:
    return builders(problems, Problem)


def check_tables(findings: Mistakes, tables: Table) -> None:
    """Find what is wrong with a study, its sweep apart."""
    for name in (n for n in tables if n not in TABLES):
        findings.add_unknown((name,), "a table of a study", TABLES)
    checks = {
        "network": _network, "problem": _problem, "run": _run, "tune": _tune, "output": _output,
    }  # fmt: skip
    for name, check in checks.items():
        if name not in tables:
            if name not in ("tune", "output"):
                findings.add((name,), f"is missing: a study needs the table [{name}].")
        elif not isinstance(tables[name], dict):
            findings.add((name,), f"= {shown(tables[name])} is not a table. Write [{name}].")
        else:
            check(findings, tables[name])
    _algorithms(findings, tables.get("algorithm"))


def _one_of(findings: Mistakes, table: Table, keys: Keys, choices: tuple[str, ...]) -> str | None:
    """The only one of these keys that a table has."""
    given = [key for key in choices if key in table]
    if len(given) == 1:
        return given[0]
    options = f"{', '.join(choices[:-1])} or {choices[-1]}"
    had = f"has {' and '.join(given)}" if given else "has none of them"
    findings.add(keys, f"needs one of {options}, but {had}.")
    return None


def _network(findings: Mistakes, table: Table) -> None:
    here = ("network",)
    chosen = _one_of(findings, table, here, GRAPH_KEYS)
    also = [*GRAPH_KEYS, *WEIGHT_KEYS]
    rest = without(table, *also)
    if chosen == "graph":
        name, choices = table["graph"], graph_builders()
        if not isinstance(name, str) or name not in choices:
            findings.add_choice((*here, "graph"), name, "a graph", choices)
        else:
            what = f'graph = "{name}"'
            check_call(findings, choices[name], rest, here, what=what, also=["graph", *WEIGHT_KEYS])
    elif chosen == "edges":
        arguments = {"edges": table["edges"], **rest}
        check_value(findings, list[Any], table["edges"], (*here, "edges"))
        check_call(findings, graphs.from_edges, arguments, here, what="edges", also=WEIGHT_KEYS)
    elif chosen == "file":
        check_value(findings, str, table["file"], (*here, "file"))
        check_call(
            findings, graphs.from_file, rest, here,
            what="file", also=["file", *WEIGHT_KEYS], supplied=["path"],
        )  # fmt: skip
    _weights(findings, table)


def _weights(findings: Mistakes, table: Table) -> None:
    if "mixing" in table and "matrix" in table:
        findings.add(("network", "matrix"), "and mixing say the same thing twice. Leave one out.")
    if "matrix" in table:
        check_value(findings, list[list[float]], table["matrix"], ("network", "matrix"))
    mixing = table.get("mixing", "metropolis")
    for role, rule in mixing.items() if isinstance(mixing, dict) else [(None, mixing)]:
        keys = ("network", "mixing") if role is None else ("network", "mixing", str(role))
        if role not in (None, "row", "column"):
            findings.add_unknown(keys, "a kind of weights", ["row", "column"])
        elif role is not None and isinstance(rule, list):
            check_value(findings, list[list[float]], rule, keys)
        elif not isinstance(rule, str) or rule not in RULES:
            findings.add_choice(keys, rule, "a mixing rule", RULES)


def _problem(findings: Mistakes, table: Table) -> None:
    here = ("problem",)
    chosen = _one_of(findings, table, here, ("kind", "function"))
    if chosen == "function":
        _reference(findings, table["function"], (*here, "function"), "problem.py:build")
    elif chosen == "kind":
        kind, choices = table["kind"], problem_builders()
        if not isinstance(kind, str) or kind not in choices:
            findings.add_choice((*here, "kind"), kind, "a problem", choices)
            return
        rest = without(table, "kind")
        check_call(findings, choices[kind], rest, here, what=f'kind = "{kind}"', also=["kind"])


def _algorithms(findings: Mistakes, entries: Any) -> None:
    if not isinstance(entries, list) or not entries:
        lack = "is missing" if entries is None else "is not a list of tables"
        findings.add(("algorithm",), f"{lack}: a study has one or several tables [[algorithm]].")
        return
    labels: list[Any] = []
    for i, table in enumerate(cast("list[Any]", entries)):
        keys = ("algorithm", i)
        if not isinstance(table, dict):
            findings.add(keys, f"= {shown(table)} is not a table. Write [[algorithm]].")
            continue
        check_algorithm(findings, cast("dict[str, Any]", table), keys)
        label: Any = table.get("label")
        if label is not None and label in labels:
            findings.add((*keys, "label"), f"= {shown(label)} is taken by another algorithm.")
        labels.append(label)


def _run(findings: Mistakes, table: Table) -> None:
    here = ("run",)
    rest = without(table, "metrics")
    check_call(findings, run, rest, here, what="[run]", also=["metrics"], supplied=NOT_IN_RUN)
    metrics = table.get("metrics", {})
    if not isinstance(metrics, dict):
        findings.add(
            (*here, "metrics"),
            f'= {shown(metrics)} is not a table such as {{ gap = "metrics.py:gap" }}.',
        )
        return
    for name, reference in cast("dict[str, Any]", metrics).items():
        _reference(findings, reference, (*here, "metrics", name), f"metrics.py:{name}")


def _tune(findings: Mistakes, table: Table) -> None:
    here = ("tune",)
    taken = {key: parameters(tune)[key].annotation for key in TUNE_KEYS}
    for key, value in table.items():
        if key not in taken:
            findings.add_unknown((*here, key), "a key of [tune]", taken)
        elif key == "stepsizes":
            check_value(findings, list[float], value, (*here, key))
        elif key != "grid":
            check_value(findings, taken[key], value, (*here, key))
    grid = table.get("grid", {})
    if not isinstance(grid, dict):
        findings.add(
            (*here, "grid"),
            f'= {shown(grid)} is not a table such as {{ "split.own" = [0.3, 0.45] }}.',
        )
        return
    for name, values in cast("dict[str, Any]", grid).items():
        check_value(findings, list[Any], values, (*here, "grid", name))


def _output(findings: Mistakes, table: Table) -> None:
    here = ("output",)
    for key in (k for k in table if k not in ("directory", "formats")):
        findings.add_unknown((*here, key), "a key of [output]", ["directory", "formats"])
    if "directory" in table:
        check_value(findings, str, table["directory"], (*here, "directory"))
    if "formats" in table:
        check_value(findings, list[str], table["formats"], (*here, "formats"))
        formats: list[Any] = table["formats"] if isinstance(table["formats"], list) else []
        for wrong in [f for f in formats if f not in FORMATS]:
            findings.add_choice((*here, "formats"), wrong, "a format", FORMATS)


def _reference(findings: Mistakes, value: Any, keys: Keys, example: str) -> None:
    if not is_reference(value):
        findings.add(keys, f'= {shown(value)} is not of the form "{example}" or "module:name".')
