"""A vector divided into messages and what remains, and messages added up again."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrad.agent.long import Long, is_long, lift, pieces
from hushgrad.exchange import Array

type Vector = NDArray[np.float64]  # (d,)


def divide(blocks: list[tuple[Any, int | None]], wholes: list[Any], messages: Array) -> Vector:
    """Make messages (receivers, d) the sum of the blocks; gives what remains of the wholes (d,)."""
    dim = messages.shape[1]
    if not is_long(dim):
        own = wholes[0].copy() if len(wholes) == 1 else add(wholes)
        _divide_piece(blocks, wholes, messages, own)
        return own
    own, longest = np.empty(dim), max(where.stop - where.start for where in pieces(dim))
    rooms, room = np.empty((len(wholes), longest)), np.empty((len(messages), longest))
    for where in pieces(dim):
        piece = own[where]
        size = len(piece)
        parts = [
            u.piece(where, rooms[n, :size]) if type(u) is Long else u[where]
            for n, u in enumerate(wholes)
        ]
        np.add(parts[0], parts[1] if len(parts) > 1 else 0.0, piece)
        for part in parts[2:]:
            piece += part
        found = [(w[:, where] if n is None else w, n) for w, n in blocks]
        _divide_piece(found, parts, messages[:, where], piece, room[:, :size])
    return own


def _divide_piece(
    blocks: list[tuple[Any, int | None]],
    wholes: list[Vector],
    messages: Array,
    own: Vector,
    room: Array | None = None,
) -> None:
    """The same for one piece; `own` is the sum of the wholes before."""
    is_first = True
    for weights, n in blocks:
        if is_first:
            np.multiply(weights, 1.0 if n is None else wholes[n], messages)
            is_first = False
        else:
            messages += weights if n is None else np.multiply(weights, wholes[n], room)
    for message in messages:
        own -= message


def add(vectors: list[Any]) -> Any:
    """From the first to the last; none of them is changed."""
    if len(vectors) == 1:
        return vectors[0]
    found = vectors[0] + vectors[1]
    for vector in vectors[2:]:
        found += vector
    return found


def total(vectors: list[Any]) -> Any:
    """The sum as an algorithm sees it, (1, d, 1)."""
    if type(vectors[0]) is Long or is_long(len(vectors[0])):
        return add([lift(vector) for vector in vectors])
    return add(vectors)[None, :, None]
