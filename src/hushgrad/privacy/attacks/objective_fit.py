"""Objective fit: positions and directions give the private quadratic, without any stepsize.

An adversary that hears all links of agent i has, by `span`, positions x_i^k and the directions of
the gradients there: it has h_i^k = λ_i^k g_i^k but for the factor λ_i^k, the agent's secret. For a
quadratic f_i, g_i(θ) = Hθ + q with H = Hᵀ, and for every λ_i^k ≥ 0,

    P^k (H x_i^k + q) = 0,       P^k the projection across h_i^k

is linear and homogeneous in (H, q): d − 1 equations per iteration for d(d+1)/2 + d unknowns. The
null vector, from a singular value decomposition, is (H, q) up to one factor; its sign is that of
h. Positions are centred and scaled first, and equations count by how exact Span is there: random
deviations of λ, however large (`bursts`), do not enter.

The factor follows from late stepsizes, which the public schedule fixes ever more closely: it is the
median of the ratios in h_i^k = λ^k (H x_i^k + q). If H is a multiple of the identity, as in
rendezvous, the minimiser −H⁻¹q is the agent's private position.

If f_i is no quadratic, no (H, q) fits: the smallest singular value stands out no more, and the
attack claims nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from hushgrad.privacy.attacks.base import Attack, Estimate
from hushgrad.privacy.attacks.pdg import is_two_step, known_mask, stepsizes, unheard
from hushgrad.privacy.attacks.span import Path, Span
from hushgrad.privacy.knowledge import Knowledge

type Floats = NDArray[np.float64]

_STANDS_OUT = 1e-3  # smallest against second smallest singular value
_EQUATIONS = 4  # per unknown, and at least those of 100 iterations, the first: there x moves most
_EXACT = 1e-13  # equations are never more exact
_ABOVE = 10  # times rounding: a second smallest singular value below belongs to a null vector too
_ROUND = 1e-4  # relative departure of H from a multiple of the identity


@dataclass(frozen=True, kw_only=True)
class ObjectiveFit(Attack):
    """[H_i | q_i] from the positions and directions that Span finds."""

    span: Span = Span()

    name = "objective-fit"
    title = "Objective fit"

    def applies(self, view: Knowledge, target: int) -> str | None:
        return self.span.applies(view, target) or unheard(view, target)

    def __call__(self, view: Knowledge, target: int) -> tuple[Estimate, ...]:
        path = self.span.path(view, target)
        directions = path.h if is_two_step(view) else path.u
        fitted = _null_vector(path.x, directions, path.error)
        if fitted is None:
            return ()
        fitted = _scale(fitted, path, stepsizes(view)[path.k]) * fitted
        objective = fitted - known_mask(view, target)
        H, q = objective[:, :-1], objective[:, -1]
        of = partial(Estimate, attack=self.name, target=target)
        found = [of(quantity="objective", value=objective)]
        curvature = np.trace(H) / view.dim
        if np.linalg.norm(H - curvature * np.eye(view.dim)) < _ROUND * np.linalg.norm(H):
            found.append(of(quantity="data", value=-q / curvature))
        return tuple(found)


def _null_vector(x: Floats, directions: Floats, error: Floats) -> Floats | None:
    """[H | q] (d, d + 1) of norm one with H x + q along the directions, None where none fits."""
    d = x.shape[1]
    upper = np.triu_indices(d)
    unknowns = len(upper[0]) + d
    most = max(100, _EQUATIONS * unknowns // (d - 1))
    x, directions, error = x[:most], directions[:most], error[:most]
    if len(x) * (d - 1) < unknowns:
        return None
    middle = x.mean(axis=0)
    size = np.abs(x - middle).max()
    if size == 0:  # it never moved
        return None
    y = (x - middle) / size
    across = np.linalg.svd(directions[:, None])[2][:, 1:]  # (claims, d − 1, d)
    products = np.einsum("kra,kb->krab", across, y)
    products = products + products.swapaxes(2, 3)
    products[:, :, range(d), range(d)] /= 2
    rows = np.concatenate([products[:, :, *upper], across], axis=2)
    rows = (rows / np.maximum(error, _EXACT)[:, None, None]).reshape(-1, unknowns)
    _, values, vectors = np.linalg.svd(rows, full_matrices=False)
    rounding = np.sqrt(len(rows)) * max(1.0, np.abs(x).max() / size)  # one in each row, more in y
    if values[-1] > _STANDS_OUT * values[-2] or values[-2] < _ABOVE * rounding:
        return None
    half = np.zeros((d, d))
    half[upper] = vectors[-1, :-d]
    H = (half + half.T - np.diag(np.diag(half))) / size
    fitted = np.column_stack([H, vectors[-1, -d:] - H @ middle])
    return fitted / np.linalg.norm(fitted)


def _scale(fitted: Floats, path: Path, lam: Floats) -> float:
    """The factor by which `fitted` gives the gradients, sign included."""
    shape = path.x @ fitted[:, :-1].T + fitted[:, -1]
    ratio = (path.h * shape).sum(axis=1) / (shape * shape).sum(axis=1) / lam
    return float(np.median(ratio[len(ratio) // 2 :]))
