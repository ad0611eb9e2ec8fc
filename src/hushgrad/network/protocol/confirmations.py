"""Confirmations: before a fit writes its table, mask partners prove to each other what they saw.

A neighbour of all agents can complete every average and make two agents see different sums. Their
tables would differ, and each would look right. So when its programme has ended, an agent sends each
of its mask partners a token: 16 bytes, derived from the secret of the pair, the direction, and a
digest of all pooled sums and of the coefficients (keys/masking.py). Only the two partners can
compute it, and its bytes tell nothing to anybody else. An agent writes its table once it holds the
right token of every partner.

Partners need not be neighbours, so agents pass on every token that is new to them. An agent ends
when it holds a token of every pair of partners, in both directions, and keeps them all: any agent
that has ended can serve a neighbour that was killed. Anybody can invent a token of a pair and by
that end the run of its receiver. The error names the neighbour that told it.

The hub (transport/hub.py) sends and receives tokens in CONFIRM frames. programme.py judges them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from hushgrad.errors import WireError
from hushgrad.network.protocol.mask_tokens import OWN, Entry

type Way = tuple[int, int]  # from, to


class Confirmations:
    """The tokens that one agent knows."""

    def __init__(self, n_agents: int, partners: Callable[[int], tuple[int, ...]]):
        """`partners(number)` is empty for every agent if nothing is confirmed."""
        self._n_agents, self._partners = n_agents, partners
        # at most two tokens of every way, each with the neighbour that told it first
        self.known: dict[Way, dict[bytes, str]] = {}
        self.most = 2 * n_agents * len(partners(0))  # entries in one frame

    def add(self, own: Mapping[Way, bytes]) -> list[Entry]:
        """Take this agent's own tokens; returns them as entries."""
        self.known |= {way: {token: OWN} for way, token in own.items()}
        return [(*way, token) for way, token in own.items()]

    def entries(self) -> list[Entry]:
        """All known tokens."""
        return [(*way, token) for way, held in self.known.items() for token in held]

    def learn(self, told: Iterable[Entry], source: str) -> list[Entry]:
        """Take the tokens that a neighbour tells; returns those to pass on, which are new."""
        news: list[Entry] = []
        for sender, receiver, token in told:
            is_pair = sender < self._n_agents and receiver in self._partners(sender)
            if not is_pair:
                raise WireError(f"agents {sender} and {receiver} confirm nothing in this run")
            held = self.known.setdefault((sender, receiver), {})
            if token not in held and len(held) < 2:
                held[token] = source
                news.append((sender, receiver, token))
        return news

    def refuted(self, right: Mapping[Way, bytes]) -> tuple[Way, str] | None:
        """A way whose tokens are here but not the right one, and who told one of them."""
        for way, token in right.items():
            held = self.known.get(way, {})
            if held and token not in held:
                return way, next(iter(held.values()))
        return None

    def missing(self) -> list[Way]:
        """The ways of which no token is here."""
        ways = ((i, j) for i in range(self._n_agents) for j in self._partners(i))
        return [way for way in ways if not self.known.get(way)]
