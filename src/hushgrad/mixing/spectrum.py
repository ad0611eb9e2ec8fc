"""The ends of the spectrum of a large sparse matrix, by Lanczos' method; `Network.eta` asks for
them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hushgrad.errors import MixingError, optional
from hushgrad.mixing.weights import Floats

# Lanczos stops when the residual of both ends is this part of 1 − |eigenvalue|. The error of an
# eigenvalue is at most the residual, and of the order of its square over the gap.
RESIDUAL_TOLERANCE = 1e-6

# A ring of n agents takes about n/2 steps, an expander a few hundred whatever its size.
MOST_LANCZOS_STEPS = 20_000


def spectrum_ends(product: Callable[[Floats], Floats], m: int) -> tuple[float, float]:
    """The ends of the spectrum of a symmetric operator on the vectors that sum to zero.

    Lanczos' recursion without reorthogonalisation: it needs three vectors, and the ends converge
    all the same (Paige 1980). ARPACK's restarts take minutes at a million agents.
    """
    eigh_tridiagonal = optional("scipy.linalg", "sim").eigh_tridiagonal
    diagonal: list[float] = []
    beside: list[float] = []
    before = np.zeros(m)
    now = np.random.default_rng(0).standard_normal(m)
    now -= now.mean()
    now /= np.linalg.norm(now)
    next_look = 16
    low = high = 0.0
    for step in range(1, MOST_LANCZOS_STEPS + 1):
        new = product(now)
        new -= new.mean()
        diagonal.append(float(new @ now))
        new -= diagonal[-1] * now
        if beside:
            new -= beside[-1] * before
        length = float(np.linalg.norm(new))
        is_exhausted = length < 1e-13
        if step == next_look or is_exhausted:
            ends = [
                eigh_tridiagonal(diagonal, beside, select="i", select_range=(k, k))
                for k in (0, step - 1)
            ]
            low, high = (float(values[0]) for values, _ in ends)
            residual = max(length * abs(float(vectors[-1, 0])) for _, vectors in ends)
            if residual <= RESIDUAL_TOLERANCE * (1 - max(-low, high)) or is_exhausted:
                return low, high
            next_look = step + step // 4
        beside.append(length)
        before, now = now, new / length
    raise MixingError(
        f"the spectrum of W did not settle in {MOST_LANCZOS_STEPS} Lanczos steps: its eigenvalues "
        f"reach from {low:.9g} to at least {high:.9g}, too near 1 to tell. Use a graph that mixes "
        "faster, such as random_regular or exponential."
    )
