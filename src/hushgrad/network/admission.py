"""The admission of a run: the exposure of the agent, the policies of its site, the ledger of runs.

The deployed agent (deployed.py) asks for admission before it reads a key or makes a connection, and
begins once it has its state directory. Under the ledger's lock the rules that count runs are judged
again, and the line of the run is written, so nothing has left before the ledger has the run. The
end of the run is another line.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hushgrad.algorithms.base import Private
from hushgrad.errors import ConfigError, HushgradError, PolicyError, ReplayError
from hushgrad.files.digest import commitment
from hushgrad.network.auto import provisional
from hushgrad.network.budgets import counted_rulings, read_ledger
from hushgrad.network.config.model import AgentConfig
from hushgrad.network.exposure import check_exposure, setting_of
from hushgrad.network.forecast import warn_of_stages
from hushgrad.network.keys.identity import load_certificate
from hushgrad.network.ledgers import (
    ToldBefore,
    begun_run,
    digest_of,
    governing,
    holding,
    key_name,
    ledgers_of,
    note_line,
    own_ledger,
    plain_mu,
    row_rules,
    runs_of_data,
    told_before,
)
from hushgrad.network.objective.data_digest import DataDigest
from hushgrad.network.objective.objectives import Objective
from hushgrad.network.policy import Policy, Ruling, RunFacts, rulings
from hushgrad.network.promise import missing, mu_of
from hushgrad.network.protocol.hello import public_parts
from hushgrad.network.stage_facts import stage_facts
from hushgrad.network.state.journal import LABEL, StateDirectory
from hushgrad.network.state.ledger import (
    BEGUN,
    RESUMED,
    LedgerFile,
    mus,
)
from hushgrad.theory.exposure import count_revealed

log = logging.getLogger("hushgrad.agent")

# a restart changes nothing
_OVER = ("done", "converged", "not converged", "failed", "diverged", "refused", "peer ended")


class Admission:
    """One run of an agent, from its permission to its last line in the ledger."""

    def __init__(
        self,
        config: AgentConfig,
        objective: Objective,
        check: Callable[[], None],
        *,
        is_quadratic: bool,
        is_given: bool,
    ):
        """`check` judges the agent's exposure once more if another run has begun since."""
        self._config, self._check = config, check
        self._judged = provisional(config, objective)
        self._policies = governing(config)
        self._facts = None
        if self._policies:
            self._facts = run_facts(config, objective, is_quadratic=is_quadratic, is_given=is_given)
            for policy in self._policies:
                _refuse(config, policy, [*rulings(policy, self._facts), *self._counted(policy)])
        self._own = own_ledger(config)
        self._is_given = is_given

    def _counted(self, policy: Policy) -> Iterator[Ruling]:
        """The rules that count runs, as the ledger stands; a run that it has is not new."""
        assert self._facts is not None
        if policy.ledger_file is None:
            return
        lines = read_ledger(policy)
        if not (self._config.state / LABEL).exists() or not begun_run(self._config, lines):
            same = runs_of_data(lines, self._data(policy.ledger_file))
            yield from counted_rulings(policy, self._facts, lines, same)

    def _data(self, ledger: LedgerFile) -> DataDigest | None:
        return digest_of(self._config, ledger.secret)

    def begin(self, state: StateDirectory) -> None:
        """Write the run into every ledger, or refuse it; nothing has been sent yet."""
        if self._own is not None and not self._own.exists:
            with self._own.locked():
                if not self._own.exists:
                    self._own.create()
        with holding(self._config):  # two runs at once cannot both pass
            self._check()
            for policy in self._policies:
                if policy.ledger_file is not None:
                    self._judge_again(policy, state)
            for ledger in ledgers_of(self._config):
                self._write_begin(ledger, state)

    def _judge_again(self, policy: Policy, state: StateDirectory) -> None:
        ledger = policy.ledger_file
        assert ledger is not None
        assert self._facts is not None
        lines, data = read_ledger(policy), self._data(ledger)
        mine = begun_run(self._config, lines)
        if mine is None:
            same = runs_of_data(lines, data)
            _refuse(self._config, policy, counted_rulings(policy, self._facts, lines, same))
            return
        if mine.begun.facts.get("state") != _state_digest(ledger, state):
            raise PolicyError(
                f"the run id {self._config.run.id!r} is in the ledger '{ledger.path}' with another "
                "state directory, so this would be a second run. Choose a new id."
            )
        if data is not None and mine.begun.facts.get("data") != data.content:
            raise ReplayError(
                f"the ledger '{ledger.path}' has this run with other data. Put the file of data "
                "back as it was, or start a new run with a new id."
            )

    def _write_begin(self, ledger: LedgerFile, state: StateDirectory) -> None:
        config = self._config
        mine = begun_run(self._config, ledger.lines())
        named = {"run": config.run.id, "agent": config.name, "key": key_name(config)}
        if mine is not None:
            if mine.status not in _OVER:
                note_line(ledger.append(RESUMED, named))
            return
        mu, data = None if self._is_given else self._first_mu(), self._data(ledger)
        note_line(ledger.append(BEGUN, {
            **named,
            "contract": contract_of(config),
            "mu": plain_mu(mu),
            "share": None if self._facts is None else self._facts.share,
            "participants": config.run.n_agents,
            "state": _state_digest(ledger, state),
            **({} if data is None else data.facts()),
            "rules": row_rules(config),
        }))  # fmt: skip

    def _first_mu(self) -> float | None:
        """μ of the run; a fit has sent nothing yet, and notes its μ itself (spending.py)."""
        is_fit = self._judged.run.model is not None
        return 0.0 if is_fit and missing(self._judged) is None else mu_of(self._judged)

    def end(self, status: str) -> None:
        """Write the end of the run; an error is told in the log, since the run is over."""
        config = self._config
        try:
            for ledger in ledgers_of(self._config):
                with ledger.locked():
                    mine = begun_run(self._config, ledger.lines())
                    if mine is not None and mine.status != status:
                        named = {"agent": config.name, "key": key_name(config)}
                        note_line(ledger.append(status, {"run": config.run.id, **named}))
        except HushgradError as error:
            log.error("the ledger lacks the end of this run: %s", error, extra={"event": "ledger"})


def admit(
    config: AgentConfig, objective: Objective, *, is_quadratic: bool, is_given: bool
) -> Admission:
    """Refuse a run that the agent's exposure or a policy forbids; before anything is sent."""
    judged, before = provisional(config, objective), told_before(config)

    def check(before: ToldBefore) -> None:
        check_exposure(judged, objective, is_quadratic=is_quadratic, before=before)

    def again() -> None:
        now = told_before(config)
        if now.known != before.known:
            check(now)

    check(before)
    warn_of_stages(judged, objective, before)
    return Admission(config, objective, again, is_quadratic=is_quadratic, is_given=is_given)


def check_unused(config: AgentConfig) -> None:
    """Refuse an id that was used before; only for a state directory that is not there yet."""
    if not (config.state / LABEL).exists() and config.run.id in mus(config.key):
        raise ConfigError(
            f"the run id {config.run.id!r} was used before with '{config.key}', and a new state "
            f"directory '{config.state}' would be a second run with that id. Choose a new id in "
            "every agent's file, or go on with the state directory of the first run."
        )


def _refuse(config: AgentConfig, policy: Policy, found: Any) -> None:
    broken = [ruling for ruling in found if not ruling.is_kept]
    if broken:
        lines = (
            f"{config.name} does not start: the policy '{policy.path}' forbids this run. Nothing "
            "was sent.",
            *(f"  {ruling.rule}: {ruling.text}" for ruling in broken),
        )
        raise PolicyError("\n".join(lines))


def _state_digest(ledger: LedgerFile, state: StateDirectory) -> str:
    return hmac.new(ledger.secret, b"state" + state.secret, hashlib.sha256).hexdigest()[:32]


def contract_of(config: AgentConfig) -> str:
    """The digest of what all agents declare alike, without the run's id."""
    parts: Mapping[str, str] = public_parts(config.run)
    if "contract" in parts:
        return parts["contract"]
    return commitment(json.dumps({k: v for k, v in parts.items() if k != "run"}).encode())


def run_facts(
    config: AgentConfig, objective: Objective | None, *, is_quadratic: bool, is_given: bool = False
) -> RunFacts:
    """The facts about the run of an agent that a policy judges."""
    config = provisional(config, objective)
    run, spec = config.run, config.objective
    fit, model = None if objective is None else objective.fit_rows, run.model
    stages = () if model is None else stage_facts(model, fit)
    first = stages[0] if stages else None  # of a fit without a plan, the fit itself
    is_plan = first is not None and bool(first.name)
    kind = "function" if is_given else spec.kind if first is None else first.kind
    events = None if objective is None else objective.n_events
    if first is not None:
        kind, events = ("plan", None) if is_plan else (kind, first.n_events)
    setting = setting_of(run, is_quadratic=is_quadratic)
    told = count_revealed(setting, None)
    design = run.algorithm.design if isinstance(run.algorithm, Private) else None
    others = {one.name: one.certificate for one in (*config.neighbours, *config.partners)}
    file: Path | None = None if is_given else getattr(spec, "file", None)
    return RunFacts(
        kind=kind,
        design="fit" if model is not None else design or type(run.algorithm).__name__,
        n_participants=run.n_agents,
        n_parameters=run.dim if model is None else setting.coefficients,
        n_rows=None if objective is None else objective.n_rows,
        n_events=events,
        has_events=kind in ("logistic", "cox", "poisson", "function"),
        fingerprints={
            name: load_certificate(path, name=name).fingerprint for name, path in others.items()
        },
        file=None if file is None else file.resolve(),
        accepted=tuple(config.accept_exposure),
        numbers=None if told is None else told.numbers,
        mu=None if is_given else mu_of(config, fit),
        stages=stages if is_plan else (),
    )  # fmt: skip
