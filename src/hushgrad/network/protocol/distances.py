"""Distances: by them every agent sees whether `diameter` bounds the hops between any two agents.

Agents stop together by bits that travel as many hops as `diameter` says (stopping.py). If two
agents were farther apart, they would stop in different rounds, each with the verdict that all
agents had converged. So every agent tells its neighbours the hops to every agent that it knows, and
every neighbour passes on the distances that are new to it. Distances travel before the messages of
a round. So an agent that has all messages of round n knows every agent within n + 1 hops. No agent
stops before it has consumed round `diameter`, and before it consumes that round, it looks at the
distances.

The hub (transport/hub.py) sends and receives distances in GOSSIP frames. An entry about two agents
holds a mask token (mask_tokens.py), an entry about one agent holds its distance.
"""

from __future__ import annotations

from collections.abc import Iterable

from hushgrad.errors import DiameterError, WireError
from hushgrad.network.protocol.mask_tokens import TOKEN, Entry

_SHOWN = 10  # agents that a message lists


class Distances:
    """The hops from one agent to every agent that it knows."""

    def __init__(self, number: int, n_agents: int, diameter: int | None):
        """`diameter` None: agents need not stop together, and no agent tells a distance."""
        self._n_agents, self.diameter = n_agents, diameter
        self.hops = {} if diameter is None else {number: 0}
        self.most = 0 if diameter is None else n_agents  # entries in one frame

    def entries(self, numbers: Iterable[int] | None = None) -> list[Entry]:
        """The distances of these agents, or of all agents that are known."""
        chosen = self.hops if numbers is None else numbers
        return [(j, j, self.hops[j].to_bytes(TOKEN, "little")) for j in chosen]

    def learn(self, told: Iterable[Entry]) -> list[Entry]:
        """Take the distances that a neighbour tells; returns those to pass on, which are new."""
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
        """In round `diameter`: an error that names the agents farther away, if there are any."""
        most = self._n_agents if self.diameter is None else self.diameter
        far = [j for j in range(self._n_agents) if self.hops.get(j, self._n_agents) > most]
        if not far:
            return None
        more = f" and {len(far) - _SHOWN} more" if len(far) > _SHOWN else ""
        return DiameterError(
            "the diameter in [run] bounds the hops between any two agents, but agents "
            f"{', '.join(map(str, far[:_SHOWN]))}{more} are farther than {most} from this one, or "
            "no links lead to them. Agents would stop in different rounds. Correct diameter in "
            "every agent's file, or leave it out, and start a new run."
        )
