"""Trajectory: with constant splits an agent's messages are a fixed combination of two unknowns.

Divide what i sends to j by its public weight, V_j = v_ji / w_ji in PDG-DS and V_j = v_ji / m_ji in
the lazy PDG-NDS. With a constant split b,

    V_j^k = u^k − β_j s^k,      β_j = b_ji / w_ji or b_ji / m_ji, constant and secret

    PDG-DS      u^k = x^k                    s^k = h^k = λ^k g̃^k
    lazy        u^k = 2x^k − x^{k−1}         s^k = h^k − h^{k−1},      x^{−1} = x^0, h^{−1} = 0

where g̃ is the gradient as the agent steps with it, its mask included. An adversary that hears all
links of i has its net inflow F too (`flow`), and in both methods x^{k+1} = u^k − s^k + F^k.

**Several receivers heard.** Let V̄ be the mean of the V_j. The V_j − V̄ = −(β_j − β̄) s are multiples
of one series, so a singular value decomposition gives D with s = κ D and u = V̄ + γ D: two numbers
(κ, γ) for the whole run, in any dimension. Let T give x from u (x^k = (u^k + x^{k−1})/2 from
x^0 = u^0 in the lazy form, nothing to do in PDG-DS). The flow is linear in them,

    γ ((T D)^{k+1} − D^k) + κ D^k = V̄^k + F^k − (T V̄)^{k+1}

n·d equations for two unknowns. Then x = T u, and h is s or its sum. Errors are rounding.

**Several receivers, not all links.** If agents start at a known x^0 (θ_s, zeros, or the start of
the members), the first messages give γ = −(V̄^0 − x^0)·D^0 / D^0·D^0, which must leave nothing. x
is then known, and h up to the factor κ. For a quadratic f_i the factor stays open; for others the
fit of rows finds it (`row_fit`).

**One receiver, all links** (a leaf). s = (u − V)/β, so x^{k+1} = (1 − 1/β) u^k + V^k/β + F^k: a
linear recursion, known up to β. Its solution forgets x^0 where it is stable (lazy: β > 3/4,
PDG-DS: β > 1/2); otherwise it is solved from the end, where the iterates rest. β is the number for
which h is the gradient of the kind of function that f_i is: here a quadratic.

**Masked statistic.** For a quadratic f_i, or within a stage, h^k / λ^k = H̃ x^k + q̃: least squares
gives (H̃, q̃) = (H_i + Q_i, q_i + c_i), with β and a deviation ϱ that was drawn once as further
unknowns. The attack claims it if the fit leaves nothing but rounding. The shares of members are
taken off the mask; without masks it is (H_i, q_i) itself.

Limits: fresh and isotropic splits (each message has a draw of its own), the form "square", and one
receiver without the other links. If f_i is no quadratic, no statistic is claimed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, cast
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from hushgrad.algorithms.base import Private
from hushgrad.errors import optional
from hushgrad.privacy.attacks.base import Attack, Estimate
from hushgrad.privacy.attacks.pdg import (
    is_square,
    is_two_step,
    known_mask,
    mean_weights,
    messages,
    mixing,
    net_inflow,
    stepsizes,
    unfit,
    unheard,
    unmasked,
)
from hushgrad.privacy.attacks.row_model import RowModel, best_start
from hushgrad.privacy.attacks.span import heard_receivers
from hushgrad.privacy.knowledge import Knowledge
from hushgrad.splits import IdentitySplit, PrivateConstantSplit

type Floats = NDArray[np.float64]

_EPS = 2.0**-52
_APART = 1e3  # times rounding: messages that differ by less tell no difference of β
_PARALLEL = 1e-9  # of the first messages: they tell the start that was assumed
_WIDE = 1.5  # of log β or log κ where anything may have been drawn
_NARROW = 0.25  # of log β of an agent that keeps between own/2 and `own`: by 0.19 at own = 0.45
_ROUNDING = 1e-16  # squared relative residual up to which a statistic is claimed


@dataclass(frozen=True)
class Paths:
    """x and h of one stage as functions of the few numbers that the messages leave open."""

    open: Literal["nothing", "κ", "β"]
    start: Floats  # (open,) plausible values
    at: Callable[[Floats], tuple[Floats, Floats]]  # those numbers → x (n, d), h (n, d)
    width: float = _WIDE  # by how much an open number may be off its plausible value


@dataclass(frozen=True, kw_only=True)
class Trajectory(Attack):
    """x_i^k and h_i^k of every iteration; (H_i, q_i) of a quadratic, its unknown mask included."""

    first: int = 300  # iterations of a stage that are looked at: there x moves most

    name = "trajectory"
    title = "Trajectory"

    def applies(self, view: Knowledge, target: int) -> str | None:
        return unfit(view, target) or varying(view) or too_few(view, target)

    def __call__(self, view: Knowledge, target: int) -> tuple[Estimate, ...]:
        kept = _kept.setdefault(view, {})  # attacks on masks ask again
        if (self, target) not in kept:
            kept[self, target] = self._found(view, target)
        return kept[self, target]

    def _found(self, view: Knowledge, target: int) -> tuple[Estimate, ...]:
        found: list[Estimate] = []
        for stage in view.stages:
            part = range(stage.start, min(stage.stop, stage.start + self.first))
            open_paths = paths(view, target, part)
            if open_paths is not None:
                found += _estimates(view, target, part, open_paths)
        return tuple(found)


_kept: WeakKeyDictionary[Knowledge, dict[tuple[Trajectory, int], tuple[Estimate, ...]]] = (
    WeakKeyDictionary()
)


def varying(view: Knowledge) -> str | None:
    """Why messages are no fixed combination of two unknowns."""
    if is_square(view):
        return 'the form "square" has three unknowns in a message'
    split = cast("Private", view.algorithm).splitting
    if not isinstance(split, PrivateConstantSplit | IdentitySplit):
        return "splits are not constant"
    return None


def too_few(view: Knowledge, target: int) -> str | None:
    """Why the messages heard leave more open than a few numbers."""
    heard = len(heard_receivers(view, target))
    reason = unheard(view, target)
    if reason is None or heard > 1:
        return None
    return reason if heard else f"hears nothing that agent {target} sends"


def paths(view: Knowledge, target: int, stage: range) -> Paths | None:
    """The paths x and h that the messages of a stage allow; None if they say too little."""
    receivers = heard_receivers(view, target)
    part = slice(stage.start, stage.stop)
    share = 0.5 if is_two_step(view) else 1.0
    weights = share * mixing(view)[receivers, target]
    V = np.nan_to_num(messages(view, target, receivers)[part]) / weights[:, None]
    F = net_inflow(view, target)[part] if unheard(view, target) is None else None
    two_step = is_two_step(view)
    if isinstance(cast("Private", view.algorithm).splitting, IdentitySplit):
        return None if F is None else _unsplit(V.mean(axis=1), F, two_step)
    mean, D, apart = _series(V)
    usual = np.mean([mean_weights(view, target)[j] for j in receivers] / weights)  # β̄
    if apart and F is not None:
        return _from_flow(mean, D, F, two_step)
    if apart:
        return _from_start(mean, D, two_step, float(usual), _usual_start(view))
    if F is None:
        return None
    split = cast("PrivateConstantSplit", cast("Private", view.algorithm).splitting)
    width = _WIDE if split.own is None or split.own > 0.5 else _NARROW
    return replace(
        _from_recursion(mean, F, two_step, float(usual), _usual_start(view)), width=width
    )


def _usual_start(view: Knowledge) -> Floats:
    """The start of agents, as far as the adversary knows it: members know their own."""
    if view.start is not None:
        return view.start
    own = [view.own(j).x[0] for j in sorted(view.members)]
    return np.mean(own, axis=0) if own else np.zeros(view.dim)


def _series(V: Floats) -> tuple[Floats, Floats, bool]:
    """V̄ (n, d), D (n, d) and whether the messages V (n, receivers, d) differ at all."""
    n, p, d = V.shape
    mean = V.mean(axis=1)
    spread = (V - mean[:, None]).swapaxes(0, 1).reshape(p, n * d)
    _, sizes, series = np.linalg.svd(spread, full_matrices=False)
    D = (sizes[0] * series[0]).reshape(n, d)
    return mean, D, bool(sizes[0] > _APART * _EPS * np.linalg.norm(V))


def _positions(u: Floats, two_step: bool) -> Floats:
    """T: x from u."""
    if not two_step:
        return u
    x = u.copy()
    for k in range(1, len(x)):
        x[k] = (u[k] + x[k - 1]) / 2
    return x


def _steps(s: Floats, two_step: bool) -> Floats:
    return np.cumsum(s, axis=0) if two_step else s


def _from_flow(mean: Floats, D: Floats, F: Floats, two_step: bool) -> Paths:
    shifted, moved = _positions(D, two_step), _positions(mean, two_step)
    rows = np.column_stack([(shifted[1:] - D[:-1]).ravel(), D[:-1].ravel()])
    size = np.maximum(np.linalg.norm(rows, axis=0), 1e-300)
    value = (mean[:-1] + F[:-1] - moved[1:]).ravel()
    gamma, kappa = np.linalg.lstsq(rows / size, value, rcond=None)[0] / size
    x, h = moved + gamma * shifted, _steps(kappa * D, two_step)
    return Paths("nothing", np.empty(0), lambda _: (x, h))


def _unsplit(u: Floats, F: Floats, two_step: bool) -> Paths:
    """β = 0: messages are u itself, and the flow gives the step, but that of the last iteration."""
    x = _positions(u, two_step)
    s = u[:-1] - x[1:] + F[:-1]
    s = np.concatenate([s, s[-1:] if len(s) else F])
    return Paths("nothing", np.empty(0), lambda _: (x, _steps(s, two_step)))


def _from_start(
    mean: Floats, D: Floats, two_step: bool, usual: float, start: Floats
) -> Paths | None:
    """γ from the first messages, and one number left open: log |κ|."""
    first, square = mean[0] - start, float(D[0] @ D[0])
    if not square:
        return None
    gamma = -float(first @ D[0]) / square
    if np.linalg.norm(first + gamma * D[0]) > _PARALLEL * max(np.linalg.norm(first), 1e-300):
        return None  # agents started elsewhere
    x = _positions(mean + gamma * D, two_step)
    unscaled, kappa = _steps(D, two_step), gamma / usual  # as V̄ = u − β̄ s
    if not kappa:
        return None
    sign, size = np.sign(kappa), np.log(abs(kappa))
    return Paths("κ", np.array([size]), lambda p: (x, sign * np.exp(p[0]) * unscaled))


def _from_recursion(V: Floats, F: Floats, two_step: bool, usual: float, start: Floats) -> Paths:
    """One number left open: log β."""

    def at(open_numbers: Floats) -> tuple[Floats, Floats]:
        beta = float(np.exp(open_numbers[0]))
        x = _recursion(1.0 - 1.0 / beta, V / beta + F, two_step, start, V[-1])
        earlier = np.concatenate([x[:1], x[:-1]])
        u = 2 * x - earlier if two_step else x
        return x, _steps((u - V) / beta, two_step)

    return Paths("β", np.array([np.log(usual)]), at)


def _recursion(a: float, forcing: Floats, two_step: bool, start: Floats, end: Floats) -> Floats:
    """x of x^{k+1} = a u^k + forcing^k, from its start if that is stable, else from its end."""
    linalg = optional("scipy.linalg", "sim")
    n = len(forcing)
    bands = np.ones((3, n))  # of x^{k+1}, x^k and x^{k−1}
    bands[1] = -2 * a if two_step else -a
    bands[2] = a if two_step else 0.0
    bands[1, 0] = -a  # x^{−1} = x^0
    if (-1 / 3 if two_step else -1.0) < a < 1.0:
        return linalg.lapack.dtbtrs(
            bands, np.concatenate([start[None], forcing[:-1]]), uplo="L", diag="U"
        )[0]
    value = forcing.copy()
    value[-1] -= end
    return linalg.solve_banded((1, 1), bands, value, check_finite=False)


def masked_statistic(
    view: Knowledge, target: int, first: int = 300
) -> tuple[Floats, Floats] | None:
    """x^0 (d,) and [H̃ | q̃] (d, d + 1) of a view of one stage; None where it does not tell them.

    What members share of the mask is taken off.
    """
    part = range(min(view.iterations, first))
    found = paths(view, target, part)
    if found is None or found.open == "κ" or len(part) < 2 * view.dim + 4:
        return None
    model = RowModel.of(view, found, part)
    fit = best_start(model)
    if fit.residual > _ROUNDING:
        return None
    x, _ = found.at(model.open_numbers(fit))
    return x[0], model.affine(fit) - known_mask(view, target)


def _estimates(view: Knowledge, target: int, part: range, found: Paths) -> list[Estimate]:
    of = partial(Estimate, attack=Trajectory.name, target=target)
    k = np.arange(part.start, part.stop)
    model = RowModel.of(view, found, part)
    fit = None if model.is_empty or found.open == "κ" else best_start(model)
    is_quadratic = fit is not None and fit.residual <= _ROUNDING
    if found.open == "β" and not is_quadratic:
        return []
    x, h = found.at(found.start if fit is None else model.open_numbers(fit))
    told = [of(quantity="position", k=k, value=x)]
    if found.open != "κ":
        g = unmasked(view, target, h / stepsizes(view)[: len(k), None], x)
        later = k > part.start  # λ^0 may be anything between 0 and its bound
        told.append(of(quantity="scaled gradient", k=k, value=h))
        told.append(of(quantity="gradient", k=k[later], value=g[later]))
    if fit is not None and is_quadratic:
        told.append(of(quantity="objective", value=model.affine(fit) - known_mask(view, target)))
    return told
