"""The masks of deployed agents come from their certificates and keys of the run, and cancel."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.agent.masking import agent_masks
from hushgrad.errors import ConfigError, IdentityError, MaskError
from hushgrad.network.config.model import AgentConfig, Neighbour, Partner, RunConfig
from hushgrad.network.keys.identity import mint
from hushgrad.network.keys.masking import (
    ShareSecrets,
    announcements_of,
    mask_of,
    mask_tokens_of,
    pairing_of,
)
from hushgrad.network.keys.secret import derive
from hushgrad.network.objective.objectives import ObjectiveSpec
from hushgrad.network.protocol.announcements import Announcement

M, D = 7, 40
NETWORK = hg.Network(hg.graphs.ring(M))
ALGORITHM = hg.PDGNDS(design="recommended", stepsize=hg.stepsizes.constant(0.05))


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    directory = tmp_path_factory.mktemp("keys")
    for j in range(M):
        mint(directory, f"agent-{j}")
    return directory


def config(keys, j, *, partners=None, **run):
    given = {"id": "r1", "algorithm": ALGORITHM, "iterations": 1, "dim": D, "n_agents": M}
    needed = ALGORITHM.masking.partners(j, M) if partners is None else partners
    return AgentConfig(
        name=f"agent-{j}",
        number=j,
        key=keys / f"agent-{j}.key",
        certificate=keys / f"agent-{j}.crt",
        state=Path(),
        result=Path(),
        run=RunConfig(**(given | {"eta": NETWORK.eta} | run)),
        neighbours=(Neighbour(name="x", number=0, certificate=Path()),),
        objective=ObjectiveSpec(kind="function", n_agents=M, function="x:y"),
        partners=tuple(
            Partner(name=f"agent-{i}", number=i, certificate=keys / f"agent-{i}.crt")
            for i in needed
        ),
    )


def shares(keys, *, seed=0, change=lambda c: c, **run):
    """The shares of every agent, after all have heard the announcements of all."""
    configs = [change(config(keys, j, **run)) for j in range(M)]
    pairings = [pairing_of(c) for c in configs]
    own = [np.random.default_rng([seed, j]).bytes(64) for j in range(M)]
    told = [pairing.announcement(key) for pairing, key in zip(pairings, own, strict=True)]
    return [
        ShareSecrets(c.run.id, j, {n: p.secret(own[j], told[n]) for n in p.partners})
        for j, (c, p) in enumerate(zip(configs, pairings, strict=True))
    ]


def masks(keys, *, seed=0, stage=0, starts=lambda j: (), change=lambda c: c, **run):
    made = shares(keys, seed=seed, change=change, **run)
    return [
        mask_of(change(config(keys, j, **run)), made[j], stage, starts=starts(j)) for j in range(M)
    ]


def test_masks_are_large_and_add_up_to_zero(keys):
    made = masks(keys)
    sizes = ALGORITHM.mask_sizes(D, NETWORK.eta)
    beside = np.triu_indices(D, 1)
    c, Q = np.array([mask.c for mask in made]), np.array([mask.Q for mask in made])
    for parts, size in ((c, sizes.linear), (Q[:, *beside], sizes.quadratic)):
        spread = np.sqrt((parts**2).mean() / len(ALGORITHM.masking.partners(0, M)))
        assert 0.7 * size < spread < 1.3 * size
    assert not c.sum(axis=0).any()
    assert not Q.sum(axis=0).any()
    for mask in made:
        np.testing.assert_array_equal(mask.Q, mask.Q.T)


def test_a_mask_is_the_same_at_every_start(keys):
    for first, again in zip(masks(keys), masks(keys), strict=True):
        np.testing.assert_array_equal(first.c, again.c)
        np.testing.assert_array_equal(first.Q, again.Q)


@pytest.mark.parametrize(
    "other",
    [
        {"id": "r2"},
        {"iterations": 2},
        {"seed": 1},  # other nonces and keys of the run
        {"stage": 1},
        {"starts": lambda _: (np.zeros(D), np.ones(D))},
    ],
    ids=["id", "configuration", "nonces", "stage", "starts"],
)
def test_another_run_another_share(keys, other):
    for first, second in zip(masks(keys), masks(keys, **other), strict=True):
        assert np.abs(first.c - second.c).min() > 0
        assert np.abs(first.Q - second.Q).min() > 0


@pytest.mark.parametrize("differs", [0, 1], ids=["the stage before", "the stage"])
def test_an_agent_that_was_told_another_start_has_masks_that_do_not_cancel(keys, differs):
    """Otherwise the sum of the statistics would tell this one agent's at the other start."""
    agreed = (np.zeros(D), np.linspace(0.0, 1.0, D))
    other = list(agreed)
    other[differs] = np.nextafter(agreed[differs], 2.0)
    for starts, cancel in (
        (lambda _: agreed, True),
        (lambda j: other if j == 3 else agreed, False),
    ):
        made = masks(keys, stage=2, starts=starts)
        rest = np.abs(sum(mask.c for mask in made)), np.abs(sum(mask.Q for mask in made))
        assert all(not part.any() if cancel else part.min() > 0 for part in rest)


def test_a_fixed_curvature_keeps_its_mask_and_no_start_changes_it(keys):
    fixed = replace(ALGORITHM, curvature="fixed", stages=3)
    first, second = (
        masks(keys, algorithm=fixed, stage=s, starts=lambda _, s=s: (s * np.ones(D),) * 2)
        for s in (0, 1)
    )
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one.Q, other.Q)
        assert np.abs(one.c - other.c).min() > 0
    assert not sum(mask.Q for mask in second).any()


def test_the_nonce_and_the_key_of_the_run_matter_each(keys):
    """Both halves of a state directory's mask key, at both ends."""
    here, there = (pairing_of(config(keys, j)) for j in (2, 4))
    mine, theirs = bytes(range(64)), bytes(range(64, 128))
    secret = here.secret(mine, there.announcement(theirs))
    assert there.secret(theirs, here.announcement(mine)) == secret
    for other in (b"x" * 32 + mine[32:], mine[:32] + b"x" * 32):
        assert here.secret(other, there.announcement(theirs)) != secret
    for other in (b"x" * 32 + theirs[32:], theirs[:32] + b"x" * 32):
        assert here.secret(mine, there.announcement(other)) != secret


def test_a_secret_needs_the_keys_of_the_certificates_too(keys, tmp_path):
    """Who has the keys of the run, but not the private key of a certificate, gets another."""
    there = pairing_of(config(keys, 4))
    mint(tmp_path, "agent-2")
    thief = replace(
        config(keys, 2), key=tmp_path / "agent-2.key", certificate=tmp_path / "agent-2.crt"
    )
    mine, theirs = bytes(range(64)), bytes(range(64, 128))
    told = there.announcement(theirs)
    assert pairing_of(thief).secret(mine, told) != pairing_of(config(keys, 2)).secret(mine, told)


def test_a_partner_verifies_who_announces_what(keys):
    here, there = (pairing_of(config(keys, j)) for j in (2, 4))
    told = there.announcement(bytes(range(64)))
    assert here.is_signed(told)
    forged = [
        told._replace(nonce=bytes(32)),
        told._replace(exponent=1),
        told._replace(key=bytes(32)),
        told._replace(signature=bytes(64)),
        told._replace(signature=told.signature[32:] + told.signature[:32]),
        pairing_of(config(keys, 4, id="r2")).announcement(bytes(range(64))),
        pairing_of(config(keys, 4, iterations=2)).announcement(bytes(range(64))),
        pairing_of(config(keys, 6)).announcement(bytes(range(64)))._replace(number=4),
    ]
    assert not any(map(here.is_signed, forged))


def test_a_key_that_gives_no_secret_is_named(keys):
    here = pairing_of(config(keys, 2))
    with pytest.raises(MaskError, match="the key that agent 4 announces gives no secret"):
        here.secret(bytes(range(64)), Announcement(4, 0, bytes(32), bytes(32), bytes(64)))


def test_one_partner_that_others_do_not_know_hides_the_rest(keys):
    """Another secret with one partner changes every number of the mask."""
    known = shares(keys)[2]
    changed = replace(known, secrets={**known.secrets, 4: bytes(32)})
    assert 4 in known.secrets
    setting = config(keys, 2)
    assert np.abs(mask_of(setting, known).c - mask_of(setting, changed).c).min() > 0


def test_tokens_are_the_partners_own_and_tell_nothing_of_the_key(keys):
    first, again, other = (shares(keys, id=run) for run in ("r1", "r1", "r2"))
    tokens = [own.tokens() for own in first]
    assert tokens == [own.tokens() for own in again]
    for own, theirs in zip(tokens, (own.tokens() for own in other), strict=True):
        assert all(own[pair] != theirs[pair] for pair in own)
    for j, own in enumerate(tokens):
        for (low, high), token in own.items():
            assert tokens[low + high - j][low, high] == token
            secret = first[j].secrets[low + high - j]
            assert token not in secret
            assert token not in derive(secret, purpose="mask of stage 0", run="r1")


def test_with_a_seed_masks_are_the_simulators_bit_for_bit(keys):
    for stage in (0, 3):
        expected = agent_masks(ALGORITHM, NETWORK, D, seed=3, trial=0, stage=stage)
        for j, theirs in enumerate(expected):
            mine = mask_of(config(keys, j, seed=3), None, stage)
            np.testing.assert_array_equal(mine.c, theirs.c)
            np.testing.assert_array_equal(mine.Q, theirs.Q)
    assert pairing_of(config(keys, 0, seed=3)) is None


def test_without_eta_masks_are_linear(keys):
    assert all(mask.Q is None for mask in masks(keys, eta=None))


@pytest.mark.parametrize(
    "algorithm",
    [hg.PDGNDS(), hg.EXTRA(), hg.PDGDS(masks=hg.masks.zero_sum(linear=0, quadratic=0))],
    ids=["paper", "EXTRA", "size 0"],
)
def test_a_run_without_masks_needs_no_partners(keys, algorithm):
    setting = config(keys, 0, algorithm=algorithm)
    assert mask_of(setting, None) is None
    assert pairing_of(setting) is None
    assert (mask_tokens_of(setting).most, announcements_of(setting).most) == (0, 0)


def test_a_partner_that_is_missing_or_another_is_named(keys):
    with pytest.raises(ConfigError, match=r"agent 0 shares a mask with agent \d, but there is no"):
        pairing_of(config(keys, 0, partners=()))
    one = config(keys, 0)
    wrong = replace(one.partners[0], name="agent-6" if one.partners[0].number != 6 else "agent-5")
    with pytest.raises(IdentityError, match="is the certificate of"):
        pairing_of(replace(one, partners=(wrong, *one.partners[1:])))
