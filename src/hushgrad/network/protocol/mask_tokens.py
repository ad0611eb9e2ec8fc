"""Whether all masks cancel: every pair's pledge, told on from agent to agent.

Partners need not be linked, so they cannot compare what their certificates gave them. If one holds
an old certificate of the other, their shares do not cancel, and everyone would end at a wrong θ.
From the secret of its share each partner derives a pledge, 16 bytes that tell nothing of the
share, and gives it to its neighbours, who tell on what is news to them. Whoever sees two pledges of
one pair ends the run and names the pair. Pledges go before the messages of a round, so after as
many rounds as the network has hops everyone has seen all.

Only the two partners could prove a pledge, so anyone on the way can invent one and end the run; but
it is kept from whom each came, and so the way back to its origin can be asked for.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping

from hushgrad.errors import MaskError, WireError

PLEDGE = 16  # bytes
_ENTRY = struct.Struct(f"<QQ{PLEDGE}s")  # lower number, higher number, pledge
ENTRY = _ENTRY.size
OWN = "this agent itself"  # who told a pledge of its own

type Pair = tuple[int, int]  # the lower number first
type Entry = tuple[int, int, bytes]


def encode_entries(entries: Iterable[Entry]) -> bytes:
    """The body of a frame."""
    return b"".join(_ENTRY.pack(*entry) for entry in entries)


def decode_entries(body: bytes | memoryview) -> list[Entry]:
    """What a frame tells: of two agents their pledge, of one its distance (reach.py)."""
    if len(body) % ENTRY:
        raise WireError(f"a PLEDGE holds entries of {ENTRY} bytes, but {len(body)} bytes came")
    return list(_ENTRY.iter_unpack(body))


class MaskTokens:
    """What one agent knows of all pairs: its own from the start, others' as it hears of them."""

    def __init__(
        self,
        own: Mapping[Pair, bytes],
        n_agents: int,
        partners: Callable[[int], tuple[int, ...]],
    ):
        # of every pair at most two pledges, and who told each first
        self.known = {pair: {token: OWN} for pair, token in own.items()}
        self._n_agents, self._partners = n_agents, partners
        # two of every pair, if it comes to that; none where nothing is masked
        self.most = n_agents * len(partners(0)) if own else 0

    def entries(self, pairs: Iterable[Pair] | None = None) -> list[Entry]:
        """What is known of these pairs, or of all."""
        chosen = self.known if pairs is None else pairs
        return [(*pair, token) for pair in chosen for token in self.known[pair]]

    def learn(self, told: Iterable[Entry], source: str) -> list[Entry]:
        """Take what a neighbour tells; gives what is news and is to be told on."""
        news: list[Pair] = []
        for low, high, token in told:
            if low == high:
                continue
            if not low < high < self._n_agents or high not in self._partners(low):
                raise WireError(f"agents {low} and {high} share no mask in this run")
            held = self.known.setdefault((low, high), {})
            if token not in held and len(held) < 2:
                held[token] = source
                news.append((low, high))
        return self.entries(news)

    def check(self) -> None:
        """MaskError where two pledges of one pair are here."""
        for (low, high), held in self.known.items():
            if len(held) > 1:
                one, other = held.values()
                raise MaskError(
                    f"the masks of agents {low} and {high} do not cancel, and θ would be wrong: "
                    f"one pledge of theirs was told by {one}, another by {other}. Either the two "
                    "hold different certificates of one another: let them compare fingerprints "
                    "(hushgrad key show), exchange certificates again, and start a new run. Or "
                    "someone has told a false pledge: ask from whom it came, agent by agent."
                )
