"""A deployed agent logs and counts the jumps of a neighbour, and ends the run past its bound."""

import asyncio
import logging
from dataclasses import replace

import pytest

import hushgrad as hg
from hushgrad.network.ops.result import Status
from support import agent_network

JUMP_AT = 80  # the gradient of agent 2 that is wrong


def network(directory, **options):
    """Three agents in memory."""
    algorithm = hg.PDGNDS(stepsize=hg.stepsizes.constant(0.2))
    return agent_network.configs(
        directory, algorithm, hg.Network(hg.graphs.ring(3)), dim=2, iterations=120, seed=1,
        tls=False, **options,
    )  # fmt: skip


def live(configs, asked, drive=agent_network.ends):
    """Run the agents; agent 2 computes one gradient wrongly. `asked` counts its gradients."""

    def wrong(x):
        asked.append(x)
        return x - 2.0 + (1e6 if len(asked) == JUMP_AT else 0.0)

    agents = agent_network.agents(configs, [lambda x: x, lambda x: x - 1.0, wrong], tls=False)
    return agents, asyncio.run(drive(agents))


def test_by_default_jumps_are_logged_once_and_counted(tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    _, results = live(network(tmp_path, max_jumps=None), [])
    assert [r.status for r in results] == [Status.DONE] * 3
    for j, result in enumerate(results[:2]):
        assert result.jumps["agent-2"] >= 2  # there and back
        assert result.facts()["jumps"] == result.jumps
        assert set(result.jumps) <= {"agent-2", f"agent-{1 - j}"}
    lines = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    of_agent_2 = [line for line in lines if line.startswith("jump: agent-2 sent")]
    assert len(of_agent_2) == 2  # one line of each neighbour
    assert all(f"in round {JUMP_AT - 1} that moved by" in line for line in of_agent_2), of_agent_2


def test_past_the_bound_the_run_ends_by_name_until_the_user_accepts_the_jump(tmp_path, caplog):
    trusting = network(tmp_path / "trusting", max_jumps=None, id="one")
    _, expected = live(trusting, [])
    configs = network(tmp_path / "strict", max_wait=10.0, id="one")
    asked = []
    agents, results = live(configs, asked)
    refused = [j for j in range(2) if results[j].status is Status.REFUSED]
    assert refused  # the first that notices; it tells the others
    for agent, result in ((agents[j], results[j]) for j in refused):
        assert result.exit_code == 4
        assert result.detail.startswith(f"agent-2 sent a message in round {JUMP_AT - 1} that moved")
        assert "max_jumps = 0 allows no more" in result.detail
        assert agent.stats.round == JUMP_AT - 1  # the message was not used
    assert (results[2].status, results[2].exit_code) == (Status.PEER_ENDED, 7)
    assert any(
        results[2].detail.startswith(f"agent-{j} ended the run: a neighbour's messages jumped")
        for j in refused
    )
    assert results[2].seconds < configs[2].max_wait
    _, again = live(configs, asked)
    assert again[refused[0]].detail == results[refused[0]].detail
    for config in configs[:2]:
        (config.state / "jumped").unlink(missing_ok=True)
    _, accepted = live([replace(c, max_jumps=None, max_wait=20.0) for c in configs], asked)
    assert [r.status for r in accepted] == [Status.DONE] * 3
    for one, other in zip(expected, accepted, strict=True):
        assert one.theta.tobytes() == other.theta.tobytes()


def test_a_bound_lets_that_many_jumps_pass(tmp_path):
    configs = network(tmp_path, max_jumps=1, max_wait=1.0)
    agents, results = live(configs, [])
    first = next(j for j in range(2) if results[j].status is Status.REFUSED)
    assert "max_jumps = 1 allows no more" in results[first].detail
    assert agents[first].stats.jumps["agent-2"] == 2


@pytest.mark.parametrize("heartbeat", [0.5, 1e-9], ids=["in the loop", "in a thread"])
def test_an_agent_that_is_followed_ends_by_name_too(tmp_path, heartbeat):
    """In the loop of the agent itself, and in a thread after its first round."""
    configs = network(tmp_path, max_wait=1.0)
    configs[0] = replace(configs[0], heartbeat=max(heartbeat, 0.01))

    async def drive(agents):
        agents[0]._pace.note(1.0 if heartbeat < 0.01 else 0.0)
        return await asyncio.gather(
            agent_network.together(agents[:1]), *(a.run() for a in agents[1:]),
            return_exceptions=True,
        )  # fmt: skip

    _, (group, *others) = live(configs, [], drive)
    (error,) = group.exceptions
    by_name = "agent-2 sent a message in round"
    assert by_name in str(error) or by_name in others[0].detail
    assert others[0].status in (Status.REFUSED, Status.PEER_ENDED)
    assert others[1].status is Status.PEER_ENDED
