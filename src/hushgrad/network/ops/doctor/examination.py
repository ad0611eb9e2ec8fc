"""`hushgrad doctor`: the checks that tell whether an agent is ready for a run.

The checks write one small file into the state directory and remove it. Otherwise they change
nothing, and they disturb no running agent.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from hushgrad.errors import AgentError, HushgradError, StateError
from hushgrad.fitting.contracts import contract, contract_digest
from hushgrad.network.auto import provisional, smoothness_of
from hushgrad.network.config.model import (
    Address,
    AgentConfig,
    Neighbour,
    Partner,
    shown_address,
)
from hushgrad.network.keys.identity import Certificate, Identity, load_certificate, load_identity
from hushgrad.network.objective.objectives import Objective, load_objective
from hushgrad.network.ops.doctor.access import access
from hushgrad.network.ops.doctor.data import data_line
from hushgrad.network.ops.doctor.exposure import stages_line, verdicts
from hushgrad.network.ops.doctor.guarantee import guarantees
from hushgrad.network.ops.doctor.policy import policy_rulings
from hushgrad.network.ops.doctor.probe import probe
from hushgrad.network.protocol.hello import MIRROR, Hello, differences, public_parts
from hushgrad.network.staging import check_stages
from hushgrad.network.state.position import Position, read_position
from hushgrad.network.transport.connecting import listening

SOON = timedelta(days=30)  # a certificate that expires sooner gets a warning
CLOCKS_APART = 60  # seconds that the clocks of two agents may differ
TIMEOUT = 10.0  # seconds for a neighbour to answer
JOURNAL_VECTORS = 64  # vectors (d,) for which the disk needs room: two slots, and some to spare
SYNCS = 5  # durable writes that the doctor times


@dataclass(frozen=True)
class Check:
    """One check: good (True), bad (False), or not possible from here (None)."""

    check: str
    is_good: bool | None
    text: str
    verdict: str | None = None  # of the agent's exposure: held, accepted, refused or not judged
    data: Mapping[str, Any] | None = None  # the numbers of the text, for JSON


def examine(config: AgentConfig, *, timeout: float = TIMEOUT) -> Iterator[Check]:
    """All checks of an agent, from its own files to its neighbours."""
    identity: Identity | None = None
    try:
        identity = load_identity(config.key, config.certificate, name=config.name)
        yield Check(
            "key", True, f"{config.key} fits {config.certificate}, and only its owner may read it"
        )
    except HushgradError as error:
        yield Check("key", False, str(error))
    if identity is not None:
        yield _dates("certificate", identity.certificate, is_masked=bool(config.partners))
    known: dict[str, Certificate] = {}
    others: list[Neighbour | Partner] = [*config.neighbours, *config.partners]
    for one in {one.certificate: one for one in others}.values():
        try:
            certificate = load_certificate(one.certificate, name=one.name)
        except HushgradError as error:
            yield Check(f"trust {one.name}", False, f"{error} See: hushgrad key trust --help")
            continue
        known[one.name] = certificate
        yield _dates(f"trust {one.name}", certificate, is_masked=isinstance(one, Partner))
    if config.run.model is not None:
        yield Check("contract", True, contract_digest(contract(config.run.model)))
    for name, is_good, text in access(config):
        yield Check(name, is_good, text)
    data, objective = _data(config)
    yield data
    if (rows := data_line(config, objective)) is not None:
        yield Check("data", *rows)
    if config.run.is_auto and objective is not None:
        stepsize, config = _auto(config, objective)
        yield stepsize
    for found in verdicts(config, objective):
        said = f"{found.verdict}: {found.text}"
        yield Check(f"exposure {found.name}", found.is_good, said, found.verdict)
    if (stages := stages_line(config, objective)) is not None:
        yield Check("stages", *stages)
    for ruling in policy_rulings(config, objective):
        yield Check("policy", ruling.is_kept, ruling.text)
    for name, is_good, text, numbers in guarantees(config, objective):
        yield Check(name, is_good, text, data=numbers)
    position, own = None, None  # own: the last round of the journal, for `_neighbours`
    try:
        position = read_position(config.state)
        state = _state(config, position)
        yield state
        if state.is_good and not (position is not None and position.is_running):
            own = -1 if position is None or position.round is None else position.round
    except StateError as error:
        yield Check("state", False, str(error))
    is_running = position is not None and position.is_running
    yield from _ports(config, is_running=is_running)
    yield from _neighbours(config, identity, known, timeout, own)


def _dates(check: str, certificate: Certificate, *, is_masked: bool) -> Check:
    if (objection := certificate.objection()) is not None:
        return Check(
            check,
            False,
            f"the certificate {objection}, and this machine's clock says "
            f"{datetime.now(UTC):%Y-%m-%d %H:%M}. Set the clock, or exchange a new certificate",
        )
    left = certificate.not_after - datetime.now(UTC)
    text = f"{certificate.fingerprint[:19]}…, valid to {certificate.not_after:%Y-%m-%d}"
    if left < SOON:
        renew = ". A run with masks does not survive a new one: renew it before the run" * is_masked
        return Check(check, None, f"{text}: it expires in {left.days} days{renew}")
    return Check(check, True, text)


def _auto(config: AgentConfig, objective: Objective) -> tuple[Check, AgentConfig]:
    """This agent's need of the common stepsize, and the configuration to judge."""
    try:
        judged = provisional(config, objective)
        L = smoothness_of(config, objective)
    except HushgradError as error:
        return Check("stepsize", False, str(error)), config
    declared = "declared" if config.run.smoothness is not None else "of this agent's data"
    text = f'"auto": agents agree on one that suits all; L = {L:.3g} ({declared})'
    return Check("stepsize", True, text), judged


def _data(config: AgentConfig) -> tuple[Check, Objective | None]:
    """Check that the objective loads, and that its gradient at the start is finite."""
    run = config.run
    try:
        objective = load_objective(config.objective, run.dim)
        check_stages(run, objective)
        if objective.fit_rows is not None:
            return Check("objective", True, objective.describe), objective
        start = np.zeros(run.dim) if run.x0 is None else np.array(run.x0, np.float64)
        objective.gradient(start)
    except HushgradError as error:
        return Check("objective", False, str(error)), None
    text = f"{objective.describe}; its gradient at the start is finite"
    return Check("objective", True, text), objective


def _state(config: AgentConfig, position: Position | None) -> Check:
    """Check that the state directory belongs to the run, can be written, and has room."""
    if position is not None and (position.agent, position.run) != (config.name, config.run.id):
        return Check(
            "state",
            False,
            f"'{config.state}' belongs to agent {position.agent} in run {position.run}. Choose "
            "another directory: a state is never used for a second run",
        )
    where = config.state
    while not where.exists():
        where = where.parent
    needed = 8 * config.run.dim * JOURNAL_VECTORS
    try:
        free = shutil.disk_usage(where).free
        seconds = _sync_time(where)
    except OSError as error:
        return Check("state", False, f"'{where}' cannot be written: {error.strerror}")
    if free < needed:
        return Check(
            "state", False, f"{free / 1e6:.0f} MB are free, but up to {needed / 1e6:.0f} are needed"
        )
    there = f"the run {position.summary}" if position is not None else "a new run"
    power = f", {1e3 * seconds:.1f} ms per durable write" * (config.durability == "power")
    return Check("state", True, f"{config.state}: {there}; {free / 1e9:.1f} GB free{power}")


def _sync_time(directory: Path) -> float:
    """The seconds of a small durable write into the directory."""
    path = directory / f".hushgrad-doctor-{os.getpid()}"
    times: list[float] = []
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        for _ in range(SYNCS):
            started = time.perf_counter()
            os.pwrite(file, bytes(512), 0)
            os.fdatasync(file)
            times.append(time.perf_counter() - started)
    finally:
        os.close(file)
        path.unlink()
    return statistics.median(times)


def _ports(config: AgentConfig, *, is_running: bool) -> Iterator[Check]:
    for check, address in (("listen", config.listen), ("metrics", config.metrics)):
        if address is None:
            if check == "listen":
                yield Check(check, None, "no address: this agent dials all its neighbours")
            continue
        place = shown_address(address)
        objection = _bind(address)
        if objection is None:
            yield Check(check, True, f"{place} is free")
        elif is_running:
            yield Check(check, True, f"{place} is in use, and this agent is running")
        else:
            yield Check(
                check, False, f"{place}: {objection}. End its user, or choose another address"
            )


def _bind(address: Address) -> str | None:
    """The reason why no program can listen at the address now, or None."""
    try:
        listening(address).close()
    except AgentError as error:
        cause = error.__cause__
        return getattr(cause, "strerror", None) or str(cause)
    return None


def _neighbours(
    config: AgentConfig,
    identity: Identity | None,
    known: Mapping[str, Certificate],
    timeout: float,
    own: int | None,
) -> Iterator[Check]:
    """Ask every neighbour that this agent dials; `own` is the last round of this journal."""
    clocks: dict[str, float] = {}
    for neighbour in config.neighbours:
        check = f"reach {neighbour.name}"
        if neighbour.address is None:
            yield Check(
                check, None, "this neighbour dials this agent, so only its doctor can try the link"
            )
        elif identity is None or neighbour.name not in known:
            yield Check(check, None, "not tried without both certificates")
        else:
            yield _reach(config, neighbour, identity, known[neighbour.name], timeout, clocks, own)
    yield _clock(clocks)


def _reach(
    config: AgentConfig,
    neighbour: Neighbour,
    identity: Identity,
    certificate: Certificate,
    timeout: float,
    clocks: dict[str, float],
    own: int | None,
) -> Check:
    check = f"reach {neighbour.name}"
    assert neighbour.address is not None
    try:
        asked = time.time()
        hello = asyncio.run(
            probe(
                identity, certificate, neighbour.address, timeout=timeout, proxy=neighbour.proxy
            )
        )  # fmt: skip
        clocks[neighbour.name] = hello.clock - (asked + time.time()) / 2
    except AgentError as error:
        is_answered = isinstance(error.__cause__, ssl.SSLError)
        hint = (
            "Compare certificates by `hushgrad key show`, at both ends"
            if is_answered
            else "Is its agent running, and the port open to this machine?"
        )
        return Check(check, False, f"{error}. {hint}")
    if (objection := _disagreement(config, neighbour, hello)) is not None:
        return Check(check, False, f"{objection}. Make the two files agree")
    place = shown_address(neighbour.address)
    if own is not None and hello.heard > own:
        return Check(
            check,
            False,
            f"it holds round {hello.heard} of this agent, whose journal ends at round {own}: "
            f"'{config.state}' is an old copy. Restore the newest state, or start a new run",
        )
    there = f"is at round {hello.round}" if hello.round >= 0 else "has not begun"
    return Check(check, True, f"{place} answers, runs the same, and {there}")


def _disagreement(config: AgentConfig, neighbour: Neighbour, hello: Hello) -> str | None:
    """The first difference between the configurations of the two agents, or None."""
    if (apart := differences(public_parts(config.run), hello.public)) != "":
        return apart
    if hello.number != neighbour.number:
        return f"its number is {neighbour.number} here and {hello.number} there"
    if hello.direction != MIRROR[neighbour.direction]:
        return f"the link's direction is {neighbour.direction} here and {hello.direction} there"
    if hello.two_hop != neighbour.two_hop:
        return f"two_hop is {neighbour.two_hop} here and {hello.two_hop} there"
    return None


def _clock(clocks: Mapping[str, float]) -> Check:
    """Compare clocks, because certificates have dates; nothing else depends on clocks."""
    if not clocks:
        return Check("clock", None, "no neighbour could be asked for its time")
    name, apart = max(clocks.items(), key=lambda item: abs(item[1]))
    text = f"{name} is the farthest off, by {round(apart):+d} s"
    if abs(apart) > CLOCKS_APART:
        return Check("clock", False, f"{text}. Set both clocks: certificates have dates")
    return Check("clock", True, text)
