"""The parser of `agent.toml`: it checks the whole file and makes an `AgentConfig` of it.

[agent] and [objective] belong to one agent; [run] and [algorithm] are the same for all agents;
[[neighbour]] and [[partner]] name the agents that this agent knows. Relative paths start at the
directory of the file. Each table has one function below, whose signature is the table's schema; it
returns its arguments (`locals()`), with their defaults and types of the configuration filled in.
"""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, cast

from hushgrad.agent.stages import n_stages
from hushgrad.algorithms.base import Algorithm
from hushgrad.errors import ConfigError
from hushgrad.network.config.checks import check_links, check_partners, check_sense, within_run
from hushgrad.network.config.model import (
    HEARTBEAT,
    MAX_WAIT,
    AgentConfig,
    Direction,
    Durability,
    LogConfig,
    Neighbour,
    Partner,
    RunConfig,
    parse_address,
)
from hushgrad.network.objective.objectives import ObjectiveSpec, Standardise
from hushgrad.schema.algorithms import algorithm_class, build_algorithm, check_algorithm
from hushgrad.schema.builders import Builder, check_call, parameters
from hushgrad.schema.places import Keys, Mistakes, Source, shown
from hushgrad.schema.references import is_reference
from hushgrad.schema.toml import to_toml

type Table = Mapping[str, Any]

TRUSTED = "trusted"  # beside the file: where `hushgrad key trust` puts certificates


# ---- the tables


def agent(
    *,
    name: str,
    number: int,
    listen: str | None = None,
    key: str | None = None,
    certificate: str | None = None,
    state: str = "state",
    result: str | None = None,
    x0: list[float] | None = None,
    durability: Durability = "power",
    max_wait: float = MAX_WAIT,
    heartbeat: float = HEARTBEAT,
    max_jumps: int | None = None,
    record_every: int | None = None,
    metrics: str | None = None,
    expose_metrics: bool = False,
    accept_exposure: list[str] | None = None,
    log_level: Literal["debug", "info", "warning", "error"] = "info",
    log_format: Literal["text", "json"] = "text",
) -> dict[str, Any]:
    """[agent], with the defaults of keys that are left out."""
    given = locals().copy()
    for used in ("expose_metrics", "log_level", "log_format"):  # the checks use the first
        del given[used]
    return given | {
        "listen": None if listen is None else parse_address(listen),
        "key": key or f"{name}.key",
        "certificate": certificate or f"{name}.crt",
        "result": result or f"{state}/result",
        "max_wait": float(max_wait),
        "heartbeat": float(heartbeat),
        "metrics": None if metrics is None else parse_address(metrics),
        "log": LogConfig(level=log_level, format=log_format),
        "x0": None if x0 is None else tuple(map(float, x0)),
        "accept_exposure": frozenset(accept_exposure or ()),
    }


def run(
    *,
    id: str,  # noqa: A002  # the key in the file
    iterations: int,
    dim: int,
    n_agents: int,
    mixing: str = "metropolis",
    tolerance: float | None = None,
    diameter: int | None = None,
    max_degree: int | None = None,
    eta: float | None = None,
    n_links: int | None = None,
    scale: float | None = None,
    honest_rows: int | None = None,
    row_norm: float | None = None,
    row_target: float | None = None,
    seed: int | None = None,
) -> dict[str, Any]:
    """[run]; without a diameter, n_agents − 1 bounds the hops between any two agents."""
    return locals() | {
        "tolerance": None if tolerance is None else float(tolerance),
        "diameter": n_agents - 1 if diameter is None and tolerance is not None else diameter,
        "eta": None if eta is None else float(eta),
        "scale": None if scale is None else float(scale),
        "row_norm": None if row_norm is None else float(row_norm),
        "row_target": None if row_target is None else float(row_target),
    }


def neighbour(
    *,
    name: str,
    number: int,
    address: str | None = None,
    certificate: str | None = None,
    direction: Direction = "both",
    two_hop: bool = False,
    link: int | None = None,
) -> dict[str, Any]:
    """[[neighbour]]."""
    return locals() | {
        "address": None if address is None else parse_address(address),
        "certificate": certificate or f"{TRUSTED}/{name}.crt",
    }


def partner(*, name: str, number: int, certificate: str | None = None) -> dict[str, Any]:
    """[[partner]]."""
    return locals() | {"certificate": certificate or f"{TRUSTED}/{name}.crt"}


def least_squares(
    *,
    file: str,
    columns: list[str],
    target: str,
    intercept: bool = False,
    standardise: Any = None,
    delimiter: str = ",",
) -> dict[str, Any]:
    """[objective] of this kind; the functions below are the other kinds."""
    return locals() | {"columns": tuple(columns)}


def ridge(
    *,
    file: str,
    columns: list[str],
    target: str,
    regularisation: float = 1.0,
    intercept: bool = False,
    standardise: Any = None,
    delimiter: str = ",",
) -> dict[str, Any]:
    return locals() | {"columns": tuple(columns), "regularisation": float(regularisation)}


def huber(
    *,
    file: str,
    columns: list[str],
    target: str,
    delta: float = 1.35,
    regularisation: float = 1.0,
    intercept: bool = False,
    standardise: Any = None,
    delimiter: str = ",",
) -> dict[str, Any]:
    return locals() | {
        "columns": tuple(columns),
        "regularisation": float(regularisation),
        "delta": float(delta),
    }


def rendezvous(
    *,
    position: list[float] | None = None,
    file: str | None = None,
    columns: list[str] | None = None,
    delimiter: str = ",",
) -> dict[str, Any]:
    return locals() | {
        "position": None if position is None else tuple(map(float, position)),
        "columns": tuple(columns or ()),
    }


def average(
    *,
    values: list[float] | None = None,
    file: str | None = None,
    columns: list[str] | None = None,
    delimiter: str = ",",
) -> dict[str, Any]:
    return rendezvous(position=values, file=file, columns=columns, delimiter=delimiter)


def function(
    *,
    function: str,
    data: str | None = None,
    jax: bool = False,
    quadratic: bool = False,
    hessian: str | None = None,
    curvature: str | None = None,
    majorised: str | None = None,
    rows: str | None = None,
) -> dict[str, Any]:
    given = locals().copy()
    return given | {"file": given.pop("data")}


KINDS: dict[str, Builder] = {
    "least_squares": least_squares,
    "ridge": ridge,
    "logistic": ridge,
    "huber": huber,
    "rendezvous": rendezvous,
    "average": average,
}
_SINGLE: dict[str, Builder | None] = {
    "agent": agent,
    "run": run,
    "algorithm": None,
    "objective": None,
}
_LISTED: dict[str, Builder] = {"neighbour": neighbour, "partner": partner}


# ---- reading


def load_config(path: str | Path) -> AgentConfig:
    """Read and check an agent's file."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            f"there is no agent's file at '{path}'. `hushgrad new --agent {path.name}` writes an "
            "example."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"'{path}' cannot be read as an agent's file: {error}.") from error
    return parse_config(text, source=str(path), directory=path.parent)


def parse_config(
    config: str | Table, source: str = "agent", directory: str | Path | None = None
) -> AgentConfig:
    """Check an agent's file given as TOML text or as tables; paths start at `directory`."""
    text = config if isinstance(config, str) else ""
    try:
        tables = tomllib.loads(config) if isinstance(config, str) else copy.deepcopy(dict(config))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source}: this is not TOML: {error}.") from error
    place = Source(source, Path(directory or "."), text, what="agent's file", raises=ConfigError)
    findings = Mistakes(place)
    _check_shape(findings, tables)
    check_sense(findings, _sound(findings, tables))
    findings.throw()
    algorithm = within_run(findings, tables, _algorithm(place, tables["algorithm"]))
    check_links(findings, tables, algorithm)
    check_partners(findings, tables, algorithm)
    findings.throw()
    return _build(place, tables, algorithm)


def write_config(path: str | Path, tables: Table) -> AgentConfig:
    """Check tables and write them as an agent's file."""
    path = Path(path)
    config = parse_config(tables, source=str(path), directory=path.parent)
    path.write_text(to_toml(tables), encoding="utf-8")
    return config


def _algorithm(source: Source, table: Table) -> Algorithm:
    """The algorithm of a table; `design` defaults to "recommended" in an agent's file."""
    keys = ("algorithm",)
    if "design" in parameters(algorithm_class(source, table, keys)):
        table = {"design": "recommended", **table}
    return build_algorithm(source, table, keys)


def _build(source: Source, tables: Table, algorithm: Algorithm) -> AgentConfig:
    own, common = agent(**tables["agent"]), run(**tables["run"])
    kept = {key: own.pop(key) for key in ("key", "certificate", "state", "result")}
    paths = {key: source.directory / path for key, path in kept.items()}

    def known(table: Table, builder: Builder) -> dict[str, Any]:
        fields = builder(**table)
        return fields | {"certificate": source.directory / fields["certificate"]}

    objective = _objective(source, tables["objective"], common["n_agents"])
    stages = n_stages(algorithm, is_quadratic=objective.is_quadratic)
    return AgentConfig(
        run=RunConfig(algorithm=algorithm, x0=own.pop("x0"), stages=stages, **common),
        neighbours=tuple(Neighbour(**known(t, neighbour)) for t in tables["neighbour"]),
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
    for name in tables.keys() - _SINGLE.keys() - _LISTED.keys():
        findings.add_unknown((name,), "a table of an agent's file", [*_SINGLE, *_LISTED])
    for name, builder in _SINGLE.items():
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
    for name, builder in _LISTED.items():
        entries: Any = tables.get(name, [])
        if not isinstance(entries, list):
            findings.add((name,), f"is a table of its own. Write [[{name}]].")
            continue
        for i, table in enumerate(cast("list[Any]", entries)):
            if isinstance(table, dict):
                check_call(findings, builder, cast("Table", table), (name, i), what=f"[[{name}]]")
            else:
                findings.add((name, i), f"= {shown(table)} is not a table. Write [[{name}]].")


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
        for name in _LISTED
        if isinstance(tables.get(name, []), list)
    }
    return {name: of(tables.get(name), (name,)) for name in _SINGLE} | listed
