"""No two honest sites end with different tables, whatever a third site sends."""

import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hushgrad as hg
from hushgrad.errors import FitError, WireError
from hushgrad.network.deployed import Agent
from hushgrad.network.keys.masking import ShareSecrets, confirmation_tokens
from hushgrad.network.ops.result import Status
from hushgrad.network.programme import Programme
from hushgrad.network.protocol.confirmations import Confirmations
from hushgrad.network.protocol.mask_tokens import OWN
from hushgrad.network.rounds import Rounds
from hushgrad.network.transport.in_memory import InMemoryTransport
from support import agent_network, fit_network, fits
from support.completing_agent import CompletingAgent, Story

MODEL = fits.model("logistic", columns=("age", "stage"), factors={"stage": fits.LEVELS})
SITES = fits.synthetic((25, 40, 60))
ALL_LINKED = hg.Network(hg.graphs.complete(3))
ATTACKER = 2


def attacked(directory, monkeypatch, sites=SITES, *, tls=True, **options):
    """Two honest sites and one that tells them two stories; (agents, results, stories)."""
    setting = fit_network.configs(
        directory, MODEL, sites, ALL_LINKED, tls=tls, max_wait=3.0, **options
    )
    dim, everyone = setting[0].run.dim, {}
    stories = {
        j: Story(MODEL, fits.synthetic(sizes), dim)
        for j, sizes in ((0, (25, 40, 60)), (1, (30, 50, 70)))
    }
    assert len(stories[0].sums) == len(stories[1].sums)
    honest = [Agent(c, transport=InMemoryTransport(c.name, everyone)) for c in setting[:2]]
    config = setting[ATTACKER]
    liar = CompletingAgent(
        config, stories=stories, transport=InMemoryTransport(config.name, everyone)
    )
    monkeypatch.setattr("hushgrad.network.programme.confirmation_tokens", liar.tokens)
    results = asyncio.run(agent_network.ends([*honest, liar]))
    return honest, results[:2], stories


def test_a_site_that_completes_all_averages_brings_about_no_table(tmp_path, monkeypatch):
    honest, results, _ = attacked(tmp_path, monkeypatch)
    assert [r.status for r in results] == [Status.REFUSED] * 2
    assert [agent.fitted for agent in honest] == [None] * 2
    assert [r.fit for r in results] == [None] * 2
    reasons = " ".join(r.detail for r in results)
    assert "does not confirm the sums of this agent, so there is no table" in reasons
    assert "agent-0 does not confirm" in reasons or "agent-1 does not confirm" in reasons
    assert "agent-2 does not confirm" not in reasons  # it told each what it wished to hear


def test_without_confirmations_the_attack_would_succeed(tmp_path, monkeypatch):
    """So the test above tests something: both sites end well, with two different tables."""
    monkeypatch.setattr(Confirmations, "refuted", lambda known, right: None)
    honest, results, stories = attacked(tmp_path, monkeypatch)
    assert [r.status for r in results] == [Status.DONE] * 2
    tables = [fit_network.bits(agent.fitted) for agent in honest]
    assert tables == [fit_network.bits(stories[j].result) for j in (0, 1)]
    assert tables[0] != tables[1]


def test_an_active_neighbour_gets_the_same_bits_from_other_rows(tmp_path, monkeypatch):
    """Nothing that a site sends depends on its rows but through its masked vectors, tokens
    included, while a neighbour decides on every sum that the site sees.
    """
    sent, masked = {}, {}

    def encode(rounds, stop, original=Rounds._encode):
        digest = original(rounds, stop)
        frames = {j: bytes(frame) for j, frame in rounds.frames[rounds.round].items()}
        sent.setdefault((rounds.machine.agent.local.number, rounds.round), []).append(frames)
        return digest

    def statistic(stages, stage, start, own, original=Programme._masked):
        made = original(stages, stage, start, own)
        return masked.setdefault((stages.config.number, stage), made)

    def add(known, own, original=Confirmations.add):
        sent.setdefault((min(own)[0], "tokens"), []).append(dict(own))
        return original(known, own)

    monkeypatch.setattr(Rounds, "_encode", encode)
    monkeypatch.setattr(Programme, "_masked", statistic)
    monkeypatch.setattr(Confirmations, "add", add)
    first, second, third = SITES.values()
    for name, sites in (("one", SITES), ("two", {"a": second, "b": first, "c": third})):
        with monkeypatch.context() as patch:
            attacked(tmp_path / name, patch, sites, tls=False, seed=3, id="same")
    honest = {key: told for key, told in sent.items() if key[0] != ATTACKER}
    assert {(0, "tokens"), (1, "tokens")} < honest.keys()
    assert len(honest) >= 2 * 6
    assert all(len(told) == 2 and told[0] == told[1] for told in honest.values())


def ended(setting):
    agents, results, _ = fit_network.run(setting)
    return [agent.fitted for agent in agents], results


def test_partners_that_are_not_neighbours_confirm_each_other(tmp_path):
    """In a ring of four every agent has three partners and two neighbours. Real secrets."""
    sites = fits.synthetic((25, 40, 60, 35))
    network = hg.Network(hg.graphs.ring(4))
    setting = fit_network.configs(tmp_path, MODEL, sites, network, tls=True)
    found, results = ended(setting)
    assert {r.status for r in results} == {Status.DONE}
    assert len({fit_network.bits(result) for result in found}) == 1


def silent(monkeypatch, number):
    """Let one agent send no token of its own."""
    original = Confirmations.add

    def add(known, own):
        if (number, (number + 1) % 3) in own:
            known.known |= {way: {token: OWN} for way, token in own.items()}
            return []
        return original(known, own)

    monkeypatch.setattr(Confirmations, "add", add)


def test_a_partner_that_confirms_nothing_is_named_after_max_wait(tmp_path, monkeypatch):
    silent(monkeypatch, 1)
    setting = fit_network.configs(tmp_path, MODEL, SITES, ALL_LINKED, tls=True, max_wait=1.0)
    found, results = ended(setting)
    for j in (0, 2):
        assert results[j].status is Status.REFUSED
        assert found[j] is None
    # the first to give up tells the other one, which may still have waited
    told = [results[j].detail for j in (0, 2)]
    named = "no confirmation came within max_wait = 1 s from agent-1"
    assert any(named in text for text in told)
    assert all(named in text or "ended the run" in text for text in told)
    # it holds the right tokens of both others, so its own table is right
    assert results[1].status is Status.DONE
    assert fit_network.bits(found[1]) == fit_network.bits(fits.fit(MODEL, SITES))


def test_an_agent_that_ended_serves_the_tokens_to_one_that_was_killed(tmp_path, monkeypatch):
    """Killed when it knew all tokens and before it kept them: the others have ended by then."""
    original, deaths = Programme._is_confirmed, []

    async def killed(stages, hub, compute):
        async def keep(write):
            if stages.config.number == 1 and len(deaths) < 2:
                deaths.append(1)
                raise fit_network.KilledError
            return await compute(write)

        return await original(stages, hub, keep)

    monkeypatch.setattr(Programme, "_is_confirmed", killed)
    sites = fits.synthetic((25, 40, 60, 35))
    network = hg.Network(hg.graphs.ring(4))
    setting = fit_network.configs(tmp_path, MODEL, sites, network, tls=True)
    found, results = ended(setting)
    assert len(deaths) == 2
    assert {r.status for r in results} == {Status.DONE}
    assert len({fit_network.bits(result) for result in found}) == 1


def test_a_site_whose_fit_ends_before_the_others_has_no_table(tmp_path, monkeypatch):
    """Its machine rounds otherwise, say."""
    original = Programme._advance

    def advance(stages, pooled):
        original(stages, pooled)
        if stages.config.number == 1 and len(stages._sums) == 3:
            stages._outcome, stages._own = FitError("no more"), None

    monkeypatch.setattr(Programme, "_advance", advance)
    setting = fit_network.configs(tmp_path, MODEL, SITES, ALL_LINKED, tls=True, max_wait=1.0)
    found, results = ended(setting)
    assert {r.status for r in results} <= {Status.REFUSED, Status.PEER_ENDED}
    assert found == [None] * 3
    assert "goes on, so there is no table" in results[1].detail


# ---- tokens


def tokens_of(number, secret, seen, run):
    config = fit_network.AgentNumber(number, run)
    return confirmation_tokens(config, ShareSecrets(run.id, number, {1 - number: secret}), seen)


@given(st.binary(min_size=32, max_size=32), st.text(min_size=1, max_size=5))
def test_a_token_depends_on_secret_direction_run_and_all_that_was_seen(secret, seen):
    run, other = (fit_network.RunOnly(name) for name in ("one", "two"))
    own, right = tokens_of(0, secret, seen, run)
    theirs, wanted = tokens_of(1, secret, seen, run)
    assert own == wanted
    assert right == theirs
    assert own[0, 1] != right[1, 0]  # its own token sent back proves nothing
    different = [
        tokens_of(0, secret[::-1] + b"x", seen, run)[0][0, 1],
        tokens_of(0, secret, seen + "x", run)[0][0, 1],
        tokens_of(0, secret, seen, other)[0][0, 1],
    ]
    assert len({own[0, 1], *different}) == 4


def test_false_tokens_do_not_take_the_place_of_the_right_one():
    known = Confirmations(3, lambda j: tuple({0, 1, 2} - {j}))
    assert len(known.missing()) == 6
    assert known.learn([(1, 0, b"x" * 16)], "two") == [(1, 0, b"x" * 16)]
    assert known.refuted({(1, 0): b"y" * 16}) == ((1, 0), "two")
    assert known.learn([(1, 0, b"y" * 16), (1, 0, b"y" * 16)], "one") == [(1, 0, b"y" * 16)]
    assert known.refuted({(1, 0): b"y" * 16}) is None
    assert known.learn([(1, 0, b"z" * 16)], "two") == []  # at most two of every pair
    for bad in ((1, 1), (0, 3), (7, 0)):
        with pytest.raises(WireError, match="confirm nothing"):
            known.learn([(*bad, b"x" * 16)], "two")


def test_sites_with_the_same_coefficients_and_other_sums_do_not_confirm_each_other():
    """Standard errors and counts come from the sums, too."""
    result = hg.fit(MODEL, SITES)
    programme = object.__new__(Programme)
    programme._contract, programme._outcome = "contract", result
    sums = [np.arange(4.0), np.ones(3)]
    seen = set()
    for change in (0.0, 1.0):
        programme._sums = [sums[0], sums[1] + change]
        seen.add(programme._seen())
    programme._sums, programme._contract = sums, "another"
    seen.add(programme._seen())
    assert len(seen) == 3
