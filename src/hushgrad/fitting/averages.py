"""How sites average the vectors of a fit: the method, its rounds, the longest vector."""

from __future__ import annotations

import math

from hushgrad.algorithms.consensus import MASKS, Consensus
from hushgrad.fitting.model import Model
from hushgrad.fitting.newton import MOST_STEPS
from hushgrad.fitting.site_sums import TOTALS
from hushgrad.fitting.sums import NARROW, SIZE, WIDE

MOST_AVERAGES = MOST_STEPS + 10  # a fit that ends has fewer
_PLAIN = 9  # of the first vector: one, the contract's digest, rows, dropped rows, events
_OFF = 0.05  # of a whole number: what a settled average may leave of masks
_REACH = 8.0  # standard deviations that no entry of a mask exceeds


def averaging(eta: float) -> Consensus:
    """The method on a network of this η; 0: all sites are linked."""
    if eta == 0:
        return Consensus(masks=MASKS, scale=SIZE)
    return Consensus(acceleration="chebyshev", masks=MASKS, scale=SIZE, eta=eta)


def rounds_of_average(method: Consensus, n_sites: int, eta: float) -> int:
    """The rounds after which every pooled limb is nearly whole at every site."""
    masks = method.masking
    reach = 0.0 if masks is None else _REACH * masks.linear * math.sqrt(masks.n_partners)
    return method.rounds(eta, _OFF / (n_sites * SIZE * (1 + reach) * math.sqrt(n_sites)))


def longest_vector(model: Model) -> int:
    """The numbers in the longest vector that the programme of a model yields."""
    p = len(model.names)
    width = p - model.has_intercept
    triangle = p * (p + 1) // 2
    counts = _PLAIN + WIDE.n_limbs * (len(TOTALS) + 2 * width)
    newton = 2 + NARROW * (1 + p + triangle + 1)  # the first has the null loss too
    sandwich = 1 + NARROW * triangle
    return max(counts, newton, sandwich)
