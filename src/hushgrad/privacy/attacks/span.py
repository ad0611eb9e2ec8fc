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
    usual = np.convolve(length, np.ones(2 * _NEAR + 1), "same") / (2 * _NEAR + 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        unsure = np.where(length > _ABOVE * rounding, np.maximum(1.0, usual / length), np.inf)
        noise = rounding * unsure / size[:rank].min()
    combined = np.einsum("jr,njd->nrd", left[:, :rank] / size[:rank], V)
    if is_square(view):  # v_ji = w_ji x_i^0: the start in clear
        heard = np.isfinite(sent[0, :, 0])
        combined[0] = np.linalg.lstsq(C[heard, :1] / 2, sent[0, heard], rcond=None)[0]
    return Lines(axes[:, 0], length, noise, right[:rank], combined)


def _rank(C: Floats) -> int:
    return int(np.linalg.matrix_rank(C, tol=1e-9)) if len(C) else 0


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
    late = (lines.u * lines.length[:, None])[-_LATE:]
    axis = np.linalg.eigh(late.T @ late)[1][:, -1]  # long steps are those that ϱ makes
    return (Estimate(attack=Span.name, target=target, quantity="direction", value=axis),)


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
    """x^0 … x^n (n + 1, d) by banded least squares, and how far simulated rounding moves them."""
    n, d = F.shape
    rng = np.random.default_rng(0)
    scale = np.abs(lines.combined[:n]).max() + np.abs(F).max()
    across = np.linalg.svd(lines.u[:n, None])[2][:, 1:]  # (n, d − 1, d) orthogonal to u^k
    carried = np.zeros((0, 2 * d + 1 + _SAMPLES))
    solved: list[Floats] = []
    for k in range(n):
        rows = _equations(view, lines, F, across, k, scale)
        rows = np.column_stack([rows, rng.normal(size=(len(rows), _SAMPLES))])
        carried = np.insert(carried, [2 * d] * d, 0.0, axis=1)  # x^{k+1} joins
        triangle = np.linalg.qr(np.concatenate([rows, carried]), mode="r")
        solved.append(triangle[:d])
        carried = triangle[d : 3 * d, d:]
    solution = np.linalg.solve(carried[:, : 2 * d], carried[:, 2 * d :]).reshape(2, d, -1)
    x = list(solution[::-1])  # latest first
    for R in reversed(solved):
        known = R[:, 3 * d :] - R[:, d : 2 * d] @ x[-1] - R[:, 2 * d : 3 * d] @ x[-2]
        x.append(np.linalg.solve(R[:, :d], known))
    found = np.array(x[-2::-1])  # x^{−1} was only there to begin
    return found[:, :, 0], np.sqrt((found[:, :, 1:] ** 2).sum(axis=(1, 2)) / _SAMPLES)


def _equations(
    view: Knowledge, lines: Lines, F: Floats, across: Floats, k: int, scale: float
) -> Floats:
    """Rows over (x^{k−1}, x^k, x^{k+1} | right-hand side), each with unit rounding."""
    d = F.shape[1]
    P, eye, none = across[k], np.eye(d), np.zeros((d, d))
    guess = lines.combined[k, 0] / lines.rows[0].sum()  # of x^{k+1}: anything of the right size
    rows = [np.column_stack([none, none, eye, guess]) / scale]
    flow = [P, -2 * P, P] if is_two_step(view) else [0 * P, -P, P]
    if k == 0:
        rows.append(np.column_stack([eye, -eye, none, 0 * guess]) / (_EPS * scale))
        rows.append(np.column_stack([none, eye, none, guess]) / scale)
        if is_square(view):  # x^0 in clear, and nothing of x^1
            start = np.column_stack([none, eye, none, lines.combined[0, 0]])
            return np.concatenate([*rows, start / (_EPS * scale)])
    if not np.isfinite(lines.noise[k]):
        return np.concatenate(rows)
    noise = lines.noise[k]
    rows.append(np.column_stack([*flow, P @ F[k]]) / noise)
    for (now, before), value in zip(lines.rows, lines.combined[k], strict=True):
        rows.append(np.column_stack([before * P, now * P, 0 * P, P @ value]) / noise)
    return np.concatenate(rows)
