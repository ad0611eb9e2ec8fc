"""Random splits: mean-square stability, and rates of drawn splits and masks.

A split B^k that is drawn afresh multiplies the errors by noise. The mean step may be stable and the
run diverge all the same (a path of 8 agents at λL = 3). With Ā the mean step and P = E[s sᵀ],

    P⁺ = Ā P Āᵀ + Σ_j Cov(b_j) ⊗ λ² H_j P^Δ_jj H_j,      P^Δ = E[(x − w)(x − w)ᵀ]

The spectral radius of this map is below 1 if and only if E‖s‖² → 0; its root is the rate of the
root mean square. The columns b_j of different agents are independent.

A split that is drawn once, and masks that are drawn once, make a step of their own for every draw.

auto.py and tight.py ask for these rates, stall.py for the noise of splits.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hushgrad.algorithms.base import Private
from hushgrad.algorithms.pdg_nds import PDGNDS
from hushgrad.errors import optional
from hushgrad.exchange import Links
from hushgrad.masks import MOST_QUADRATIC
from hushgrad.mixing import Network
from hushgrad.splits import FreshSplit, IsotropicSplit, PrivateConstantSplit, Split
from hushgrad.theory.linear import Floats, TwoStep, split_links, split_matrix, times
from hushgrad.theory.rates import LARGE

MOST_EXACT = 240  # numbers in a state up to which the moments are followed: P has their square
NUMBERS = 1_000_000  # of Cov(b_j) for all j, m³
ARNOLDI = 24
TOLERANCE = 1e-5
NEGLIGIBLE = 1e-9  # a power of the step
MOST_DOUBLED = 40  # powers: the last is the 2³⁹-th
LOOPS = 12  # of the noise, after which its gain has settled
BISECTIONS = 4
STEPS = 500  # of a sampled run, whose second half counts
LARGE_STEPS = 60  # for more than LARGE numbers in a state


def fluctuates(algorithm: object) -> bool:
    """Whether splits are drawn in every iteration."""
    return isinstance(algorithm, PDGNDS) and isinstance(
        algorithm.splitting, FreshSplit | IsotropicSplit
    )


@functools.cache
def share_variance(n: int) -> float:
    """The variance of b_1 = u_1 / (u_1 + … + u_n) with independent uniforms u.

    E[u_1² / S²] = ∫ t E[u² e^{−tu}] E[e^{−tu}]^{n−1} dt.

    >>> round(share_variance(2), 6)  # b = u/(u + v): E[b²] = 1 − ln 2
    0.056853
    """
    if n == 1:
        return 0.0
    y = np.linspace(-14.0, 40.0, 20_001)
    t = np.exp(y)
    one = -np.expm1(-t) / t
    e = np.exp(-t)
    two = np.where(t < 1e-2, 1 / 3 - t / 4 + t * t / 10, (2 - e * (t * t + 2 * t + 2)) / t**3)
    second = np.trapezoid(t * t * two * one ** (n - 1), y)
    return float(second) - 1.0 / n**2


def has_moments(step: TwoStep) -> bool:
    """Whether the state is small enough for its moments."""
    return step.size <= MOST_EXACT and step.shape[0] ** 3 <= NUMBERS


def mean_square_radius(
    algorithm: PDGNDS, step: TwoStep, network: Network, lam: float
) -> float | None:
    """The root of the spectral radius of P ↦ P⁺; None if the state is too large for it."""
    m, d = step.shape
    n, half = step.size, m * d
    if not has_moments(step):
        return None
    A = step.dense(lam)
    root = lam * step.profile * step.hessians  # (m, d, d)
    added = split_noise(algorithm, network, step.shape)

    def noise(blocks: Floats) -> Floats:
        """The part of splits in P_xx, from P^Δ_jj (m, d, d)."""
        return added(root @ blocks @ root.swapaxes(1, 2))

    def product(v: Floats) -> Floats:
        P = v.reshape(n, n)
        new = A @ P @ A.T
        new[:half, :half] += noise(own_blocks(moved(P), step.shape))
        return new.ravel()

    linalg = optional("scipy.sparse.linalg", "sim")
    operator = linalg.LinearOperator((n * n, n * n), matvec=product, dtype=np.float64)
    try:
        values = linalg.eigs(
            operator, k=1, which="LM", v0=np.eye(n).ravel(), ncv=min(ARNOLDI, n * n - 1),
            maxiter=40, tol=TOLERANCE, return_eigenvectors=False,
        )  # fmt: skip
        rate = float(np.sqrt(np.abs(values).max()))
    except linalg.ArpackNoConvergence:
        rate = math.inf
    mean = float(np.abs(np.linalg.eigvals(A)).max())
    if rate <= 1.0 or mean >= 1.0:
        return rate
    # where eigenvalues nearly coincide Arnoldi's method finds too large ones
    return _rate_of_loop(A, mean, noise, step.shape) or (rate if math.isfinite(rate) else 1.0)


def split_noise(
    algorithm: PDGNDS, network: Network, shape: tuple[int, int]
) -> Callable[[Floats], Floats]:
    """The covariance Σ_j Cov(b_j) ⊗ V_jj (md, md) that splits add, from V_jj = E[v_j v_jᵀ]."""
    m, d = shape
    covariance = _covariances(algorithm.splitting, network, algorithm.links).reshape(m, m * m)
    is_isotropic = isinstance(algorithm.splitting, IsotropicSplit)

    def added(each: Floats) -> Floats:
        if is_isotropic:  # shares in random directions: the same size, no direction
            each = np.trace(each, axis1=1, axis2=2)[:, None, None] / d * np.eye(d)
        found = (covariance.T @ each.reshape(m, d * d)).reshape(m, m, d, d)
        return found.swapaxes(1, 2).reshape(m * d, m * d)

    return added


def moved(P: Floats) -> Floats:
    """P^Δ (md, md) of P (2md, 2md)."""
    half = len(P) // 2
    # not xwᵀ for P_wx: rounding leaves P a little unsymmetric, and that part would grow
    return P[:half, :half] - P[:half, half:] - P[half:, :half] + P[half:, half:]


def own_blocks(P: Floats, shape: tuple[int, int]) -> Floats:
    """P_jj (m, d, d) of P (md, md)."""
    m, d = shape
    me = np.arange(m)
    return P.reshape(m, d, m, d)[me, :, me, :]


def doubled(A: Floats) -> list[Floats]:
    """A, A², A⁴, …, until they vanish."""
    powers = [A]
    while np.linalg.norm(powers[-1]) > NEGLIGIBLE and len(powers) < MOST_DOUBLED:
        powers.append(powers[-1] @ powers[-1])
    return powers


def summed(powers: list[Floats], Q: Floats) -> Floats:
    """Σ_k A^k Q (Aᵀ)^k, from the powers of `doubled`."""
    total = Q
    for power in powers:
        total = total + power @ total @ power.T
    return total


def _rate_of_loop(
    A: Floats, mean: float, noise: Callable[[Floats], Floats], shape: tuple[int, int]
) -> float | None:
    """The root mean square's rate, by the loop from P^Δ_jj over the noise back to P^Δ_jj.

    Errors shrink as β^k if and only if Ā/β is stable and the loop P^Δ → Σ_k (Ā/β)^k N(P^Δ) (Āᵀ/β)^k
    → P^Δ, with the noise N over β², has a radius below 1. The loop keeps its argument positive
    semidefinite, so powers of it find its radius. None: not even β = 1 is enough.
    """
    (m, d), half = shape, len(A) // 2

    def is_enough(beta: float) -> bool:
        powers = doubled(A / beta)
        blocks, gain = np.broadcast_to(np.eye(d), (m, d, d)), 0.0
        for _ in range(LOOPS):
            moments = np.zeros_like(A)
            moments[:half, :half] = noise(blocks) / beta**2
            new = own_blocks(moved(summed(powers, moments)), shape)
            gain = float(np.trace(new.sum(axis=0)) / np.trace(blocks.sum(axis=0)))
            if not gain > 0.0:
                return True
            blocks = new / gain
        return gain < 1.0

    if not is_enough(1.0):
        return None
    low, high = mean, 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def _covariances(split: Split, network: Network, links: Links) -> Floats:
    """Cov(b_j) for every sender, (m, m, m); of an isotropic split with s_j = scale, its largest."""
    m = network.n_agents
    receivers, senders = split_links(network, links)
    found = np.zeros((m, m, m))
    for j in range(m):
        others = receivers[senders == j]
        if isinstance(split, IsotropicSplit):
            apart = np.zeros((len(others), m))
            apart[np.arange(len(others)), others] = 1.0
            apart[:, j] = -1.0  # the own share gives what a link gets
            found[j] = split.scale**2 * apart.T @ apart
        elif len(others):
            here = np.append(others, j)
            count = len(here)
            spread = np.eye(count) - 1.0 / count
            found[j][np.ix_(here, here)] = share_variance(count) * count / (count - 1) * spread
    return found


# ---- draws


def drawn_steps(
    algorithm: PDGNDS, step: TwoStep, network: Network, lam: float, draws: int, seed: int = 0
) -> Iterator[TwoStep]:
    """The step with splits and quadratic masks that are drawn once, some times over."""
    rng = np.random.default_rng(seed)
    for _ in range(draws):
        drawn = step
        if isinstance(algorithm.splitting, PrivateConstantSplit):
            drawn = replace(drawn, split=_drawn_split(algorithm, network, rng))
        Q = drawn_masks(algorithm, network, step.shape[1], lam, rng)
        yield drawn if Q is None else replace(drawn, hessians=drawn.hessians + Q)


def _drawn_split(algorithm: PDGNDS, network: Network, rng: np.random.Generator) -> object:
    receivers, senders = split_links(network, algorithm.links)
    own, links = draw_shares(algorithm.splitting, senders, network.n_agents, rng)
    return times(split_matrix(own, links, receivers, senders))


def draw_shares(
    split: Split, senders: NDArray[np.int64], m: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Own shares (m,) and shares of the links, drawn as `hushgrad.splits` says."""
    own, links = rng.uniform(size=m), rng.uniform(size=len(senders))
    given = np.bincount(senders, links, minlength=m)
    if isinstance(split, PrivateConstantSplit) and split.own is not None:
        kept = split.own * 0.5 * (1.0 + own)
        own = np.where(given > 0, kept / (1.0 - kept) * given, 1.0)
    total = own + given
    return own / total, links / total[senders]


def drawn_masks(
    algorithm: Private, network: Network, dim: int, lam: float, rng: np.random.Generator
) -> Floats | None:
    """Quadratic masks Q (m, d, d) of a stepsize, Gaussian as `hushgrad.masks` says; or None."""
    masks = algorithm.masking
    if masks is None or dim > MOST_QUADRATIC:
        return None
    sizes = masks.sizes(dim, lam=lam, eta=network.eta if masks.quadratic is None else None)
    if not sizes.quadratic:
        return None
    m = network.n_agents
    Q = np.zeros((m, dim, dim))
    me = np.arange(m)
    for other in masks.partner_table(m):
        low = me[me < other]
        white = np.triu(rng.normal(size=(len(low), dim, dim)) * sizes.quadratic)
        share = white + np.triu(white, 1).swapaxes(1, 2)
        share += rng.normal(size=(len(low), 1, 1)) * sizes.identity * np.eye(dim)
        np.add.at(Q, low, share)
        np.subtract.at(Q, other[low], share)
    return Q


def sampled_rates(algorithm: PDGNDS, step: TwoStep, network: Network, lams: Floats) -> Floats:
    """The growth per iteration of one run with fresh splits, for each stepsize (n,)."""
    steps = STEPS if step.size <= LARGE else LARGE_STEPS
    rng = np.random.default_rng(0)
    (m, d), count = step.shape, len(lams)
    receivers, senders = split_links(network, algorithm.links)
    lam: object = np.asarray(lams)
    s = np.repeat(rng.normal(size=(2, m, d, 1)), count, axis=3)
    logs = np.zeros(count)
    for k in range(steps):
        own, links = draw_shares(algorithm.splitting, senders, m, rng)
        drawn = replace(step, split=times(split_matrix(own, links, receivers, senders)))
        # one λ for each column; what is conserved would grow from rounding, beside shrinking errors
        s = drawn.step(step.project(s, lam), lam)  # type: ignore[arg-type]  # one λ per column
        size = np.sqrt((s * s).sum(axis=(0, 1, 2))) + 1e-300
        logs += np.log(size) * (k >= steps // 2)
        s = s / size
    return np.exp(logs / (steps - steps // 2))
