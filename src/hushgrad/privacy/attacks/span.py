"""Span: two messages of one agent give a direction; with the flow they give all the rest.

**Direction.** Messages of agent i in one iteration are v_ji = c_ji · z − b_ji s, z = (x_i^k,
x_i^{k−1}), with public c and a secret step s: h_i^k = λ_i^k g_i^k in PDG-DS, Δh_i^k = h_i^k −
h_i^{k−1} in PDG-NDS. Any combination n of messages with Σ_j n_j c_ji = 0 leaves −(Σ_j n_j b_ji) s,
a multiple of s:

    PDG-DS, "lazy"      v_ji/w_ji − v_li/w_li ∥ s       two messages
    "square"            c_ji has two entries            three

so the unit vector u^k ∥ s is known, up to sign. In PDG-DS it is the gradient's direction. In
PDG-NDS s is a change; but once the iterates rest, all that still changes is a fresh ϱ_i^k, Δh_i^k
≈ λ(ϱ_i^{k−1} − ϱ_i^k) k^−p g_i(θ*), and u^k turns into the direction of g_i(θ*).

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

It fails for d = 1 (every direction is the same), with one message heard, and where the direction
never changes, as for a loss of rank one: there the feature's direction leaks instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from hushgrad.algorithms.base import Private
from hushgrad.privacy.attacks.base import Attack, Estimate
from hushgrad.privacy.attacks.pdg import (
    coefficients,
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
        reason = unfit(view, target)
        if reason:
            return reason
        if view.dim < 2:
            return "needs d ≥ 2: for d = 1 all directions are the same"
        receivers = heard_receivers(view, target)
        needed = 1 + _rank(coefficients(view, target, receivers))
        if len(receivers) < max(2, needed):
            return (
                f"hears {len(receivers)} of the messages of agent {target}, {max(2, needed)} needed"
            )
        return None

    def __call__(self, view: Knowledge, target: int) -> tuple[Estimate, ...]:
        lines = lines_of(view, target)
        found = list(_directions(view, target, lines))
        if unheard(view, target) is None:
            found += _estimates(view, target, self.path(view, target, lines))
        return tuple(found)

    def path(self, view: Knowledge, target: int, lines: Lines) -> Path:
        """x_i^k and h_i^k of the iterations in which they are determined."""
        n = min(self.first + 2, view.iterations)  # x^k needs the messages of k
        F = net_inflow(view, target)[:n]
        x, off = _solve(view, lines, F)
        before, after = x[:-1], x[1:]
        h = np.cumsum(F, axis=0) - (after - before) if is_two_step(view) else before - after + F
        size = np.minimum(np.linalg.norm(before, axis=1), np.linalg.norm(h, axis=1))
        with np.errstate(divide="ignore", invalid="ignore"):
            error = np.maximum(off[:-1], off[1:]) / size
        k = np.flatnonzero(error <= self.tolerance)
        return Path(k, before[k], h[k], error[k])


def heard_receivers(view: Knowledge, i: int) -> list[int]:
    """To whom i sends within earshot."""
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
    rng = np.random.default_rng(0)
    guess, size = _guesses(lines, F)
    if not size.any():  # nobody ever said anything
        return np.zeros((n + 1, d)), np.full(n + 1, np.inf)
    across = np.linalg.svd(lines.u[:n, None])[2][:, 1:]  # (n, d − 1, d) orthogonal to u^k
    carried = np.zeros((0, 2 * d + 1 + _SAMPLES))
    solved: list[Floats] = []
    for k in range(n):
        rows, off = _equations(view, lines, F, across, guess, size, k)
        rows = np.column_stack([rows, off[:, None] * rng.normal(size=(len(rows), _SAMPLES))])
        carried = np.insert(carried, [2 * d] * d, 0.0, axis=1)  # x^{k+1} joins
        triangle = np.linalg.qr(np.concatenate([rows, carried]), mode="r")
        solved.append(triangle[:d])
        carried = triangle[d : 3 * d, d:]
    solution = np.linalg.solve(carried[:, : 2 * d], carried[:, 2 * d :]).reshape(2, d, -1)
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
    view: Knowledge, lines: Lines, F: Floats, across: Floats, guess: Floats, size: Floats, k: int
) -> tuple[Floats, Floats]:
    """Rows over (y^{k−1}, y^k, y^{k+1} | right-hand side), and the errors of these sides.

    An equation that is exact up to rounding is divided by that, so that its error is one. A guess
    weighs more than its error allows, and simulated rounding has that error.
    """
    d = F.shape[1]
    P, eye, none = across[k], np.eye(d), np.zeros((d, d))
    units = np.repeat(size[k : k + 3], d)
    blocks: list[tuple[Floats, float]] = []

    def guessed(at: int) -> None:
        parts = [eye if at == k + place else none for place in (-1, 0, 1)]
        block = np.column_stack([*parts, guess[at + 1] / size[at + 1]])
        blocks.append((_GUESS * block, _GUESS * _GUESSED))

    def exact(before: Floats, now: Floats, after: Floats, value: Floats, noise: float) -> None:
        largest = size[k : k + 3].max()
        coefficients = np.column_stack([before, now, after]) * (units / largest)
        block = np.column_stack([coefficients, value / largest])
        blocks.append((block / max(noise / largest, _EPS), 1.0))

    guessed(k + 1)
    if k == 0:
        guessed(0)
        exact(eye, -eye, none, np.zeros(d), 0.0)
    if k == 0 and is_square(view):  # x^0 in clear, and nothing of x^1
        exact(none, eye, none, lines.combined[0, 0], 0.0)
    elif np.isfinite(lines.noise[k]):
        flow = (P, -2 * P, P) if is_two_step(view) else (0 * P, -P, P)
        exact(*flow, P @ F[k], lines.noise[k])
        for (now, before), value in zip(lines.rows, lines.combined[k], strict=True):
            exact(before * P, now * P, 0 * P, P @ value, lines.noise[k])
    off = np.concatenate([np.full(len(block), error) for block, error in blocks])
    return np.concatenate([block for block, _ in blocks]), off
