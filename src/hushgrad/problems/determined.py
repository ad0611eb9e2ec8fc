"""The part of every single row that the sums of stages determine.

Stages tell sums over the rows (x, y) of honest agents: Σ h(t) x xᵀ and Σ p(t) x at every θ_s, with
t = xᵀθ_s, h the curvature and p the slope of a row's loss there. An adversary may combine these K
numbers as it likes: differences of stages tell other rows than each stage alone. They tell of a row
its derivative, J_r (K × d), the derivative of the numbers with respect to the row. An adversary who
knows the usual look of rows, x ~ N(μ, Σ), has after the sums, to first order and in units of Σ,

    C_r = I − P_r,      P_r = J_rᵀ (Σ_j J_j J_jᵀ)⁻¹ J_r

left of the uncertainty about row r. The eigenvalues of P_r are between 0 and 1, and over all n rows
they add up to K: the mean of all is K/(n d), the numbers over the entries of the rows. 1: that
direction of the row comes out of the sums; 0: the other rows hide it. A row that is longer than
usual is uncertain by its own length ‖x‖ = √(s d), s > 1, which multiplies the odds p/(1 − p) by s.
Other rows of other honest agents, c times as many in all, divide the odds by c. So

    share of row r = mean over the directions of  p s / (p s + (1 − p) c)

Of a row that stands g times in the data, g < 5, the sums tell the mean of its copies, which has the
eigenvalues g p in place of p: each copy of a row that two have alone has ½. More copies are a cell
of a table, not a row.

The share depends neither on the units of columns nor on which of the numbers the adversary looks
at, steered θ_s included: a θ_s at which a single row has weight gives that row the share 1. The
Jacobians of other honest agents only lower it, so an agent that knows its own rows alone errs on
the safe side. The share takes entries for real numbers; where all columns are categories, the sums
may tell how many rows each combination has (`has_small_cells`), and then it is 1. The judgement of
exposure (theory/revealed.py) refuses a stage by the largest share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushgrad.problems import rows
from hushgrad.problems.effective import copies, has_small_cells, of_copies
from hushgrad.problems.row_places import row_places
from hushgrad.problems.rows import RowSum

type Floats = NDArray[np.float64]

_AT_ONCE = 2**22  # numbers of a part of the Jacobian
_SAME = 1e-11  # relative: smaller differences of stages drown in the rounding of these derivatives
_NO_SPREAD = 1e-9  # relative: a column without more is a constant, which everybody knows
_STEP = 1e-3  # over delta, or 1: of differences for derivatives, whose rounding is below _SAME


class OwnRows(NamedTuple):
    """The rows of one agent."""

    X: Floats  # (n, d)
    y: Floats  # (n,)
    delta: float

    @property
    def table(self) -> Floats:
        """(n, d + 1)."""
        return np.column_stack([self.X, self.y])


class SecretsOfRows(NamedTuple):
    """The part of a row in the sums of a loss: its weights, and whether y is a secret number."""

    coefficients: rows.Coefficients
    fixed: rows.Coefficients
    is_measured: bool  # y is a number like the entries of x; a label ±1 counts as known


class Chain(NamedTuple):
    """The stages of another run on the same rows."""

    starts: Sequence[Floats]  # (d,) each
    is_fixed: bool


def row_loss(by_rows: RowSum | None) -> SecretsOfRows | None:
    """The loss whose statistic `by_rows` sums; None for a loss that is not built in, or squares.

    Squares have one stage, whose sums fix rows up to a rotation only.
    """
    return None if by_rows is None else _LOSSES.get(by_rows)


def rows_of(data: Any) -> OwnRows:
    """The rows of an agent's data, without those that fill up an array."""
    places = row_places(data)
    X, y = np.asarray(data["X"], np.float64), np.asarray(data["y"], np.float64)
    return OwnRows(X[places], y[places], float(data.get("delta", 0.0)))


def reach(loss: SecretsOfRows, own: OwnRows, *, is_fixed: bool) -> float:
    """The bound of every entry of the linear part of a statistic, at any θ, without the penalty.

    A row adds p x, and |p| ≤ max(|y|, delta); p of a fixed curvature is a slope: |p| ≤ delta. A
    logistic row has |p| ≤ 1 = |y|.
    """
    size = np.abs(own.y)
    if loss.is_measured:
        size = np.full_like(size, own.delta) if is_fixed else np.maximum(size, own.delta)
    with np.errstate(over="ignore"):
        return float((np.abs(own.X) * size[:, None]).sum(axis=0).max(initial=0.0))


def largest_share(
    loss: SecretsOfRows,
    agents: Sequence[OwnRows],
    starts: Sequence[Floats],
    *,
    is_fixed: bool = False,
    honest: int | None = None,
    times: float = 1.0,
    before: Sequence[Chain] = (),
) -> float:
    """The largest share of a row that the sums of stages determine, 0 ≤ share ≤ 1.

    starts    θ_s (d,) of the stages so far
    before    the stages of earlier runs on the same rows
    honest    the agents of the component; its others are those that hide the least. None: all
    times     c: all rows of the component over the rows of these agents
    """
    chains = [*before, Chain(starts, is_fixed)]
    numbers = _numbers(agents[0].X.shape[1], chains)
    jacobian = _Jacobian(loss, agents, chains)
    if not np.isfinite(jacobian.norms).all():
        return 1.0  # a start so long that nobody can tell
    parts = [jacobian.triangle(own) for own in agents]
    together = jacobian.unmixed(parts)
    least = np.argsort([np.linalg.norm(part @ together) for part in parts], kind="stable")
    n_honest = len(agents) if honest is None else honest
    largest = 0.0
    components: dict[frozenset[int], list[int]] = {}
    for i in range(len(agents)):
        others = [int(j) for j in least if j != i][: n_honest - 1]
        components.setdefault(frozenset([i, *others]), []).append(i)
    for component, own in components.items():
        tables = {j: agents[j].table for j in component}
        known = -1 if loss.is_measured else None  # no measured y makes a category
        cells = np.concatenate([tables[j][:, :known] for j in component])
        if has_small_cells(cells, numbers, times):
            return 1.0
        unmixed = jacobian.unmixed([parts[j] for j in component])
        ends = np.cumsum([len(tables[j]) for j in component])[:-1]
        found = np.split(copies(np.concatenate([tables[j][:, :-1] for j in component])), ends)
        of_rows = dict(zip(component, found, strict=True))
        shares = (jacobian.share(agents[i], unmixed, times, of_rows[i]) for i in own)
        largest = max(largest, *shares)
    return largest


def share_of(
    loss: SecretsOfRows,
    own: OwnRows,
    starts: Sequence[Floats],
    is_fixed: bool,
    times: float,
    before: Sequence[Chain] = (),
) -> float:
    """The largest share of the rows of one agent, which knows no others."""
    return largest_share(loss, [own], starts, is_fixed=is_fixed, times=times, before=before)


def _numbers(dim: int, chains: Sequence[Chain]) -> int:
    """At most so many numbers are told."""
    return sum(len(chain.starts) for chain in chains) * dim * (dim + 3) // 2


class _Jacobian:
    """Derivatives of the numbers of all stages with respect to rows, in units of what is usual."""

    def __init__(self, loss: SecretsOfRows, agents: Sequence[OwnRows], chains: Sequence[Chain]):
        self.loss, self.chains = loss, chains
        X = np.concatenate([own.X for own in agents])
        unit = np.abs(X).max(axis=0, initial=0.0)
        self.unit = np.where(unit > 0, unit, 1.0)
        scaled = X / self.unit
        middle = scaled.mean(axis=0) if len(X) else np.zeros(X.shape[1])
        values, self.axes = np.linalg.eigh((scaled - middle).T @ (scaled - middle) / max(1, len(X)))
        self.free = values > _NO_SPREAD**2
        self.size = np.where(self.free, np.sqrt(np.maximum(values, 0.0)), 1.0)
        self.middle = middle @ self.axes / self.size
        y = np.concatenate([own.y for own in agents])
        self.spread = float(y.std()) or 1.0 if len(y) else 1.0
        self.upper = np.triu_indices(X.shape[1])
        with np.errstate(over="ignore", invalid="ignore"):  # `largest_share` looks at the norms
            squares = sum(
                (np.einsum("rck,rck->c", J, J) for own in agents for J, _ in self._parts(own)),
                start=np.zeros(1),
            )
        self.norms = np.sqrt(squares)

    def triangle(self, own: OwnRows) -> Floats:
        """R (K, K) with RᵀR = Σ J Jᵀ over the rows of an agent, every number in units of its size.

        Triangles of agents below one another stand for all of them.
        """
        triangle = np.zeros((0, len(self.norms)))
        for part, _ in self._parts(own):
            J = self._scaled(part).swapaxes(1, 2).reshape(-1, len(self.norms))
            triangle = np.linalg.qr(np.concatenate([triangle, J]), mode="r")
        return triangle

    def unmixed(self, triangles: Sequence[Floats]) -> Floats:
        """V/S (K, ranks), which takes J_rᵀ to rows whose squares add up to P_r."""
        _, sizes, axes = np.linalg.svd(np.concatenate(triangles), full_matrices=False)
        told = sizes > _SAME * sizes.max(initial=0.0)
        return axes[told].T / sizes[told]

    def share(self, own: OwnRows, unmixed: Floats, times: float, often: Floats) -> float:
        largest, first = 0.0, 0
        for part, lengths in self._parts(own):
            g = often[first : first + len(part), None]
            first += len(part)
            told = self._scaled(part).swapaxes(1, 2) @ unmixed  # (rows, directions, ranks)
            if not told.size:
                continue
            p = of_copies(np.clip(np.linalg.eigvalsh(told @ told.swapaxes(1, 2)), 0.0, 1.0), g)
            odds = p * np.maximum(1.0, lengths)[:, None]
            shares = odds / np.maximum(odds + (1 - p) * times, 1e-300)
            largest = max(largest, float(shares.mean(axis=1).max()))
        return largest

    def _scaled(self, part: Floats) -> Floats:
        return part / np.where(self.norms > 0, self.norms, 1.0)[:, None]

    def _parts(self, own: OwnRows) -> Iterator[tuple[Floats, Floats]]:
        """J (rows, K, directions) of some rows at a time, and their squared lengths over d."""
        n, d = own.X.shape
        pairs = len(self.upper[0])
        numbers = sum(len(chain.starts) for chain in self.chains) * (pairs + d)
        at_once = max(1, _AT_ONCE // (numbers * d))
        for first in range(0, n, at_once):
            some = slice(first, first + at_once)
            x = (own.X[some] / self.unit) @ self.axes / self.size
            away = (x - self.middle)[:, self.free]
            lengths = (away**2).sum(axis=1) / max(1, away.shape[1])
            yield self._derivatives(own.X[some], x, own.y[some], own.delta), lengths

    def _derivatives(self, X: Floats, x: Floats, y: Floats, delta: float) -> Floats:
        """X as the loss knows rows, x the same rows in units of what is usual."""
        (n, d), (a, b), at = x.shape, self.upper, np.arange(len(self.upper[0]))
        products = x[:, a] * x[:, b]  # (n, pairs)
        turned = np.zeros((n, len(a), d))  # ∂(x_a x_b)/∂x
        turned[:, at, a] += x[:, b]
        turned[:, at, b] += x[:, a]
        found: list[Floats] = []
        for chain in self.chains:
            before: Floats | None = None
            for theta in chain.starts:
                weights = _Weights.at(self.loss, X, y, delta, theta, before, chain.is_fixed)
                along = self._along(theta)
                ahead = weights.h_t[:, None] * along
                if before is not None:
                    ahead = ahead + weights.h_last[:, None] * self._along(before)
                if before is None or not chain.is_fixed:
                    bent = products[:, :, None] * ahead[:, None, :]
                    found.append(self._with_y(
                        weights.h[:, None, None] * turned + bent, products * weights.h_y[:, None]
                    ))  # fmt: skip
                slope = x[:, :, None] * (weights.p_t[:, None] * along)[:, None, :]
                slope[:, np.arange(d), np.arange(d)] += weights.p[:, None]
                found.append(self._with_y(slope, x * weights.p_y[:, None]))
                before = theta
        return np.concatenate(found, axis=1)

    def _along(self, theta: Floats) -> Floats:
        """∂(xᵀθ)/∂x in units of what is usual."""
        return ((theta * self.unit) @ self.axes) * self.size

    def _with_y(self, of_x: Floats, of_y: Floats) -> Floats:
        """The derivatives with respect to what is not known: entries of x that vary, and y."""
        known = of_x[:, :, self.free]
        if not self.loss.is_measured:
            return known
        return np.concatenate([known, self.spread * of_y[:, :, None]], axis=2)


class _Weights(NamedTuple):
    """h and p = ∂ℓ/∂t of rows, and their derivatives; all (rows,)."""

    h: Floats
    p: Floats
    h_t: Floats
    h_last: Floats
    h_y: Floats
    p_t: Floats
    p_y: Floats

    @staticmethod
    def at(
        loss: SecretsOfRows,
        X: Floats,
        y: Floats,
        delta: float,
        theta: Floats,
        before: Floats | None,
        is_fixed: bool,
    ) -> _Weights:
        t = X @ theta
        last = None if before is None or is_fixed else X @ before
        function = loss.fixed if is_fixed else loss.coefficients

        step = _STEP * (delta or 1.0)

        def both(t: Floats, last: Floats | None, y: Floats) -> tuple[Floats, Floats]:
            h, p = function(t, last, y, delta)
            return h, p if is_fixed else p + h * t

        def sloped(
            of: Callable[[Floats], tuple[Floats, Floats]], at: Floats
        ) -> tuple[Floats, Floats]:
            ahead, behind = of(at + step), of(at - step)
            return (ahead[0] - behind[0]) / (2 * step), (ahead[1] - behind[1]) / (2 * step)

        h, p = both(t, last, y)
        h_t, p_t = sloped(lambda at: both(at, last, y), t)
        none = np.zeros_like(t)
        h_last = none if last is None else sloped(lambda at: both(t, at, y), last)[0]
        h_y, p_y = sloped(lambda at: both(t, last, at), y) if loss.is_measured else (none, none)
        return _Weights(h, p, h_t, h_last, h_y, p_t, p_y)


_LOSSES: dict[RowSum, SecretsOfRows] = {
    rows.logistic: SecretsOfRows(rows.logistic_row, rows.logistic_fixed_row, is_measured=False),
    rows.huber: SecretsOfRows(rows.huber_row, rows.huber_fixed_row, is_measured=True),
}
