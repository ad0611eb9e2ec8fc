"""The introduction of an agent to its network: from its own links and its neighbours' HELLOs.

The deployed agent (deployed.py) calls `introduce` before the first round of a run. It calls
`local_agent` at every start, with the facts that `introduce` gave.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hushgrad.agent.local import Local
from hushgrad.agent.weights import Ends, Row, check_two_hop, public_weights, square
from hushgrad.draws import Draws, SeededDraws, trial_keys
from hushgrad.exchange import Links
from hushgrad.network.config.model import AgentConfig
from hushgrad.network.keys.secret import SecretDraws
from hushgrad.network.protocol.hello import read_row, row_document
from hushgrad.network.protocol.session import Peer
from hushgrad.network.transport.hub import Hub


async def introduce(
    config: AgentConfig, hub: Hub, is_over: Callable[[], bool]
) -> dict[str, Any] | None:
    """Wait until every neighbour has told how many links it has and, for W², their weights.

    Returns these facts for links.json; None if `is_over` becomes true before.
    """
    session = hub.session
    while any(peer.ends is None for peer in session.peers.values()):
        if is_over():
            return None
        await hub.change()
    linked = [j for j, peer in session.peers.items() if not peer.two_hop]
    ends = {j: _known(session.peers[j]) for j in session.peers}
    rows: dict[int, Row] = {}
    if config.run.algorithm.links is Links.TWO_HOP:
        weights = _public(config, hub, ends)["W"]
        names = {j: session.peers[j].name for j in linked}
        hub.tell_row(Row(weights.own, weights.into, names))

        def unknown() -> list[str]:
            return [f"the weights of {names[j]}" for j in linked if j not in hub.rows]

        with hub.watching.awaiting(unknown):
            while unknown():
                if is_over():
                    return None
                await hub.change()
        rows = {j: hub.rows[j] for j in linked}
    return {
        "ends": {str(j): [e.into, e.out] for j, e in ends.items()},
        "rows": {str(j): row_document(row) for j, row in rows.items()},
    }


def local_agent(
    config: AgentConfig,
    hub: Hub,
    links: Mapping[str, Any],
    gradient: Callable[[Any], Any],
    draws: Draws,
) -> Local:
    """This agent's part of the network, from the facts that `introduce` gave."""
    run = config.run
    ends = {int(j): Ends(*both) for j, both in links["ends"].items()}
    for j, theirs in ends.items():
        hub.session.peers[j].ends = theirs
    weights = _public(config, hub, ends)
    linked = [n for n in config.neighbours if not n.two_hop]
    receivers = {Links.GRAPH: tuple(sorted(n.number for n in linked if n.direction != "in"))}
    if run.algorithm.links is Links.TWO_HOP:
        rows = {int(j): read_row(row) for j, row in links["rows"].items()}
        weights["W2"] = square(config.number, weights["W"], rows)
        # a neighbour may still wait for these weights after this agent was started again
        names = {n.number: n.name for n in linked}
        hub.row = Row(weights["W"].own, weights["W"].into, names)
        known = [n.number for n in config.neighbours]
        check_two_hop(run.algorithm, weights["W2"].out, known, rows.values())
        receivers[Links.TWO_HOP] = tuple(weights["W2"].out)
    return Local(
        number=config.number,
        receivers=receivers,
        weights=weights,
        gradient=gradient,
        draws=draws,
        link_numbers={n.number: n.link for n in linked if n.link is not None},
        n_links=run.n_links or 0,
    )


def linked_with(config: AgentConfig) -> list[int]:
    """The numbers of the agents with which this agent shares a link of the graph."""
    return [n.number for n in config.neighbours if not n.two_hop]


def own_weight(config: AgentConfig, hub: Hub, links: Mapping[str, Any]) -> float:
    """w_ii of this agent, from the facts that `introduce` gave."""
    ends = {int(j): Ends(*both) for j, both in links["ends"].items()}
    return _public(config, hub, ends)["W"].own


def _public(config: AgentConfig, hub: Hub, ends: Mapping[int, Ends]) -> dict[str, Any]:
    linked = [n for n in config.neighbours if not n.two_hop]
    run = config.run
    return public_weights(
        run.algorithm,
        run.mixing,
        run.max_degree,
        hub.session.me.ends,
        {n.number: ends[n.number] for n in linked if n.direction != "out"},
        {n.number: ends[n.number] for n in linked if n.direction != "in"},
    )


def draws_of(config: AgentConfig, secret: bytes, stage: int = 0) -> Draws:
    """The draws of this agent in a stage, from its secret or from the run's seed."""
    run = config.run
    if run.seed is None:
        return SecretDraws(secret, run.id, stage)
    return SeededDraws(trial_keys(run.seed, [0], stage), config.number)


def _known(peer: Peer) -> Ends:
    assert peer.ends is not None
    return peer.ends
