"""The masks of deployed agents come from certificates alone and add up to zero."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.agent.masking import agent_masks
from hushgrad.errors import ConfigError, IdentityError
from hushgrad.network.config.model import AgentConfig, Neighbour, Partner, RunConfig
from hushgrad.network.keys.identity import mint
from hushgrad.network.keys.masking import mask_of, masked
from hushgrad.network.objective.objectives import ObjectiveSpec, load_objective

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


def masks(keys, **run):
    return [mask_of(config(keys, j, **run)) for j in range(M)]


def test_masks_are_large_and_add_up_to_zero(keys):
    made = masks(keys)
    sizes = ALGORITHM.mask_sizes(D, NETWORK.eta)
    for part, size in (("c", sizes.linear), ("Q", sizes.quadratic)):
        parts = np.array([getattr(mask, part) for mask in made])
        assert np.abs(parts.sum(axis=0)).max() < 1e-13 * size
        spread = np.sqrt((parts**2).mean() / len(ALGORITHM.masking.partners(0, M)))
        assert 0.7 * size < spread < 1.3 * size
    for mask in made:
        np.testing.assert_array_equal(mask.Q, mask.Q.T)


def test_masked_gradients_add_up_to_the_sum_of_the_gradients(keys):
    theta = np.linspace(-1, 1, D)
    own = [lambda x, j=j: j * x for j in range(M)]
    every = [masked(config(keys, j), load_objective(own[j], D)) for j in range(M)]
    total = sum(objective.gradient(theta) for objective in every)
    np.testing.assert_allclose(total, sum(range(M)) * theta, atol=1e-10)
    assert np.linalg.norm(every[3].gradient(theta) - own[3](theta)) > 1.0


@pytest.mark.parametrize("eta", [NETWORK.eta, None], ids=["quadratic", "linear"])
@pytest.mark.parametrize("dim", [2, 20])
def test_a_masked_gradient_is_the_gradient_and_the_mask(keys, dim, eta):
    rng = np.random.default_rng(dim)
    setting = config(keys, 3, dim=dim, eta=eta)
    mask, objective = mask_of(setting), masked(setting, load_objective(np.cos, dim))
    for theta in rng.normal(size=(20, dim)):
        kept = theta.copy()
        expected = np.cos(theta) + mask.c + (0.0 if mask.Q is None else mask.Q @ theta)
        np.testing.assert_allclose(objective.gradient(theta), expected, rtol=1e-13, atol=1e-13)
        np.testing.assert_array_equal(theta, kept)


def test_a_mask_is_the_same_at_every_start_and_another_in_every_run(keys):
    first, again, other = (mask_of(config(keys, 2, id=run)) for run in ("r1", "r1", "r2"))
    np.testing.assert_array_equal(first.c, again.c)
    assert np.abs(first.c - other.c).min() > 0


def test_one_partner_that_others_do_not_know_hides_the_rest(keys, tmp_path):
    """Another key of one partner changes every number of the mask."""
    new = mint(tmp_path, "agent-4").certificate_path
    known = config(keys, 2)
    changed = replace(
        known,
        partners=tuple(replace(p, certificate=new) if p.number == 4 else p for p in known.partners),
    )
    assert 4 in ALGORITHM.masking.partners(2, M)
    assert np.abs(mask_of(known).c - mask_of(changed).c).min() > 0


def test_with_a_seed_masks_are_the_simulators_bit_for_bit(keys):
    expected = agent_masks(ALGORITHM, NETWORK, D, seed=3, trial=0)
    for mine, theirs in zip(masks(keys, seed=3), expected, strict=True):
        np.testing.assert_array_equal(mine.c, theirs.c)
        np.testing.assert_array_equal(mine.Q, theirs.Q)


def test_without_eta_masks_are_linear(keys):
    assert mask_of(config(keys, 1, eta=None)).Q is None


@pytest.mark.parametrize(
    "algorithm",
    [hg.PDGNDS(), hg.EXTRA(), hg.PDGDS(masks=hg.masks.zero_sum(linear=0, quadratic=0))],
    ids=["paper", "EXTRA", "size 0"],
)
def test_without_masks_the_gradient_is_the_objectives(keys, algorithm):
    objective = load_objective(lambda x: x, D)
    assert masked(config(keys, 0, algorithm=algorithm), objective) is objective


def test_a_partner_that_is_missing_or_another_is_named(keys):
    with pytest.raises(ConfigError, match=r"agent 0 shares a mask with agent \d, but there is no"):
        mask_of(config(keys, 0, partners=()))
    one = config(keys, 0)
    wrong = replace(one.partners[0], name="agent-6" if one.partners[0].number != 6 else "agent-5")
    with pytest.raises(IdentityError, match="is the certificate of"):
        mask_of(replace(one, partners=(wrong, *one.partners[1:])))
