"""Same seed, same numbers."""

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.simulate.stacked import driver as stacked
from support import cases, dense
from support.tables import some

pytestmark = pytest.mark.optimised  # every bit counts here


Q = cases.Quadratics()
ALGORITHMS = [hg.PDGDS(), hg.PDGNDS(), hg.PDGNDS(form="square"), hg.AsynDGM(), hg.ADDOPT()]
IDS = [a.label for a in ALGORITHMS]
TRIALS = 20  # two blocks; one number for all tests, so that they share what is compiled


def run(algorithm, **options):
    return hg.run(
        algorithm, Q.problem, cases.undirected(), **({"iterations": 60, "x0": Q.x0} | options)
    )


@pytest.mark.parametrize("algorithm", some(ALGORITHMS, 4), ids=IDS)
def test_run_twice_is_bit_for_bit_the_same(algorithm):
    a, b = run(algorithm, trials=TRIALS, seed=4), run(algorithm, trials=TRIALS, seed=4)
    np.testing.assert_array_equal(a.x, b.x)
    np.testing.assert_array_equal(a.error, b.error)


@pytest.mark.parametrize("algorithm", some(ALGORITHMS), ids=IDS)
def test_other_chunk_lengths_give_the_same_bits(algorithm):
    reference = run(algorithm, seed=4, record_every=60)
    for every in (1, 7, 59):
        other = run(algorithm, seed=4, record_every=every)
        np.testing.assert_array_equal(reference.x, other.x)
        common = np.isin(other.iterations, reference.iterations)
        np.testing.assert_array_equal(other.error[:, common], reference.error)


@pytest.mark.parametrize("algorithm", some(ALGORITHMS), ids=IDS)
def test_a_trial_alone_equals_itself_in_the_batch(algorithm):
    batch = run(algorithm, trials=TRIALS, seed=4)
    for t in (0, 7, 19):
        alone = run(algorithm, trials=[t], seed=4)
        np.testing.assert_allclose(alone.x[0], batch.x[t], rtol=0, atol=1e-12)
        np.testing.assert_allclose(alone.error[0], batch.error[t], rtol=0, atol=1e-12)


def test_trials_and_seeds_differ():
    x = run(hg.PDGDS(), trials=TRIALS, seed=0).x.reshape(TRIALS, -1)
    y = run(hg.PDGDS(), trials=TRIALS, seed=1).x.reshape(TRIALS, -1)
    both = np.concatenate([x, y])
    distance = np.abs(both[:, None] - both[None]).max(-1) + np.eye(2 * TRIALS)
    assert distance.min() > 1e-6


def test_blocks_of_trials_depend_on_their_number_only(monkeypatch):
    """Threads may be more or fewer: which trials share a block is the same everywhere."""
    seen = []
    original = stacked._run_block

    def watched(*arguments):
        seen.append(arguments[-1].tolist())
        return original(*arguments)

    monkeypatch.setattr(stacked, "_run_block", watched)
    run(hg.PDGDS(), trials=21, iterations=3)
    assert sorted(seen) == [list(range(11)), [*range(11, 21), 20]]


@pytest.mark.parametrize("algorithm", some(ALGORITHMS), ids=IDS)
def test_a_transcript_does_not_change_the_run(algorithm):
    plain, recorded = run(algorithm), run(algorithm, transcript=True)
    np.testing.assert_allclose(plain.x, recorded.x, rtol=0, atol=1e-13)
    np.testing.assert_allclose(plain.error, recorded.error, rtol=0, atol=1e-13)
    assert plain.traffic == recorded.traffic


def test_the_callers_jax_settings_stay_as_they_were():
    import jax
    import jax.numpy as jnp

    assert jnp.ones(2).dtype == jnp.float32
    result = run(hg.PDGDS(), trials=TRIALS)
    assert result.x.dtype == np.float64
    assert jnp.ones(2).dtype == jnp.float32
    assert not jax.config.jax_enable_x64


def test_agents_of_unequal_data_run_alike_in_every_driver():
    """Three shapes of data, grouped: against a dense recursion."""
    rng = np.random.default_rng(0)
    sizes = [2, 5, 2, 3, 5, 2, 3]
    data = [{"A": rng.normal(size=(n, 4)) / 4, "z": rng.normal(size=n)} for n in sizes]
    problem = hg.Problem(lambda t, d: ((d["A"] @ t - d["z"]) ** 2).sum(), data, dim=4)

    def g(x):
        return np.array(
            [2 * d["A"].T @ (d["A"] @ xi - d["z"]) for d, xi in zip(data, x, strict=True)]
        )

    reference = dense.dgd(cases.undirected().matrix(), g, Q.x0, 50, lambda k: 1 / (k + 1))
    for engine in ("stacked", "agents"):
        got = cases.trajectory(hg.DGD(), problem, cases.undirected(), Q.x0, 50, engine=engine)[
            0, 1:
        ]
        np.testing.assert_allclose(got, reference, rtol=0, atol=1e-12)


def test_every_trial_may_have_its_own_problem():
    problem = hg.problems.estimation(n_agents=7, s=3, d=4, seed=3, trials=20)
    batch = hg.run(hg.PDGDS(), problem, cases.undirected(), iterations=50, trials=20, seed=2)
    for t in (0, 13):
        data = {name: leaf[t] for name, leaf in problem.data.items()}
        single = hg.Problem(problem.loss, data, dim=4)
        alone = hg.run(hg.PDGDS(), single, cases.undirected(), iterations=50, trials=[t], seed=2)
        np.testing.assert_allclose(batch.x[t], alone.x[0], rtol=0, atol=1e-12)
        np.testing.assert_allclose(batch.error[t], alone.error[0], rtol=0, atol=1e-12)
