"""JSON that every parser reads, and that is read as strictly as it is written.

Exports, audits, the commands' `--format json`, and the files that an agent leaves for `hushgrad
status` are written and read here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np


def strict_json(value: Any) -> str:
    """A value as indented JSON; a number that is not finite becomes null.

    >>> print(strict_json([1.5, float("nan")]), end="")
    [
      1.5,
      null
    ]
    """
    return json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def plain(value: Any) -> Any:
    """Nested values as JSON has them: arrays as lists, anything that JSON lacks as its repr."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, (np.ndarray, np.generic)):
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in cast("Sequence[Any]", value)]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, (int, str, bool, type(None))) else repr(value)


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text; ValueError for NaN, Infinity, or a key that stands twice.

    >>> parse_json('{"seed": 1, "seed": 2}')
    Traceback (most recent call last):
    ValueError: the key 'seed' stands twice
    """
    return json.loads(text, parse_constant=_refuse, object_pairs_hook=_unique)


def _refuse(constant: str) -> Any:
    raise ValueError(f"JSON has no {constant}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(n for n in names if names.count(n) > 1)!r} stands twice")
    return found
