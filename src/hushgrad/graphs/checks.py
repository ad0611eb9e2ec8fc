"""Checks of the arguments that the builders share; each error says rule, value and way out.

fixed.py, drawn.py and outside.py call them.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from hushgrad.errors import GraphError

# Arcs are sorted as single integers receiver * n_agents + sender, which must fit 63 bits.
MOST_AGENTS = 2**31


def check_count(builder: str, name: str, value: Any, least: int, most: int = MOST_AGENTS) -> int:
    """A whole number from `least` to `most`."""
    try:
        count = operator.index(value)
    except TypeError:
        count = None
    if count is None or isinstance(value, bool) or not least <= count <= most:
        raise GraphError(
            f"{builder} needs a whole number {name} from {least} to {most}, but {name} = {value!r}."
            f" Pass for example {name}={max(least, min(5, most))}."
        )
    return count


def check_probability(builder: str, name: str, value: Any) -> float:
    """A number from 0 to 1."""
    try:
        p = float(value)
    except (TypeError, ValueError):
        p = math.nan
    if not 0 <= p <= 1:
        raise GraphError(
            f"{builder} needs a probability {name} from 0 to 1, but {name} = {value!r}. "
            f"Pass for example {name}=0.1."
        )
    return p


def generator(builder: str, seed: Any) -> np.random.Generator:
    """The stream of random numbers of a seed."""
    return np.random.default_rng(check_count(builder, "seed", seed, 0, most=2**63 - 1))
