"""`audit_repeated`: what several runs of the same agents tell together that none tells alone.

Of each run the adversary has the masked statistic S_r = (H_r + Q_r, q_r + c_r) of an agent
(attacks/masked.py). Then it tries, with a and b for the true statistics of two runs:

    difference     S_b − S_a = b − a where both runs have the same masks: exact, whatever their
                   size. One row more or less makes H_b − H_a = ± x xᵀ, whose axis is the row
    same masks,    sizes of masks follow the stepsize, so another stepsize makes c times the same
    other sizes    masks: S_b = a + c (S_a − a) on unchanged data, hence a = (c S_a − S_b)/(c − 1)
    average        of n runs with new masks on unchanged data: the error falls as 1/√n
    membership     log-likelihood ratios of independent masks add up: μ² = Σ μ_r²

Masks are the same if the key and everything that enters it are the same: in a simulation the seed
and the trial; docs/agents.md says it of a deployment. The adversary does not know if data changed:
it tries all of this, and the truth says which was right.

Of runs in stages the first stages are compared, then the second ones, and so on: an agent's
statistic is that of a stage. Data that changed lead later stages elsewhere, so of a change the
first stage tells most. Membership takes all stages together.

Limits. The attacks are for methods of the PDG family. An adversary whose attacks on single runs do
not give the masked statistic learns nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hushgrad.errors import InputError
from hushgrad.privacy.adversaries import Adversary
from hushgrad.privacy.attacks.base import Estimate
from hushgrad.privacy.attacks.masked import ShareSizes, masked_objective, no_statistic
from hushgrad.privacy.attacks.membership import Membership
from hushgrad.privacy.audit import Case, Usual, cases_of, summary, targets_of
from hushgrad.privacy.findings import Finding
from hushgrad.privacy.knowledge import Knowledge
from hushgrad.privacy.lab import Lab, StagedLab, lab_of, told
from hushgrad.privacy.result import Audit
from hushgrad.privacy.verdict import Evidence, Judge
from hushgrad.simulate.progress import Progress
from hushgrad.simulate.result import Run

type Floats = NDArray[np.float64]

_SAME = 1e-6  # relative difference of statistics, or of sizes, that counts as none
_RANK_ONE = 1e-3  # second against first eigenvalue


def audit_repeated(
    runs: Iterable[Run],
    adversary: Adversary | Usual | Iterable[Adversary | Usual] | None = None,
    *,
    trial: int = 0,
    agents: Iterable[int] | None = None,
    progress: bool | Callable[[int, int], None] | None = None,
) -> Audit:
    """Attack several runs of the same agents together; the other arguments are those of `audit`.

    Runs may differ in seed (new masks), in data, and in stepsize. Findings are about the last run:
    what becomes known of its data, or of the change since the run before it.
    """
    labs = [lab_of(run, trial=trial, attacks=(), at=None) for run in runs]
    _check_alike([lab.run for lab in labs])
    cases = list(dict.fromkeys(cases_of(labs[-1], targets_of(labs[-1], agents), adversary)))
    if not cases:
        raise InputError("an audit needs an agent outside of the adversary, but there is none.")
    findings: dict[Case, Finding] = {}
    label = f"{labs[-1].run.label}, {len(labs)} runs"
    with Progress(progress, f"audit of {label}", len(cases)) as bar:
        for case in sorted(cases, key=lambda case: case[2].label):
            findings[case] = _finding(labs, *case)
            bar.tick(1)
    return replace(summary(labs[-1], [findings[case] for case in cases], ()), label=label)


def _check_alike(runs: Sequence[Run]) -> None:
    if len(runs) < 2:
        raise InputError(
            f"repeated runs are two or more, but {len(runs)} was given. hg.audit takes one."
        )
    first = runs[0]
    for n, run in enumerate(runs):
        for what, mine, its in (
            ("algorithm", type(first.algorithm).__name__, type(run.algorithm).__name__),
            ("number of agents", first.network.n_agents, run.network.n_agents),
            ("dimension", first.problem.dim, run.problem.dim),
            ("number of stages", _n_stages(first), _n_stages(run)),
        ):
            if mine != its:
                raise InputError(
                    f"repeated runs have the same agents and method, but the {what} is {mine} in "
                    f"run 0 and {its} in run {n}. Audit them one by one."
                )


def _n_stages(run: Run) -> int:
    return len(run.config.get("stages") or (0,))


def _stages(lab: Lab) -> tuple[Lab, ...]:
    return lab.stages if isinstance(lab, StagedLab) else (lab,)


@dataclass(frozen=True, eq=False)
class _OneRun:
    """The masked statistic of an agent in one run, as an adversary has it."""

    lab: Lab
    view: Knowledge
    statistic: Floats  # (d, d + 1)


def _finding(labs: Sequence[Lab], target: int, kind: str, adversary: Adversary) -> Finding:
    evidence: list[Evidence] = []
    refused: dict[str, str] = {}
    failed: dict[str, str] = {}
    every: list[list[_OneRun]] = []  # of each stage, what the runs tell
    for s, stages in enumerate(zip(*map(_stages, labs), strict=True)):
        try:
            heard, reason = _hear(stages, target, adversary)
        except Exception as error:  # as in lab.py: an attack that fails ends nothing else
            heard, reason, failed = [], "the fit of a statistic failed", {"fit": told(error)}
        if len(heard) < len(labs):
            why = reason or "gave no estimate: the messages determine none"
            refused = dict.fromkeys(ATTACKS, why) | refused
            continue
        every.append(heard)
        for name, attack in STAGE_ATTACKS.items():
            found = list(attack(name, heard, target))
            number = s if isinstance(labs[0], StagedLab) else None
            evidence += [replace(e, stage=number) for e in found]
    if every:
        evidence += _membership(MEMBERSHIP, every, target)
        refused |= dict.fromkeys(ATTACKS, "these runs give nothing to combine")
    tried = [name for name in ATTACKS if any(e.attack == name for e in evidence)]
    refused = {name: why for name, why in refused.items() if name not in tried}
    return Finding(
        agent=target, kind=kind, adversary=adversary.label, evidence=tuple(evidence),
        tried=tuple(tried), refused=refused, failed=failed,
    )  # fmt: skip


def _hear(
    labs: Sequence[Lab], target: int, adversary: Adversary
) -> tuple[list[_OneRun], str | None]:
    found: list[_OneRun] = []
    for lab in labs:
        view = lab.view(adversary)
        if reason := no_statistic(view, target):
            return [], reason
        statistic = masked_objective(view, target)
        if statistic is not None:
            found.append(_OneRun(lab, view, statistic))
    return found, None


def _average(name: str, heard: Sequence[_OneRun], target: int) -> Iterator[Evidence]:
    """New masks, unchanged data; runs with the statistic of another run say nothing new."""
    distinct = _distinct(heard)
    if len(distinct) > 1:
        mean = np.mean([one.statistic for one in distinct], axis=0)
        yield from _judged(name, heard[-1], target, mean)


def _other_sizes(name: str, heard: Sequence[_OneRun], target: int) -> Iterator[Evidence]:
    """The last run, and each before it whose masks would be of other sizes."""
    last = heard[-1]
    b = ShareSizes.of(last.view)
    for one in heard[:-1]:
        a = ShareSizes.of(one.view)
        if not a.white or not a.linear or abs(b.white / a.white - 1) < _SAME:
            continue
        c = np.full((1, last.statistic.shape[1]), b.white / a.white)
        c[0, -1] = b.linear / a.linear
        with np.errstate(divide="ignore", invalid="ignore"):
            value = (c * one.statistic - last.statistic) / (c - 1.0)
        if abs(c[0, -1] - 1.0) < _SAME:  # q has the same mask in both: only H comes out
            value[:, -1] = last.statistic[:, -1]
        yield from _judged(name, last, target, value)


def _difference(name: str, heard: Sequence[_OneRun], target: int) -> Iterator[Evidence]:
    """The last run against the one before it: the change of [H | q], and the row if it is one."""
    before, last = heard[-2:]
    old, new = (one.lab.truth.objective(target) for one in (before, last))
    if old is None or new is None:
        return
    true, found = new - old, last.statistic - before.statistic
    size = float(np.linalg.norm(true))
    if size <= _SAME * float(np.linalg.norm(new)):
        return
    yield _evidence(name, "change", found, true)
    row = _row(true[:, :-1])
    if row is not None:
        guessed = _row(found[:, :-1])
        guessed = np.zeros_like(row) if guessed is None else guessed
        sign = 1.0 if guessed @ row >= 0 else -1.0
        yield _evidence(name, "row", sign * guessed, row)


def _membership(name: str, every: Sequence[Sequence[_OneRun]], target: int) -> Iterator[Evidence]:
    """All stages of every run whose masks no earlier run has."""
    test, heard = Membership(), every[0]
    distinct = [heard.index(one) for one in _distinct(heard)]
    found = [
        estimate.value
        for views in ([stage[n].view for stage in every] for n in distinct)
        if test.refusal(views, target) is None
        for estimate in test.over(views, target)
    ]
    if found:
        ratio, square = sum(v[0] for v in found), sum(v[1] ** 2 for v in found)
        value = np.array([ratio, np.sqrt(square)])
        estimate = Estimate(attack=name, target=target, quantity="membership", value=value)
        yield from Judge(heard[-1].lab.truth)(heard[-1].view, estimate)


MEMBERSHIP = "membership over runs"

type _Combining = Callable[[str, Sequence[_OneRun], int], Iterator[Evidence]]

STAGE_ATTACKS: dict[str, _Combining] = {
    "difference of runs": _difference,
    "same masks, other sizes": _other_sizes,
    "average of runs": _average,
}
ATTACKS = (*STAGE_ATTACKS, MEMBERSHIP)


def _judged(name: str, last: _OneRun, target: int, value: Floats) -> Iterator[Evidence]:
    estimate = Estimate(attack=name, target=target, quantity="objective", value=value)
    yield from Judge(last.lab.truth)(last.view, estimate)


def _distinct(heard: Sequence[_OneRun]) -> list[_OneRun]:
    """The runs whose statistic no earlier one has: equal ones have the same masks and data."""
    kept: list[_OneRun] = []
    for one in heard:
        size = _SAME * float(np.linalg.norm(one.statistic))
        if all(np.linalg.norm(one.statistic - k.statistic) > size for k in kept):
            kept.append(one)
    return kept


def _evidence(name: str, quantity: str, found: Floats, true: Floats) -> Evidence:
    """Against the truth, with the guess that nothing has changed."""
    error = float(np.linalg.norm(found - true) / np.linalg.norm(true))
    return Evidence(attack=name, quantity=quantity, k=None, error=error, guess=1.0)


def _row(change: Floats) -> Floats | None:
    """x up to its sign where a change of Hessians is ± x xᵀ, else None."""
    values, axes = np.linalg.eigh((change + change.T) / 2)
    order = np.argsort(-np.abs(values))
    rest = np.abs(values[order[1:]]).max(initial=0.0)
    if not np.abs(values[order[0]]) > 0 or rest > _RANK_ONE * np.abs(values[order[0]]):
        return None
    return np.sqrt(np.abs(values[order[0]])) * axes[:, order[0]]
