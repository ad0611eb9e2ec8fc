"""Row fit: off quadratics the rows themselves show, whatever affine mask is added.

By `trajectory` an agent's steps h^k = λ^k g̃(x^k) are known along its path. Masks add c + Q x, a
regulariser adds to Q, and both drop out with all terms that are affine in x. Of a logistic f_i
there remains

    ½ Σ_r z_r tanh(z_rᵀx / 2),      z_r = y_r x_r

a shallow network whose weights are the agent's rows (`row_model`; for Huber's loss clipped
residuals). The masks throw x about in the first iterations, which makes the fit well conditioned.

The fit adds rows one at a time: it tries a few random rows beside those that it has found, each for
a few steps, keeps the best one, and fits all of them again. The number of rows shows: with n_i rows
the residual falls from about 1e-7 to rounding, 1e-20 or less. A ϱ that was drawn once is fitted
too; so are κ, if two neighbours of many hear the agent, and β of a leaf (`trajectory`).

Limits: the sign of z_r is lost (½ z tanh(zᵀx/2) is even). The fit cannot tell rows apart that are
too short to bend along the path, that are all but parallel, or that outnumber the directions of the
path: then some rows come out and others do not. Fresh deviations of λ blur the gradients. `effort`
bounds the work, so many rows in high dimension may need more than the default.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hushgrad.privacy.attacks.base import Attack, Estimate
from hushgrad.privacy.attacks.pdg import unfit
from hushgrad.privacy.attacks.row_model import (
    Activation,
    Fit,
    Huber,
    Logistic,
    RowModel,
    best_start,
    fitted,
)
from hushgrad.privacy.attacks.trajectory import paths, too_few, varying
from hushgrad.privacy.knowledge import Knowledge

type Floats = NDArray[np.float64]

LOSSES: dict[str, Activation] = {"logistic": Logistic(), "huber": Huber()}

_CANDIDATES = 2  # random rows that are tried beside those found
_TASTE, _MEAL = 8, 25  # steps for a candidate, and for all rows with the best one
_AFFINE = 1e-18  # squared relative residual without rows: nothing is bent
_DONE = 1e-17  # squared, of what is not affine: rounding is left
_CLAIMED = 1e-3  # the same: a fit that leaves more is none
_EQUATIONS = 1.5  # per unknown: more rows than that would fit anything
_SHORT = 0.02  # of the usual length: such rows are what the fit has over


@dataclass(frozen=True, kw_only=True)
class RowFit(Attack):
    """The rows of agent i, up to their signs, from its trajectory."""

    loss: str | None = None  # "logistic" or "huber"; None: the problem's, which is public
    most: int = 40  # rows
    effort: float = 2e10  # multiplications: a few seconds
    points: int = 120  # iterations that are fitted
    seed: int = 0

    name = "row-fit"
    title = "Row fit"

    def applies(self, view: Knowledge, target: int) -> str | None:
        reason = unfit(view, target) or varying(view) or too_few(view, target)
        if reason is None and self._loss(view) not in LOSSES:
            return f"knows no rows behind the objective '{self._loss(view)}'"
        return reason

    def _loss(self, view: Knowledge) -> str:
        return view.problem if self.loss is None else self.loss

    def __call__(self, view: Knowledge, target: int) -> tuple[Estimate, ...]:
        best: Fit | None = None
        for stage in view.stages:
            part = range(stage.start, min(stage.stop, stage.start + 2 * self.points))
            open_paths = paths(view, target, part)
            if open_paths is None:
                continue
            model = RowModel.of(view, open_paths, part, most=self.points)
            if not model.is_empty:
                fit = self.fit(replace(model, phi=LOSSES[self._loss(view)]))
                if fit is not None and (best is None or fit.unexplained < best.unexplained):
                    best = fit
        if best is None:
            return ()
        return (
            Estimate(
                attack=self.name, target=target, quantity="rows", value=best.rows[:, : view.dim]
            ),
        )

    def fit(self, model: RowModel) -> Fit | None:
        """The rows of a model; None where nothing is bent, or no rows fit."""
        start = best_start(model)
        if start.residual <= _AFFINE:
            return None
        best = None
        # other random rows and other open numbers lead a fit out of a dead end
        attempts = ((start.numbers, 0), (start.numbers, 1), (model.numbers, 0))
        for numbers, more in attempts:
            for fit in grown(model, numbers, self.seed + more, self.effort, self.most):
                if best is None or fit.unexplained < best.unexplained:
                    best = fit
            if best is not None and best.unexplained <= _DONE:
                break
        if best is None or best.unexplained > _CLAIMED:
            return None
        length = np.linalg.norm(best.rows, axis=1)
        return replace(best, rows=best.rows[length > _SHORT * np.median(length)])


def grown(model: RowModel, numbers: Floats, seed: int, effort: float, most: int) -> Iterator[Fit]:
    """Fits with 1, 2, … rows, until nothing is left to explain or the effort is spent."""
    rng = np.random.default_rng(seed)
    count, d = model.path(numbers)[0].shape
    entries = d + model.phi.has_offset
    rows, spent = np.empty((0, entries)), 0.0
    most = min(most, int((count * d - d * (d + 1)) / (_EQUATIONS * entries)))
    for n in range(1, most + 1):
        step = 4.0 * count * d * (n * entries) ** 2
        spent += step * (_CANDIDATES * _TASTE + _MEAL)
        if spent > effort and n > 1:
            return
        tried = [
            fitted(
                model,
                np.concatenate([rows, rng.normal(size=(1, entries))]),
                numbers,
                steps=_TASTE,
            )
            for _ in range(_CANDIDATES)
        ]
        best = min(tried, key=lambda fit: fit.residual)
        fit = fitted(model, best.rows, best.numbers, steps=_MEAL)
        yield fit
        if fit.unexplained <= _DONE:
            return
        rows, numbers = fit.rows, fit.numbers
