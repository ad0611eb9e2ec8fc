"""The parser of `agent.toml`: it checks the whole file and makes an `AgentConfig` of it.

[agent] and [objective] belong to one agent; [run] and [algorithm] are the same for all agents;
[[neighbour]] and [[partner]] name the agents that this agent knows. Relative paths start at the
directory of the file. Instead of [objective] and [algorithm], a fit has [fit] (fits.py). tables.py
holds the keys of all tables.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hushgrad.agent.stages import n_stages
from hushgrad.algorithms.base import Algorithm
from hushgrad.errors import ConfigError
from hushgrad.files.atomic import write_file
from hushgrad.network.auto import has_auto
from hushgrad.network.config.checks import check_links, check_partners, check_sense, within_run
from hushgrad.network.config.model import AgentConfig, Neighbour, Partner, RunConfig
from hushgrad.network.config.tables import (
    FIT,
    KINDS,
    LISTED,
    SINGLE,
    agent,
    function,
    neighbour,
    partner,
    run,
)
from hushgrad.network.objective.objectives import ObjectiveSpec
from hushgrad.network.objective.units import Standardise
from hushgrad.schema.algorithms import algorithm_class, build_algorithm, check_algorithm
from hushgrad.schema.builders import Builder, check_call, parameters
from hushgrad.schema.places import Keys, Mistakes, Source, shown
from hushgrad.schema.references import is_reference
from hushgrad.schema.toml import to_toml

if TYPE_CHECKING:
    from hushgrad.network.objective.fit_rows import FitSpec

type Table = Mapping[str, Any]


# ---- reading


def load_config(path: str | Path) -> AgentConfig:
    """Read and check an agent's file."""
    path = Path(path)
    source = _source(str(path), path.parent)
    source = source.read(f"`hushgrad new --agent {path.name}` writes an example.")
    return _checked(source, source.tables())


def parse_config(
    config: str | Table, source: str = "agent", directory: str | Path | None = None
) -> AgentConfig:
    """Check an agent's file given as TOML text or as tables; paths start at `directory`."""
    if not isinstance(config, str):
        return _checked(_source(source, directory), copy.deepcopy(dict(config)))
    place = _source(source, directory, config)
    return _checked(place, place.tables())


def _source(name: str, directory: str | Path | None, text: str = "") -> Source:
    return Source(name, Path(directory or "."), text, what="agent's file", raises=ConfigError)


def _checked(place: Source, tables: dict[str, Any]) -> AgentConfig:
    is_auto = _take_auto(tables)
    findings = Mistakes(place)
    _check_shape(findings, tables)
    check_sense(findings, _sound(findings, tables))
    findings.throw()
    if "fit" in tables:
        from hushgrad.network.config.fits import fit_of

        return _build(place, tables, *fit_of(findings, place, tables))
    algorithm = within_run(findings, tables, _algorithm(place, tables["algorithm"]))
    check_links(findings, tables, algorithm)
    check_partners(findings, tables, algorithm)
    if is_auto and not has_auto(algorithm):
        findings.add(
            ("algorithm", "stepsize"),
            f'= "auto" is for PDGNDS (lazy) and EXTRA, but the algorithm is '
            f"{type(algorithm).__name__}. Write a number: hushgrad tune finds one.",
        )
    findings.throw()
    common: dict[str, Any] = {**run(**tables["run"]), "is_auto": is_auto}
    objective = _objective(place, tables["objective"], common["n_agents"])
    stages = n_stages(algorithm, is_quadratic=objective.is_quadratic)
    return _build(place, tables, RunConfig(algorithm=algorithm, stages=stages, **common), objective)


def _take_auto(tables: dict[str, Any]) -> bool:
    """Whether the agents agree on the stepsize; takes the word out of the tables."""
    algorithm = tables.get("algorithm")
    if not isinstance(algorithm, dict) or algorithm.get("stepsize") != "auto":
        return False
    tables["algorithm"] = {key: algorithm[key] for key in algorithm if key != "stepsize"}
    return True


def write_config(path: str | Path, tables: Table) -> AgentConfig:
    """Check tables and write them as an agent's file."""
    path = Path(path)
    config = parse_config(tables, source=str(path), directory=path.parent)
    write_file(path, to_toml(tables))
    return config


def _algorithm(source: Source, table: Table) -> Algorithm:
    """The algorithm of a table; `design` defaults to "recommended" in an agent's file."""
    keys = ("algorithm",)
    if "design" in parameters(algorithm_class(source, table, keys)):
        table = {"design": "recommended", **table}
    return build_algorithm(source, table, keys)


def _build(
    source: Source, tables: Table, common: RunConfig, objective: ObjectiveSpec | FitSpec
) -> AgentConfig:
    own = agent(**tables["agent"])
    if own["policy"] is not None:
        own["policy"] = source.directory / own["policy"]
    kept = {key: own.pop(key) for key in ("key", "certificate", "state", "result")}
    paths = {key: source.directory / path for key, path in kept.items()}

    proxy = tables["agent"].get("proxy")
    dialled = [
        t if "proxy" in t or proxy is None or "address" not in t else {**t, "proxy": proxy}
        for t in tables["neighbour"]
    ]

    def known(table: Table, builder: Builder) -> dict[str, Any]:
        fields = builder(**table)
        return fields | {"certificate": source.directory / fields["certificate"]}

    return AgentConfig(
        run=replace(common, x0=own.pop("x0")),
        neighbours=tuple(Neighbour(**known(t, neighbour)) for t in dialled),
        partners=tuple(Partner(**known(t, partner)) for t in tables.get("partner", [])),
        objective=objective,
        **own,
        **paths,
    )


def _objective(source: Source, table: Table, n_agents: int) -> ObjectiveSpec:
    kind = table.get("kind", "function")
    builder = KINDS.get(kind, function)
    fields = builder(**{key: value for key, value in table.items() if key != "kind"})
    if fields.get("file") is not None:
        fields["file"] = source.directory / fields["file"]
    if (constants := fields.get("standardise")) is not None:
        mean, scale = (tuple(constants[key]) for key in ("mean", "scale"))
        fields["standardise"] = Standardise(mean=mean, scale=scale)
    return ObjectiveSpec(kind=kind, n_agents=n_agents, source=source, **fields)


# ---- checks of tables, keys and types


def _check_shape(findings: Mistakes, tables: Table) -> None:
    singles = _singles(tables)
    for name in tables:
        if name in singles or name in LISTED:
            continue
        if name in SINGLE:  # and not beside [fit]
            findings.add((name,), f"does not stand beside [fit]. Leave [{name}] or [fit] out.")
        else:
            findings.add_unknown((name,), "a table of an agent's file", [*SINGLE, "fit", *LISTED])
    for name, builder in singles.items():
        if name not in tables:
            findings.add((name,), f"is missing: an agent's file needs the table [{name}].")
        elif not isinstance(tables[name], dict):
            findings.add((name,), f"= {shown(tables[name])} is not a table. Write [{name}].")
        elif builder is not None:
            check_call(findings, builder, tables[name], (name,), what=f"[{name}]")
        elif name == "algorithm":
            check_algorithm(findings, tables[name], (name,))
        else:
            _check_objective(findings, tables[name])
    for name, builder in LISTED.items():
        entries: Any = tables.get(name, [])
        if not isinstance(entries, list):
            findings.add((name,), f"is a table of its own. Write [[{name}]].")
            continue
        for i, table in enumerate(cast("list[Any]", entries)):
            if isinstance(table, dict):
                check_call(findings, builder, cast("Table", table), (name, i), what=f"[[{name}]]")
            else:
                findings.add((name, i), f"= {shown(table)} is not a table. Write [[{name}]].")


def _singles(tables: Table) -> Mapping[str, Builder | None]:
    """The tables that stand once: of a fit, or of an objective."""
    return FIT if "fit" in tables else SINGLE


def _check_objective(findings: Mistakes, table: Table) -> None:
    here = ("objective",)
    if ("kind" in table) == ("function" in table):
        findings.add(here, "needs either kind or function, and not both.")
        return
    if "function" in table:
        check_call(findings, function, table, here, what="function")
        for key in ("function", "hessian", "curvature", "majorised", "rows"):
            if key in table and not is_reference(table[key]):
                findings.add(
                    (*here, key),
                    f'= {shown(table[key])} is not of the form "file.py:name" or "module:name".',
                )
        return
    kind = table["kind"]
    if not isinstance(kind, str) or kind not in KINDS:
        findings.add_choice((*here, "kind"), kind, "an objective", KINDS)
        return
    rest = {key: value for key, value in table.items() if key != "kind"}
    check_call(findings, KINDS[kind], rest, here, what=f'kind = "{kind}"', also=["kind"])
    constants = table.get("standardise")
    if isinstance(constants, dict):
        keys = (*here, "standardise")
        check_call(findings, Standardise, cast("Table", constants), keys, what="standardise")
    elif constants is not None:
        findings.add(
            (*here, "standardise"),
            f"= {shown(constants)} is not a table such as {{ mean = [50.0], scale = [12.0] }}.",
        )


def _sound(findings: Mistakes, tables: Table) -> dict[str, Any]:
    """The tables without the values that a finding names."""
    wrong = {keys for keys, _ in findings.found}

    def of(table: Any, keys: Keys) -> dict[str, Any]:
        if not isinstance(table, dict):
            return {}
        return {key: value for key, value in table.items() if (*keys, key) not in wrong}

    listed = {
        name: [of(table, (name, i)) for i, table in enumerate(tables.get(name, []))]
        for name in LISTED
        if isinstance(tables.get(name, []), list)
    }
    names = {**SINGLE, **_singles(tables)}
    return {name: of(tables.get(name), (name,)) for name in names} | listed
