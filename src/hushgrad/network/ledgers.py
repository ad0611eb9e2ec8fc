"""The ledgers that keep an agent's runs, and what the stages of earlier runs told about its data.

An agent has the ledger beside its key, and those that the policies of its site name. Every stage of
a run is a line, written before anything of the stage is sent: its start θ_s and the numbers that
its sums tell. Sums of other runs about the same rows are known to the same people, whatever the
masks, so the judgement of exposure (exposure.py) counts them all.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hushgrad.agent.vectors import Vector
from hushgrad.files.digest import commitment
from hushgrad.network.config.model import AgentConfig
from hushgrad.network.keys.identity import load_certificate
from hushgrad.network.objective.data_digest import SAME, DataDigest, data_digest
from hushgrad.network.objective.objectives import ObjectiveSpec
from hushgrad.network.policy import Policy, policies_of
from hushgrad.network.state.ledger import (
    TOLD,
    LedgerFile,
    LedgerLine,
    LedgerRun,
    ledger_of,
    runs_of,
)
from hushgrad.problems.determined import Chain

log = logging.getLogger("hushgrad.agent")


def governing(config: AgentConfig) -> list[Policy]:
    """The policies that hold for an agent; drawn rows are nobody's, so none holds for them."""
    if getattr(config.objective, "is_drawn", False):
        return []
    return policies_of(config.policy)


def own_ledger(config: AgentConfig) -> LedgerFile | None:
    """The ledger beside the key; a run with a seed has no secrets to keep, and is not in it."""
    is_recorded = bool(config.partners) and config.run.seed is None
    return ledger_of(config.key) if is_recorded else None


def ledgers_of(config: AgentConfig) -> list[LedgerFile]:
    """Every ledger once, in one order, so that two agents do not wait for each other."""
    named = [policy.ledger_file for policy in governing(config)]
    found = {ledger.path.resolve(): ledger for ledger in named if ledger}
    own = own_ledger(config)
    if own is not None:
        found.setdefault(own.path.resolve(), own)
    return [found[path] for path in sorted(found)]


@contextmanager
def holding(config: AgentConfig) -> Generator[None]:
    """Hold every ledger against other writers, from a check to its line."""
    with ExitStack() as held:
        for ledger in ledgers_of(config):
            held.enter_context(ledger.locked())
        yield


def key_name(config: AgentConfig) -> str:
    """The fingerprint of this agent's certificate; agents without one have their name."""
    if not config.certificate.exists():
        return config.name
    return load_certificate(config.certificate, name=config.name).fingerprint


def digest_of(config: AgentConfig, secret: bytes) -> DataDigest | None:
    """The identity of this agent's data."""
    spec = config.objective
    file: Path | None = getattr(spec, "file", None)
    other = ""
    if isinstance(spec, ObjectiveSpec) and file is None:
        other = spec.function or repr(spec.position)
    return data_digest(file, secret, delimiter=spec.between, other=other)


def runs_of_data(lines: list[LedgerLine], data: DataDigest | None) -> list[LedgerRun]:
    """The runs of the same data; without data, all."""
    return [run for run in runs_of(lines) if data is None or data.shares(run.begun.facts) >= SAME]


def begun_run(config: AgentConfig, lines: list[LedgerLine]) -> LedgerRun | None:
    """This agent's run, if it has begun."""
    name = (config.run.id, key_name(config))
    found = [r for r in runs_of(lines) if _name(r.begun) == name]
    return found[-1] if found else None


def note_line(line: LedgerLine) -> None:
    log.info(
        "ledger line %d (%s): %s", line.number + 1, line.status, line.digest,
        extra={"event": "ledger"},
    )  # fmt: skip


def plain_mu(mu: float | None) -> float | str | None:
    """μ as JSON has it."""
    return "inf" if mu is not None and np.isinf(mu) else mu


class ToldBefore(NamedTuple):
    """The numbers that the sums of other runs told about the same data."""

    runs: int = 0
    numbers: int = 0
    chains: tuple[Chain, ...] = ()  # of the runs with the same columns
    changed: float | None = None  # the fewest rows that differ from those of a run; None: none do

    @property
    def known(self) -> tuple[int, int, float | None]:
        """All but the starts of stages, to see whether another run has begun."""
        return self.runs, self.numbers, self.changed


NOTHING_TOLD = ToldBefore()


def told_before(config: AgentConfig) -> ToldBefore:
    """The numbers that this agent's other runs told about its data, by every ledger."""
    found: dict[tuple[str, str], list[LedgerLine]] = {}
    changed: list[float] = []
    for ledger in ledgers_of(config):
        if not ledger.exists:
            continue
        lines = ledger.lines()
        data = digest_of(config, ledger.secret)
        mine = (config.run.id, key_name(config))
        same = [run for run in runs_of_data(lines, data) if _name(run.begun) != mine]
        names = {_name(run.begun) for run in same}
        if data is not None:
            changed += [_changed(config, data, run.begun.facts) for run in same]
        of_runs: dict[tuple[str, str], list[LedgerLine]] = {}
        for line in lines:
            if line.status == TOLD and _name(line) in names:
                of_runs.setdefault(_name(line), []).append(line)
        found |= of_runs
    numbers, chains, model = 0, list[Chain](), model_of(config)
    for of_run in found.values():
        stages = {line.facts["stage"]: line for line in of_run}  # one may stand there twice
        numbers += sum(line.facts["numbers"] for line in stages.values())
        starts = [np.array(stages[s].facts["start"]) for s in sorted(stages)]
        if of_run[0].facts["model"] == model:
            chains.append(Chain(starts, of_run[0].facts["is_fixed"]))
    differ = min((rows for rows in changed if rows), default=None)
    return ToldBefore(len(found), numbers, tuple(chains), differ)


def row_rules(config: AgentConfig) -> str:
    """The digest of the rules that treat single rows differently: a longest row, Huber's delta.

    Sums of the same rows under two rules differ by a few rows alone.
    """
    rules = config.objective.row_rules
    return commitment(json.dumps(rules, sort_keys=True).encode()) if rules else ""


def _changed(config: AgentConfig, data: DataDigest, begun: Mapping[str, Any]) -> float:
    """The rows in which this run differs from an earlier one; with another rule at least one."""
    changed = data.changed(begun)
    return changed if begun.get("rules", "") == row_rules(config) else max(changed, 1.0)


def note_stage(
    config: AgentConfig, stage: int, start: Vector, numbers: int, *, is_fixed: bool
) -> None:
    """Write a stage that is about to begin into every ledger; the caller holds them.

    numbers    that the sums of this stage tell
    """
    told: dict[str, Any] = {
        "run": config.run.id, "agent": config.name, "key": key_name(config), "stage": stage,
        "numbers": numbers, "start": start.tolist(), "is_fixed": is_fixed,
        "model": model_of(config),
    }  # fmt: skip
    for ledger in ledgers_of(config):
        if ledger.exists:
            ledger.append(TOLD, told)


def model_of(config: AgentConfig) -> str:
    """The digest of what makes rows of the data: columns, their units, the loss."""
    spec = config.objective
    if not isinstance(spec, ObjectiveSpec):
        return ""
    parts = (spec.kind, spec.columns, spec.target, spec.intercept, spec.delta)
    clip = [] if spec.clip is None else [spec.clip]
    return commitment(json.dumps([parts, spec.units, spec.function, spec.rows, *clip]).encode())


def _name(line: LedgerLine) -> tuple[str, str]:
    return line.run or "", line.facts.get("key", "")
