"""The penalty of a fit by k-fold cross-validation, on pooled sums.

Row n of a site is in fold n mod k, which everybody may know. For every fold and every penalty λ a
model is fitted to the rows of the other folds, and its loss is taken on the rows of the fold:

    loss(λ) = Σ_folds L_fold / Σ_folds W_fold,      error(λ) = sd(L_fold / W_fold) / √k

L is the sum of the rows' losses and W that of their weights. "min" takes the λ of the smallest
loss, "one_se" the largest λ whose loss is at most one error above it.

A ridge needs one average: f, g and H of every fold at zero give all its fits and losses. Other
kinds take Newton steps for all folds and penalties together, one average for each step. A step is
halved where its loss grows. As in `newton.py`, every site takes the same steps to the last bit, and
decisions are votes. The fold of a row depends on the site that holds it, so the masks promise
nothing about that (`bounds.py`).
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hushgrad.errors import FitError
from hushgrad.fitting import arithmetic
from hushgrad.fitting.determined import Places, ToldRows
from hushgrad.fitting.model import Model
from hushgrad.fitting.newton import LAST_STEP, FitStage, half_penalty, pooled, symmetric
from hushgrad.fitting.progress import FitProgress
from hushgrad.fitting.rows import Rows
from hushgrad.fitting.site_sums import Coordinates, SiteSums
from hushgrad.fitting.sums import NARROW, Vector, flag, narrow, noise

MOST_STEPS = 40
_GROWTH = 1e-12  # of a pooled loss, by rounding


@dataclass(frozen=True, eq=False)
class CrossValidation:
    """The curve of cross-validation and what it chose."""

    penalties: Vector  # (L,)
    loss: Vector  # (L,) of a row in the mean, in the user's units
    error: Vector  # (L,) its standard error over the folds
    folds: int
    chosen: float

    @property
    def best(self) -> float:
        """The penalty of the smallest loss."""
        return float(self.penalties[np.argmin(self.loss)])

    @property
    def simplest(self) -> float:
        """The largest penalty whose loss is within one error of the smallest."""
        least = int(np.argmin(self.loss))
        near = self.loss <= self.loss[least] + self.error[least]
        return float(self.penalties[near].max())

    def lines(self) -> list[str]:
        """The curve as text."""
        each = zip(self.penalties, self.loss, self.error, strict=True)
        curve = ", ".join(f"{p:g}: {loss:.5g} ± {error:.2g}" for p, loss, error in each)
        return [
            f"{self.folds}-fold cross-validation, mean loss by penalty: {curve}",
            f"smallest loss at {self.best:g}, within one standard error {self.simplest:g}",
        ]


def fold_places(n_rows: int, fold: int, folds: int, *, others: bool) -> Places:
    """The places of the rows of one fold, or of those of all others."""
    return np.flatnonzero((np.arange(n_rows) % folds == fold) != others)


def cross_validate(
    model: Model,
    rows: Rows,
    at: Coordinates,
    start: Vector,
    unit: Vector,
    exponent: int,
    n_rows: int,
    progress: FitProgress,
    told: ToldRows,
) -> Generator[Vector, Vector, tuple[CrossValidation, tuple[FitStage, ...]]]:
    """Choose the penalty; `unit` (p, p) is P of the penalty 1, `n_rows` are those of all sites."""
    pooling = _Folds(model, rows, at, unit, exponent, n_rows, progress, told)
    stages: list[FitStage] = []
    run = pooling.quadratic if model.kind == "ridge" else pooling.newton
    losses, weights = yield from run(start, stages)  # (k, L), (k,)
    mean = losses / weights[:, None] * at.y_scale**2
    found = CrossValidation(
        penalties=np.array(model.penalties, np.float64),
        loss=losses.sum(axis=0) / weights.sum() * at.y_scale**2,
        error=mean.std(axis=0, ddof=1) / math.sqrt(len(mean)),
        folds=model.folds,
        chosen=0.0,
    )
    wanted = found.best if model.penalty_rule == "min" else found.simplest
    progress.note_part(None)
    stages.append(FitStage("choice of the penalty", progress.add(len(found.penalties))))
    votes = yield from pooled((found.penalties == wanted).astype(np.float64))
    chosen = float(found.penalties[int(np.argmax(votes))])
    return replace(found, chosen=chosen), tuple(stages)


@dataclass(frozen=True)
class _Folds:
    model: Model
    rows: Rows
    at: Coordinates
    unit: Vector  # (p, p)
    exponent: int
    n_rows: int
    progress: FitProgress
    told: ToldRows

    def _sums(self, *, others: bool) -> list[SiteSums]:
        k, n = self.model.folds, self.rows.n_rows
        every = [fold_places(n, fold, k, others=others) for fold in range(k)]
        return [
            SiteSums(self.model, self.rows.at(places), self.at, self.n_rows, self.told, places)
            for places in every
        ]

    def _pool(
        self,
        own: Sequence[tuple[int, Vector]],
        sizes: Sequence[int],
        vote: bool,
        name: str,
        stages: list[FitStage],
    ) -> Generator[Vector, Vector, tuple[list[Vector], bool, bool]]:
        """The pooled numbers of every part, whether a site votes, and whether a row is too far.

        own      of every part: the site's rows that are too far, and the limbs of its sums
        sizes    of every part: its numbers
        """
        is_far = any(far for far, _ in own)
        limbs = [noise(NARROW * size) for size in sizes] if is_far else [part for _, part in own]
        stages.append(FitStage(name, self.progress.add(sum(sizes))))
        self.progress.note_part(None)
        got = yield from pooled(np.concatenate([[float(vote), flag(is_far=is_far)], *limbs]))
        ends = np.cumsum([NARROW * size for size in sizes])[:-1]
        found = [narrow(self.exponent).join(part) for part in np.split(got[2:], ends)]
        return found, bool(got[0]), bool(got[1])

    def quadratic(
        self, start: Vector, stages: list[FitStage]
    ) -> Generator[Vector, Vector, tuple[Vector, Vector]]:
        """The losses (k, L) and the weights (k,) of the folds of a ridge, from one average."""
        k, p = self.model.folds, len(start)
        zero = np.zeros(p)
        folds, e = self._sums(others=False), self.exponent
        own = [*(sums.at(zero, e) for sums in folds), *(sums.weight(e) for sums in folds)]
        sizes = [1 + p + p * (p + 1) // 2] * k + [1] * k
        got, _, is_too_far = yield from self._pool(own, sizes, False, "folds", stages)
        if is_too_far:
            raise FitError("the sums of a site are too large for cross-validation. Check outliers.")
        parts, weights = np.array(got[:k]), np.concatenate(got[k:])
        f, g = parts[:, 0], parts[:, 1 : p + 1]
        H = np.array([symmetric(part[p + 1 :], p) for part in parts])
        losses = np.empty((k, len(self.model.penalties)))
        for fold in range(k):
            for n, penalty in enumerate(self.model.penalties):
                train = H.sum(axis=0) - H[fold] + penalty * self.unit
                b = -arithmetic.solve(train, g.sum(axis=0) - g[fold])
                losses[fold, n] = f[fold] + g[fold] @ b + b @ H[fold] @ b / 2
        return losses, weights

    def newton(
        self, start: Vector, stages: list[FitStage]
    ) -> Generator[Vector, Vector, tuple[Vector, Vector]]:
        """The same of another kind, by Newton steps for all folds and penalties together."""
        k, p, L = self.model.folds, len(start), len(self.model.penalties)
        train = self._sums(others=True)
        points = [_FoldFit(start.copy(), start.copy()) for _ in range(k * L)]
        vote, is_over, growth = False, False, _GROWTH * 2.0**self.exponent
        for _ in range(MOST_STEPS):
            own = [train[n // L].at(point.gamma, self.exponent) for n, point in enumerate(points)]
            sizes = [1 + p + p * (p + 1) // 2] * len(points)
            got, is_over, is_too_far = yield from self._pool(
                own, sizes, vote, "step of all folds", stages
            )
            for n, (point, values) in enumerate(zip(points, got, strict=True)):
                P = self.model.penalties[n % L] * self.unit
                if is_too_far:
                    point.halve()
                    continue
                F = float(values[0]) + half_penalty(P, point.gamma)
                H = symmetric(values[p + 1 :], p) + P
                point.step(F, values[1 : p + 1] + P.diagonal() * point.gamma, H, growth)
            if is_over:
                break
            vote = max(point.decrement for point in points) < LAST_STEP
        if not is_over:
            raise FitError(
                f"cross-validation has not converged after {MOST_STEPS} steps. Leave the smallest "
                "penalties out, or look for outliers."
            )
        tests = self._sums(others=False)
        own = [tests[n // L].loss(point.gamma, self.exponent) for n, point in enumerate(points)]
        own += [sums.weight(self.exponent) for sums in tests]
        got, _, is_too_far = yield from self._pool(
            own, [1] * len(own), False, "losses of all folds", stages
        )
        if is_too_far:
            raise FitError("the losses of a fold are too large. Leave the smallest penalties out.")
        every = np.concatenate(got)
        return every[: k * L].reshape(k, L), every[k * L :]


@dataclass
class _FoldFit:
    """Newton's method for one fold and one penalty."""

    gamma: Vector  # (p,) where the sums are pooled next
    last: Vector  # (p,) the last point that was accepted
    loss: float = math.inf  # with the penalty, there
    decrement: float = math.inf

    def halve(self) -> None:
        self.gamma, self.decrement = (self.gamma + self.last) / 2, math.inf

    def step(self, loss: float, g: Vector, H: Vector, growth: float) -> None:
        """Accept the point and take a step, or halve the step before."""
        if self.loss + growth < loss:
            self.halve()
            return
        try:
            move = -arithmetic.solve(H, g)
        except np.linalg.LinAlgError:  # the intercept has no penalty
            raise FitError(
                "the loss of a fold has no curvature left in one direction. Leave the smallest "
                "penalties out, or use fewer folds."
            ) from None
        self.loss, self.last, self.decrement = loss, self.gamma, -arithmetic.dot(g, move)
        self.gamma = self.gamma + move
