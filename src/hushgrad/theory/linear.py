"""The linear part of every method near θ*: what a step does to a small error.

With f_i quadratic, or replaced by its quadratic model at θ*, a step maps the error linearly. Two
kinds of state cover the methods, each of two vectors (m, d), here stacked as s = (2, m, d, q) with
q columns at once, h = Λ H:

    two-step    x⁺ = P x − V w − B h (x − w),   w⁺ = x                      PDG-NDS, EXTRA
    tracker     x⁺ = A_x x − A_y Λ y,   y⁺ = C_y y + C_g H (x⁺ − x)         DIGing, Aug-DGM, AB, …

Both conserve d numbers, 1ᵀ(x − w) + 1ᵀh w or 1ᵀy − 1ᵀHx. A run starts where they vanish, so what
counts is the map on that subspace: `project` leads into it. `hushgrad.theory.rates` finds the
spectral radius, `hushgrad.theory.mean_square` adds the fluctuations of the splits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrad.algorithms import (
    AB,
    ADDOPT,
    EXTRA,
    PDGNDS,
    Algorithm,
    AugDGM,
    DIGing,
    PushPull,
)
from hushgrad.errors import optional
from hushgrad.exchange import Links
from hushgrad.mixing import Kind, Network
from hushgrad.splits import (
    FreshSplit,
    IdentitySplit,
    IsotropicSplit,
    PrivateConstantSplit,
    Split,
)

type Floats = NDArray[np.float64]
type Product = Callable[[Floats], Floats]  # (m, …) → (m, …), a matrix times the agents' axis

UNROLLED = 3  # dimensions up to which products are formed column by column
DENSE_AGENTS = 200  # up to here a dense W is faster than a sparse one


def matrix_of(network: Network, kind: Kind) -> Any:
    """W, R or C as an array, dense or scipy sparse."""
    if network.n_agents <= DENSE_AGENTS:
        return network.matrix(kind)
    weights = network.weights(kind)
    sparse = optional("scipy.sparse", "sim")
    return (network.graph.to_scipy(weights.links) + sparse.diags_array(weights.own)).tocsr()


def times(matrix: Any) -> Product:
    """The product with a matrix, over the agents' axis of (m, …)."""

    def product(x: Floats) -> Floats:
        return np.asarray(matrix @ x.reshape(len(x), -1)).reshape(x.shape)

    return product


@dataclass(frozen=True, eq=False)
class LinearStep:
    """One step of a method on errors s (2, m, d, q), with Λ = λ · profile."""

    hessians: Floats  # (m, d, d)
    profile: Floats  # (m, 1, 1), of mean 1

    @property
    def shape(self) -> tuple[int, int]:
        """(m, d)."""
        return self.hessians.shape[:2]

    @property
    def size(self) -> int:
        """Numbers in a state."""
        return 2 * self.shape[0] * self.shape[1]

    def step(self, s: Floats, lam: float) -> Floats:
        raise NotImplementedError

    def project(self, s: Floats, lam: float) -> Floats:
        raise NotImplementedError

    def curve(self, x: Floats) -> Floats:
        """H x of x (m, d, q)."""
        if self.hessians.shape[1] > UNROLLED:
            return self.hessians @ x
        # many products of tiny matrices: by columns, without a loop over agents
        return sum(
            (self.hessians[:, :, b, None] * x[:, None, b, :] for b in range(x.shape[1])),
            start=np.zeros(()),
        )

    def dense(self, lam: float) -> Floats:
        """The projected step as a matrix (size, size)."""
        m, d = self.shape
        n = self.size
        eye = np.eye(n).reshape(2, m, d, n)
        return self.step(self.project(eye, lam), lam).reshape(n, n)


@dataclass(frozen=True, eq=False)
class TwoStep(LinearStep):
    """x⁺ = mix(x, w) − B h (x − w)."""

    mix: Callable[[Floats, Floats], Floats] = lambda x, w: 2 * x - w
    split: Product = lambda x: x

    def step(self, s: Floats, lam: float) -> Floats:
        x, w = s
        h = lam * self.profile * self.curve(x - w)
        return np.stack([self.mix(x, w) - self.split(h), x])

    def project(self, s: Floats, lam: float) -> Floats:
        x, w = s
        kept = (x - w + lam * self.profile * self.curve(w)).mean(axis=0)
        return np.stack([x - kept, w])


@dataclass(frozen=True, eq=False)
class TrackerStep(LinearStep):
    """Gradient tracking; `scale` divides x in the gradient, as ADD-OPT does by Y."""

    mix_x: Product = lambda x: x  # A_x
    mix_step: Product = lambda x: x  # A_y without Λ
    mix_y: Product = lambda x: x  # C_y
    mix_change: Product = lambda x: x  # C_g
    scale: Floats | None = None  # (m, 1, 1)

    def step(self, s: Floats, lam: float) -> Floats:
        x, y = s
        new = self.mix_x(x) - self.mix_step(lam * self.profile * y)
        return np.stack([new, self.mix_y(y) + self.mix_change(self._slope(new - x))])

    def project(self, s: Floats, lam: float) -> Floats:
        del lam
        x, y = s
        return np.stack([x, y - (y - self._slope(x)).mean(axis=0)])

    def _slope(self, x: Floats) -> Floats:
        return self.curve(x if self.scale is None else x / self.scale)


def linear_step(
    algorithm: Algorithm, hessians: Floats, network: Network, profile: Floats | None = None
) -> LinearStep | None:
    """The mean step of a method; None for a method that has no exact linear step."""
    m = network.n_agents
    shares = np.ones((m, 1, 1)) if profile is None else np.reshape(profile, (m, 1, 1))
    match algorithm:
        case PDGNDS():
            kind = Kind.SYMMETRIC if algorithm.form == "lazy" else Kind.DOUBLY
            mixing = times(matrix_of(network, kind))
            mix = _lazy(mixing) if algorithm.form == "lazy" else _square(mixing)
            split = mean_split(algorithm.splitting, network, algorithm.links)
            return TwoStep(hessians, shares, mix=mix, split=split)
        case EXTRA():
            mix = _lazy(times(matrix_of(network, Kind.SYMMETRIC)))
            return TwoStep(hessians, shares, mix=mix, split=_same)
        case DIGing() | AugDGM():
            W = times(matrix_of(network, Kind.DOUBLY))
            if isinstance(algorithm, DIGing):
                return TrackerStep(
                    hessians, shares, mix_x=W, mix_step=_same, mix_y=W, mix_change=_same
                )
            return TrackerStep(hessians, shares, mix_x=W, mix_step=W, mix_y=W, mix_change=W)
        case AB() | PushPull():
            R = times(matrix_of(network, Kind.ROW))
            C = times(matrix_of(network, Kind.COLUMN))
            if isinstance(algorithm, AB):
                return TrackerStep(hessians, shares, mix_x=R, mix_step=_same, mix_y=C, mix_change=C)
            return TrackerStep(hessians, shares, mix_x=R, mix_step=R, mix_y=C, mix_change=_same)
        case ADDOPT():
            push = times(matrix_of(network, Kind.COLUMN))
            return TrackerStep(
                hessians, shares, mix_x=push, mix_step=_same, mix_y=push, mix_change=_same,
                scale=push_sum(push, m)[:, None, None],
            )  # fmt: skip
        case _:
            return None


def _same(x: Floats) -> Floats:
    return x


def _lazy(W: Product) -> Callable[[Floats, Floats], Floats]:
    """M (2x − w), M = (I + W)/2."""

    def mix(x: Floats, w: Floats) -> Floats:
        u = 2 * x - w
        return (u + W(u)) / 2

    return mix


def _square(W: Product) -> Callable[[Floats, Floats], Floats]:
    """2W x − W² w."""
    return lambda x, w: W(2 * x - W(w))


def push_sum(C: Product, m: int, steps: int = 100_000) -> Floats:
    """The limit mπ of y⁺ = C y from y = 1.

    A step of ADD-OPT multiplies errors by numbers of y and adds none: with x = yθ* it stays there.
    So how fast y settles does not bound the rate.
    """
    y = np.ones(m)
    for _ in range(steps):
        new = C(y)
        if float(np.linalg.norm(new - y)) <= 1e-14 * np.sqrt(m):
            break
        y = new
    return y * (m / y.sum())


# ---- splits


def split_links(network: Network, links: Links) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(receivers, senders) of the links that a split uses."""
    graph = network.graph if links is Links.GRAPH else network.graph.two_hop()
    return graph.receivers, graph.senders


def mean_split(split: Split, network: Network, links: Links) -> Product:
    """The product with the mean of B over the draws."""
    if isinstance(split, IdentitySplit | IsotropicSplit):  # isotropic shares have mean zero
        return _same
    receivers, senders = split_links(network, links)
    own, each = mean_shares(split, np.bincount(senders, minlength=network.n_agents))
    return times(split_matrix(own, each[senders], receivers, senders))


def mean_shares(split: Split, degree: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """The means of b_jj and of b_ij for each sender (m,), which all links of a sender share."""
    if isinstance(split, PrivateConstantSplit) and split.own is not None:
        own = np.where(degree > 0, 0.75 * split.own, 1.0)  # own (1 + u)/2, u uniform
        return own, (1.0 - own) / np.maximum(degree, 1)
    if isinstance(split, FreshSplit | PrivateConstantSplit):
        share = np.asarray(1.0 / (degree + 1.0), np.float64)
        return share, share
    raise TypeError(f"no mean is known of the split {split!r}")


def split_matrix(
    own: Floats, links: Floats, receivers: NDArray[np.int64], senders: NDArray[np.int64]
) -> Any:
    """B of the own shares (m,) and the shares of the links, dense or sparse."""
    m = len(own)
    if m <= DENSE_AGENTS:
        B = np.diag(own)
        B[receivers, senders] = links
        return B
    sparse = optional("scipy.sparse", "sim")
    apart = sparse.coo_array((links, (receivers, senders)), shape=(m, m))
    return (apart + sparse.diags_array(own)).tocsr()
