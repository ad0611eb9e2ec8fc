"""The model that `trajectory`, `row_fit` and `probes` fit: gradients up to a mask, made of rows.

Along a path x^k of an agent its steps are h^k = λ^k g̃(x^k) with

    g̃(x) = c + Q x + Σ_r a_r φ(a_rᵀx − t_r),      λ^k = base^k (1 − ϱ spread^k)

Rows a_r (with offsets t_r if the loss has them) are the agent's data, c and Q come from masks and a
regulariser, and ϱ is its deviation if it was drawn once. If Q and c may be anything, all terms that
are affine in x are lost, but nothing else. (c, Q) are linear, so they are projected out (variable
projection). The method of Levenberg and Marquardt finds the rows, ϱ and the numbers that a path
leaves open. Without rows, the fit is the affine statistic (H̃, q̃) of a quadratic.

Residuals are relative to the variation of g̃ along the path, so no open factor can be driven to
zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hushgrad.algorithms.base import Private
from hushgrad.privacy.attacks.least_squares import descended, square
from hushgrad.privacy.attacks.pdg import stepsizes
from hushgrad.privacy.knowledge import Knowledge
from hushgrad.stepsizes import Bursts, Geometric, Harmonic

type Floats = NDArray[np.float64]

_FRESH = 1e-12  # a fresh ϱ moves λ by less: iterations in which it moves λ more are left out
_GRID = 33  # values of β that are tried: the fit is a narrow valley in it
_STARTS = 6  # of them that are followed
_APART = 0.1  # of ϱ or β: as many that lie so far from each other are followed too
_FOUND = 1e-22  # squared relative residual: rounding is left, and no other start is followed
_STEP = 1e-6  # of differences, for the few numbers beside the rows: their columns are only guides
_UNSEEN = 1e-6  # length of the column of an open number: differences are rounding below it


class Activation(Protocol):
    """φ of a loss of rows: the derivative of the loss, up to what is affine."""

    has_offset: bool

    def __call__(self, t: Floats) -> tuple[Floats, Floats]:
        """φ(t) and φ'(t)."""
        ...


@dataclass(frozen=True)
class Logistic:
    """−z σ(−zᵀx) = −z/2 + ½ z tanh(zᵀx/2), z = y x_r: even in z, so its sign is lost."""

    has_offset = False

    def __call__(self, t: Floats) -> tuple[Floats, Floats]:
        value = np.tanh(t / 2)
        return value / 2, (1 - value * value) / 4


@dataclass(frozen=True)
class Huber:
    """Clipped residuals: a row that is clipped nowhere, or everywhere, is lost in Q and c."""

    delta: float = 1.35
    has_offset = True

    def __call__(self, t: Floats) -> tuple[Floats, Floats]:
        return t.clip(-self.delta, self.delta), (np.abs(t) < self.delta).astype(np.float64)


class OpenPaths(Protocol):
    @property
    def open(self) -> str: ...
    @property
    def width(self) -> float: ...
    @property
    def start(self) -> Floats: ...
    @property
    def at(self) -> Callable[[Floats], tuple[Floats, Floats]]: ...


@dataclass(frozen=True)
class Fit:
    """Rows and open numbers, and what they leave unexplained."""

    rows: Floats  # (rows, d) or, with offsets, (rows, d + 1)
    numbers: Floats  # ϱ if it is fitted, then those of the path
    residual: float  # squared, relative to the variation of g̃
    unexplained: float  # squared, relative to what of g̃ is not affine


@dataclass(frozen=True)
class RowModel:
    """The fit's data: paths, stepsizes, which iterations count, and the loss."""

    paths: OpenPaths
    base: Floats  # (n,)
    spread: Floats | None  # (n,) of a ϱ drawn once; None: λ = base
    kept: NDArray[np.int64]  # iterations of the path that are fitted
    phi: Activation = Logistic()

    @staticmethod
    def of(view: Knowledge, paths: OpenPaths, part: range, *, most: int | None = None) -> RowModel:
        """The model of an agent's path in the iterations `part`, of which `most` are fitted."""
        algorithm = view.algorithm
        assert isinstance(algorithm, Private)
        deviation = algorithm.schedule.deviation
        n = np.arange(len(part)) + 1.0  # every stage begins its schedule anew
        spread, kept = None, np.arange(len(n))
        if isinstance(deviation, Harmonic | Geometric):
            size = np.broadcast_to(np.asarray(deviation.spread(n), np.float64), len(n))
            if deviation.drawn == "once":
                spread = size
            else:
                kept = kept[size <= _FRESH]
        elif isinstance(deviation, Bursts):
            kept = kept[n > deviation.within]
        base = stepsizes(view, 0.0)[: len(part)]
        return RowModel(paths, base, spread, kept[:most])

    @property
    def numbers(self) -> Floats:
        """Plausible values of ϱ and of what the path leaves open."""
        rho = [] if self.spread is None else [0.5]
        return np.concatenate([rho, self.paths.start])

    def bounded(self, numbers: Floats) -> Floats:
        """The numbers, or the nearest possible ones: no fit runs away with one that it ignores."""
        plain = self.numbers
        far = np.full(len(plain), self.paths.width)
        if self.spread is not None:
            far[0] = 0.5  # ϱ ∈ (0, 1]
        return np.clip(numbers, plain - far, plain + far)

    @property
    def grid(self) -> list[Floats]:
        """Values of ϱ and, of β, on both sides of the plausible one.

        Without rows no factor κ fits better than another, so it has one value.
        """
        rho = [] if self.spread is None else [(0.1, 0.5, 0.9)]
        width = self.paths.width
        around = np.linspace(-width, width, _GRID) if self.paths.open == "β" else np.zeros(1)
        open_numbers = [tuple(value + around) for value in self.paths.start]
        return [np.array(point) for point in product(*rho, *open_numbers)]

    @property
    def is_empty(self) -> bool:
        """Whether the path has fewer points than an affine function has numbers."""
        return len(self.kept) < self.paths.at(self.paths.start)[0].shape[1] + 2

    def path(self, numbers: Floats) -> tuple[Floats, Floats]:
        """x (kept, d) and g̃ (kept, d)."""
        shift = self.spread is not None
        x, h = self.paths.at(numbers[shift:])
        lam = self.base
        if self.spread is not None:
            lam = lam * (1.0 - numbers[0] * self.spread)
        with np.errstate(divide="ignore", invalid="ignore"):
            g = h / np.maximum(lam, 1e-300)[:, None]
        return x[self.kept], g[self.kept]

    def open_numbers(self, fit: Fit) -> Floats:
        """Of a fit, what the path leaves open."""
        return fit.numbers[len(fit.numbers) - len(self.paths.start) :]

    def affine(self, fit: Fit) -> Floats:
        """[Q | c] (d, d + 1) of a fit without rows: the masked statistic of a quadratic."""
        x, g = self.path(fit.numbers)
        middle, size = x.mean(axis=0), max(float(np.abs(x - x.mean(axis=0)).max()), 1e-300)
        design = np.column_stack([(x - middle) / size, np.ones(len(x))])
        found = np.linalg.lstsq(design, g, rcond=None)[0].T  # (d, d + 1)
        slopes = found[:, :-1] / size
        Q = (slopes + slopes.T) / 2
        return np.column_stack([Q, found[:, -1] - Q @ middle])


def _inputs(model: RowModel, x: Floats) -> Floats:
    return np.column_stack([x, -np.ones(len(x))]) if model.phi.has_offset else x


class _Projected:
    """Gradients less what is affine in x, at given open numbers, in units of their variation."""

    def __init__(self, model: RowModel, numbers: Floats):
        self.x, g = model.path(numbers)
        self.inputs = _inputs(model, self.x)
        basis = np.column_stack([np.ones(len(g)), self.x - self.x.mean(axis=0)])
        size = np.maximum(np.linalg.norm(basis, axis=0), 1e-300)
        self._q = np.linalg.qr(basis / size)[0]
        self.size = max(float(np.linalg.norm(g - g.mean(axis=0))), 1e-300)
        self.g = self.without(self.without(g)) / self.size

    def without(self, values: Floats) -> Floats:
        flat = values.reshape(len(values), -1)
        return (flat - self._q @ (self._q.T @ flat)).reshape(values.shape)


@dataclass(frozen=True)
class _State:
    """Rows and numbers with their residual."""

    model: RowModel
    rows: Floats
    numbers: Floats
    path: _Projected
    values: tuple[Floats, Floats] | None  # φ, φ' (kept, rows)
    residual: Floats  # (kept, d)

    @staticmethod
    def of(model: RowModel, rows: Floats, numbers: Floats, path: _Projected | None) -> _State:
        path = _Projected(model, numbers) if path is None else path
        if not rows.size:
            return _State(model, rows, numbers, path, None, -path.g)
        values = model.phi(path.inputs @ rows.T)
        explained = path.without(values[0] @ rows[:, : path.x.shape[1]]) / path.size
        return _State(model, rows, numbers, path, values, explained - path.g)

    def moved(self, step: Floats) -> _State:
        """After a step of rows and numbers."""
        n, is_same = self.rows.size, not len(self.numbers)
        rows = self.rows + step[:n].reshape(self.rows.shape)
        numbers = self.model.bounded(self.numbers + step[n:])
        return _State.of(self.model, rows, numbers, self.path if is_same else None)

    def jacobian(self) -> tuple[Floats, Floats]:
        """(kept · d, rows · entries + numbers), and how short its columns may be."""
        count, d = self.path.x.shape
        parts: list[Floats] = []
        if self.values is not None:
            value, slope = self.values
            along = slope[:, None, :, None] * self.rows[:, :d].T[:, :, None]
            along = along * self.path.inputs[:, None, None, :]  # (kept, d, rows, entries)
            along[:, range(d), :, range(d)] += value
            along = self.path.without(along.reshape(count, -1)) / self.path.size
            parts.append(along.reshape(count * d, self.rows.size))
        for n in range(len(self.numbers)):
            aside = np.zeros_like(self.numbers)
            aside[n] = _STEP
            ahead = _State.of(self.model, self.rows, self.numbers + aside, None).residual
            behind = _State.of(self.model, self.rows, self.numbers - aside, None).residual
            parts.append(((ahead - behind) / (2 * _STEP)).reshape(count * d, 1))
        least = np.repeat([1e-300, _UNSEEN], [self.rows.size, len(self.numbers)])
        return np.column_stack(parts) if parts else np.empty((count * d, 0)), least


def fitted(
    model: RowModel, rows: Floats | None = None, numbers: Floats | None = None, *, steps: int = 200
) -> Fit:
    """Levenberg and Marquardt from these rows and numbers, by default none and plausible ones."""
    numbers = model.numbers if numbers is None else numbers
    start = _State.of(model, np.empty((0, 0)) if rows is None else rows, numbers, None)
    end = descended(start, steps)
    rest = float(np.sum(end.path.g**2))
    return Fit(end.rows, end.numbers, square(end), square(end) / max(rest, 1e-300))


def best_start(model: RowModel) -> Fit:
    """The fit without rows from the best of some plausible open numbers."""
    grid = [fitted(model, None, numbers, steps=0) for numbers in model.grid]
    ordered = sorted(grid, key=lambda fit: fit.residual)
    apart: list[Fit] = []
    for start in ordered:
        if all(np.abs(start.numbers - other.numbers).max() > _APART for other in apart):
            apart.append(start)
    found = ordered[0]
    for start in [*ordered[:_STARTS], *apart[1:_STARTS]]:
        found = min(found, fitted(model, None, start.numbers), key=lambda fit: fit.residual)
        if found.residual <= _FOUND:
            break
    if model.paths.open == "κ":
        numbers = np.concatenate([found.numbers[:-1], model.paths.start])
        return replace(found, numbers=numbers)
    return found
