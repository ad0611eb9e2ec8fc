"""From estimates to verdicts: relative errors, what guessing would give, and plain words.

An estimate is worth something if it is near the truth *and* clearly nearer than the best guess
without messages (prior.py). What it may be about:

    secrets            g_i^k, g_i(θ*), H_i, or f_i as a whole: within 10 %, the agent is exposed
    direction          of a gradient, within 18° and nearer than luck explains
    working variables  x_i^k and λ_i^k g_i^k: told, but they are no data of the agent's

Errors are relative, ‖estimate − truth‖ / ‖truth‖, over many iterations their median; for directions
the sine of the angle. A gradient that all but vanishes is measured by the others' size instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hushgrad.privacy.attacks.base import Estimate
from hushgrad.privacy.knowledge import Knowledge
from hushgrad.privacy.prior import (
    curvature_guesses,
    gradient_guesses,
    lucky_sine,
    optimum_guesses,
    position_guesses,
)
from hushgrad.privacy.truth import Truth

type Floats = NDArray[np.float64]
type Verdict = Literal["exposed", "direction exposed", "not recovered"]

EXPOSED = 0.1  # relative error
ALIGNED = float(np.sin(np.arccos(0.95)))  # sine of the angle
CLEAR = 0.5  # of the guess's error: an estimate counts if it is twice as good
LUCK = 0.01  # chance that of all agents one direction is met by accident
_EXACT = 1e-6  # smaller errors are as good as none
_VANISHING = 1e-9  # of the usual gradient: below, 0 is as good as the truth

SECRETS = (
    "gradient",
    "gradient at optimum",
    "gradient at optimum up to sign",
    "curvature",
    "objective",
)
DIRECTION = "direction"


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One estimate against the truth, and beside it the best guess without messages."""

    attack: str
    quantity: str  # one of SECRETS, DIRECTION, or a working variable
    k: tuple[int, int] | None  # first and last iteration judged; None: of the whole run
    error: float
    guess: float  # error of the guess; for a direction what luck undercuts

    @property
    def counts(self) -> bool:
        """Whether this is near the truth, and by more than luck."""
        if self.quantity == DIRECTION:
            return self.error <= ALIGNED and self.error < self.guess
        return self.error <= min(EXPOSED, CLEAR * self.guess) and self.guess > _EXACT

    @property
    def extent(self) -> float:
        """How many vectors it is about; that of a function has no number."""
        if self.quantity == "objective":
            return np.inf
        return 1 if self.k is None else 1 + self.k[1] - self.k[0]


def verdict(evidence: Iterable[Evidence]) -> Verdict:
    """The worst that counts."""
    counting = {e.quantity for e in evidence if e.counts}
    if counting & set(SECRETS):
        return "exposed"
    return "direction exposed" if DIRECTION in counting else "not recovered"


def severity(e: Evidence) -> float:
    """The error, where smaller ones than _EXACT are alike: rounding prefers none of them."""
    return max(e.error, _EXACT)


def best(evidence: Iterable[Evidence]) -> Evidence | None:
    """What the verdict rests on: of what counts the most exact secret, of equally exact ones the
    largest, else a direction; where nothing counts, the attempt on a secret that came nearest.
    """

    def rank(e: Evidence) -> tuple[bool, bool, float, float]:
        near = severity(e) if e.counts else e.error / max(e.guess, 1e-300)
        return not e.counts, e.quantity not in SECRETS, near, -e.extent

    return min((e for e in evidence if e.quantity in (*SECRETS, DIRECTION)), key=rank, default=None)


class Judge:
    """Holds the truth of one trial against estimates; `at` are the iterations that matter."""

    def __init__(self, truth: Truth, *, at: Sequence[int] | None = None):
        self.truth, self.at = truth, at

    def __call__(self, view: Knowledge, estimate: Estimate) -> tuple[Evidence, ...]:
        """What an estimate is worth; nothing where there is no truth to compare with."""
        if estimate.k is not None:
            kept = slice(None) if self.at is None else np.isin(estimate.k, self.at)
            estimate = replace(estimate, k=estimate.k[kept], value=estimate.value[kept])
        if not estimate.value.size:
            return ()
        match estimate.quantity:
            case "gradient" | "scaled gradient" | "direction" | "position" if (
                estimate.k is not None
            ):
                return self._series(view, estimate, estimate.k)
            case "gradient at optimum" | "gradient at optimum up to sign" | "direction":
                return self._at_optimum(view, estimate)
            case "objective":
                return self._objective(view, estimate)
            case _:
                return ()

    def _series(self, view: Knowledge, e: Estimate, k: NDArray[np.int64]) -> tuple[Evidence, ...]:
        truth, i = self.truth, e.target
        if e.quantity == "position":
            return (self._compared(e, truth.x[k, i], position_guesses(view, truth.solution, k)),)
        g = truth.gradients(i)[k]
        if e.quantity == "direction":
            return (self._aligned(e, g),)
        if e.quantity == "gradient":
            return self._with_direction(e, g, gradient_guesses(view, k))
        h = truth.lam(i)[k, None] * g
        return self._compared(e, h, [0.0 * h]), self._aligned(e, g)

    def _at_optimum(self, view: Knowledge, e: Estimate) -> tuple[Evidence, ...]:
        g = self.truth.at_optimum[e.target]
        if e.quantity == "direction":
            return (self._aligned(e, g),)
        return self._with_direction(e, g, optimum_guesses(view, self.truth.solution))

    def _with_direction(
        self, e: Estimate, g: Floats, guesses: Sequence[Floats]
    ) -> tuple[Evidence, ...]:
        """A gradient, and its direction unless it is worse than a guess and so points anywhere."""
        found = self._compared(e, g, guesses)
        return (found, self._aligned(e, g)) if found.error < found.guess else (found,)

    def _objective(self, view: Knowledge, e: Estimate) -> tuple[Evidence, ...]:
        """H_i, g_i(θ*), and both together, which is f_i: where θ has its origin plays no part."""
        H, q = e.value[:, :-1], e.value[:, -1]
        gradient = replace(e, quantity="gradient at optimum", value=H @ self.truth.solution + q)
        found = self._at_optimum(view, gradient)
        true = self.truth.hessian(e.target)
        if true is None:
            return found
        guesses = [guess.ravel() for guess in curvature_guesses(self.truth, e.target)]
        curvature = self._compared(replace(e, value=H.ravel()), true.ravel(), guesses)
        worse = replace(
            curvature,
            error=max(curvature.error, found[0].error),
            guess=max(curvature.guess, found[0].guess),
        )
        return *found, replace(curvature, quantity="curvature"), worse

    def _compared(self, e: Estimate, true: Floats, guesses: Sequence[Floats]) -> Evidence:
        size = np.maximum(np.linalg.norm(true, axis=-1), self._floor)

        def off(value: Floats) -> float:
            return _median(np.linalg.norm(value - true, axis=-1) / size)

        error = off(e.value)
        if e.quantity.endswith("up to sign"):
            error = min(error, off(-e.value))
        return Evidence(
            attack=e.attack,
            quantity=e.quantity,
            k=_ends(e),
            error=error,
            guess=min(off(guess) for guess in guesses),
        )

    def _aligned(self, e: Estimate, g: Floats) -> Evidence:
        """The sine of the angle between the lines along an estimate and a gradient."""
        u, v = (
            a / np.maximum(np.linalg.norm(a, axis=-1, keepdims=True), 1e-300) for a in (e.value, g)
        )
        across = u - (u * v).sum(axis=-1, keepdims=True) * v
        present = np.linalg.norm(g, axis=-1) > self._floor
        sine = np.where(present, np.linalg.norm(across, axis=-1), 1.0)
        chance = LUCK / self.truth.n_agents
        return Evidence(
            attack=e.attack,
            quantity=DIRECTION,
            k=_ends(e),
            error=_median(sine),
            guess=lucky_sine(len(self.truth.solution), chance),
        )

    @cached_property
    def _floor(self) -> float:
        """What counts as a gradient of zero."""
        usual = max(
            float(np.linalg.norm(self.truth.gradients(i)[0])) for i in range(self.truth.n_agents)
        )
        return max(_VANISHING * usual, 1e-300)


def _ends(e: Estimate) -> tuple[int, int] | None:
    return None if e.k is None else (int(e.k[0]), int(e.k[-1]))


def _median(errors: Floats) -> float:
    """The median, where what is not finite counts as infinitely far off."""
    return float(np.median(np.where(np.isfinite(errors), errors, np.inf)))
