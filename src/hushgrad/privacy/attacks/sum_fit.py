"""Sum fit: what a staged run tells everybody, the sums over honest agents, may tell their rows.

In a staged run an adversary learns of the agents beyond it, at every stage s, the sums of their
statistics over each component of honest mask partners: masks cancel there. With θ_s known,

    Σ_i H_i(θ_s) = Σ_r σ'(z_rᵀθ_s) z_r z_rᵀ + ρ I
    Σ_i g_i(θ_s) = −Σ_r z_r σ(−z_rᵀθ_s) + ρ θ_s,         g = q + Hθ

over all rows z_r = y_r x_r of the component, for a logistic loss with a regulariser ρ. S stages are
S · d(d + 3)/2 numbers about n·d unknowns (and ρ). Where these are not far fewer than the unknowns,
least squares finds rows, without saying whose they are; gradients tell the signs too.

The statistics come from `trajectory`, stage by stage, with the shares of members taken off. Stages
have one θ_s for all agents. Rows are added one at a time, as in `row_fit`, from several random
starts.

Limits: late stages have almost the same θ_s and say almost the same. With more unknowns than
numbers nothing is determined; with a few more numbers than unknowns there are many local minima.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from hushgrad.algorithms.base import Private
from hushgrad.privacy.attacks.base import Estimate, StagesAttack
from hushgrad.privacy.attacks.least_squares import descended, square
from hushgrad.privacy.attacks.pdg import unfit, unheard
from hushgrad.privacy.attacks.trajectory import masked_statistic, varying
from hushgrad.privacy.knowledge import Knowledge

type Floats = NDArray[np.float64]

_DONE = 1e-20  # squared relative residual: rounding is left
_TASTE, _MEAL = 10, 60  # steps for a candidate, and for all rows with the best one
_SAME = 1e-6  # relative distance of two θ_s: nearer ones tell the same
_EQUATIONS = 1.2  # per unknown: more rows than that would fit anything
_LAST = 300  # steps for the best of all starts
_CANDIDATES = 3


class Sums(NamedTuple):
    """What one stage tells of a component."""

    theta: Floats  # (d,)
    H: Floats  # (d, d) Σ H_i(θ)
    q: Floats  # (d,) Σ g_i(θ) − Σ H_i(θ) θ


@dataclass(frozen=True)
class SumRows:
    """Rows that explain the sums, and how well."""

    rows: Floats  # (n, d)
    residual: float  # squared, relative


@dataclass(frozen=True, kw_only=True)
class SumFit(StagesAttack):
    """Rows of the honest component to which agent i belongs, signs included."""

    starts: int = 2
    effort: float = 1e10
    claimed: float = 1e-4  # squared relative residual: rows that leave more explain nothing

    name = "sum-fit"
    title = "Sum fit"

    def refusal(self, views: Sequence[Knowledge], target: int) -> str | None:
        reason = unfit(views[0], target) or varying(views[0])
        if reason is not None:
            return reason
        if views[0].problem != "logistic":
            return f"knows no rows behind the objective '{views[0].problem}'"
        if len(views) < 2:
            return "needs the sums of several stages"
        for i in sorted(component(views[0], target)):
            if unheard(views[0], i) is not None:
                return f"{unheard(views[0], i)}, who masks with agent {target}"
        return None

    def over(self, views: Sequence[Knowledge], target: int) -> tuple[Estimate, ...]:
        sums: list[Sums] = []
        for view in views:
            found = stage_sums(view, target)
            if found is not None and (not sums or _moved(sums[-1].theta, found.theta)):
                sums.append(found)
        if len(sums) < 2:
            return ()
        rule = cast("Private", views[0].algorithm).curvature
        fit = fit_sums(sums, curvature=rule, starts=self.starts, effort=self.effort)
        if fit.residual > self.claimed:
            return ()
        return (Estimate(attack=self.name, target=target, quantity="rows", value=fit.rows),)


def _moved(before: Floats, theta: Floats) -> bool:
    """Whether a stage says anything new."""
    return bool(np.linalg.norm(theta - before) > _SAME * max(1.0, float(np.linalg.norm(theta))))


def component(view: Knowledge, target: int) -> frozenset[int]:
    """The agents outside the adversary that masks of agents outside link with the target."""
    masks = cast("Private", view.algorithm).masking
    reached, todo = {target}, [target]
    while masks is not None and todo:
        near = set(masks.partners(todo.pop(), view.n_agents)) - view.members - reached
        reached |= near
        todo += near
    return frozenset(reached)


def stage_sums(view: Knowledge, target: int) -> Sums | None:
    """What one stage tells of the target's component, None where an agent's part is not known.

    Shares between members and the component are known to members; those within it cancel.
    """
    total, theta = np.zeros((view.dim, view.dim + 1)), np.zeros(view.dim)
    for i in component(view, target):
        found = masked_statistic(view, i)
        if found is None:
            return None
        theta = found[0] if i == target else theta
        total += found[1]
    return Sums(theta, total[:, :-1], total[:, -1])


def fit_sums(
    sums: Sequence[Sums],
    *,
    n_rows: int | None = None,
    curvature: str = "newton",
    starts: int = 4,
    effort: float = 1e10,
    seed: int = 0,
) -> SumRows:
    """Rows whose sums these are.

    n_rows      how many, if that is public; None: rows are added while the numbers determine them
    curvature   of the stages: "newton" as hushgrad.problems.losses has it, or "fixed", ¼ XᵀX
    starts      independent beginnings, of which the best is taken
    effort      multiplications, over all starts: a few seconds
    """
    told = _Told.of(sums, curvature)
    d = told.theta.shape[1]
    most = n_rows if n_rows is not None else max(1, int(told.value.size / (_EQUATIONS * d)))
    best: _Rows | None = None
    for start in range(starts):
        found = _grown(told, most, np.random.default_rng([seed, start]), effort / starts)
        if best is None or square(found) < square(best):
            best = found
        if square(best) <= _DONE:
            break
    assert best is not None
    best = descended(best, _LAST)
    return SumRows(best.rows, square(best))


@dataclass(frozen=True)
class _Told:
    """The numbers of all stages, in units of their size."""

    theta: Floats  # (S, d)
    value: Floats  # (numbers,)
    size: Floats  # (2,) of Hessians and of gradients
    upper: tuple[NDArray[np.int64], NDArray[np.int64]]
    is_fixed: bool
    weight: Floats  # (d (d + 1) / 2,) 1 on the diagonal, √2 off it: the norm of a matrix

    @staticmethod
    def of(sums: Sequence[Sums], curvature: str) -> _Told:
        theta = np.array([s.theta for s in sums], np.float64)
        H = np.array([s.H for s in sums], np.float64)
        g = np.array([s.q for s in sums], np.float64) + np.einsum("sab,sb->sa", H, theta)
        size = np.maximum([np.linalg.norm(H), np.linalg.norm(g)], 1e-300)
        rows, columns = np.triu_indices(theta.shape[1])
        weight = np.where(rows == columns, 1.0, np.sqrt(2.0))
        value = np.concatenate(
            [(weight * H[:, rows, columns] / size[0]).ravel(), g.ravel() / size[1]]
        )
        return _Told(theta, value, size, (rows, columns), curvature == "fixed", weight)

    def curvature(self, t: Floats) -> tuple[Floats, Floats]:
        """∂²ℓ/∂t² as stages have it, and its derivative, at margins t (S, n).

        A row that the last step threw far off has the weight tanh(t/2)/2t instead.
        """
        if self.is_fixed:
            return np.full_like(t, 0.25), np.zeros_like(t)
        doubt = 0.5 - 0.5 * np.tanh(t / 2)
        weight = doubt * (1 - doubt)
        slope = weight * (2 * doubt - 1)  # σ''(t) = −σ'(t) tanh(t/2)
        thrown = np.zeros(t.shape, bool)
        thrown[1:] = (t[1:] < 0) & (np.abs(np.diff(t, axis=0)) > 1.0)
        size = np.maximum(np.abs(t), 1e-6)
        bent = np.tanh(size / 2)
        safe = bent / (2 * size)
        turned = np.sign(t) * ((1 - bent**2) / (4 * size) - bent / (2 * size**2))
        return np.where(thrown, safe, weight), np.where(thrown, turned, slope)


@dataclass(frozen=True)
class _Rows:
    """Rows and ρ with their residual."""

    told: _Told
    rows: Floats
    rho: float

    @property
    def residual(self) -> Floats:
        told, Z = self.told, self.rows
        t = told.theta @ Z.T  # (S, n)
        doubt = 0.5 - 0.5 * np.tanh(t / 2)
        curved = np.einsum("sr,ra,rb->sab", told.curvature(t)[0], Z, Z)
        H = curved + self.rho * np.eye(Z.shape[1])
        g = self.rho * told.theta - doubt @ Z
        shown = (told.weight * H[:, *told.upper] / told.size[0]).ravel()
        return np.concatenate([shown, (g / told.size[1]).ravel()]) - told.value

    def jacobian(self) -> tuple[Floats, Floats]:
        told, Z = self.told, self.rows
        (n, d), stages = Z.shape, len(told.theta)
        t = told.theta @ Z.T
        doubt = 0.5 - 0.5 * np.tanh(t / 2)
        weight, bend = told.curvature(t)
        a, b = told.upper
        # of H: w'(t) θ_e z_a z_b + w(t) (δ_ae z_b + z_a δ_be), w = σ' but for thrown rows
        bent = np.einsum("sr,se,rp->spre", bend, told.theta, Z[:, a] * Z[:, b])
        eye = np.eye(d)
        turned = np.einsum("pe,rp->pre", eye[a], Z[:, b]) + np.einsum("pe,rp->pre", eye[b], Z[:, a])
        H = told.weight[:, None, None] * (bent + weight[:, None, :, None] * turned) / told.size[0]
        # of g: σ'(t) θ_e z_c − doubt δ_ce
        g = np.einsum("sr,se,rc->scre", doubt * (1 - doubt), told.theta, Z)
        g[:, range(d), :, range(d)] -= doubt
        J = np.concatenate(
            [H.reshape(stages * len(a), -1), g.reshape(stages * d, -1) / told.size[1]]
        )
        flat = np.tile(told.weight * eye[a, b], stages) / told.size[0]
        rho = np.concatenate([flat, (told.theta / told.size[1]).ravel()])
        return np.column_stack([J, rho]), np.full(n * d + 1, 1e-300)

    def moved(self, step: Floats) -> _Rows:
        rows = self.rows + step[:-1].reshape(self.rows.shape)
        return _Rows(self.told, rows, self.rho + float(step[-1]))


def _grown(told: _Told, most: int, rng: np.random.Generator, effort: float) -> _Rows:
    """Rows added one at a time, until nothing is left to explain or the effort is spent."""
    d = told.theta.shape[1]
    at, spent = _Rows(told, np.empty((0, d)), 0.0), 0.0
    for n in range(1, most + 1):
        spent += 4.0 * len(told.value) * (n * d) ** 2 * (_CANDIDATES * _TASTE + _MEAL)
        if spent > effort and n > 1:
            break
        tried = [
            descended(
                _Rows(told, np.concatenate([at.rows, rng.normal(size=(1, d))]), at.rho), _TASTE
            )
            for _ in range(_CANDIDATES)
        ]
        at = descended(min(tried, key=square), _MEAL)
        if square(at) <= _DONE:
            break
    return at
