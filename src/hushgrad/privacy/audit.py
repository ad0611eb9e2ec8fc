"""`audit`: every adversary attacks every agent of a run with everything that the lab has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal, cast, get_args

import numpy as np

from hushgrad import __version__
from hushgrad.errors import InputError
from hushgrad.privacy.adversaries import Adversary, Curious, Eavesdropper
from hushgrad.privacy.attacks import ALL, Attack
from hushgrad.privacy.coalitions import MOST, Coalition, smallest_coalition
from hushgrad.privacy.findings import Finding
from hushgrad.privacy.lab import Lab, lab_of
from hushgrad.privacy.promised import promises
from hushgrad.privacy.result import Audit
from hushgrad.simulate.progress import Progress
from hushgrad.simulate.result import Run

type Usual = Literal["eavesdropper", "neighbour", "neighbours"]
type Case = tuple[int, str, Adversary]  # the agent attacked, the kind of adversary, which one

USUAL: tuple[Usual, ...] = get_args(Usual.__value__)


def audit(
    run: Run,
    adversary: Adversary | Usual | Iterable[Adversary | Usual] | None = None,
    *,
    trial: int = 0,
    agents: Iterable[int] | None = None,
    attacks: Iterable[Attack] | None = None,
    at: Sequence[int] | None = None,
    coalitions: bool = True,
    most_coalitions: int = MOST,
    progress: bool | Callable[[int, int], None] | None = None,
) -> Audit:
    """Attack a run and say what comes out.

    adversary        one or several of hg.Eavesdropper(), hg.Curious({2, 3}) and, for each agent,
                     "eavesdropper", "neighbour" (each alone) and "neighbours" (all together);
                     by default these three
    trial            of the run, counted in its own order
    agents           who is attacked; by default all
    attacks          by default all of hushgrad.privacy.attacks.ALL
    at               iterations whose gradients are judged; by default all that an attack names
    coalitions       whether the smallest coalition that exposes an agent is searched too,
                     running the attacks of at most `most_coalitions` for each
    progress         True, False, a function (done, total), or None: a bar on a terminal

    A run without transcript is run again with one. An estimate counts if it is within 10 % of the
    truth and clearly better than the best guess without messages. An attack that raises an error
    ends nothing: the finding names the error and does not count the attack as tried.
    """
    lab = lab_of(run, trial=trial, attacks=tuple(ALL if attacks is None else attacks), at=at)
    targets = targets_of(lab, agents)
    cases = list(dict.fromkeys(cases_of(lab, targets, adversary)))
    if not cases:
        raise InputError("an audit needs an agent outside of the adversary, but there is none.")
    findings: dict[Case, Finding] = {}
    found: list[Coalition] = []
    with Progress(progress, f"audit of {run.label}", len(cases) + len(targets)) as bar:
        for case in sorted(cases, key=lambda case: case[2].label):  # a view serves all its targets
            findings[case] = _finding(lab, *case)
            bar.tick(1)
        for target in targets if coalitions else ():
            found.append(smallest_coalition(lab, target, most=most_coalitions))
            bar.tick(1)
    promised = promises(lab.run, lab.row, [case[2] for case in cases], targets)
    return replace(summary(lab, [findings[case] for case in cases], found), promised=promised)


def targets_of(lab: Lab, agents: Iterable[int] | None) -> list[int]:
    """The agents that are attacked."""
    m = lab.run.network.n_agents
    chosen = list(range(m) if agents is None else dict.fromkeys(agents))
    for i in chosen:
        if i not in range(m):
            raise InputError(
                f"agents are numbered from 0 to {m - 1}, but agent {i!r} is asked for."
            )
    return chosen


def cases_of(lab: Lab, targets: Sequence[int], adversary: object) -> Iterator[Case]:
    """The pairs of adversary and target."""
    for wish in _wishes(adversary):
        for i in targets:
            near = lab.neighbours(i)
            if isinstance(wish, Adversary):
                if i not in wish.members:
                    yield i, wish.label, wish
            elif wish == "eavesdropper":
                yield i, "eavesdropper", Eavesdropper()
            elif wish == "neighbours":
                yield i, "neighbours", Curious(frozenset(near))
            else:
                yield from ((i, "neighbour", Curious(frozenset({j}))) for j in near)


def _wishes(adversary: Any) -> list[Adversary | Usual]:
    if adversary is None:
        return list(USUAL)
    several = isinstance(adversary, Iterable) and not isinstance(adversary, str)
    wishes: list[Any] = list(cast("Iterable[Any]", adversary)) if several else [adversary]
    for wish in wishes:
        if not isinstance(wish, Adversary) and wish not in USUAL:
            raise InputError(
                "an adversary is hg.Eavesdropper(), hg.Curious({2, 3}) or one of "
                f"{', '.join(map(repr, USUAL))}, but got {wish!r}."
            )
    return wishes


def _finding(lab: Lab, target: int, kind: str, adversary: Adversary) -> Finding:
    outcome = lab.outcome(adversary, target)
    return Finding(
        agent=target,
        kind=kind,
        adversary=adversary.label,
        evidence=outcome.evidence,
        tried=outcome.tried,
        refused=outcome.refused,
        failed=outcome.failed,
        unjudged=outcome.unjudged,
        place=outcome.place,
    )


def summary(lab: Lab, findings: Sequence[Finding], coalitions: Sequence[Coalition]) -> Audit:
    """The findings with what was run."""
    run, truth = lab.run, lab.truth
    off = np.linalg.norm(truth.x - truth.solution, axis=2).max(axis=1)  # (n + 1,)
    reached = np.flatnonzero(off <= 1e-6 * off[0])
    graph = run.network.graph
    links = zip(graph.senders.tolist(), graph.receivers.tolist(), strict=True)
    once = run.network.is_directed
    return Audit(
        label=run.label,
        algorithm=run.config["algorithm"],
        problem=run.problem.name,
        n_agents=run.network.n_agents,
        dim=run.problem.dim,
        iterations=len(off) - 1,
        seed=run.seed,
        trial=int(run.trials[lab.row]),
        accuracy=float(off[-1] / off[0]) if off[0] else 0.0,
        iterations_to_1e_6=int(reached[0]) if len(reached) else None,
        links=tuple((j, i) for j, i in links if once or j < i),
        is_directed=run.network.is_directed,
        findings=tuple(findings),
        coalitions=tuple(coalitions),
        places=None if lab.places is None else tuple(tuple(p) for p in lab.places.tolist()),
        date=datetime.now(UTC).date().isoformat(),
        version=__version__,
    )
