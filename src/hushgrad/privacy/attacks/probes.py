"""Probes: one active neighbour moves an agent and reads how its gradient answers.

Late in a run agent i is at rest, or drifts slowly. In iteration k an active neighbour j sends it δ
more than its step says, and δ less in the next: sums stay as they were, and all agents still end at
θ*. Nobody else has reacted yet when i answers, so its position is known: x_i^{k+1} = x + δ. The
answer of the lazy PDG-NDS, V = v_ji / m_ji = 2x_i^{k+1} − x_i^k − β (h_i^{k+1} − h_i^k), tells

    V̂ + 2δ − V^{k+1} = β λ (g̃(x + δ) − g̃(x)),       V̂ = 2V^k − V^{k−1} what i would have said

β = b_ji / m_ji is one secret number for all probes. So a single neighbour has the masked gradient
at as many places as it likes, up to a factor, however many other neighbours i has. Masks c + Q x
drop out with all terms that are affine in δ, and the rows of a generalised linear f_i come out as
in `row_fit`, which fits the factor too. A quadratic f_i tells multiples of H̃ only.

Limits: constant splits, the lazy form, and pauses between probes that are long enough for the
iterates to come to rest again: their movement adds to the error. The attack needs more probes than
rows and dimensions together, n_i + d + 2. An agent that watches for jumps (docs/privacy.md) sees
them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hushgrad.privacy.attacks.base import Attack, Estimate
from hushgrad.privacy.attacks.pdg import is_two_step, mean_weights, mixing, stepsizes, unfit
from hushgrad.privacy.attacks.row_fit import LOSSES, RowFit
from hushgrad.privacy.attacks.row_model import RowModel
from hushgrad.privacy.attacks.trajectory import Paths, varying
from hushgrad.privacy.knowledge import Knowledge

type Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Probes(Attack):
    """The rows of agent i from its answers to perturbations."""

    rows: RowFit = RowFit()

    name = "probes"
    title = "Probes"

    def applies(self, view: Knowledge, target: int) -> str | None:
        if view.active is None:
            return "nobody perturbs what it sends"
        reason = unfit(view, target) or varying(view)
        if reason is not None:
            return reason
        if not is_two_step(view):
            return "stepsizes diminish, so that nothing rests"
        if not any(view.hears(target, j) for j in view.members):
            return f"no active agent is a neighbour of agent {target}"
        if view.problem not in LOSSES and self.rows.loss is None:
            return f"knows no rows behind the objective '{view.problem}'"
        if len(self._when(view)) < view.dim + 3:
            return f"needs more than d + 2 = {view.dim + 2} probes, has {len(self._when(view))}"
        return None

    @staticmethod
    def _when(view: Knowledge) -> list[int]:
        assert view.active is not None
        return [k for k in view.active.at if 1 <= k < view.iterations - 1]

    def __call__(self, view: Knowledge, target: int) -> tuple[Estimate, ...]:
        member = min(j for j in view.members if view.hears(target, j))
        model = self.model(view, member, target)
        fit = self.rows.fit(model)
        if fit is None:
            return ()
        rows = fit.rows[:, : view.dim]
        return (Estimate(attack=self.name, target=target, quantity="rows", value=rows),)

    def model(self, view: Knowledge, member: int, target: int) -> RowModel:
        """The places to which the target was moved, and β λ times the answer of its gradient."""
        assert view.active is not None
        k = np.array(self._when(view))
        m = mixing(view)[member, target] / 2
        V = view.sent(target, member) / m
        delta = np.array([view.active.delta(at, member, target, view.dim) for at in k.tolist()])
        expected = 2 * V[k] - V[k - 1]
        answers = expected + 2 * delta - V[k + 1]
        # at rest δ = 0 has the answer 0: one place more
        x = np.concatenate([V[k] + delta, V[k].mean(axis=0, keepdims=True)])
        h = np.concatenate([answers, np.zeros((1, view.dim))])
        lam = np.append(stepsizes(view)[k], stepsizes(view)[k[-1]])
        usual = -np.log(mean_weights(view, target)[member] / m)  # of log 1/β
        found = Paths("κ", np.array([usual]), lambda p: (x, np.exp(p[0]) * h))
        loss = LOSSES[view.problem if self.rows.loss is None else self.rows.loss]
        return replace(RowModel(found, lam, None, np.arange(len(x))), phi=loss)
