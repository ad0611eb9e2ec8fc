"""From estimates to verdicts: relative errors, what guessing would give, and plain words.

An estimate counts if it is near the truth *and* clearly nearer than the best guess without messages
(prior.py). It may be about:

    secrets            g_i^k, g_i(θ*), H_i, f_i as a whole, rows of its data, or their number n_i:
                       within 10 %, the agent is exposed
    change, row        of (H_i, q_i) between two runs, and the row that joined or left (repeated.py)
    membership         whether a candidate row is i's: exposed if the best test has an advantage of
                       50 %, which is to be right in three cases of four instead of two
    direction          of a gradient, within 18° and nearer than luck explains
    working variables  x_i^k and λ_i^k g_i^k: told, but they are no data of the agent's

Errors are relative, ‖estimate − truth‖ / ‖truth‖, over many iterations their median; for directions
the sine of the angle; for membership 1 − advantage. A gradient that all but vanishes is measured by
the others' size instead. H_i of an f_i that is not quadratic is its Hessian at θ*.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hushgrad.privacy.attacks.base import Estimate
from hushgrad.privacy.knowledge import Knowledge
from hushgrad.privacy.prior import (
    count_guesses,
    curvature_guesses,
    gradient_guesses,
    lucky_sine,
    optimum_guesses,
    position_guesses,
)
from hushgrad.privacy.row_matching import guessed, matched
from hushgrad.privacy.truth import Truth

type Floats = NDArray[np.float64]
type Verdict = Literal["exposed", "direction exposed", "not recovered"]

EXPOSED = 0.1  # relative error
ALIGNED = float(np.sin(np.arccos(0.95)))  # sine of the angle
CLEAR = 0.5  # of the guess's error: an estimate counts if it is twice as good
MEMBER = 0.5  # advantage of a membership test: true positives − false positives
_LIKELY = 5.0  # standard deviations from its mean: no log-likelihood ratio is further off by chance
LUCK = 0.01  # chance that of all agents one direction is met by accident
_EXACT = 1e-6  # smaller errors are as good as none
_VANISHING = 1e-9  # of the usual gradient: below, 0 is as good as the truth

SECRETS = (
    "gradient",
    "gradient at optimum",
    "gradient at optimum up to sign",
    "curvature",
    "objective",
    "rows",
    "count",
    "membership",
    "change",
    "row",
)
DIRECTION = "direction"
MEMBERSHIP = "membership"


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One estimate against the truth, and beside it the best guess without messages."""

    attack: str
    quantity: str  # one of SECRETS, DIRECTION, or a working variable
    k: tuple[int, int] | None  # first and last iteration judged; None: of the whole run
    error: float  # for membership 1 − advantage
    guess: float  # error of the guess; for a direction what luck undercuts
    rows: tuple[int, int] | None = None  # of rows: how many of how many were recovered
    stage: int | None = None  # of a run in several stages

    @property
    def counts(self) -> bool:
        """Whether this is near the truth, and by more than luck."""
        if self.quantity == DIRECTION:
            return self.error <= ALIGNED and self.error < self.guess
        if self.quantity == MEMBERSHIP:
            return self.error <= 1.0 - MEMBER
        return self.error <= min(EXPOSED, CLEAR * self.guess) and self.guess > _EXACT

    @property
    def extent(self) -> float:
        """The number of vectors of an estimate; that of a function has none."""
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
    """The evidence on which the verdict rests.

    Of the evidence that counts, this is the most exact secret, of equally exact ones the largest,
    else membership, else a direction. If none counts, it is the nearest attempt on a secret.
    """

    def rank(e: Evidence) -> tuple[bool, bool, bool, float, float]:
        near = severity(e) if e.counts else e.error / max(e.guess, 1e-300)
        is_bit = e.counts and e.quantity == MEMBERSHIP
        return not e.counts, e.quantity not in SECRETS, is_bit, near, -e.extent

    def is_secret(e: Evidence) -> bool:  # a Hessian that all losses share is none
        return e.quantity in (*SECRETS, DIRECTION) and not (
            e.quantity == "curvature" and e.guess <= _EXACT
        )

    return min(filter(is_secret, evidence), key=rank, default=None)


class Judge:
    """Holds the truth of one trial against estimates; `at` are the iterations that matter."""

    def __init__(self, truth: Truth, *, at: Sequence[int] | None = None):
        self.truth, self.at = truth, at

    def __call__(self, view: Knowledge, estimate: Estimate) -> tuple[Evidence, ...]:
        """The worth of an estimate; nothing if there is no truth to compare with."""
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
            case "rows":
                return self._rows(estimate)
            case "curvature":
                return self._curvature(estimate)
            case "count":
                return self._count(estimate)
            case "membership":
                return (_membership(estimate),)
            case _:
                return ()

    def unjudged(self, estimate: Estimate) -> str | None:
        """The quantity of an estimate for which there is no truth, if there is any."""
        quantity, i = estimate.quantity, estimate.target
        if quantity in ("objective", "curvature") and self.truth.hessian(i) is None:
            return "curvature"
        return "count" if quantity == "count" and self.truth.n_rows(i) is None else None

    def _rows(self, e: Estimate) -> tuple[Evidence, ...]:
        """The number of rows that are met; the error is their median, or the least if none is.

        What any other agent has counts as a guess: a row that is usual is no secret.
        """
        true = self.truth.rows(e.target)
        if true is None or not len(true):
            return ()
        others = [self.truth.rows(j) for j in range(self.truth.n_agents) if j != e.target]
        errors = matched(e.value, true)
        guesses = guessed([rows for rows in others if rows is not None], true)
        met = (errors <= np.minimum(EXPOSED, CLEAR * guesses)) & (guesses > _EXACT)
        shown = met if met.any() else errors == errors.min()
        return (
            Evidence(
                attack=e.attack,
                quantity="rows",
                k=None,
                error=_median(errors[shown]),
                guess=_median(guesses[shown]),
                rows=(int(met.sum()), len(true)),
            ),
        )

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
        curvature = self._curvature(replace(e, quantity="curvature", value=H))
        if not curvature or self.truth.objective(e.target) is None:
            return *found, *curvature
        worse = replace(
            curvature[0],
            quantity="objective",
            error=max(curvature[0].error, found[0].error),
            guess=max(curvature[0].guess, found[0].guess),
        )
        return *found, *curvature, worse

    def _curvature(self, e: Estimate) -> tuple[Evidence, ...]:
        true = self.truth.hessian(e.target)
        if true is None:
            return ()
        guesses = [guess.ravel() for guess in curvature_guesses(self.truth, e.target)]
        return (self._compared(replace(e, value=e.value.ravel()), true.ravel(), guesses),)

    def _count(self, e: Estimate) -> tuple[Evidence, ...]:
        true = self.truth.n_rows(e.target)
        if not true:
            return ()
        guesses = count_guesses(self.truth, e.target)
        return (self._compared(e, np.array([float(true)]), guesses),)

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
        """The length up to which a gradient counts as zero."""
        usual = max(
            float(np.linalg.norm(self.truth.gradients(i)[0])) for i in range(self.truth.n_agents)
        )
        return max(_VANISHING * usual, 1e-300)


def _membership(e: Estimate) -> Evidence:
    """The advantage that the test claims, if the ratio is one that the truth can give.

    The candidate is a row of the target, so the log-likelihood ratio is N(μ²/2, μ²). One that is
    many deviations off comes of statistics that are not the agent's: such a test is worth nothing.
    """
    ratio, mu = map(float, e.value)
    is_likely = np.isinf(mu) or abs(ratio - mu**2 / 2) <= _LIKELY * mu
    found = advantage(mu) if is_likely else 0.0
    return Evidence(attack=e.attack, quantity=MEMBERSHIP, k=None, error=1.0 - found, guess=1.0)


def advantage(mu: float) -> float:
    """Of the best test between N(0, 1) and N(μ, 1): true positives − false positives.

    >>> advantage(0.0), round(advantage(1.349), 3), advantage(np.inf)
    (0.0, 0.5, 1.0)
    """
    return math.erf(mu / math.sqrt(8.0))


def _ends(e: Estimate) -> tuple[int, int] | None:
    return None if e.k is None else (int(e.k[0]), int(e.k[-1]))


def _median(errors: Floats) -> float:
    """The median, where what is not finite counts as infinitely far off."""
    return float(np.median(np.where(np.isfinite(errors), errors, np.inf)))
