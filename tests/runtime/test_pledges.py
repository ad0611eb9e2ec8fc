"""Masks that would not cancel end the run everywhere, and the pair is named."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
import ring

import hushgrad as hg
from hushgrad.errors import MaskError, WireError
from hushgrad.runtime import masking
from hushgrad.runtime.identity import mint
from hushgrad.runtime.masking import pledges_of
from hushgrad.runtime.pledges import PLEDGE, Pledges
from hushgrad.runtime.result import Status

M, D = 7, 2
PATH = hg.Network(hg.graphs.path(M))
ALGORITHM = hg.PDGNDS(design="recommended", stepsize=hg.stepsizes.constant(0.1))
PAIR = (0, 3)  # partners, three hops apart


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return tmp_path_factory.mktemp("keys")


def network(tmp_path, keys, algorithm=ALGORITHM, **run):
    return ring.configs(tmp_path, algorithm, PATH, dim=D, iterations=400, keys=keys, id="r1", **run)


def results(configs):
    targets = np.arange(M * D, dtype=float).reshape(M, D)
    gradients = [lambda x, t=t: x - t for t in targets]
    return asyncio.run(ring.ends(ring.agents(configs, gradients))), targets.mean(0)


def test_everyone_hears_of_every_pair_and_the_run_goes_on(tmp_path, keys, monkeypatch):
    made = []
    monkeypatch.setattr(
        "hushgrad.runtime.agent.pledges_of",
        lambda config: made.append(masking.pledges_of(config)) or made[-1],
    )
    ended, optimum = results(network(tmp_path, keys))
    for result in ended:
        assert result.status is Status.DONE
        np.testing.assert_allclose(result.theta, optimum, atol=1e-6)
    table = ALGORITHM.masking.partner_table(M)
    pairs = {(min(i, j), max(i, j)) for j in range(M) for i in table[:, j].tolist()}
    for pledges in made:
        assert pledges.known == made[0].known
        assert set(pledges.known) == pairs
        assert all(len(held) == 1 for held in pledges.known.values())


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
    for result in ended:
        assert result.status is Status.REFUSED, result
        assert result.detail.startswith("the masks of agents 0 and 3 do not cancel")
        assert result.iterations <= M


def test_a_pledge_is_another_in_every_run_and_is_not_the_key_of_the_mask(tmp_path, keys):
    first = pledges_of(network(tmp_path, keys)[0])
    again = pledges_of(network(tmp_path, keys)[0])
    second = pledges_of(
        replace(
            network(tmp_path, keys)[0],
            run=replace(network(tmp_path, keys)[0].run, id="r2"),
        )
    )
    assert first.known == again.known
    assert all(first.known[pair] != second.known[pair] for pair in first.known)


@pytest.mark.parametrize(
    ("algorithm", "run"),
    [(hg.EXTRA(), {}), (hg.PDGNDS(), {}), (ALGORITHM, {"seed": 1})],
    ids=["no masks", "paper", "seeded"],
)
def test_where_nothing_is_agreed_nothing_is_pledged(tmp_path, keys, algorithm, run):
    pledges = pledges_of(network(tmp_path, keys, algorithm, **run)[0])
    assert (pledges.known, pledges.most) == ({}, 0)


# ---- one agent's book


def book(**own):
    return Pledges({(0, 1): b"a" * PLEDGE} | own, 4, lambda j: ((j + 1) % 4, (j - 1) % 4))


def said(*entries):
    other = Pledges({}, 4, None)
    for pair, letter in entries:
        other.known.setdefault(pair, set()).add(letter * PLEDGE)
    return other.encode()


def test_news_is_told_on_once():
    mine = book()
    assert mine.learn(said(((0, 1), b"a"), ((1, 2), b"b")), "x") == [(1, 2)]
    assert mine.learn(said(((1, 2), b"b")), "x") == []


def test_both_pledges_are_kept_for_the_others_but_never_a_third():
    mine = book()
    with pytest.raises(MaskError, match=r"agents 0 and 1 .*heard of by agent-9"):
        mine.learn(said(((0, 1), b"b"), ((0, 1), b"c")), "agent-9")
    assert mine.contradictions == [(0, 1)]
    assert len(mine.encode([(0, 1)])) == 2 * len(said(((1, 2), b"b")))


@pytest.mark.parametrize("pair", [(0, 2), (1, 0), (1, 1), (3, 4), (2**63, 2**64 - 1)])
def test_pairs_that_do_not_mask_are_refused(pair):
    with pytest.raises(WireError, match="share no mask"):
        book().learn(said((pair, b"a")), "x")


def test_half_an_entry_is_refused():
    with pytest.raises(WireError, match="entries of 32 bytes"):
        book().learn(said(((1, 2), b"a"))[:-1], "x")
