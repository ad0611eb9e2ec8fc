"""Sum fit: the sums over honest agents, which a staged run tells everybody, may tell their rows.

In a staged run an adversary learns of the agents beyond it, at every stage s, the sums of their
statistics over each component of honest mask partners: masks cancel there. With θ_s known,

    Σ_i H_i(θ_s) = Σ_r σ'(z_rᵀθ_s) z_r z_rᵀ + ρ I
    Σ_i g_i(θ_s) = −Σ_r z_r σ(−z_rᵀθ_s) + ρ θ_s,         g = q + Hθ

over all rows z_r = y_r x_r of the component, for a logistic loss with a regulariser ρ. S stages are
S · d(d + 3)/2 numbers about n·d unknowns (and ρ). Where these are not far fewer than the unknowns,
least squares finds rows, without saying whose they are; gradients tell the signs too (`sum_model`).

The statistics come from `trajectory`, stage by stage, with the shares of members taken off. All
agents have the same θ_s in a stage. The number of rows is public, less those of the members.

The fit says of each row how well the sums determine it. A row that they do not determine is a
guess, and the attack does not claim it. Of many rows all are guesses, unless θ_s is so long that
few rows have any weight σ'(z_rᵀθ_s). Data that separate well may lead there, and so may an active
participant: the vector that it sends in the last iteration of a stage moves the θ_s of all.

Limits: late stages have almost the same θ_s and say almost the same. With more unknowns than
numbers hardly a row is determined; with a few more numbers than unknowns there are many local
minima.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from hushgrad.algorithms.base import Private
from hushgrad.privacy.attacks.base import Estimate, StagesAttack
from hushgrad.privacy.attacks.pdg import unfit, unheard
from hushgrad.privacy.attacks.sum_model import HonestSums, fit_sums
from hushgrad.privacy.attacks.trajectory import masked_statistic, varying
from hushgrad.privacy.knowledge import Knowledge

type Floats = NDArray[np.float64]

_SAME = 1e-6  # relative distance of two θ_s: nearer ones tell the same
_SURE = 0.2  # predicted relative error up to which a row is claimed


@dataclass(frozen=True, kw_only=True)
class SumFit(StagesAttack):
    """Rows of the honest component to which agent i belongs, signs included."""

    starts: int = 200
    effort: float = 1e10
    claimed: float = 1e-4  # squared relative residual: rows that leave more explain nothing

    name = "sum-fit"
    title = "Sum fit"

    def refusal(self, views: Sequence[Knowledge], target: int) -> str | None:
        reason = unfit(views[0], target) or varying(views[0])
        if reason is not None:
            return reason
        if views[0].problem != "logistic":
            return f"knows no rows behind the objective '{views[0].problem}'"
        if len(views) < 2:
            return "needs the sums of several stages"
        for i in sorted(component(views[0], target)):
            if unheard(views[0], i) is not None:
                return f"{unheard(views[0], i)}, who masks with agent {target}"
        return None

    def over(self, views: Sequence[Knowledge], target: int) -> tuple[Estimate, ...]:
        sums = told_sums(views, target)
        if len(sums) < 2:
            return ()
        fit = fit_sums(
            sums,
            n_rows=_n_rows(views[0], target),
            curvature=cast("Private", views[0].algorithm).curvature,
            starts=self.starts,
            effort=self.effort,
        )
        sure = fit.rows[fit.error <= _SURE]
        if fit.residual > self.claimed or not len(sure):
            return ()
        return (Estimate(attack=self.name, target=target, quantity="rows", value=sure),)


def told_sums(views: Sequence[Knowledge], target: int) -> list[HonestSums]:
    """The sums of the stages that say anything new."""
    sums: list[HonestSums] = []
    for view in views:
        found = stage_sums(view, target)
        if found is not None and (not sums or _moved(sums[-1].theta, found.theta)):
            sums.append(found)
    return sums


def _n_rows(view: Knowledge, target: int) -> int | None:
    """The rows of the target's component, where it consists of all agents outside."""
    own = [view.own(j).n_rows for j in view.members]
    known = [n for n in own if n is not None]
    is_all = len(component(view, target)) + len(view.members) == view.n_agents
    if view.n_rows is None or len(known) < len(own) or not is_all:
        return None
    return view.n_rows - sum(known)


def _moved(before: Floats, theta: Floats) -> bool:
    """Whether a stage says anything new."""
    return bool(np.linalg.norm(theta - before) > _SAME * max(1.0, float(np.linalg.norm(theta))))


def component(view: Knowledge, target: int) -> frozenset[int]:
    """The agents outside the adversary that masks of agents outside link with the target."""
    masks = cast("Private", view.algorithm).masking
    reached, todo = {target}, [target]
    while masks is not None and todo:
        near = set(masks.partners(todo.pop(), view.n_agents)) - view.members - reached
        reached |= near
        todo += near
    return frozenset(reached)


def stage_sums(view: Knowledge, target: int) -> HonestSums | None:
    """The sums of one stage over the target's component; None if an agent's part is not known.

    Shares between members and the component are known to members; those within it cancel.
    """
    total, theta = np.zeros((view.dim, view.dim + 1)), np.zeros(view.dim)
    for i in component(view, target):
        found = masked_statistic(view, i)
        if found is None:
            return None
        theta = found[0] if i == target else theta
        total += found[1]
    return HonestSums(theta, total[:, :-1], total[:, -1])
