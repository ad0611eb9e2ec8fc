"""Stopping together without a coordinator: the rule by which all agents stop in the same round.

Every message carries Δ + 1 bits, where Δ bounds the hops between any two agents:

    b_0     = "I am still"
    b_{s+1} = b_s of oneself and of all neighbours, one round earlier

So b_s says that every agent within s hops was still s rounds ago, and b_Δ is the same for all
agents in the same round. When b_Δ is set, all agents stop. A counter with the minimum over
neighbours would not do, because agents would stop in different rounds.

The deployed agent (deployed.py) holds one `Stopping` and moves it on once a round.
"""

from __future__ import annotations

from collections.abc import Iterable


class Stopping:
    """The bits of one agent, as one integer: bit s is b_s."""

    def __init__(self, diameter: int | None):
        """`diameter` is Δ. None: agents run for a fixed number of iterations."""
        self._top = 0 if diameter is None else 1 << diameter
        self.n_bytes = 0 if diameter is None else (diameter // 64 + 1) * 8
        self.bits = 0

    def encode(self) -> bytes:
        """The bits as a message carries them, in whole 8 bytes."""
        if not self._top:
            return b""
        return self.bits.to_bytes(self.n_bytes, "little")

    def next(self, neighbours: Iterable[bytes], *, is_still: bool) -> bool:
        """Go on to the next round, given the bits that the neighbours sent in this round.

        Returns whether to stop.
        """
        if not self._top:
            return False
        for sent in neighbours:
            self.bits &= int.from_bytes(sent, "little")
        self.bits = (self.bits << 1 | is_still) & (2 * self._top - 1)
        return bool(self.bits & self._top)
