"""An agent that ends takes the whole network with it, at once, by name and code; over real TLS."""

import asyncio

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.errors import ProblemError
from hushgrad.network.config.model import LARGEST
from hushgrad.network.ops.result import EXIT_CODES, Status
from support import agent_network


@pytest.fixture(scope="session")
def keys(tmp_path_factory):
    return tmp_path_factory.mktemp("keys")


def ends(tmp_path, keys, spoil, **options):
    """The results of a path of four agents, whose first gets a gradient of `spoil` at its fifth."""
    network = hg.Network(hg.graphs.path(4))
    configs = agent_network.configs(
        tmp_path, hg.DIGing(), network, dim=2, iterations=500, keys=keys, **options
    )
    asked = []

    def gradient(x):
        asked.append(x)
        return spoil(x) if len(asked) > 5 else x - 1.0

    agents = agent_network.agents(configs, [gradient, *[lambda x: x - 1.0] * 3])
    return asyncio.run(agent_network.ends(agents)), configs


def raises(_):
    raise ProblemError("the database does not answer")


@pytest.mark.parametrize(
    ("spoil", "first", "others", "words"),
    [
        (lambda x: x + 1e31, Status.DIVERGED, Status.PEER_ENDED, "its numbers grew without bound"),
        (raises, Status.FAILED, Status.PEER_LOST, "it failed (failed)"),
    ],
    ids=["diverged", "failed"],
)
def test_when_one_agent_ends_all_end_by_name_and_code_and_nobody_waits(
    tmp_path, keys, spoil, first, others, words
):
    (origin, *rest), _ = ends(tmp_path, keys, spoil, max_wait=60.0)
    assert origin.status is first
    for j, result in enumerate(rest, start=1):
        assert result.status is others
        assert result.detail.startswith(f"agent-{j - 1} ")
        assert words in result.detail
        assert ("began with agent 0" in result.detail) == (j > 1)
        assert result.seconds < 30
        assert "database" not in result.detail  # a word of the agent that failed
    assert EXIT_CODES[first] != EXIT_CODES[others]


@pytest.mark.parametrize("largest", [1e3, 1e6, 1e9])
def test_an_agent_ends_before_it_sends_a_number_that_is_too_large(tmp_path, keys, largest):
    """A message of a tracker can be larger than the share that its sender keeps."""
    network = hg.Network(hg.graphs.ring(4))
    configs = agent_network.configs(
        tmp_path, hg.DIGing(stepsize=hg.stepsizes.constant(0.6)), network, dim=2, iterations=4000,
        keys=keys, largest=largest, max_wait=60.0,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    H = [np.diag(rng.uniform(0.5, 3.0, size=2)) for _ in range(4)]
    results = asyncio.run(
        agent_network.ends(agent_network.agents(configs, [lambda x, H=h: H @ x - 1.0 for h in H]))
    )
    assert Status.DIVERGED in {r.status for r in results}
    assert {r.status for r in results} <= {Status.DIVERGED, Status.PEER_ENDED}
    assert not any("too large" in r.detail for r in results)  # nobody had to refuse a message


def test_a_failure_that_is_corrected_lets_all_go_on(tmp_path, keys):
    _, configs = ends(tmp_path, keys, raises, max_wait=60.0)
    agents = agent_network.agents(configs, [lambda x: x - 1.0] * 4)
    assert {r.status for r in asyncio.run(agent_network.ends(agents))} == {Status.DONE}


def test_the_largest_number_of_a_run_is_declared_or_follows_from_its_masks(tmp_path, keys):
    network = hg.Network(hg.graphs.complete(3))

    def bound(algorithm, **run):
        return agent_network.configs(
            tmp_path, algorithm, network, dim=2, iterations=5, keys=keys, **run
        )[0].run.bound

    assert bound(hg.DGD()) == LARGEST == 1e30
    assert bound(hg.DGD(), largest=50.0) == 50.0
    assert bound(hg.Consensus()) == LARGEST  # the agents have not agreed on a scale yet
    masks = hg.Consensus().masking
    expected = 16 * np.sqrt(3) * (1 + masks.linear * np.sqrt(masks.n_partners)) * 4.0
    assert bound(hg.Consensus(), scale=3.0) == pytest.approx(expected)


def test_the_masks_of_an_honest_average_stay_below_the_bound_that_follows_from_them(tmp_path, keys):
    network = hg.Network(hg.graphs.complete(3))
    configs = agent_network.configs(
        tmp_path, hg.Consensus(), network, dim=2, iterations=3, keys=keys, scale=1.0, seed=1,
        max_jumps=None,
    )  # fmt: skip
    values = np.array([[0.5, -0.5], [0.1, 0.2], [0.3, 0.9]])
    agents = agent_network.agents(
        configs, [lambda x, a=a: x - a for a in values], hessians=[lambda x: np.eye(2)] * 3
    )
    results = asyncio.run(agent_network.ends(agents))
    assert {r.status for r in results} == {Status.DONE}
    np.testing.assert_allclose([r.theta for r in results], [values.mean(axis=0)] * 3, atol=1e-9)
