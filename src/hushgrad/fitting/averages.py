"""The method by which sites average the vectors of a fit, its rounds, and the longest vector.

The simulator (`hg.fit`), the configuration of agents and the guarantee of a fit ask here.
"""

from __future__ import annotations

import math

from hushgrad.algorithms.consensus import MASKS, Consensus
from hushgrad.fitting.conjugate import MOST_AVERAGES as MOST_PRODUCTS
from hushgrad.fitting.cross_validation import MOST_STEPS as MOST_FOLD_STEPS
from hushgrad.fitting.levels import n_numbers
from hushgrad.fitting.model import CV, MOST_MATRIX, Model
from hushgrad.fitting.newton import MOST_STEPS
from hushgrad.fitting.plan import Declared, stages_of
from hushgrad.fitting.pooled_tables import PooledTables
from hushgrad.fitting.site_sums import TOTALS
from hushgrad.fitting.sums import NARROW, SIZE, WIDE

_BESIDE_STEPS = 10  # averages of a fit that are no steps of Newton's method: a fit has fewer
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


def most_averages(declared: Declared) -> int:
    """The most averages of a programme: one that ends has fewer."""
    stages = stages_of(declared).values()
    return sum(1 if isinstance(stage, PooledTables) else _most(stage) for stage in stages)


def _most(model: Model) -> int:
    more = MOST_FOLD_STEPS if model.penalty == CV else 0
    if not model.pools_hessian:
        more = MOST_PRODUCTS
    return MOST_STEPS + _BESIDE_STEPS + more


def longest_vector(declared: Declared) -> int:
    """The numbers in the longest vector that a programme yields."""
    return max(_longest(stage) for stage in stages_of(declared).values())


def _longest(model: Model | PooledTables) -> int:
    if isinstance(model, PooledTables):
        return _PLAIN + model.n_cells + 2 * WIDE.n_limbs * len(model.means)
    p = len(model.names)
    width = p - model.has_intercept
    square = p if model.pools_hessian else 0
    if model.open_factors and model.hessian == "auto":  # fewer levels may be agreed
        square = min(p, MOST_MATRIX)
    triangle = square * (square + 1) // 2
    counts = _PLAIN + WIDE.n_limbs * (len(TOTALS) + 2 * width)
    newton = 2 + NARROW * (1 + p + triangle + 1)  # the first has the null loss too
    products = 2 + NARROW * (2 + 2 * p)
    sandwich = 1 + NARROW * triangle
    levels = _PLAIN + len(model.open_factors) * n_numbers(model.most_levels)
    points = 0
    if model.penalty == CV:
        points = model.folds * (1 if model.kind == "ridge" else len(model.penalties))
    folds = 2 + NARROW * (points * (1 + p + triangle) + model.folds)
    return max(counts, newton, products, sandwich, levels, folds)
