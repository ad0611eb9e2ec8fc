"""The places of rows in an agent's data: the built-in regressions and estimations know them.

The judgement of exposure counts rows, and the privacy lab attacks them.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray


def row_places(data: Any) -> NDArray[np.int64] | None:
    """The rows of an agent's arrays that are data, not padding; None if the data are no rows.

    >>> row_places({"X": np.eye(3), "y": np.ones(3), "weight": np.array([1, 1, 0]), "penalty": 0})
    array([0, 1])
    """
    if not isinstance(data, dict):
        return None
    named = cast("dict[str, Any]", data)
    if {"X", "y", "weight", "penalty"} <= named.keys():
        return np.flatnonzero(np.broadcast_to(named["weight"], len(named["X"])) > 0)
    if {"M", "z", "sigma"} <= named.keys():
        return np.flatnonzero(np.asarray(named["M"]).any(axis=1))
    return None


def count_rows(data: Any) -> int | None:
    """n_i; None if the data are no rows."""
    places = row_places(data)
    return None if places is None else len(places)
