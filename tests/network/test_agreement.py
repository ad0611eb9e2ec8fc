"""Partners learn each other's keys of the run before round 0, once, and from the right agent."""

import asyncio
import stat
from dataclasses import replace

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.errors import ConfigError, MaskError, WireError
from hushgrad.network.agreement import ANNOUNCEMENTS
from hushgrad.network.keys import masking
from hushgrad.network.keys.masking import pairing_of
from hushgrad.network.ops.result import Status
from hushgrad.network.protocol.announcements import (
    ENTRY,
    OWN,
    Announcement,
    Announcements,
    decode_announcements,
    encode_announcements,
)
from hushgrad.network.protocol.frames import FrameKind
from support import agent_network, attackers

M, D = 6, 2
PATH = hg.Network(hg.graphs.path(M))
ALGORITHM = hg.PDGNDS(design="recommended", stepsize=hg.stepsizes.constant(0.1))
TARGETS = np.arange(M * D, dtype=float).reshape(M, D)
GRADIENTS = [lambda x, t=t: x - t for t in TARGETS]
HESSIANS = [lambda x: np.eye(len(x))] * M


def agents(configs, gradients):
    return agent_network.agents(configs, gradients, hessians=HESSIANS[: len(gradients)])


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return tmp_path_factory.mktemp("keys")


def network(directory, keys, **options):
    return agent_network.configs(
        directory, ALGORITHM, PATH, dim=D, iterations=60, keys=keys, eta=PATH.eta, **options
    )


def run(configs):
    return asyncio.run(agent_network.ends(agents(configs, GRADIENTS)))


@pytest.fixture
def masks(monkeypatch):
    """{agent: every mask that it has made}."""
    made = {}

    def mask_of(config, *arguments, original=masking.mask_of):
        mask = original(config, *arguments)
        made.setdefault(config.number, []).append(mask)
        return mask

    monkeypatch.setattr("hushgrad.network.keys.masking.mask_of", mask_of)
    return made


def test_agents_without_a_common_link_agree_on_masks_that_cancel(tmp_path, keys, masks):
    configs = network(tmp_path, keys)
    assert M - 1 in ALGORITHM.masking.partners(0, M)  # the other end of the path
    assert {result.status for result in run(configs)} == {Status.DONE}
    every = [masks[j][0] for j in range(M)]
    assert not sum(mask.c for mask in every).any()
    assert not sum(mask.Q for mask in every).any()
    assert all(mask.c.all() for mask in every)


def test_an_agent_that_is_started_again_needs_no_mask_in_a_stage_that_has_begun(
    tmp_path, keys, masks
):
    configs = network(tmp_path, keys)
    asyncio.run(agent_network.leave(agents(configs, GRADIENTS), 5))
    for config in configs:
        file = config.state / "mask-key"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        kept = decode_announcements((config.state / ANNOUNCEMENTS).read_bytes())
        assert {one.number for one in kept} >= {
            config.number, *ALGORITHM.masking.partners(config.number, M)
        }  # fmt: skip
    results = run(configs)
    assert {result.status for result in results} == {Status.DONE}, results
    assert all(len(made) == 1 for made in masks.values())  # the stage keeps its statistic


def test_the_key_of_the_run_is_gone_when_the_run_has_ended(tmp_path, keys, masks):
    configs = network(tmp_path, keys)
    first = run(configs)
    assert not any((config.state / "mask-key").exists() for config in configs)
    masks.clear()
    again = run(configs)  # a finished agent needs no mask
    assert {result.status for result in again} == {Status.DONE}
    assert not masks
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one.theta, other.theta)


def test_a_run_whose_key_was_lost_says_so(tmp_path, keys):
    configs = network(tmp_path, keys)
    asyncio.run(agent_network.leave(agents(configs, GRADIENTS), 5))
    (configs[2].state / "mask-key").unlink()
    only = agents(configs, GRADIENTS)[2]
    result = asyncio.run(only.run())
    assert result.status is Status.REFUSED
    assert "mask-key is missing" in result.detail


def test_two_runs_with_one_id_are_refused(tmp_path, keys):
    configs = network(tmp_path / "first", keys, id="twice")
    run(configs)
    for config in configs:
        with pytest.raises(ConfigError, match=r"'twice' was used before .*Choose a new id"):
            asyncio.run(agents([replace(config, state=tmp_path / "new")], GRADIENTS[:1])[0].run())
    assert not (tmp_path / "new").exists()
    assert {result.status for result in run(configs)} == {Status.DONE}  # the same directory


# ---- false announcements


def against(configs, rogue_number, entries):
    """Results of honest agents; agent `rogue_number` only sends these announcements."""
    rogue, victim = configs[rogue_number], configs[rogue_number - 1]
    honest = configs[:rogue_number]

    async def forge():
        async with attackers.Rogue(rogue, victim) as attacker:
            attacker.hello()
            attacker.send(FrameKind.ANNOUNCE, encode_announcements(entries))
            await attacker.reject()

    async def together():
        everyone = agents(honest, GRADIENTS[: len(honest)])
        return (await asyncio.gather(*(agent.run() for agent in everyone), forge()))[:-1]

    return asyncio.run(together())


def test_a_second_announcement_of_an_agent_ends_the_run_and_names_its_way(tmp_path, keys):
    """The last agent of a path invents a key of agent 0; every error leads towards the liar."""
    configs = network(tmp_path, keys)
    false = Announcement(0, 0, bytes(32), bytes(range(32)), bytes(64))
    results = against(configs, M - 1, [false])
    assert {result.status for result in results} == {Status.REFUSED}
    two = "agent 0 announces one key for its masks in this run, but there are two"
    assert any(two in result.detail for result in results)
    for j, result in enumerate(results):
        assert two in result.detail or "ended the run: masks do not cancel" in result.detail
        assert f"agent-{j + 1}" in result.detail


def test_a_tampered_announcement_is_refused_by_name(tmp_path, keys):
    """The last agent of a path changes its own nonce, as a relay could, and signs nothing anew."""
    configs = network(tmp_path, keys)
    told = pairing_of(configs[M - 1]).announcement(bytes(range(64)))
    results = against(configs, M - 1, [told._replace(nonce=bytes(32))])
    assert {result.status for result in results} == {Status.REFUSED}
    own = [r.detail for r in results if f"the announcement of agent {M - 1}, told" in r.detail]
    assert own
    assert all(f"not signed by the key of agent-{M - 1}'s certificate" in text for text in own)
    for result in results:
        assert result.detail in own or "ended the run: masks do not cancel" in result.detail


# ---- the announcements that one agent knows


def said(number, letter):
    return Announcement(number, 0, letter * 32, letter * 32, letter * 64)


def test_news_is_passed_on_once_and_never_a_third():
    known = Announcements(4)
    known.add(said(0, b"a"), OWN)
    assert known.learn([said(0, b"a"), said(1, b"b")], "x") == [said(1, b"b")]
    assert known.learn([said(1, b"b")], "y") == []
    known.check()
    assert known.learn([said(1, b"c"), said(1, b"d")], "z") == [said(1, b"c")]
    with pytest.raises(MaskError, match=r"agent 1 .* told by x, another by z"):
        known.check()
    assert known.of(1) == (said(1, b"b"), "x")
    assert known.of(3) is None
    assert len(known.entries()) == 3 <= known.most


def test_announcements_of_nobody_and_half_an_entry_are_refused():
    for number in (4, 2**63):
        with pytest.raises(WireError, match=f"no agent {number} announces itself"):
            Announcements(4).learn([said(number, b"a")], "x")
    with pytest.raises(WireError, match=f"entries of {ENTRY} bytes"):
        decode_announcements(encode_announcements([said(1, b"a")])[:-1])
    with pytest.raises(WireError, match="no agent 0 announces itself"):
        Announcements().learn([said(0, b"a")], "x")


def test_entries_survive_the_wire():
    entries = [said(0, b"a"), said(3, b"z")]
    assert decode_announcements(encode_announcements(entries)) == entries
