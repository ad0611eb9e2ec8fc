"""Attacks on one recorded run: each adversary's view is made once, each question asked once."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from hushgrad.errors import DivergedError, InputError, PrivacyError, RiskWarning
from hushgrad.privacy.adversaries import Adversary, Curious, Eavesdropper
from hushgrad.privacy.attacks import Attack
from hushgrad.privacy.knowledge import Knowledge, Own
from hushgrad.privacy.places import recovered_place, true_places
from hushgrad.privacy.truth import Truth
from hushgrad.privacy.verdict import SECRETS, Evidence, Judge, Verdict, best, verdict
from hushgrad.simulate.result import Run
from hushgrad.simulate.run import run as simulate


@dataclass(frozen=True, kw_only=True)
class AttackOutcome:
    """What one adversary gets of one agent."""

    evidence: tuple[Evidence, ...]  # of every attack that could be tried
    tried: tuple[str, ...]  # attacks, by name
    refused: Mapping[str, str]  # attack: why it cannot be tried
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


class Lab:
    """One trial of a run, ready to be attacked."""

    def __init__(
        self, run: Run, *, trial: int, attacks: Sequence[Attack], at: Sequence[int] | None
    ):
        self.run, self.row = recorded(run, trial)
        self.attacks = tuple(attacks)
        self.truth = Truth(self.run, trial=self.row)
        self.places = true_places(self.run.problem)
        self._judge = Judge(self.truth, at=at)
        self._views: tuple[Adversary, Knowledge] | None = None
        self._known: dict[int, Own] = {}
        self._outcomes: dict[tuple[Adversary, int], AttackOutcome] = {}

    @cached_property
    def everything(self) -> Knowledge:
        """What an eavesdropper on every link has."""
        return Knowledge.of(self.run, Eavesdropper(), trial=self.row)

    def neighbours(self, i: int) -> tuple[int, ...]:
        """Who sends to agent i or hears it, those two hops away included where they do."""
        return tuple(sorted({*self.everything.in_links(i), *self.everything.out_links(i)}))

    def partners(self, i: int) -> tuple[int, ...]:
        """Who shares a mask with agent i."""
        masks = getattr(self.run.algorithm, "masking", None)
        return () if masks is None else masks.partners(i, self.run.network.n_agents)

    def view(self, adversary: Adversary) -> Knowledge:
        if self._views is None or self._views[0] != adversary:
            self._views = (
                adversary,
                Knowledge.of(self.run, adversary, trial=self.row, known=self._known),
            )
        return self._views[1]

    def outcome(self, adversary: Adversary, target: int) -> AttackOutcome:
        """All attacks of the adversary on the target, judged."""
        if (adversary, target) not in self._outcomes:
            self._outcomes[adversary, target] = self._attack(self.view(adversary), target)
        return self._outcomes[adversary, target]

    def _attack(self, view: Knowledge, target: int) -> AttackOutcome:
        refusals = {a.name: a.applies(view, target) for a in self.attacks}
        tried = [a for a in self.attacks if refusals[a.name] is None]
        estimates = [e for a in tried for e in a(view, target)]
        evidence = tuple(judged for e in estimates for judged in self._judge(view, e))
        by = best(evidence)
        place = None
        if self.places is not None and by is not None and verdict(evidence) == "exposed":
            place = recovered_place(by.attack, estimates, self.truth.solution)
        return AttackOutcome(
            evidence=evidence,
            tried=tuple(a.name for a in tried),
            refused={name: reason for name, reason in refusals.items() if reason is not None},
            place=place,
        )

    def exposes(self, coalition: Curious, target: int, names: Collection[str]) -> bool:
        """Whether a coalition exposes an agent by one of these attacks."""
        if (coalition, target) in self._outcomes:
            return self._outcomes[coalition, target].verdict == "exposed"
        able = [a for a in self.attacks if a.name in names and self._can_try(a, coalition, target)]
        return any(
            judged.counts and judged.quantity in SECRETS
            for attack in able
            for e in attack(self.view(coalition), target)
            for judged in self._judge(self.view(coalition), e)
        )

    def _can_try(self, attack: Attack, coalition: Curious, target: int) -> bool:
        """A question of who hears what: answered without making the coalition's view."""
        view = self.everything
        heard = replace(view, members=coalition.members, heard=coalition.hears(view.links))
        return attack.applies(heard, target) is None


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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RiskWarning)  # the run itself has warned
        again = simulate(
            run.algorithm,
            run.problem,
            run.network,
            iterations=run.config["iterations"],
            record_every=run.config["record_every"],
            engine=run.config["engine"],
            trials=[int(run.trials[trial])],
            seed=run.seed,
            x0=run.x0[trial],
            label=run.label,
            transcript=True,
            progress=False,
        )
    return again, 0
