"""Masks that would not cancel end the run at every agent, and the error names the pair."""

import asyncio
import re
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.errors import MaskError, WireError
from hushgrad.network.deployed import Agent
from hushgrad.network.keys import masking
from hushgrad.network.keys.identity import mint
from hushgrad.network.keys.masking import mask_tokens_of
from hushgrad.network.ops.result import Status
from hushgrad.network.protocol.announcements import encode_announcements
from hushgrad.network.protocol.frames import FrameKind
from hushgrad.network.protocol.mask_tokens import TOKEN, MaskTokens, decode_entries, encode_entries
from hushgrad.network.transport.dispatch import Dispatch
from support import agent_network, attackers

M, D = 7, 2
PATH = hg.Network(hg.graphs.path(M))
ALGORITHM = hg.PDGNDS(design="recommended", stepsize=hg.stepsizes.constant(0.1))
ONES = [lambda x: np.eye(len(x))] * M  # Hessians
PAIR = (0, 3)  # partners, three hops apart


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return tmp_path_factory.mktemp("keys")


def network(tmp_path, keys, algorithm=ALGORITHM, **run):
    return agent_network.configs(tmp_path, algorithm, PATH, dim=D, iterations=400, keys=keys, **run)


def results(configs):
    targets = np.arange(M * D, dtype=float).reshape(M, D)
    gradients = [lambda x, t=t: x - t for t in targets]
    agents = agent_network.agents(configs, gradients, hessians=ONES)
    return asyncio.run(agent_network.ends(agents)), targets.mean(0)


def test_every_agent_hears_of_every_pair_and_the_run_goes_on(tmp_path, keys, monkeypatch):
    made = []
    monkeypatch.setattr(
        "hushgrad.network.wiring.mask_tokens_of",
        lambda config: made.append(masking.mask_tokens_of(config)) or made[-1],
    )
    ended, optimum = results(network(tmp_path, keys))
    for result in ended:
        assert result.status is Status.DONE
        np.testing.assert_allclose(result.theta, optimum, atol=1e-6)
    table = ALGORITHM.masking.partner_table(M)
    pairs = {(min(i, j), max(i, j)) for j in range(M) for i in table[:, j].tolist()}
    for mask_tokens in made:
        assert sorted(mask_tokens.entries()) == sorted(made[0].entries())
        assert set(mask_tokens.known) == pairs
        assert all(len(held) == 1 for held in mask_tokens.known.values())


@pytest.mark.parametrize("liar", [*PAIR])
def test_an_old_certificate_of_a_partner_ends_the_run_everywhere(tmp_path, keys, liar):
    low, high = PAIR
    assert high in ALGORITHM.masking.partners(low, M)
    configs = network(tmp_path, keys)
    other = ({*PAIR} - {liar}).pop()
    old = mint(tmp_path / "old", f"agent-{other}").certificate_path
    configs[liar] = replace(
        configs[liar],
        partners=tuple(
            replace(p, certificate=old) if p.number == other else p for p in configs[liar].partners
        ),
    )
    ended, _ = results(configs)
    for j, result in enumerate(ended):
        assert result.status is Status.REFUSED, result
        said = rf"the announcement of agent {other}, told by agent-\d, is not signed by"
        if j != liar:
            said = rf"agent-\d ended the run: masks do not cancel .*(agent {liar}|\(refused\))\."
        assert re.match(said, result.detail), result.detail
        assert result.iterations <= M


@pytest.mark.parametrize(
    ("algorithm", "run"),
    [(hg.EXTRA(), {}), (hg.PDGNDS(), {}), (ALGORITHM, {"seed": 1})],
    ids=["no masks", "paper", "seeded"],
)
def test_a_run_without_shared_secrets_has_no_tokens(tmp_path, keys, algorithm, run):
    mask_tokens = mask_tokens_of(network(tmp_path, keys, algorithm, **run)[0])
    assert (mask_tokens.known, mask_tokens.most) == ({}, 0)


TRIANGLE = hg.Network(hg.graphs.complete(3))


def triangle(tmp_path, keys, **run):
    return agent_network.configs(
        tmp_path, ALGORITHM, TRIANGLE, dim=D, iterations=60, keys=keys, heartbeat=0.3, **run
    )


def with_certificate(config, number, identity):
    """The configuration with another certificate of agent `number`."""
    if config.number == number:
        return replace(config, key=identity.key_path, certificate=identity.certificate_path)
    others = {
        field: tuple(
            replace(one, certificate=identity.certificate_path) if one.number == number else one
            for one in getattr(config, field)
        )
        for field in ("neighbours", "partners")
    }
    return replace(config, **others)


def test_after_a_mask_conflict_agents_compute_send_and_echo_nothing(tmp_path, keys, monkeypatch):
    """The conflict is found while every agent computes its first gradient."""
    configs = triangle(tmp_path, keys)
    old = mint(tmp_path / "old", "agent-1").certificate_path
    partners = [replace(p, certificate=old) if p.number == 1 else p for p in configs[0].partners]
    configs[0] = replace(configs[0], partners=tuple(partners))
    heard, calls = Counter(), [0] * 3

    def hear(dispatch, link, frame, original=Dispatch.hear):
        heard[frame.kind] += 1
        original(dispatch, link, frame)

    def slow(j):
        def gradient(x):
            calls[j] += 1
            time.sleep(0.3)
            return x

        return gradient

    monkeypatch.setattr(Dispatch, "hear", hear)
    agents = agent_network.agents(configs, [slow(j) for j in range(3)], hessians=ONES[:3])
    results = asyncio.run(agent_network.ends(agents))
    assert {result.status for result in results} == {Status.REFUSED}
    assert max(calls) == 1  # an agent that was told at once has not begun
    assert heard[FrameKind.DATA] == 0
    # an agent that was told at once tells nobody; else one on each of three links each way, and
    # then each of 2·3 news to one other
    assert heard[FrameKind.GOSSIP] <= 30


def test_a_false_token_is_traced_to_the_neighbour_that_told_it(tmp_path, keys):
    """Agent 4 of a path invents a token of agents 0 and 1; every error leads towards agent 4."""
    path = hg.Network(hg.graphs.path(5))
    configs = agent_network.configs(tmp_path, ALGORITHM, path, dim=D, iterations=600, keys=keys)
    assert 1 in ALGORITHM.masking.partners(0, 5)

    async def forge():
        async with attackers.Rogue(configs[4], configs[3]) as rogue:
            rogue.hello()
            pairing = masking.pairing_of(Agent(configs[4]).config)
            announced = encode_announcements([pairing.announcement(bytes(range(64)))])
            rogue.send(FrameKind.ANNOUNCE, announced)
            rogue.send(FrameKind.GOSSIP, encode_entries([(0, 1, bytes(TOKEN))]))
            await rogue.reject()

    async def run():
        agents = agent_network.agents(configs[:4], [lambda x: x] * 4, hessians=ONES[:4])
        return (await asyncio.gather(*(agent.run() for agent in agents), forge()))[:4]

    for j, result in enumerate(asyncio.run(run())):
        assert result.status is Status.REFUSED
        assert f"agent-{j + 1}" in result.detail
        assert ("this agent itself" in result.detail) == (j < 2)


@pytest.mark.parametrize("seeds", [(1, 1, 2), (None, None, 1)], ids=["seeds", "one has a seed"])
def test_agents_with_other_draws_are_refused_by_name(tmp_path, keys, seeds):
    configs = triangle(tmp_path, keys, max_wait=1.5)
    configs = [
        replace(c, run=replace(c.run, seed=seed)) for c, seed in zip(configs, seeds, strict=True)
    ]
    agents = agent_network.agents(configs, [lambda x: x] * 3, hessians=ONES[:3])
    results = asyncio.run(agent_network.ends(agents))
    assert {result.status for result in results} == {Status.PEER_LOST}
    # the last agent may find only that the others are gone
    assert any("configured for another run: draws: se" in result.detail for result in results)


def test_a_run_goes_on_with_the_masks_that_it_began_with_or_not_at_all(tmp_path, keys):
    configs = triangle(tmp_path, keys)
    targets = np.arange(6.0).reshape(3, D)
    gradients = [lambda x, t=t: x - t for t in targets]
    first = agent_network.agents(configs, gradients, hessians=ONES[: len(configs)])
    asyncio.run(agent_network.leave(first, 20))
    new = mint(tmp_path / "new", "agent-0")
    renewed = [with_certificate(config, 0, new) for config in configs]
    for result in asyncio.run(
        agent_network.ends(agent_network.agents(renewed, gradients, hessians=ONES[: len(renewed)]))
    ):
        assert result.status is Status.REFUSED
        assert result.detail.startswith("the run began with other masks of agents 0 and ")
        assert result.iterations >= 20
    for result in asyncio.run(
        agent_network.ends(agent_network.agents(configs, gradients, hessians=ONES[: len(configs)]))
    ):
        assert result.status is Status.DONE


# ---- the tokens that one agent knows


def known_tokens(**own):
    tokens = MaskTokens(4, lambda j: ((j + 1) % 4, (j - 1) % 4))
    tokens.add({(0, 1): b"a" * TOKEN} | own)
    return tokens


def said(low, high, letter):
    return low, high, letter * TOKEN


def test_news_is_passed_on_once():
    mine = known_tokens()
    assert mine.learn([said(0, 1, b"a"), said(1, 2, b"b")], "x") == [said(1, 2, b"b")]
    assert mine.learn([said(1, 2, b"b")], "x") == []
    mine.check()


def test_two_tokens_are_passed_on_once_with_their_source_but_never_a_third():
    mine = known_tokens()
    news = mine.learn([said(0, 1, b"b"), said(0, 1, b"c")], "agent-9")
    assert news == [said(0, 1, b"a"), said(0, 1, b"b")]
    assert mine.learn([said(0, 1, b"b"), said(0, 1, b"c")], "agent-8") == []
    with pytest.raises(
        MaskError, match=r"agents 0 and 1 .*told by this agent itself, another by agent-9"
    ):
        mine.check()


@pytest.mark.parametrize("pair", [(0, 2), (1, 0), (3, 4), (2**63, 2**64 - 1)])
def test_pairs_that_do_not_mask_are_refused(pair):
    with pytest.raises(WireError, match="share no mask"):
        known_tokens().learn([said(*pair, b"a")], "x")


def test_half_an_entry_is_refused():
    with pytest.raises(WireError, match="entries of 32 bytes"):
        decode_entries(encode_entries([said(1, 2, b"a")])[:-1])
