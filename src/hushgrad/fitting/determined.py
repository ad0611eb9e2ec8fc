"""The part of a single row that the pooled sums of a fit determine, all averages so far together.

The rule is that of stages (problems/determined.py): with the derivative J_r (K × directions) of the
K pooled numbers with respect to row r, in units of what is usual among the rows,

    P_r = J_rᵀ (Σ_j J_j J_jᵀ)⁻¹ J_r,      share of row r = mean of  p s / (p s + (1 − p) c)

over the eigenvalues p of P_r; s is the squared length of a long row, c the honest rows over those
of this site. The numbers of a fit are others than those of stages: losses, gradients, Hessians,
products H v, moments, squares of scores. With t = zᵀγ + offset all but Cox's are sums

    Σ_r φ(t_r, y_r) m(z_r),      m = 1, z, z zᵀ, z², (zᵀv) z,      J = φ' m γᵀ + φ ∇m

of rows whose weights and offsets count as known. Cox's likelihood is no sum over rows, but has
derivatives too (cox.py); times and events count as known.

A site knows its own rows alone, and the rows of other honest sites only lower P_r. So it errs on
the safe side. With many rows, those are judged that weigh most in some sum or in the difference of
two or lie far from the others, and an even choice of the others stands for the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hushgrad.fitting.sums import Vector

MOST_JUDGED = 1000  # numbers; more would take minutes (theory/revealed.py has the same limit)
_ROOM = 2**23  # numbers of Q: two seconds of processor time for 12 columns; fewer rows tell more
_SAME = 1e-11  # relative: smaller differences of averages drown in the rounding of derivatives
_NO_SPREAD = 1e-9  # relative: a column without more is a constant, which everybody knows

ONE, VECTOR, TRIANGLE, DIAGONAL, PRODUCT = "one", "vector", "triangle", "diagonal", "product"
_POWER = {ONE: 0, VECTOR: 1, TRIANGLE: 2, DIAGONAL: 2, PRODUCT: 2}

type Places = NDArray[np.intp]


class Weighed(NamedTuple):
    """φ of every row and its derivatives; all (n,)."""

    phi: Vector
    phi_t: Vector
    phi_y: Vector


class SecretRows(NamedTuple):
    """The rows of a site in the coordinates of its fit."""

    Z: Vector  # (n, p)
    y: Vector  # (n,)
    is_measured: bool  # y is a number like the entries of z; a label or a time counts as known


class PooledNumbers(Protocol):
    """Some of the numbers of one average."""

    @property
    def form(self) -> str: ...

    @property
    def sizes(self) -> Vector:
        """(n,) how much every row weighs in them."""
        ...

    def of(self, places: Places) -> PooledNumbers:
        """The same for some rows alone."""
        ...

    def derivatives(self, rows: SecretRows, D: Vector) -> tuple[Vector, Vector]:
        """Of all rows: with respect to z along D, (rows, numbers, directions), and to y."""
        ...


@dataclass(frozen=True, eq=False)
class SumsOfRows:
    """Σ φ m(z) at the point γ."""

    form: str  # of m
    weighed: Weighed
    gamma: Vector  # (p,)
    lengths: Vector  # (n,) ‖z‖
    v: Vector | None = None  # (p,) of products

    @property
    def sizes(self) -> Vector:
        return np.abs(self.weighed.phi) * self.lengths ** _POWER[self.form]

    def of(self, places: Places) -> SumsOfRows:
        weighed = Weighed(*(each[places] for each in self.weighed))
        return replace(self, weighed=weighed, lengths=self.lengths[places])

    def derivatives(self, rows: SecretRows, D: Vector) -> tuple[Vector, Vector]:
        phi, phi_t, phi_y = self.weighed
        m, turned = _form(self.form, rows.Z, D, self.v)
        along = (phi_t[:, None] * m)[:, :, None] * (self.gamma @ D)
        return along + phi[:, None, None] * turned, phi_y[:, None] * m


def _form(form: str, Z: Vector, D: Vector, v: Vector | None) -> tuple[Vector, Vector]:
    """m (n, numbers) and its derivative along D (p, directions), (n, numbers, directions)."""
    n, p = Z.shape
    if form == ONE:
        return np.ones((n, 1)), np.zeros((n, 1, D.shape[1]))
    if form == VECTOR:
        return Z, np.broadcast_to(D, (n, *D.shape))
    if form == DIAGONAL:
        return Z * Z, 2 * Z[:, :, None] * D
    if form == PRODUCT:
        assert v is not None
        along = Z @ v
        turned = Z[:, :, None] * (v @ D) + along[:, None, None] * D
        return along[:, None] * Z, turned
    a, b = np.triu_indices(p)
    return Z[:, a] * Z[:, b], Z[:, a, None] * D[b] + Z[:, b, None] * D[a]


@dataclass(frozen=True, eq=False)
class CoxNumbers:
    """f, g and the upper triangle of H of one site's Cox likelihood.

    With π = a e^η/S of a row in the sum of an event (cox.py), and sums over the events,

        A = Σ π,   B = Σ π E,   C = Σ π (E Eᵀ − V),   V the second moment at the event

        ∂f = (A − event) γ,     ∂g_a = (A − event) e_a + (A z − B)_a γ
        ∂H_ab = (A z zᵀ − z Bᵀ − B zᵀ + C)_ab γ + e_a (A z − B)_b + e_b (A z − B)_a
    """

    A: Vector  # (n,)
    B: Vector  # (n, p)
    C: Vector  # (n, pairs)
    event: Vector  # (n,)
    lengths: Vector  # (n,)
    gamma: Vector  # (p,)
    form: str = "likelihood"

    @property
    def sizes(self) -> Vector:
        return self.A * self.lengths**2

    def of(self, places: Places) -> CoxNumbers:
        parts = (self.A, self.B, self.C, self.event, self.lengths)
        A, B, C, event, lengths = (part[places] for part in parts)
        return CoxNumbers(A, B, C, event, lengths, self.gamma)

    def derivatives(self, rows: SecretRows, D: Vector) -> tuple[Vector, Vector]:
        Z, A, B = rows.Z, self.A[:, None], self.B
        a, b = np.triu_indices(Z.shape[1])
        more = (A - self.event[:, None])[:, :, None]
        away, along = A * Z - B, self.gamma @ D
        second = A * Z[:, a] * Z[:, b] - Z[:, a] * B[:, b] - B[:, a] * Z[:, b] + self.C
        found = [
            more * along,
            more * D + away[:, :, None] * along,
            second[:, :, None] * along + away[:, b, None] * D[a] + away[:, a, None] * D[b],
        ]
        every = np.concatenate(found, axis=1)
        return every, np.zeros(every.shape[:2])


type Entry = Callable[[], Sequence[PooledNumbers]]  # the numbers of an average, for all rows


class ToldRows:
    """The sums that one fit has told so far about a site's rows; asked before each average is sent.

    Entries are functions: the numbers of many rows take too much room to be kept.
    """

    def __init__(self, rows: SecretRows):
        self.rows = rows
        self.n_numbers = 0
        self._entries: list[Entry] = []
        self._judged: _Projection | None = None

    def add(self, n_numbers: int, entry: Entry) -> None:
        self._entries.append(entry)
        self.n_numbers += n_numbers

    @property
    def effective(self) -> float:
        """The effective rows (problems/effective.py) of the last sum."""
        sizes = self._entries[-1]()[-1].sizes
        largest = float(sizes.max(initial=0.0))
        return float(sizes.sum()) / largest if largest > 0 else 0.0

    def largest_share(self, times: float) -> float | None:
        """The largest share of a row that all numbers together determine, 0 ≤ share ≤ 1.

        times    c: all honest rows over the rows of this site
        None     there are too many numbers to judge
        """
        if self.n_numbers > MOST_JUDGED or not len(self.rows.y):
            return None
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # far points
            heaviest, chosen, stands_for = self._chosen()
            if self._judged is None or not np.isin(heaviest, self._judged.places).all():
                self._judged = _Projection(self.rows, chosen, stands_for)
            for entry in self._entries[self._judged.n_entries :]:
                self._judged.add(entry())
            return self._judged.largest_share(times)

    def _chosen(self) -> tuple[Places, Places, Vector]:
        """The rows that must be judged; those that are if one of them is new; for how many rows
        each of these stands.

        All rows, or those that weigh most in some sum or in the difference of two, or lie farthest
        from the others in units of their spread. With them are the next ones, which may be the
        heaviest of a later average: to judge other rows is to begin again. As many others stand for
        all the rest.
        """
        n = len(self.rows.y)
        most = _ROOM // (MOST_JUDGED * (self.rows.Z.shape[1] + 1))
        if n <= most:
            return np.arange(n), np.arange(n), np.ones(n)
        far = (_usual(self.rows)[1] ** 2).sum(axis=1)  # a row that stands apart is judged, too
        score, before = far / max(float(far.sum()), 1e-300), dict[str, Vector]()
        for numbers in (numbers for entry in self._entries for numbers in entry()):
            sizes = numbers.sizes
            for weights in (sizes, np.abs(sizes - before.get(numbers.form, 0.0))):
                score = np.fmax(score, weights / max(float(weights.sum()), 1e-300))
            before[numbers.form] = sizes
        first = np.argsort(-score, kind="stable")[: most // 2]
        rest = np.setdiff1d(np.arange(n), first)
        others = rest[np.linspace(0, len(rest) - 1, most // 2).astype(np.intp)]
        chosen = np.union1d(first, others)
        each = np.where(np.isin(chosen, first), 1.0, len(rest) / len(others))
        return first[: most // 8], chosen, each


def _usual(rows: SecretRows) -> tuple[Vector, Vector]:
    """∂z over the usual size of each direction (p, directions), and the rows in these units."""
    Z = rows.Z - rows.Z.mean(axis=0)
    values, axes = np.linalg.eigh(Z.T @ Z / len(Z))
    free = values > _NO_SPREAD**2
    size = np.sqrt(values[free])
    return axes[:, free] * size, Z @ axes[:, free] / size


class _Projection:
    """P_r as the blocks of the projection QQᵀ onto the columns of J of all rows.

    J (rows · directions, K) has the numbers as columns, in units of what is usual among the rows.
    Columns come average by average, and Q grows by what they tell beyond the columns before. A row
    that stands for s rows has √s times its derivatives, and 1/s of its block.
    """

    def __init__(self, rows: SecretRows, places: Places, stands_for: Vector):
        self.places, self.n_entries = places, 0
        self._stands_for = stands_for
        self._rows = SecretRows(rows.Z[places], rows.y[places], rows.is_measured)
        self._D, away = _usual(rows)
        self._spread = float(rows.y.std()) or 1.0
        self._lengths = (away[places] ** 2).sum(axis=1) / max(1, away.shape[1])
        directions = self._D.shape[1] + rows.is_measured
        self._told = np.zeros((len(places), directions, directions))  # P_r of every row
        self._Q: list[Vector] = []
        self._is_lost = False  # at a point so far away that nobody can tell

    def add(self, told: Sequence[PooledNumbers]) -> None:
        """Let Q grow by the numbers of one entry."""
        self.n_entries += 1
        parts = np.concatenate([self._derivatives(numbers) for numbers in told], axis=1)
        parts *= np.sqrt(self._stands_for)[:, None, None]
        J = parts.swapaxes(1, 2).reshape(-1, parts.shape[1])
        norms = np.sqrt((J * J).sum(axis=0))
        if not np.isfinite(norms).all():
            self._is_lost = True
        if self._is_lost or not J.size:
            return
        new = self._beyond(self._beyond(J[:, norms > 0] / norms[norms > 0]))
        Q, R = np.linalg.qr(new)
        turned, sizes, _ = np.linalg.svd(R, full_matrices=False)
        new = Q @ turned[:, sizes > _SAME]
        new = np.linalg.qr(self._beyond(new))[0]  # small sizes have left some of the columns before
        if new.shape[1]:
            self._Q.append(new)
            blocks = new.reshape(*self._told.shape[:2], -1)
            self._told += blocks @ blocks.swapaxes(1, 2)

    def _beyond(self, columns: Vector) -> Vector:
        for Q in self._Q:
            columns = columns - Q @ (Q.T @ columns)
        return columns

    def _derivatives(self, numbers: PooledNumbers) -> Vector:
        """(rows, numbers, directions)."""
        of_z, of_y = numbers.of(self.places).derivatives(self._rows, self._D)
        if not self._rows.is_measured:
            return of_z
        return np.concatenate([of_z, self._spread * of_y[:, :, None]], axis=2)

    def largest_share(self, times: float) -> float:
        if self._is_lost:
            return 1.0
        p = np.linalg.eigvalsh(self._told) / self._stands_for[:, None]
        p = np.clip(p, 0.0, 1.0)
        odds = p * np.maximum(1.0, self._lengths)[:, None]
        shares = odds / np.maximum(odds + (1 - p) * times, 1e-300)
        return float(shares.mean(axis=1).max()) if shares.size else 0.0
