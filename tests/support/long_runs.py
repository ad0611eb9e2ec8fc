"""Long runs of the errors of every method, which no rounding of θ* or of the start cuts off.

A rate shows itself only after long: two roots of nearly the same modulus give kρ^k, complex ones
make errors swing. So runs here know the errors e = x − θ* themselves, with `curve(e)_i` =
∇f_i(θ* + e_i) − ∇f_i(θ*), and errors fall to 1e-100 at full relative precision. What a method
conserves (1ᵀy = 1ᵀ curve(x), or its two-step form) would keep the rounding of the start for good:
`repair` restores it. Nothing here is shared with `hushgrad.theory`; the equations are those of
`support.dense`, and a test compares them.

States are (x, w) of two-step methods and (x, y) of trackers, arrays (m, d, q) with q runs side by
side, and ADD-OPT's push-sum weights v (m, 1, 1).
"""

import numpy as np

from support.quadratics import fresh_splits

NATS = 250  # of a run: the second half of it, fitted by a line, shows log ρ to 2 % even for kρ^k
PLAIN = 400  # iterations one by one, until ADD-OPT's weights are settled
BLOCKS = 512  # then powers of the step: so many products
REACHED = 1e-6  # of the first error: the end of a run
SURE = 1e-3  # of that: from here a run with swinging errors does not come back
MOST = 400_000  # iterations


def times(A, x):
    return (A @ x.reshape(len(A), -1)).reshape(x.shape)


class ErrorRun:
    """One method on one network: `begin`, `step`, `repair`."""

    def __init__(self, name, network, curve, lam):
        self.name, self.curve, self.lam = name, curve, lam
        self.is_tracker = not (name.startswith("PDGNDS") or name == "EXTRA")
        if name in ("AB", "PushPull", "ADDOPT"):
            self.C = network.matrix("column")
            self.R = self.C if name == "ADDOPT" else network.matrix("row")
        else:
            self.W = network.matrix("doubly")
        m = network.n_agents
        self.B = np.eye(m)
        if name in ("PDGNDS", "PDGNDS square"):
            self.support = (self.W @ self.W if name == "PDGNDS square" else self.W) > 0
            self.B = self.support / self.support.sum(0)

    def begin(self, x, c=0.0):
        """The state after the first iteration of a two-step method, or before that of a tracker.

        c: the gradients ∇f_i(θ*), whose sum is 0.
        """
        v = np.ones((len(x), 1, 1))
        if self.is_tracker:
            return x, self.curve(x) + c, v
        h = self.lam * (self.curve(x) + c)
        if self.name in ("PDGNDS", "PDGNDS identity"):
            return (x + times(self.W, x)) / 2 - times(self.B, h), x, v
        return times(self.W, x) - h, x, v

    def step(self, x, y, v, B=None):
        lam, curve, name = self.lam, self.curve, self.name
        if not self.is_tracker:
            moved = times(self.B if B is None else B, lam * (curve(x) - curve(y)))
            if name == "PDGNDS square":
                return times(self.W, 2 * x - times(self.W, y)) - moved, x, v
            u = 2 * x - y
            return (u + times(self.W, u)) / 2 - moved, x, v
        if name == "DIGing":
            new = times(self.W, x) - lam * y
            return new, times(self.W, y) + curve(new) - curve(x), v
        if name == "AugDGM":
            new = times(self.W, x - lam * y)
            return new, times(self.W, y + curve(new) - curve(x)), v
        if name == "AB":
            new = times(self.R, x) - lam * y
            return new, times(self.C, y + curve(new) - curve(x)), v
        if name == "PushPull":
            new = times(self.R, x - lam * y)
            return new, times(self.C, y) + curve(new) - curve(x), v
        new, after = times(self.C, x) - lam * y, times(self.C, v)
        return new, times(self.C, y) + curve(new / after) - curve(x / v), after

    def repair(self, x, y, v):
        if self.is_tracker:
            z = x / v if self.name == "ADDOPT" else x
            return x, y - (y - self.curve(z)).mean(0), v
        return x - (x - y + self.lam * self.curve(y)).mean(0), y, v

    def run(self, state, iterations):
        """‖x‖ of every iterate and run (iterations, q), without rescaling; then the state."""
        sizes = np.empty((iterations, state[0].shape[2]))
        for k in range(iterations):
            state = self.step(*state) if k % 10 else self.step(*self.repair(*state))
            sizes[k] = np.sqrt((state[0] ** 2).sum(axis=(0, 1)))
        return sizes, state


def quadratic(H):
    return lambda e: H @ e


def log_sizes(name, network, H, lam, iterations, *, seed, q=4):
    """(k, log ‖x^k‖) along a run of a quadratic problem, however small or large x gets."""
    m, d = H.shape[:2]
    run = ErrorRun(name, network, quadratic(H), lam)
    state = run.begin(np.random.default_rng(seed).normal(size=(m, d, q)))
    ks, logs, lost = [], [], 0.0
    for k in range(min(iterations, PLAIN)):
        state, lost, log = _rescaled(run, run.step(*state), lost)
        ks.append(k + 1)
        logs.append(log)
    if iterations <= PLAIN:
        return np.array(ks), np.array(logs)
    size = 2 ** max(0, int(np.log2(iterations / BLOCKS)))
    power = np.linalg.matrix_power(_matrix(run, state[2], m, d), size)
    for k in range(PLAIN + size, iterations + size, size):
        s = power @ np.concatenate([state[0], state[1]]).reshape(2 * m * d, q)
        x, y = s.reshape(2, m, d, q)
        state, lost, log = _rescaled(run, (x, y, state[2]), lost)
        ks.append(k)
        logs.append(log)
    return np.array(ks), np.array(logs)


def _rescaled(run, state, lost):
    """The state of size 1, the log of what its size was in all, and log ‖x‖ as it would be."""
    x, y, v = run.repair(*state)
    of_x = (x * x).sum()
    size = np.sqrt(of_x + (y * y).sum())
    return (x / size, y / size, v), lost + np.log(size), lost + np.log(of_x) / 2


def _matrix(run, v, m, d):
    n = 2 * m * d
    x, y = np.eye(n).reshape(2, m, d, n)
    x, y, _ = run.step(x, y, v)
    return np.concatenate([x, y]).reshape(n, n)


def slope(ks, logs):
    """log of the factor per iteration, from the second half of a run."""
    half = ks > ks[-1] / 2
    return np.polyfit(ks[half], logs[half], 1)[0]


def iterations_to_the_end(name, network, H, lams, seed):
    """For each stepsize the iterations after which max_i ‖x_i − θ*‖ stays below REACHED.

    All run side by side, from the same start with the same splits, until the first is done; those
    that are not done then get ∞.
    """
    m, d = H.shape[:2]
    rng = np.random.default_rng(seed)
    x0, c = rng.normal(size=(2, m, d, 1))
    run = ErrorRun(name, network, quadratic(H), lams)
    is_split = name in ("PDGNDS", "PDGNDS square")
    draw = fresh_splits(run.support, seed) if is_split else lambda k: None
    last, first, k = np.zeros(lams.size), np.zeros(lams.size), 0
    with np.errstate(over="ignore", invalid="ignore"):
        state = run.begin(np.repeat(x0, lams.size, axis=2), c - c.mean(0))
        while k < MOST:
            k += 1
            state = run.step(*state, draw(k))
            z = state[0] / state[2] if name == "ADDOPT" else state[0]
            error = np.sqrt((z * z).sum(axis=1).max(axis=0))
            if k == 1:
                first = error
            is_above = ~(error < REACHED * first)
            last[is_above] = k + 1.0
            if error[0] < SURE * REACHED * first[0]:
                break
    return np.where(last > k, np.inf, last)
