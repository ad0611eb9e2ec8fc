"""Dense matrix recursions, each from its paper: the oracle of every driver. They share nothing with
the library but `draws`.

Every function returns x^1 … x^K as (K, m, d). `lam(k)` gives (m, 1) stepsizes, `B(k)` an (m, m)
matrix, both for the library's step k = 0, 1, …
"""

import numpy as np

from hushgrad import draws
from hushgrad.draws import Stream


class Coins:
    """The private draws of one trial, addressed as the contract in hushgrad/draws.py says."""

    def __init__(self, seed, trial, m):
        trial_key = draws.trial_keys(seed, [trial])
        self.m = m
        self.keys = {s: draws.agent_keys(trial_key, np.arange(m), s) for s in Stream}
        self.public = draws.agent_keys(trial_key, [draws.PUBLIC], Stream.COIN)

    def u(self, stream, agents, k, slots):
        """One draw for each pair of an agent and a slot."""
        key = tuple(word[agents, 0] for word in self.keys[stream])
        return draws.uniforms(key, (np.full(len(agents), k, np.uint32), slots.astype(np.uint32)))

    def rho(self, k):
        every = np.arange(self.m)
        return self.u(Stream.STEPSIZE, every, k, 0 * every)[:, None]

    def coin(self, k):
        key = tuple(word[0, :1] for word in self.public)
        return float(draws.uniforms(key, (np.array([k], np.uint32), np.zeros(1, np.uint32)))[0])

    def B(self, k, support, stream=Stream.SPLIT):
        """B^k, where support[i, j] allows j to send to i; slots follow the receivers' numbers."""
        B = np.zeros((self.m, self.m))
        senders, receivers = np.nonzero(support.T)  # sorted by sender, then by receiver
        first = np.searchsorted(senders, senders)  # where the receivers of each sender begin
        B[receivers, senders] = self.u(stream, senders, k, np.arange(len(senders)) - first)
        return B / B.sum(0)


def pdg_ds(W, g, x, K, lam, B):
    out = []
    for k in range(K):
        x = W @ x - B(k) @ (lam(k) * g(x))
        out.append(x)
    return np.array(out)


def dgd(W, g, x, K, lam):
    out = []
    for k in range(K):
        x = W @ x - lam(k) * g(x)
        out.append(x)
    return np.array(out)


def pdg_nds_lazy(W, g, x0, K, lam, B):
    M = (np.eye(len(W)) + W) / 2
    old, new, h_old = x0, x0, np.zeros_like(x0)
    out = []
    for k in range(K):
        h = lam(k) * g(new)
        old, new, h_old = new, 2 * M @ new - M @ old - B(k) @ (h - h_old), h
        out.append(new)
    return np.array(out)


def pdg_nds_square(W, g, x0, K, lam, B):
    h_old = lam(0) * g(x0)
    old, new = x0, W @ x0 - h_old
    out = [new]
    for k in range(1, K):
        h = lam(k) * g(new)
        old, new, h_old = new, 2 * W @ new - W @ W @ old - B(k) @ (h - h_old), h
        out.append(new)
    return np.array(out)


def consensus(W, a, K):
    out = []
    for _ in range(K):
        a = W @ a
        out.append(a)
    return np.array(out)


def chebyshev_consensus(W, a, K, eta):
    """T_k(W/η) a / T_k(1/η), k = 1 … K, by the recursion T_{k+1}(t) = 2t T_k(t) − T_{k−1}(t)."""
    old, new = a, W @ a / eta
    scale_old, scale_new = 1.0, 1 / eta
    out = [new / scale_new]
    for _ in range(1, K):
        old, new = new, 2 / eta * (W @ new) - old
        scale_old, scale_new = scale_new, 2 / eta * scale_new - scale_old
        out.append(new / scale_new)
    return np.array(out)


def extra(W, g, x0, K, a):
    eye = np.eye(len(W))
    old, new = x0, W @ x0 - a * g(x0)
    out = [new]
    for _ in range(1, K):
        old, new = new, (eye + W) @ new - (eye + W) / 2 @ old - a * (g(new) - g(old))
        out.append(new)
    return np.array(out)


def diging(W, g, x, K, a):
    y = g(x)
    out = []
    for _ in range(K):
        x, x_old = W @ x - a * y, x
        y = W @ y + g(x) - g(x_old)
        out.append(x)
    return np.array(out)


def diging_as_printed(W, g, x, K, a):
    """Section IV of Wang & Nedić: y⁺ = W (y + g⁺ − g)."""
    y = g(x)
    out = []
    for _ in range(K):
        x, x_old = W @ x - a * y, x
        y = W @ (y + g(x) - g(x_old))
        out.append(x)
    return np.array(out)


def aug_dgm(W, g, x, K, a):
    y = g(x)
    out = []
    for _ in range(K):
        x, x_old = W @ (x - a * y), x
        y = W @ (y + g(x) - g(x_old))
        out.append(x)
    return np.array(out)


def asyn_dgm(pairs, g, x, K, a, coin):
    y = g(x)
    m = len(x)
    out = []
    for k in range(K):
        i, j = pairs[int(np.ceil(coin(k) * len(pairs))) - 1]
        e = np.zeros((m, 1))
        e[i], e[j] = 1, -1
        W = np.eye(m) - e @ e.T / 2
        D = np.diag(a * np.abs(e[:, 0]))
        x, x_old = W @ (x - D @ y), x
        y = W @ (y + g(x) - g(x_old))
        out.append(x)
    return np.array(out)


def ab(R, C, g, x, K, a):
    y = g(x)
    out = []
    for _ in range(K):
        x, x_old = R @ x - a * y, x
        y = C @ (y + g(x) - g(x_old))
        out.append(x)
    return np.array(out)


def push_pull(R, C, g, x, K, a):
    y = g(x)
    out = []
    for _ in range(K):
        x, x_old = R @ (x - a * y), x
        y = C @ y + g(x) - g(x_old)
        out.append(x)
    return np.array(out)


def add_opt(C, g, x, K, a):
    y = np.ones((len(x), 1))
    w, z = g(x), x
    out = []
    for _ in range(K):
        x = C @ x - a * w
        y = C @ y
        z, z_old = x / y, z
        w = C @ w + g(z) - g(z_old)
        out.append(z)
    return np.array(out)
