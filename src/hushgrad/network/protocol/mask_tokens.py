"""Mask tokens: by them every agent sees whether all masks of the run cancel.

Partners share a mask, but need not share a link, so they cannot compare the certificates and the
keys of this run that they hold of each other. If one partner holds an old certificate of the other,
their shares do not cancel, and all agents would end at a wrong θ. Each partner therefore derives a
mask token from the secret of the share: 16 bytes that tell nothing of the share. Each agent gives
its tokens to its neighbours, and every neighbour passes on the tokens that are new to it. An agent
that sees two different tokens of one pair ends the run and names the pair. Tokens travel before the
messages of a round. So after as many rounds as the network has hops, every agent has seen every
token.

Only the two partners could prove a token, so any agent can invent one and end the run. Therefore an
agent remembers which neighbour told it each token, and operators can ask back along the links to
the origin.

The hub (transport/hub.py) sends and receives tokens in GOSSIP frames, which also carry the
distances of distances.py. An agent makes its own tokens once its partners have announced their
keys (agreement.py).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping

from hushgrad.errors import MaskError, WireError

TOKEN = 16  # bytes
_ENTRY = struct.Struct(f"<QQ{TOKEN}s")  # lower number, higher number, token
ENTRY = _ENTRY.size
OWN = "this agent itself"  # the source of a token that an agent derived by itself

type Pair = tuple[int, int]  # the lower number first
type Entry = tuple[int, int, bytes]  # of two agents their token, of one agent its distance


def encode_entries(entries: Iterable[Entry]) -> bytes:
    """The body of a GOSSIP frame."""
    return b"".join(_ENTRY.pack(*entry) for entry in entries)


def decode_entries(body: bytes | memoryview) -> list[Entry]:
    """The entries of a GOSSIP frame."""
    if len(body) % ENTRY:
        raise WireError(f"a GOSSIP holds entries of {ENTRY} bytes, but {len(body)} bytes came")
    return list(_ENTRY.iter_unpack(body))


class MaskTokens:
    """The tokens that one agent knows."""

    def __init__(self, n_agents: int, partners: Callable[[int], tuple[int, ...]]):
        """`partners(number)` is empty for every agent if the run has no secret masks."""
        # at most two tokens of every pair, each with the neighbour that told it first
        self.known: dict[Pair, dict[bytes, str]] = {}
        self._n_agents, self._partners = n_agents, partners
        self.most = n_agents * len(partners(0))  # entries in one frame: two tokens of every pair

    def add(self, own: Mapping[Pair, bytes]) -> list[Entry]:
        """Take this agent's own tokens, once it can derive them; returns them as entries."""
        for pair, token in own.items():
            # its own token counts, also if the partner's or two false ones were told before
            told = self.known.get(pair, {})
            self.known[pair] = {token: OWN} | {t: by for t, by in told.items() if t != token}
        return [(*pair, token) for pair, token in own.items()]

    def entries(self, pairs: Iterable[Pair] | None = None) -> list[Entry]:
        """The known tokens of these pairs, or of all pairs."""
        chosen = self.known if pairs is None else pairs
        return [(*pair, token) for pair in chosen for token in self.known[pair]]

    def learn(self, told: Iterable[Entry], source: str) -> list[Entry]:
        """Take the tokens that a neighbour tells; returns those to pass on, which are new."""
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
        """Raise MaskError if two different tokens of one pair are known."""
        for (low, high), held in self.known.items():
            if len(held) > 1:
                one, other, *_ = held.values()
                raise MaskError(
                    f"the masks of agents {low} and {high} do not cancel, and θ would be wrong: "
                    f"one token of their mask was told by {one}, another by {other}. Either the "
                    "two hold different certificates of one another: let them compare fingerprints "
                    "(hushgrad key show), exchange certificates again, and start a new run. Or "
                    "an agent has told a false token: ask from whom it came, agent by agent."
                )
