"""Span: two messages of one agent give a direction; with the flow they give all the rest.

**Direction.** Messages of agent i in one iteration are v_ji = c_ji · z − b_ji s, z = (x_i^k,
x_i^{k−1}), with public c and a secret step s: h_i^k = λ_i^k g_i^k in PDG-DS, Δh_i^k = h_i^k −
h_i^{k−1} in PDG-NDS. Any combination n of messages with Σ_j n_j c_ji = 0 leaves −(Σ_j n_j b_ji) s,
a multiple of s:

    PDG-DS, "lazy"      v_ji/w_ji − v_li/w_li ∥ s       two messages
    "square"            c_ji has two entries            three

So the unit vector u^k ∥ s is known, up to its sign. In PDG-DS it is the gradient's direction. In
PDG-NDS s is a change. But once the iterates rest, a fresh ϱ_i^k alone still changes, Δh_i^k ≈
λ(ϱ_i^{k−1} − ϱ_i^k) k^−p g_i(θ*), and u^k turns into the direction of g_i(θ*).

**Positions.** Everything but the component along u^k is then known of c_ji · z, and, by the flow,
of x_i^{k+1} too, with P = I − u uᵀ:

    P (c · (x_i^k, x_i^{k−1})) = P c⁺ v,       P x_i^{k+1} = P (x_i^k + F^k)                  PDG-DS
                                               P x_i^{k+1} = P (2x_i^k − x_i^{k−1} + F^k)    PDG-NDS

In PDG-DS two lines meet in x_i^{k+1}: that of the messages of k + 1 and that of the flow of k. They
meet in one point if d ≥ 2 and the directions differ. In the lazy PDG-NDS there are 2(d − 1)
equations for d unknowns per iteration: enough at once for d ≥ 3; for d = 2 one parameter of the
start stays open, whose influence fades within some 50 iterations. All iterations together are one
banded least-squares problem, solved by orthogonal elimination, with columns of simulated rounding
errors beside the right-hand side: what comes out of those says which x_i^k are determined, and
only these are claimed. Then

    h_i^k = x_i^k − x_i^{k+1} + F^k                    PDG-DS
    h_i^k = Σ_{l≤k} F^l − (x_i^{k+1} − x_i^k)          PDG-NDS

and g_i^k = h_i^k / λ^k with the stepsize's public mean.

The attack fails for d = 1 (every direction is the same), with one message heard, and if the
direction never changes, as for a loss of rank one: then the feature's direction leaks instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from hushgrad.algorithms.base import Private
from hushgrad.privacy.attacks.base import Attack, Estimate
from hushgrad.privacy.attacks.pdg import (
    coefficients,
    flat,
    is_square,
    is_two_step,
    messages,
    net_inflow,
    stepsizes,
    unfit,
    unheard,
    unmasked,
)
from hushgrad.privacy.knowledge import Knowledge
from hushgrad.stepsizes import Geometric, Harmonic

type Floats = NDArray[np.float64]

_EPS = 2.0**-52
_ABOVE = 8  # times rounding: a shorter step has no direction
_SAMPLES = 4  # columns of simulated rounding
_NEAR = 8  # iterations either side that say how long a step usually is
_LATE = 200  # iterations at the end in which only ϱ still moves
# Weight of a guess in _solve, where rounding is about 1: a thousand times more keeps the system
# regular. Where errors are below _GUESS^−2 = 1e-6, up to which Span claims, the bias is smaller.
_GUESS = 2.0**10
_GUESSED = 1 / 3  # standard error of a guess, against the size of x: three of them bound it
_SAME = 1e-9  # relative difference of weights that counts as none
_FAINT = 1e-4  # (x, x) must weigh more than its root in a combination to be told by it


@dataclass(frozen=True)
class Lines:
    """Of each iteration, what the messages say up to a multiple of the step."""

    u: Floats  # (n, d) unit vectors along the step, sign arbitrary
    length: Floats  # (n,) of the combinations, in proportion to the step's
    noise: Floats  # (n,) rounding in `combined`, infinite where u is not known
    rows: Floats  # (rank, 2) combinations of (x^k, x^{k−1})
    combined: Floats  # (n, rank, d) their values up to multiples of u^k


@dataclass(frozen=True)
class Path:
    """Positions and steps that the lines and the flow determine."""

    k: NDArray[np.int64]  # (claims,)
    u: Floats  # (claims, d) unit vectors along the step, as the messages alone give them
    x: Floats  # (claims, d) x_i^k
    h: Floats  # (claims, d) λ_i^k g_i^k
    error: Floats  # (claims,) of the less exact of both, relative, by simulated rounding


@dataclass(frozen=True, kw_only=True)
class Span(Attack):
    """Directions from two messages; with all links, positions and steps of each iteration."""

    first: int = 200  # iterations whose positions are sought
    tolerance: float = 1e-6  # relative error, by simulated rounding, up to which they are claimed

    name = "span"
    title = "Span"

    def applies(self, view: Knowledge, target: int) -> str | None:
        if reason := unfit(view, target) or flat(view):
            return reason
        receivers = heard_receivers(view, target)
        needed = 1 + _rank(coefficients(view, target, receivers))
        if len(receivers) < max(2, needed):
            return (
                f"hears {len(receivers)} of the messages of agent {target}, {max(2, needed)} needed"
            )
        return None

    def __call__(self, view: Knowledge, target: int) -> tuple[Estimate, ...]:
        found = list(_directions(view, target, lines_of(view, target)))
        if unheard(view, target) is None:
            found += _estimates(view, target, self.path(view, target))
        return tuple(found)

    def path(self, view: Knowledge, target: int) -> Path:
        """x_i^k and h_i^k of the iterations in which they are determined."""
        kept = _kept.setdefault(view, {})  # other attacks ask again
        if (self, target) not in kept:
            kept[self, target] = self.along(view, target, lines_of(view, target))
        return kept[self, target]

    def along(self, view: Knowledge, target: int, lines: Lines) -> Path:
        """The path whose directions, and whatever else messages say, are given."""
        n = min(self.first + 2, view.iterations)  # x^k needs the messages of k
        F = net_inflow(view, target)[:n]
        x, off = _solve(view, lines, F)
        before, after = x[:-1], x[1:]
        h = np.cumsum(F, axis=0) - (after - before) if is_two_step(view) else before - after + F
        size = np.minimum(np.linalg.norm(before, axis=1), np.linalg.norm(h, axis=1))
        with np.errstate(divide="ignore", invalid="ignore"):
            error = np.maximum(off[:-1], off[1:]) / size
        k = np.flatnonzero(error <= self.tolerance)
        return Path(k, lines.u[k], before[k], h[k], error[k])


_kept: WeakKeyDictionary[Knowledge, dict[tuple[Span, int], Path]] = WeakKeyDictionary()


def heard_receivers(view: Knowledge, i: int) -> list[int]:
    """The receivers of i on links that the adversary hears."""
    return [j for j in view.out_links(i) if view.hears(i, j)]


def lines_of(view: Knowledge, target: int) -> Lines:
    """The directions and what the messages fix besides."""
    receivers = heard_receivers(view, target)
    C, sent = coefficients(view, target, receivers), messages(view, target, receivers)
    V = np.nan_to_num(sent)
    rank = _rank(C)
    left, size, right = np.linalg.svd(C)
    spread = np.einsum("jr,njd->nrd", left[:, rank:], V)  # − (Σ_j n_j b_ji) s for each n
    _, lengths, axes = np.linalg.svd(spread, full_matrices=False)
    length, rounding = lengths[:, 0], _EPS * np.abs(V).max(axis=(1, 2))
    window = np.ones(min(2 * _NEAR + 1, len(length)))
    usual = np.convolve(length, window, "same") / len(window)
    with np.errstate(divide="ignore", invalid="ignore"):
        unsure = np.where(length > _ABOVE * rounding, np.maximum(1.0, usual / length), np.inf)
        noise = rounding * unsure / size[:rank].min()
    combined = np.einsum("jr,njd->nrd", left[:, :rank] / size[:rank], V)
    if is_square(view):  # v_ji = w_ji x_i^0: the start in clear
        w = np.where(
            np.isfinite(sent[0, :, 0]), C[:, 0] / 2, 0.0
        )  # two hops away hears nothing yet
        combined[0] = w @ V[0] / (w @ w) if w.any() else 0.0
    return Lines(axes[:, 0], length, noise, right[:rank], combined)


def _rank(C: Floats) -> int:
    """The rank of weights, whatever their size: rounding is a millionth of the tolerance."""
    return int(np.linalg.matrix_rank(C, rtol=_SAME)) if len(C) else 0


def _directions(view: Knowledge, target: int, lines: Lines) -> tuple[Estimate, ...]:
    if not is_two_step(view):
        k = np.flatnonzero(np.isfinite(lines.noise))
        return (
            Estimate(attack=Span.name, target=target, quantity="direction", k=k, value=lines.u[k]),
        )
    assert isinstance(view.algorithm, Private)
    deviation = view.algorithm.schedule.deviation
    if not isinstance(deviation, Harmonic | Geometric) or deviation.drawn == "once":
        return ()
    known = np.where(np.isfinite(lines.noise), lines.length, 0.0)  # the rest is rounding
    late = (lines.u * known[:, None])[-_LATE:]
    if not late.any():
        return ()
    # long steps are those that ϱ makes
    axes = np.linalg.svd(late / np.abs(late).max(), full_matrices=False)[2]
    return (Estimate(attack=Span.name, target=target, quantity="direction", value=axes[0]),)


def _estimates(view: Knowledge, target: int, path: Path) -> tuple[Estimate, ...]:
    if not len(path.k):
        return ()
    g = unmasked(view, target, path.h / stepsizes(view)[path.k, None], path.x)
    later = path.k >= 1  # λ^0 may be anything between 0 and its bound
    of = partial(Estimate, attack=Span.name, target=target)
    return (
        of(quantity="position", k=path.k, value=path.x),
        of(quantity="scaled gradient", k=path.k, value=path.h),
        of(quantity="gradient", k=path.k[later], value=g[later]),
    )


def _solve(view: Knowledge, lines: Lines, F: Floats) -> tuple[Floats, Floats]:
    """x^0 … x^n (n + 1, d) by banded least squares, and how far simulated rounding moves them.

    The system cannot be singular, whatever the messages say. Unknowns are y^k = x^k / size^k and
    each of them has an equation of its own, its guess, with the weight _GUESS. No equation weighs
    more than 1/ε. So every singular value is _GUESS / √2 or more, and rounding in the elimination,
    some ε times the largest weight, moves it by a few units.
    """
    n, d = F.shape
    guess, size = _guesses(lines, F)
    if not size.any():  # nobody ever said anything
        return np.zeros((n + 1, d)), np.full(n + 1, np.inf)
    rng = np.random.default_rng(0)
    carried = np.zeros((0, 3 * d + 1 + _SAMPLES))
    solved: list[Floats] = []
    for rows, off in _equations(view, lines, F, guess, size):
        rounding = off[:, None] * rng.normal(size=(len(rows), _SAMPLES))
        joined = np.concatenate([np.concatenate([rows, rounding], axis=1), carried])
        triangle = np.linalg.qr(joined, mode="r")[: 3 * d]
        solved.append(triangle[:d])
        carried = np.zeros((2 * d, joined.shape[1]))  # x^{k+1} joins
        carried[:, : 2 * d], carried[:, 3 * d :] = triangle[d:, d : 3 * d], triangle[d:, 3 * d :]
    solution = np.linalg.solve(carried[:, : 2 * d], carried[:, 3 * d :]).reshape(2, d, -1)
    y = list(solution[::-1])  # latest first
    for R in reversed(solved):
        known = R[:, 3 * d :] - R[:, d : 2 * d] @ y[-1] - R[:, 2 * d : 3 * d] @ y[-2]
        y.append(np.linalg.solve(R[:, :d], known))
    found = np.array(y[-2::-1])  # y^{−1} was only there to begin
    off = np.sqrt((found[:, :, 1:] ** 2).sum(axis=(1, 2)) / _SAMPLES)
    return found[:, :, 0] * size[1:, None], off * size[1:]


def _guesses(lines: Lines, F: Floats) -> tuple[Floats, Floats]:
    """Of x^{−1}, x^0 … x^n: vectors (n + 2, d) about as long, and how long that may be (n + 2,)."""
    n = len(F)
    said = lines.combined[:n]
    both = lines.rows.sum(axis=1)  # of c · (x, x)
    guess = np.einsum("r,krd->kd", both, said) / (both @ both + _FAINT)
    size = np.abs(np.column_stack([said.reshape(n, -1), guess, F])).max(axis=1)
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(size, _NEAR), 2 * _NEAR + 1)
    size = np.maximum(windows.max(axis=1), _EPS * size.max())
    return np.concatenate([guess[:1], guess[:1], guess]), np.concatenate(
        [size[:1], size, size[-1:]]
    )


def _equations(
    view: Knowledge, lines: Lines, F: Floats, guess: Floats, size: Floats
) -> Iterator[tuple[Floats, Floats]]:
    """By iteration, rows over (y^{k−1}, y^k, y^{k+1} | right-hand side), and these sides' errors.

    An equation that is exact up to rounding is divided by that, so that its error is one. A guess
    weighs more than its error allows, and simulated rounding has that error.
    """
    n, d = F.shape
    units = np.stack([size[:-2], size[1:-1], size[2:]], axis=1)  # (n, 3) of x^{k−1}, x^k, x^{k+1}
    largest = units.max(axis=1)
    units = units / largest[:, None]
    # the flow, then what messages say: P (factors · (x^{k−1}, x^k, x^{k+1})) = P value
    flow = [[1.0, -2.0, 1.0]] if is_two_step(view) else [[0.0, -1.0, 1.0]]
    factors = np.concatenate([flow, np.pad(lines.rows[:, ::-1], ((0, 0), (0, 1)))])
    value = np.concatenate([F[:, None], lines.combined[:n]], axis=1) / largest[:, None, None]
    P = np.linalg.svd(lines.u[:n, None])[2][:, 1:]  # (n, d − 1, d) orthogonal to u^k
    sides = np.einsum("kra,kea->ker", P, value).reshape(n, -1, 1)
    exact = np.einsum("ec,kc,kra->kerca", factors, units, P).reshape(n, -1, 3 * d)
    weight = 1.0 / np.maximum(lines.noise[:n] / largest, _EPS)
    exact = weight[:, None, None] * np.concatenate([exact, sides], axis=2)
    guesses = np.zeros((n, d, 3 * d + 1))  # of y^{k+1}
    guesses[:, :, 2 * d : 3 * d] = np.eye(d)
    guesses[:, :, -1] = guess[2:] / size[2:, None]
    rows = np.concatenate([_GUESS * guesses, exact], axis=1)
    off = np.repeat([_GUESS * _GUESSED, 1.0], [d, exact.shape[1]])
    count = np.where(np.isfinite(lines.noise[:n]), len(off), d)  # no direction: a guess alone

    eye, none = np.eye(d), np.zeros((d, d))  # of the start, a guess and x^{−1} = x^0
    about = _GUESS * np.column_stack([none, eye, none, guess[1] / size[1]])
    still = np.column_stack([units[0, 0] * eye, -units[0, 1] * eye, none, none[0]]) / _EPS
    start, error = np.concatenate([about, still]), np.repeat([_GUESS * _GUESSED, 1.0], d)
    if is_square(view):  # x^0 in clear, and nothing of x^1
        clear = np.column_stack([none, units[0, 1] * eye, none, value[0, 1]]) / _EPS
        start, error, count[0] = np.concatenate([start, clear]), np.append(error, np.ones(d)), d
    yield (
        np.concatenate([rows[0, :d], start, rows[0, d : count[0]]]),
        np.concatenate([off[:d], error, off[d : count[0]]]),
    )
    for k in range(1, n):
        yield rows[k, : count[k]], off[: count[k]]
