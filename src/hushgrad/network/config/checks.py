"""Checks of an agent's file: do the values make sense, one by one and together?

file.py calls these checks after it has checked the types of all values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from hushgrad.agent.weights import MIXING
from hushgrad.algorithms import AsynDGM, Consensus
from hushgrad.algorithms.base import Algorithm, Stepping
from hushgrad.errors import IdentityError, StepsizeError
from hushgrad.exchange import Links
from hushgrad.masks import ZeroSum
from hushgrad.network.config.model import (
    HEARTBEAT,
    MAX_WAIT,
    is_loopback,
    parse_address,
    parse_proxy,
)
from hushgrad.network.config.tables import DIRECT
from hushgrad.network.keys.identity import check_name
from hushgrad.schema.places import Keys, Mistakes, shown
from hushgrad.theory.exposure import WEAKNESSES

type Table = Mapping[str, Any]

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LEAST = {
    "run": {"iterations": 1, "dim": 1, "n_agents": 2, "diameter": 1, "max_degree": 1,
            "n_links": 1, "honest_rows": 1, "seed": 0},
    "agent": {"number": 0, "max_jumps": 0, "record_every": 1},
    "objective": {"regularisation": 0},
}  # fmt: skip
_VECTORS = {"rendezvous": "position", "average": "values"}
_POSITIVE = {
    "run": ["tolerance", "scale", "smoothness", "row_norm", "row_target", "largest"],
    "agent": ["max_wait", "heartbeat"],
    "objective": ["delta", "smoothness", "clip"],
}


def check_sense(findings: Mistakes, tables: dict[str, Any]) -> None:
    """Find values that make no sense, in all tables but [algorithm]."""
    for name, limits in _LEAST.items():
        for key, least in limits.items():
            value = tables[name].get(key)
            if value is not None and not (value >= least and math.isfinite(value)):
                findings.add((name, key), f"= {shown(value)} is not a number of at least {least}.")
    for name, keys in _POSITIVE.items():
        for key in keys:
            value = tables[name].get(key)
            if value is not None and not (value > 0 and math.isfinite(value)):
                findings.add((name, key), f"= {shown(value)} is not a number above 0.")
    _check_agent(findings, tables["agent"])
    _check_run(findings, tables["run"], tables["agent"].get("x0"))
    _check_data(findings, tables["objective"])
    _check_people(findings, tables)


def _check_agent(findings: Mistakes, own: Table) -> None:
    for key in ("listen", "metrics"):
        _check_address(findings, own.get(key), ("agent", key))
    _check_proxy(findings, own.get("proxy"), ("agent", "proxy"))
    metrics = own.get("metrics")
    if metrics and not own.get("expose_metrics") and (host := _host(metrics)):
        findings.add(
            ("agent", "metrics"),
            f"= {shown(metrics)} would show metrics to other machines: {host} is not loopback. Use "
            "127.0.0.1, or say expose_metrics = true.",
        )
    for name in own.get("accept_exposure", []):
        if name not in WEAKNESSES:
            findings.add_choice(("agent", "accept_exposure"), name, "a weakness", WEAKNESSES)
    if own.get("heartbeat", HEARTBEAT) * 2 > own.get("max_wait", MAX_WAIT):
        findings.add(
            ("agent", "heartbeat"),
            f"= {shown(own.get('heartbeat', HEARTBEAT))} s leaves no room for a second heartbeat "
            f"within max_wait = {shown(own.get('max_wait', MAX_WAIT))} s. Make heartbeat smaller, "
            "or max_wait larger.",
        )


def _host(address: str) -> str | None:
    """The host of an address; None for loopback, and for text that is no address."""
    try:
        host, _ = parse_address(address)
    except ValueError:
        return None
    return None if is_loopback(host) else host


def _check_address(findings: Mistakes, value: str | None, keys: Keys) -> None:
    if value is not None:
        try:
            parse_address(value)
        except ValueError as error:
            findings.add(keys, f"= {shown(value)} {error}.")


def _check_proxy(findings: Mistakes, value: str | None, keys: Keys) -> None:
    if value is not None and not (value == DIRECT and keys[0] == "neighbour"):
        try:
            parse_proxy(value)
        except ValueError as error:
            findings.add(keys, f"= {shown(value)} {error}.")


def _check_run(findings: Mistakes, common: Table, x0: list[float] | None) -> None:
    identifier = common.get("id")
    if identifier is not None and not _RUN_ID.fullmatch(identifier):
        findings.add(
            ("run", "id"),
            f"= {shown(identifier)} is not a name of up to 64 letters, digits, dots, - and _.",
        )
    eta = common.get("eta")
    if eta is not None and not 0 <= eta < 1:
        findings.add(("run", "eta"), f"= {shown(eta)} is not a number from 0 to below 1.")
    mixing = common.get("mixing", "metropolis")
    if mixing not in MIXING:
        findings.add_choice(("run", "mixing"), mixing, "a mixing rule of agents", MIXING)
    if mixing == "max_degree" and "max_degree" not in common:
        findings.add(
            ("run", "mixing"),
            '= "max_degree" needs the key max_degree: the most neighbours that any agent has.',
        )
    dim, n_agents, diameter = (common.get(key) for key in ("dim", "n_agents", "diameter"))
    if x0 is not None and dim is not None and len(x0) != dim:
        findings.add(("agent", "x0"), f"has {len(x0)} entries, but dim = {dim}. Match them.")
    if diameter is not None and n_agents is not None and diameter >= n_agents > 1:
        findings.add(
            ("run", "diameter"),
            f"= {diameter} is more than the {n_agents - 1} hops that {n_agents} agents can be "
            "apart. Leave diameter out if you do not know it.",
        )


def _check_data(findings: Mistakes, table: Table) -> None:
    here = ("objective",)
    own = _VECTORS.get(table.get("kind", ""))  # the key of the agent's one vector
    if own is not None and (own in table) == ("file" in table):
        findings.add(here, f"needs either {own} or file with columns, and not both.")
    columns = table.get("columns")
    if columns is not None:
        twice = sorted({name for name in columns if columns.count(name) > 1})
        if twice:
            findings.add((*here, "columns"), f"names {twice[0]!r} twice. Leave one out.")
        if table.get("target") in columns:
            findings.add((*here, "columns"), f"has the target {table['target']!r}. Take it out.")
    if ("file" in table and columns is None and own is not None) or columns == []:
        findings.add(here, "needs at least one column of its file in columns.")
    if len(table.get("delimiter", ",")) != 1:
        findings.add((*here, "delimiter"), f"= {shown(table['delimiter'])} is not one character.")
    constants: Any = table.get("standardise")
    scales: Any = constants.get("scale") if isinstance(constants, dict) else None
    if isinstance(scales, list) and any(
        isinstance(s, int | float) and not s > 0 for s in cast("list[Any]", scales)
    ):
        findings.add((*here, "standardise", "scale"), "has a scale that is not above 0.")


def _check_people(findings: Mistakes, tables: dict[str, Any]) -> None:
    """Every agent has one name and one number, the same in all tables."""
    n_agents = tables["run"].get("n_agents")
    names: dict[str, int] = {}
    numbers: dict[int, str] = {}
    neighbours, partners = tables.get("neighbour", []), tables.get("partner", [])
    if not neighbours:
        findings.add(
            ("neighbour",), "is missing: an agent has at least one neighbour. Write [[neighbour]]."
        )
    everyone = [
        (("agent",), tables["agent"]),
        *((("neighbour", i), table) for i, table in enumerate(neighbours)),
        *((("partner", i), table) for i, table in enumerate(partners)),
    ]
    seen: set[tuple[str | int, str]] = set()
    for keys, table in everyone:
        name, number = table.get("name"), table.get("number")
        if name is None or number is None:
            continue
        _check_one(findings, keys, name, number, n_agents)
        role = "partner" if keys[0] == "partner" else "link"
        if (role, name) in seen or (role == "partner" and name == tables["agent"].get("name")):
            findings.add((*keys, "name"), f"= {shown(name)} is taken already. Names are unique.")
        elif names.get(name, number) != number:
            findings.add(
                (*keys, "number"), f"= {number}, but {name} has the number {names[name]} above."
            )
        elif numbers.get(number, name) != name:
            findings.add(
                (*keys, "number"), f"= {number} is the number of {numbers[number]} already."
            )
        seen.add((role, name))
        names.setdefault(name, number)
        numbers.setdefault(number, name)
    for i, table in enumerate(neighbours):
        _check_address(findings, table.get("address"), ("neighbour", i, "address"))
        _check_proxy(findings, table.get("proxy"), ("neighbour", i, "proxy"))
        if "proxy" in table and "address" not in table:
            findings.add(
                ("neighbour", i, "proxy"),
                "needs the key address: this agent dials through the proxy, and does not dial a "
                "neighbour without an address.",
            )
        if "address" not in table and "listen" not in tables["agent"]:
            findings.add(
                ("neighbour", i),
                "needs the key address: this agent has no listen address, so it dials its "
                "neighbours.",
            )


def _check_one(
    findings: Mistakes, keys: Keys, name: str, number: int, n_agents: int | None
) -> None:
    try:
        check_name(name)
    except IdentityError as error:
        findings.add((*keys, "name"), f"= {shown(name)}: {error}")
    if n_agents is not None and not 0 <= number < n_agents:
        findings.add(
            (*keys, "number"),
            f"= {number} is not from 0 to {n_agents - 1}, the numbers of {n_agents} agents.",
        )


def check_partners(findings: Mistakes, tables: Table, algorithm: Algorithm) -> None:
    """Find mask partners that are missing: the number of this agent decides their numbers."""
    masks: ZeroSum | None = getattr(algorithm, "masking", None)
    here = {table["number"] for table in tables.get("partner", [])}
    number, n_agents = tables["agent"]["number"], tables["run"]["n_agents"]
    is_masked = masks is not None and (masks.linear > 0 or masks.quadratic != 0)
    needed = set(masks.partners(number, n_agents)) if masks and is_masked else set[int]()
    if missing := sorted(needed - here):
        findings.add(
            ("partner",),
            f"lacks {_numbers(missing)}: the masks of {type(algorithm).__name__} pair agent "
            f"{number} with {_numbers(sorted(needed))}. Write a [[partner]] for each, neighbour "
            'or not; or masks = { kind = "zero_sum", linear = 0, quadratic = 0 } in every file.',
        )
    if extra := sorted(here - needed):
        findings.add(("partner",), f"has {_numbers(extra)}, with whom this agent shares no mask.")


def within_run(findings: Mistakes, tables: Table, algorithm: Algorithm) -> Algorithm:
    """The algorithm with η of [run] if it needs η; finds an objective that it cannot average."""
    if not isinstance(algorithm, Consensus):
        return algorithm
    kind = tables["objective"].get("kind", "average")  # a function may be anything
    if kind != "average":
        findings.add(
            ("objective", "kind"),
            f"= {shown(kind)} is minimised by no average, but Consensus averages vectors. Use "
            'kind = "average", or PDGNDS.',
        )
    if algorithm.acceleration == "none":
        return algorithm
    eta = algorithm.eta if algorithm.eta is not None else tables["run"].get("eta")
    if eta is None:
        findings.add(
            ("run",),
            'needs the key eta: acceleration = "chebyshev" follows from η of the network. Write '
            "the same number in every file: hg.Network(graph).eta computes it.",
        )
    return replace(algorithm, eta=None if eta is None else float(eta))


def _numbers(numbers: list[int]) -> str:
    return f"number{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"


def check_links(findings: Mistakes, tables: Table, algorithm: Algorithm) -> None:
    """Find links that the algorithm cannot use, and stepsizes that are not one for each agent."""
    name = type(algorithm).__name__
    if isinstance(algorithm, Stepping):
        try:
            algorithm.schedule.check_agents(tables["run"]["n_agents"], name)
        except StepsizeError as error:
            findings.add(("algorithm", "stepsize"), f"does not fit: {error}")
    pairs = isinstance(algorithm, AsynDGM)
    if pairs and "n_links" not in tables["run"]:
        findings.add(("run",), f"needs the key n_links: {name} picks one of all links by number.")
    for i, table in enumerate(tables["neighbour"]):
        keys = ("neighbour", i)
        if algorithm.undirected and table.get("direction", "both") != "both":
            findings.add(
                (*keys, "direction"),
                f"= {shown(table['direction'])}: {name} needs both directions of every link. Use "
                "AB, PushPull or ADDOPT on directed links.",
            )
        if table.get("two_hop") and algorithm.links is not Links.TWO_HOP:
            findings.add((*keys, "two_hop"), f"= true, but {name} has no links over two hops.")
        if pairs and "link" not in table:
            findings.add(keys, f"needs the key link: {name} picks one of all links by number.")
