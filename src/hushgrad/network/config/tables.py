"""The tables of `agent.toml`.

Each table has one function here, whose signature is the table's schema. The function returns its
arguments (`locals()`), with their defaults and types of the configuration filled in.

The parser (file.py) and the checks (checks.py) read the tables.
"""

from __future__ import annotations

from typing import Any, Literal

from hushgrad.network.config.model import (
    HEARTBEAT,
    MAX_WAIT,
    Direction,
    Durability,
    LogConfig,
    parse_address,
    parse_proxy,
)
from hushgrad.schema.builders import Builder

DIRECT = "none"  # the proxy of a neighbour that is dialled without one
TRUSTED = "trusted"  # beside the file: where `hushgrad key trust` puts certificates


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
    policy: str | None = None,
    proxy: str | None = None,
    log_level: Literal["debug", "info", "warning", "error"] = "info",
    log_format: Literal["text", "json"] = "text",
) -> dict[str, Any]:
    """[agent], with the defaults of keys that are left out."""
    given = locals().copy()
    for used in ("expose_metrics", "log_level", "log_format", "proxy"):  # file.py uses the last
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
    smoothness: float | None = None,
    honest_rows: int | None = None,
    row_norm: float | None = None,
    row_target: float | None = None,
    largest: float | None = None,
    seed: int | None = None,
) -> dict[str, Any]:
    """[run]; without a diameter, n_agents − 1 bounds the hops between any two agents."""
    return locals() | {
        "tolerance": None if tolerance is None else float(tolerance),
        "diameter": n_agents - 1 if diameter is None and tolerance is not None else diameter,
        "eta": None if eta is None else float(eta),
        "scale": None if scale is None else float(scale),
        "smoothness": None if smoothness is None else float(smoothness),
        "row_norm": None if row_norm is None else float(row_norm),
        "row_target": None if row_target is None else float(row_target),
        "largest": None if largest is None else float(largest),
    }


def fit_run(
    *,
    id: str,  # noqa: A002  # the key in the file
    n_agents: int,
    eta: float | None = None,
    mixing: str = "metropolis",
    max_degree: int | None = None,
    honest_rows: int | None = None,
    seed: int | None = None,
) -> dict[str, Any]:
    """[run] of a fit; without η, all agents are linked."""
    return locals() | {"eta": 0.0 if eta is None else float(eta)}


def fit(
    *,
    model: str,
    file: str | None = None,
    delimiter: str | None = None,
    decimal: str = ".",
    draw_rows: int | None = None,
) -> dict[str, Any]:
    """[fit]; `draw_rows`, in place of `file`, for a rehearsal: rows that are drawn."""
    return locals()


def neighbour(
    *,
    name: str,
    number: int,
    address: str | None = None,
    proxy: str | None = None,
    certificate: str | None = None,
    direction: Direction = "both",
    two_hop: bool = False,
    link: int | None = None,
) -> dict[str, Any]:
    """[[neighbour]]."""
    return locals() | {
        "address": None if address is None else parse_address(address),
        "proxy": None if proxy in (None, DIRECT) else parse_proxy(proxy),
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
    clip: float | None = None,
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
    clip: float | None = None,
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
    clip: float | None = None,
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
    smoothness: float | None = None,
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
SINGLE: dict[str, Builder | None] = {
    "agent": agent,
    "run": run,
    "algorithm": None,
    "objective": None,
}
FIT: dict[str, Builder | None] = {"agent": agent, "run": fit_run, "fit": fit}
LISTED: dict[str, Builder] = {"neighbour": neighbour, "partner": partner}
