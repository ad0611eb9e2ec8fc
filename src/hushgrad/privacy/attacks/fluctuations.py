"""The secret draws of others, as curious agents see them, and the spectrum of the public model.

Drift, Spread and Whitening (drift.py, spread.py, whitening.py) start from it.

Late in a run the gradients rest at g_i = g_i(θ*), and the secret draws alone still change. Write
fluctuations about the smooth course in units of their size, ε = (x − smooth) / α^k, with n = k + 1
and s = α^{k+1} / α^k in the limit:

    PDG-DS      α^k = λ^k, s = 1        s ε⁺ = W ε − ΔB^k g                      ΔB = B − E B
    PDG-NDS     α^k = λ / n^p, s = 1    s ε⁺ = 2M ε − M ε⁻/s + B^k Δϱ^k g        "square": 2W, W²
                α^k = λ s^n             for a geometric deviation of ratio s

with fresh ϱ, Δϱ^k = ϱ^k − ϱ^{k−1}/s. (The feedback of ε through g is smaller by the factor λL and
left out.) Agent j knows its own x_j and hears v_jl from each neighbour l. It sees of l, with c_jl
as in `pdg`,

    r_jl = (v_jl − c_jl · (x_j^k, x_j^{k−1})) / α^k = c_jl · (ε_l − ε_j)^{k, k−1} − (its draw) g_l

which is linear in the draws, and draws of different agents are independent. So every auto- and
cross-covariance of r, at every lag, is Σ_a (known number) g_a g_aᵀ: known from W and from the
moments of b. Collected over all lags, these make the cross-spectrum at frequency ω, z = s e^{iω}:

    E r̂_p r̂_q* = Σ_a T_a(ω)_pq g_a g_aᵀ,       T_a = H_a Γ_a H_a*
    H_a(ω)_p = (c_0 + c_1/z) (e_l − e_j)ᵀ X(ω) − [a = l] e_jᵀ,    X = −(zI − P + V/z)⁻¹

over the receivers N_a of a, with x⁺ = P x − V x⁻ the public recursion, Γ_a = Cov(b_a) in PDG-DS,
and in PDG-NDS, by the moments of Δϱ, whose mean is (1 − 1/s)/2,

    Γ_a(ω) = ((1 + s⁻²) E[b bᵀ] − 2 s⁻¹ cos ω E[b] E[b]ᵀ) / 12 + (1 − 1/s)² Cov(b) / 4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import cast

import numpy as np
from numpy.typing import NDArray

from hushgrad.algorithms.base import Private
from hushgrad.privacy.attacks.pdg import (
    coefficients,
    is_square,
    is_two_step,
    mean_weights,
    mixing,
    stepsizes,
)
from hushgrad.privacy.knowledge import Knowledge
from hushgrad.stepsizes import Deviation, Geometric, Harmonic

type Floats = NDArray[np.float64]
type Complex = NDArray[np.complex128]
type Pair = tuple[int, int]  # (listener, sender)

_COURSE = 16  # degree of the smooth course
_ROUNDING = 1e-12  # below, messages' last digits drown them if gradients are as large as x
_STEADY = 2.0  # ratio of fluctuations in the second half to those in the first


def pairs_of(view: Knowledge) -> list[Pair]:
    """Members and the outsiders that send to them."""
    return [(j, i) for j in sorted(view.members) for i in view.in_links(j) if i not in view.members]


def seen(view: Knowledge, pairs: Sequence[Pair]) -> Floats:
    """v_jl − c_jl · (x_j^k, x_j^{k−1}), (n, pairs, d)."""
    columns: list[Floats] = []
    for j, i in pairs:
        now, before = coefficients(view, i, [j])[0]
        x = view.own(j).x[:-1]
        earlier = np.concatenate([x[:1], x[:-1]])
        columns.append(view.sent(i, j) - now * x - before * earlier)
    return np.stack(columns, axis=1)


def still_draws(view: Knowledge) -> str | None:
    """Why stepsizes do not keep fluctuating, or None."""
    deviation = cast("Private", view.algorithm).schedule.deviation
    if isinstance(deviation, Harmonic | Geometric) and deviation.drawn == "each":
        return None
    return "stepsizes do not keep fluctuating"


def stepsize_spread(view: Knowledge) -> Floats:
    """λ^k / n^p or λ^k s^n, (n,): how much a fresh ϱ moves λ."""
    deviation = cast("Deviation", cast("Private", view.algorithm).schedule.deviation)
    return stepsizes(view, 0.0) * deviation.spread(np.arange(1.0, view.iterations + 1))


def shrinking(view: Knowledge) -> float:
    """s, for fluctuations that come from ϱ."""
    deviation = cast("Private", view.algorithm).schedule.deviation
    return deviation.ratio if is_two_step(view) and isinstance(deviation, Geometric) else 1.0


def window(sizes: Floats) -> slice:
    """The iterations in which gradients rest and fluctuations of these sizes exceed rounding."""
    above = np.flatnonzero(sizes >= _ROUNDING)
    last = int(above[-1]) + 1 if len(above) else 0
    return slice(last // 4, last)


def is_steady(r: Floats) -> bool:
    """Whether r (n, pairs, d) fluctuates alike early and late: no course is left in it."""
    half = len(r) // 2
    late, early = (r[half:] ** 2).mean(axis=(0, 2)), (r[:half] ** 2).mean(axis=(0, 2))
    return bool(((late < _STEADY**2 * early) & (early < _STEADY**2 * late)).all())


def without_course(r: Floats, heard: slice) -> Floats:
    """r (n, …) of these iterations less a polynomial in log k: powers of k are smooth in it.

    Taken out twice, so that rounding leaves nothing of a steep course.
    """
    time = np.log(np.arange(heard.start, heard.stop) + 1.0)
    time = 2 * (time - time[0]) / (time[-1] - time[0]) - 1
    Q = np.linalg.qr(np.polynomial.chebyshev.chebvander(time, _COURSE))[0]
    flat = r.reshape(len(r), -1)
    for _ in range(2):
        flat = flat - Q @ (Q.T @ flat)
    return flat.reshape(r.shape)


def spectra(view: Knowledge, pairs: Sequence[Pair], omega: Floats) -> Complex:
    """T_a(ω)_pq, (agents, frequencies, pairs, pairs)."""
    z = (shrinking(view) * np.exp(1j * omega)).astype(np.complex128)
    X = _propagation(view, z)
    H = np.empty((len(omega), len(pairs), view.n_agents), complex)
    for p, (j, i) in enumerate(pairs):
        now, before = coefficients(view, i, [j])[0]
        H[:, p] = (now + before / z)[:, None] * (X[:, i] - X[:, j])
    T = np.empty((view.n_agents, len(omega), len(pairs), len(pairs)), complex)
    for a in range(view.n_agents):
        slots = sorted((*view.out_links(a), a))
        of_a = H[:, :, slots]
        for p, (j, i) in enumerate(pairs):
            if i == a:
                of_a[:, p, slots.index(j)] -= 1.0
        T[a] = of_a @ _input_spectrum(view, len(slots), omega) @ of_a.conj().swapaxes(1, 2)
    return T


def limits(r: Floats, heard: slice) -> Floats:
    """a of the course a + b/n of r (n, pairs, d) in these iterations, (pairs, d)."""
    n = np.arange(heard.start, heard.stop) + 1.0
    course = np.column_stack([np.ones_like(n), n[0] / n])
    return np.linalg.lstsq(course, r.reshape(len(r), -1), rcond=None)[0][0].reshape(r.shape[1:])


def mean_response(view: Knowledge, pairs: Sequence[Pair]) -> Floats:
    """C_pa of E r = Σ_a C_pa g_a in PDG-DS, (pairs, agents): ω → 0, all columns at their mean."""
    W, m = mixing(view), view.n_agents
    E_B = np.zeros((m, m))
    for a in range(m):
        for i, weight in mean_weights(view, a).items():
            E_B[i, a] = weight
    # (I − W) ε = −E[B] g off the common part, which 11ᵀ/m makes regular and no difference shows
    rest = -np.linalg.solve(np.eye(m) - W + 1.0 / m, E_B)
    return np.stack(
        [W[j, i] * (rest[i] - rest[j]) - E_B[j, i] * (np.arange(m) == i) for j, i in pairs]
    )


def _propagation(view: Knowledge, z: Complex) -> Complex:
    """X = −(zI − P + V/z)⁻¹ up to its common part, (frequencies, m, m).

    Agents see differences only. Slow common changes would make the matrix all but singular, so
    11ᵀ/m is taken off: it moves the common eigenvalue, z − 1 or z − 2 + 1/z, away from zero.
    """
    W, eye = mixing(view), np.eye(view.n_agents)
    P, V = {
        (False, False): (W, 0 * W),
        (True, False): (eye + W, (eye + W) / 2),
        (True, True): (2 * W, W @ W),
    }[is_two_step(view), is_square(view)]
    z = z[:, None, None]
    return -np.linalg.inv(z * eye - P + V / z - 1.0 / len(W))


def _input_spectrum(view: Knowledge, n: int, omega: Floats) -> Floats:
    """Γ(ω) of one agent's draws over its n slots, (frequencies, n, n)."""
    second = split_moment(n, 1, 1) + (split_moment(n, 2) - split_moment(n, 1, 1)) * np.eye(n)
    mean = np.full((n, n), 1.0 / n**2)
    turn, s = np.cos(omega)[:, None, None], shrinking(view)
    if is_two_step(view):
        fresh = ((1 + s**-2) * second - 2 / s * turn * mean) / 12
        return fresh + (1 - 1 / s) ** 2 / 4 * (second - mean)
    return second - mean + 0 * turn


@lru_cache
def split_moment(n: int, *powers: int) -> float:
    """E Π_i b_i^{p_i} of b = u/Σu, u uniform, n slots: ∫ t^{q−1}/Γ(q) Π E[u^p e^{−tu}] dt, q = Σ p.

    >>> round(split_moment(3, 1), 9), round(2 * split_moment(2, 2) + 2 * split_moment(2, 1, 1), 9)
    (0.333333333, 1.0)
    """
    s, weight = np.polynomial.legendre.leggauss(200)
    t = (1 + s) / (1 - s)  # from (−1, 1) to (0, ∞)
    q = sum(powers)
    integrand = t ** (q - 1) / math.factorial(q - 1) * _transform(0, t) ** (n - len(powers))
    for p in powers:
        integrand = integrand * _transform(p, t)
    return float((integrand * weight * 2 / (1 - s) ** 2).sum())


def _transform(p: int, t: Floats) -> Floats:
    """E u^p e^{−tu}."""
    s, weight = np.polynomial.legendre.leggauss(40)
    u = (1 + s) / 2
    near = (weight / 2 * u**p * np.exp(-np.minimum(t, 30)[:, None] * u)).sum(axis=1)
    return np.where(t < 30, near, math.factorial(p) / t ** (p + 1))
