"""Whether all masks cancel: every pair's pledge, told on from agent to agent.

Partners need not be linked, so they cannot compare what their certificates gave them. If one holds
an old certificate of the other, their shares do not cancel, and everyone would end at a wrong θ.
From the secret of its share each partner derives a pledge, 16 bytes that tell nothing of the
share, and gives it to its neighbours, who tell on what is news to them. Whoever sees two pledges of
one pair ends the run and names the pair. Pledges go before the messages of a round, so after as
many rounds as the network has hops everyone has seen all.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping

from hushgrad.errors import MaskError, WireError

PLEDGE = 16  # bytes
_ENTRY = struct.Struct(f"<QQ{PLEDGE}s")  # lower number, higher number, pledge
ENTRY = _ENTRY.size

type Pair = tuple[int, int]  # the lower number first


class Pledges:
    """What one agent knows of all pairs: its own from the start, others' as it hears of them."""

    def __init__(
        self,
        own: Mapping[Pair, bytes],
        n_agents: int,
        partners: Callable[[int], tuple[int, ...]],
    ):
        self.known = {pair: {pledge} for pair, pledge in own.items()}
        self._n_agents, self._partners = n_agents, partners
        # two of every pair, if it comes to that; none where nothing is masked
        self.most = n_agents * len(partners(0)) if own else 0

    def encode(self, pairs: Iterable[Pair] | None = None) -> bytes:
        """The body of a frame with these pairs, or all."""
        chosen = self.known if pairs is None else pairs
        return b"".join(
            _ENTRY.pack(*pair, pledge) for pair in chosen for pledge in sorted(self.known[pair])
        )

    def learn(self, body: bytes | memoryview, source: str) -> list[Pair]:
        """The pairs that a frame brings news of; MaskError where two pledges differ."""
        if len(body) % ENTRY:
            raise WireError(f"a PLEDGE holds entries of {ENTRY} bytes, but {len(body)} bytes came")
        news: list[Pair] = []
        for low, high, pledge in _ENTRY.iter_unpack(body):
            if not low < high < self._n_agents or high not in self._partners(low):
                raise WireError(f"agents {low} and {high} share no mask in this run")
            held = self.known.setdefault((low, high), set())
            if pledge not in held and len(held) < 2:
                held.add(pledge)
                news.append((low, high))
        for low, high in self.contradictions:
            raise MaskError(
                f"the masks of agents {low} and {high} do not cancel: they hold different "
                f"certificates of one another (heard of by {source}), and θ would be wrong. Let "
                "both compare fingerprints (hushgrad key show), exchange certificates again, and "
                "start a new run."
            )
        return news

    @property
    def contradictions(self) -> list[Pair]:
        """Pairs of which two pledges are here."""
        return [pair for pair, pledges in self.known.items() if len(pledges) > 1]
