"""Whether `diameter` is true: how many hops it is to every agent, told on from agent to agent.

Agents stop together by bits that go as many hops as `diameter` says (stopping.py). If some are
farther apart, they would stop in different rounds, each with the verdict that all had converged. So
every agent tells its neighbours whom it reaches in how many hops, who tell on what is news to them.
Distances go before the messages of a round, so whoever has all messages of round n knows everyone
within n + 1 hops. Nobody stops before it has consumed round `diameter`; before that, it looks.

Distances travel with the pledges, as entries of one agent in place of two.
"""

from __future__ import annotations

from collections.abc import Iterable

from hushgrad.errors import DiameterError, WireError
from hushgrad.network.protocol.mask_tokens import PLEDGE, Entry

_SHOWN = 10  # agents that a message lists


class Distances:
    """The hops from one agent to all of whom it has heard."""

    def __init__(self, number: int, n_agents: int, diameter: int | None):
        """`diameter` None: agents need not stop together, and nothing is told."""
        self._n_agents, self.diameter = n_agents, diameter
        self.hops = {} if diameter is None else {number: 0}
        self.most = 0 if diameter is None else n_agents  # entries

    def entries(self, numbers: Iterable[int] | None = None) -> list[Entry]:
        """The distances of these agents, or of all."""
        chosen = self.hops if numbers is None else numbers
        return [(j, j, self.hops[j].to_bytes(PLEDGE, "little")) for j in chosen]

    def learn(self, told: Iterable[Entry]) -> list[Entry]:
        """Take what a neighbour tells; gives what is news and is to be told on."""
        news: list[int] = []
        for number, same, content in told:
            if number != same:
                continue
            theirs = int.from_bytes(content, "little")
            if self.diameter is None or max(number, theirs) >= self._n_agents:
                raise WireError(f"no agent {number} can be {theirs} hops away in this run")
            hops = theirs + 1
            if hops < self.hops.get(number, self._n_agents):
                self.hops[number] = hops
                news.append(number)
        return self.entries(news)

    def objection(self) -> DiameterError | None:
        """In round `diameter`: what is wrong with it, if anyone is farther away."""
        most = self._n_agents if self.diameter is None else self.diameter
        far = [j for j in range(self._n_agents) if self.hops.get(j, self._n_agents) > most]
        if not far:
            return None
        more = f" and {len(far) - _SHOWN} more" if len(far) > _SHOWN else ""
        return DiameterError(
            f"the diameter in [run] bounds the hops between any two agents, but farther from this "
            f"one than {most}, or not linked with it at all, are agents "
            f"{', '.join(map(str, far[:_SHOWN]))}{more}. Agents would stop in different rounds. "
            "Correct it in every agent's file, or leave it out, and start a new run."
        )
