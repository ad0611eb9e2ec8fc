"""Attacks on one recorded run: each view is made once, each question asked once. audit.py asks."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from hushgrad.errors import DivergedError, InputError, PrivacyError, RiskWarning
from hushgrad.privacy.adversaries import Active, Adversary, Curious, Eavesdropper
from hushgrad.privacy.attacks import Attack, Estimate
from hushgrad.privacy.attacks.base import StagesAttack
from hushgrad.privacy.knowledge import Knowledge, Own
from hushgrad.privacy.places import recovered_place, true_places
from hushgrad.privacy.rows import Suspicion, suspicions_of
from hushgrad.privacy.stages import stage_runs
from hushgrad.privacy.truth import Truth
from hushgrad.privacy.verdict import SECRETS, Evidence, Judge, Verdict, best, verdict
from hushgrad.simulate.request import Tamper
from hushgrad.simulate.result import Run
from hushgrad.simulate.run import ENGINES
from hushgrad.simulate.run import run as simulate

_NOTHING = "gave no estimate: the messages determine none"
_SAME = 1e-6  # of the largest number: rounding of another driver is far below, another run above


@dataclass(frozen=True, kw_only=True)
class AttackOutcome:
    """The outcome of all attacks of one adversary on one agent."""

    evidence: tuple[Evidence, ...]  # of every attack that was tried
    tried: tuple[str, ...]  # attacks that gave an estimate, by name
    refused: Mapping[str, str]  # attack: why it cannot be tried, or that it gave no estimate
    failed: Mapping[str, str]  # attack: the error that ended it
    unjudged: Mapping[str, str]  # attack: what it is about for which there is no truth
    place: tuple[float, ...] | None  # of a rendezvous: p_i as recovered

    @property
    def verdict(self) -> Verdict:
        return verdict(self.evidence)

    @property
    def best(self) -> Evidence | None:
        return best(self.evidence)

    @property
    def exposing(self) -> frozenset[str]:
        """The attacks that expose the agent."""
        return frozenset(e.attack for e in self.evidence if e.counts and e.quantity in SECRETS)


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attack on one agent: its estimates, judged, or why there are none."""

    estimates: tuple[Estimate, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    unjudged: str | None = None
    refusal: str | None = None
    failure: str | None = None


class Lab:
    """One trial of a run, ready to be attacked."""

    def __init__(
        self,
        run: Run,
        *,
        trial: int,
        attacks: Sequence[Attack],
        at: Sequence[int] | None,
        is_perturbed: bool = False,  # an active adversary has had its way in this run
    ):
        self.is_perturbed = is_perturbed
        self.run, self.row = recorded(run, trial)
        self.attacks = tuple(attacks)
        self.truth = Truth(self.run, trial=self.row)
        self.places = true_places(self.run.problem)
        self._judge = Judge(self.truth, at=at)
        self._views: tuple[Adversary, Knowledge] | None = None
        self._known: dict[int, Own] = {}
        self._active: tuple[Active, Lab] | None = None
        self._outcomes: dict[tuple[Adversary, int], AttackOutcome] = {}
        self._unsure: set[int] = set()  # agents on whom an attack of a coalition failed

    @cached_property
    def everything(self) -> Knowledge:
        """The view of an eavesdropper on every link."""
        view = Knowledge.of(self.run, Eavesdropper(), trial=self.row)
        return replace(view, suspects=self.suspects)

    @cached_property
    def suspects(self) -> dict[int, Suspicion]:
        """The knowledge that the game of membership assumes."""
        return suspicions_of(self.run, self.row)

    def neighbours(self, i: int) -> tuple[int, ...]:
        """The agents that send to agent i or hear it, some of them two hops away."""
        return tuple(sorted({*self.everything.in_links(i), *self.everything.out_links(i)}))

    def partners(self, i: int) -> tuple[int, ...]:
        """The agents that share a mask with agent i."""
        masks = getattr(self.run.algorithm, "masking", None)
        return () if masks is None else masks.partners(i, self.run.network.n_agents)

    def view(self, adversary: Adversary) -> Knowledge:
        if self._views is None or self._views[0] != adversary:
            view = Knowledge.of(self.run, adversary, trial=self.row, known=self._known)
            self._views = adversary, replace(view, suspects=self.suspects)
        return self._views[1]

    def outcome(self, adversary: Adversary, target: int) -> AttackOutcome:
        """All attacks of the adversary on the target, judged."""
        if (adversary, target) not in self._outcomes:
            if isinstance(adversary, Active) and not self.is_perturbed:
                found = self._perturbed(adversary).outcome(adversary, target)
            else:
                found = self._attacked(adversary, target)
            self._outcomes[adversary, target] = found
        return self._outcomes[adversary, target]

    def _perturbed(self, adversary: Active) -> Lab:
        """The same run, in which the adversary perturbs what it sends."""
        if self._active is None or self._active[0] != adversary:
            again = repeated(self.run, self.row, tamper=adversary.tamper)
            at = self._judge.at
            lab = lab_of(again, trial=0, attacks=self.attacks, at=at, is_perturbed=True)
            self._active = (adversary, lab)
        return self._active[1]

    def _attacked(self, adversary: Adversary, target: int) -> AttackOutcome:
        view = self.view(adversary)
        attempts = [(a.name, self._attempt(a, view, target)) for a in self.attacks]
        evidence = tuple(e for _, a in attempts for e in a.evidence)
        by = best(evidence)
        place = None
        if self.places is not None and by is not None and verdict(evidence) == "exposed":
            estimates = [e for _, a in attempts for e in a.estimates]
            place = recovered_place(by.attack, estimates, self.truth.solution)
        return AttackOutcome(
            evidence=evidence,
            tried=tuple(name for name, a in attempts if a.estimates),
            refused={name: a.refusal for name, a in attempts if a.refusal is not None},
            failed={name: a.failure for name, a in attempts if a.failure is not None},
            unjudged={name: a.unjudged for name, a in attempts if a.unjudged is not None},
            place=place,
        )

    def _attempt(self, attack: Attack, view: Knowledge, target: int) -> Attempt:
        """An attack that raises has failed: its error is a finding and ends nothing else."""
        try:
            refusal = attack.applies(view, target)
            if refusal is not None:
                return Attempt(refusal=refusal)
            estimates = tuple(attack(view, target))
            if not estimates:
                return Attempt(refusal=_NOTHING)
            unjudged = next(filter(None, map(self._judge.unjudged, estimates)), None)
            evidence = tuple(judged for e in estimates for judged in self._judge(view, e))
        except Exception as error:  # attacks are anybody's code
            return Attempt(failure=told(error))
        return Attempt(estimates=estimates, evidence=evidence, unjudged=unjudged)

    def exposes(self, coalition: Curious, target: int, names: Collection[str]) -> bool:
        """Whether a coalition exposes an agent by one of these attacks."""
        if (coalition, target) in self._outcomes:
            return self._outcomes[coalition, target].verdict == "exposed"
        for attack in self.attacks:
            if attack.name in names and self._can_try(attack, coalition, target):
                attempt = self._attempt(attack, self.view(coalition), target)
                if any(e.counts and e.quantity in SECRETS for e in attempt.evidence):
                    return True
                if attempt.failure is not None:
                    self._unsure.add(target)
        return False

    def is_unsure(self, target: int) -> bool:
        """Whether an attack of a coalition failed, so that the coalition may do after all."""
        return target in self._unsure

    def _can_try(self, attack: Attack, coalition: Curious, target: int) -> bool:
        """A question of who hears what: answered without making the coalition's view."""
        view = self.everything
        heard = replace(view, members=coalition.members, heard=coalition.hears(view.links))
        with suppress(Exception):  # the attempt itself tells the error
            return attack.applies(heard, target) is None
        return True


class StagedLab(Lab):
    """One trial of a run in several stages: attacks are tried on every stage, some on all."""

    def __init__(
        self,
        run: Run,
        *,
        trial: int,
        attacks: Sequence[Attack],
        at: Sequence[int] | None,
        is_perturbed: bool = False,
    ):
        super().__init__(run, trial=trial, attacks=attacks, at=at, is_perturbed=is_perturbed)
        alone = [a for a in attacks if not isinstance(a, StagesAttack)]
        self.stages = tuple(
            Lab(stage, trial=0, attacks=alone, at=at, is_perturbed=is_perturbed)
            for stage in stage_runs(self.run, self.row)
        )

    def _attacked(self, adversary: Adversary, target: int) -> AttackOutcome:
        every = [stage.outcome(adversary, target) for stage in self.stages]
        together = {
            a.name: self._over(a, adversary, target)
            for a in self.attacks
            if isinstance(a, StagesAttack)
        }
        evidence = [
            replace(e, stage=s) for s, outcome in enumerate(every) for e in outcome.evidence
        ]
        evidence += [e for attempt in together.values() for e in attempt.evidence]
        tried = dict.fromkeys(name for outcome in every for name in outcome.tried)
        tried |= dict.fromkeys(name for name, attempt in together.items() if attempt.estimates)
        refused = {name: why for outcome in every for name, why in outcome.refused.items()}
        refused |= {n: a.refusal for n, a in together.items() if a.refusal is not None}
        failed = {name: why for outcome in every for name, why in outcome.failed.items()}
        failed |= {n: a.failure for n, a in together.items() if a.failure is not None}
        return AttackOutcome(
            evidence=tuple(evidence),
            tried=tuple(tried),
            refused={name: why for name, why in refused.items() if name not in tried},
            failed=failed,
            unjudged={n: what for outcome in every for n, what in outcome.unjudged.items()},
            place=None,
        )

    def _over(self, attack: StagesAttack, adversary: Adversary, target: int) -> Attempt:
        """An attack on all stages together, judged by the data of the whole run."""
        try:
            views = [stage.view(adversary) for stage in self.stages]
            refusal = attack.refusal(views, target)
            if refusal is not None:
                return Attempt(refusal=refusal)
            estimates = tuple(attack.over(views, target))
            if not estimates:
                return Attempt(refusal=_NOTHING)
            evidence = tuple(e for x in estimates for e in self._judge(views[0], x))
        except Exception as error:  # attacks are anybody's code
            return Attempt(failure=told(error))
        return Attempt(estimates=estimates, evidence=evidence)

    def exposes(self, coalition: Curious, target: int, names: Collection[str]) -> bool:
        together = [a for a in self.attacks if isinstance(a, StagesAttack) and a.name in names]
        return any(stage.exposes(coalition, target, names) for stage in self.stages) or any(
            e.counts and e.quantity in SECRETS
            for attack in together
            for e in self._over(attack, coalition, target).evidence
        )

    def is_unsure(self, target: int) -> bool:
        return any(stage.is_unsure(target) for stage in self.stages)


def lab_of(
    run: Run,
    *,
    trial: int,
    attacks: Sequence[Attack],
    at: Sequence[int] | None,
    is_perturbed: bool = False,
) -> Lab:
    """The lab for a run, with or without stages."""
    kind = StagedLab if len(run.config.get("stages") or ()) > 1 else Lab
    return kind(run, trial=trial, attacks=attacks, at=at, is_perturbed=is_perturbed)


def told(error: Exception) -> str:
    """An error in one line."""
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def recorded(run: Run, trial: int) -> tuple[Run, int]:
    """A run with transcript, and the row of the trial in it: this one, or the same run again."""
    if not 0 <= trial < len(run.trials):
        raise InputError(
            f"this run has trials 0 to {len(run.trials) - 1}, counted in its own order, but "
            f"trial = {trial!r} is to be audited."
        )
    if run.status[trial].startswith("diverged"):
        raise DivergedError(
            f"an audit needs a run whose iterates stay finite, but {run.label} "
            f"{run.status[trial]}. Use a smaller stepsize."
        )
    if run.transcript is not None and run.trace is not None:
        return run, trial
    if run.problem is None or run.x0 is None:
        raise PrivacyError(
            f"an audit needs the run's algorithm, problem and network, but {run!r} was loaded from "
            "a file, which keeps neither. Run it again with hg.run(…), then audit that."
        )
    again = repeated(run, trial)
    if run.config["engine"] not in ENGINES:
        _check_same(run, again, trial)
    return again, 0


def repeated(run: Run, trial: int, *, tamper: Tamper | None = None) -> Run:
    """One trial of a run once more, with a transcript; `tamper` changes what agents send."""
    engine = run.config["engine"]
    if tamper is not None or engine not in ENGINES:
        engine = "agents"  # agents of a driver compute alike
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RiskWarning)  # the run itself has warned
        return simulate(
            run.algorithm,
            run.problem,
            run.network,
            iterations=int(run.iterations[-1]),
            record_every=run.config["record_every"],
            engine=engine,
            trials=[int(run.trials[trial])],
            seed=run.seed,
            x0=None if run.x0 is None else run.x0[trial],
            label=run.label,
            transcript=True,
            progress=False,
            tamper=tamper,
        )


def _check_same(run: Run, again: Run, trial: int) -> None:
    """A driver is anybody's: agents must end where it ended before their messages stand for its."""
    size = np.abs(run.x[trial]).max()
    off = np.abs(again.x[0] - run.x[trial]).max()
    if not off <= _SAME * max(size, 1e-300):
        raise PrivacyError(
            f"an audit repeats a run to hear its messages, but {run.label}, run by the driver "
            f"{run.config['engine']!r}, ends {off:.1e} away from the same run with "
            'engine="agents". Run it with engine="agents" and transcript=True, then audit that.'
        )
