"""Runs keep what they measured, say how they ended, and survive a file."""

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.errors import DivergedError, InputError
from support import cases
from support.tables import combinations, some

Q = cases.Quadratics()
NETWORK = cases.undirected()


def run(algorithm=None, **options):
    return hg.run(algorithm or hg.PDGNDS(), Q.problem, NETWORK, **({"iterations": 30} | options))


def test_samples_are_errors_and_consensus_of_the_trajectory():
    x = cases.trajectory(hg.PDGNDS(), Q.problem, NETWORK, Q.x0, 30, trials=2)
    result = run(x0=Q.x0, trials=2, seed=5, record_every=7)
    assert result.iterations.tolist() == [0, 7, 14, 21, 28, 30]
    for s, k in enumerate(result.iterations):
        error = np.linalg.norm(x[:, k] - Q.solution, axis=2).max(1)
        apart = np.linalg.norm(x[:, k] - x[:, k].mean(1, keepdims=True), axis=2).max(1)
        np.testing.assert_allclose(result.error[:, s], error, rtol=0, atol=1e-12)
        np.testing.assert_allclose(result.consensus[:, s], apart, rtol=0, atol=1e-12)
    np.testing.assert_allclose(result.x, x[:, -1], rtol=0, atol=1e-13)
    assert result.error.shape == (2, 6)
    assert result.x.shape == (2, cases.M, cases.D)


@pytest.mark.parametrize(
    ("engine", "transcript"), combinations(["stacked", "agents"], [True, False])
)
def test_a_users_metric_is_one_function(engine, transcript):
    def spread(x, problem):
        assert problem is Q.problem
        return np.ptp(x, axis=1).max(1)

    result = run(
        metrics={"spread": spread}, record_every=10, trials=3, x0=Q.x0, engine=engine,
        transcript=transcript,
    )  # fmt: skip
    assert result.metrics["spread"].shape == (3, 4)
    np.testing.assert_allclose(result.metrics["spread"][:, 0], np.ptp(Q.x0, axis=0).max())
    np.testing.assert_allclose(result.metrics["spread"][:, -1], np.ptp(result.x, axis=1).max(1))


@pytest.mark.parametrize(
    ("engine", "transcript"), combinations(["stacked", "agents"], [True, False])
)
def test_divergence_is_a_status_that_names_the_iteration(engine, transcript):
    wild = hg.EXTRA(stepsize=hg.stepsizes.constant(50.0))
    result = run(
        wild, iterations=400, record_every=100, engine=engine, transcript=transcript, x0=Q.x0
    )
    x = cases.trajectory(wild, Q.problem, NETWORK, Q.x0, 200)[0]
    error = np.linalg.norm(x - Q.solution, axis=2).max(1)
    first = int(np.argmax(~(error <= 1e100)))
    assert result.status == (f"diverged at {first}",)
    assert "diverged" in repr(result)
    with pytest.raises(DivergedError, match=f"trial 0 diverged at {first}"):
        result.throw()


def test_a_diverged_trial_does_not_hide_the_others():
    x0 = np.stack([np.full((cases.M, cases.D), 1e99), np.zeros((cases.M, cases.D))])
    result = run(
        hg.DGD(stepsize=hg.stepsizes.diminishing(scale=20.0)), x0=x0, trials=2, iterations=3000
    )
    assert result.status[0].startswith("diverged at ")
    assert result.status[1] == "iteration limit"
    assert np.isfinite(result.error[1]).all()


def test_converged_means_the_last_error_is_below_the_tolerance():
    exact = hg.PDGNDS(stepsize=hg.stepsizes.constant(0.2, hg.stepsizes.geometric(0.9)))
    assert run(exact, iterations=3000).status == ("converged",)
    assert run(exact, iterations=10).status == ("iteration limit",)
    scale = max(1, np.linalg.norm(Q.solution))
    last = run(exact, iterations=50).error[0, -1] / scale
    assert run(exact, iterations=50, tolerance=1.01 * last).status == ("converged",)
    assert run(exact, iterations=50, tolerance=0.99 * last).status == ("iteration limit",)


@pytest.mark.parametrize("algorithm", some([hg.PDGNDS(form="square"), hg.AsynDGM(), hg.ADDOPT()]))
def test_a_saved_run_comes_back_whole(algorithm, tmp_path):
    before = run(algorithm, transcript=True, trials=2, metrics={"one": lambda x, p: 1.0})
    after = hg.load_run(before.save(tmp_path / "run.npz"))
    for name in ("error", "consensus", "iterations", "x", "solution", "trials"):
        np.testing.assert_array_equal(getattr(after, name), getattr(before, name))
    for name in ("title", "label", "status", "seed", "traffic", "config", "seconds"):
        assert getattr(after, name) == getattr(before, name)
    np.testing.assert_array_equal(after.metrics["one"], before.metrics["one"])
    assert after.transcript.n_messages == before.transcript.n_messages > 0
    for j, i in before.transcript.links:
        for a, b in zip(
            after.transcript.messages(4, j, i, trial=1),
            before.transcript.messages(4, j, i, trial=1),
            strict=True,
        ):
            np.testing.assert_array_equal(a, b)
    assert list(tmp_path.iterdir()) == [tmp_path / "run.npz"]  # nothing half-written beside it


def test_files_that_are_not_runs_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"Use '.*\.npz'"):
        run().save(tmp_path / "run.pickle")
    with pytest.raises(InputError, match="there is no run at"):
        hg.load_run(tmp_path / "nowhere.npz")
    (tmp_path / "junk.npz").write_bytes(b"junk")
    with pytest.raises(InputError, match="no saved run"):
        hg.load_run(tmp_path / "junk.npz")
    np.savez(tmp_path / "other.npz", a=1)
    with pytest.raises(InputError, match="no saved run"):
        hg.load_run(tmp_path / "other.npz")
    whole = run().save(tmp_path / "whole.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[:-200])
    with pytest.raises(InputError, match="no saved run"):
        hg.load_run(tmp_path / "cut.npz")


def test_a_trial_that_is_lost_at_the_start_is_told_and_keeps_an_empty_transcript():
    x0 = np.full((2, cases.M, cases.D), 1e101)
    result = run(x0=x0, trials=2, engine="agents", transcript=True)
    assert result.status == ("diverged at 0", "diverged at 0")
    assert result.transcript.n_messages == 0


def test_compare_runs_algorithms_alike_under_their_labels():
    both = hg.compare(
        [hg.PDGDS(), hg.PDGDS(split=hg.splits.identity()), hg.DGD(), hg.DGD()], Q.problem, NETWORK,
        iterations=20, trials=2,
    )  # fmt: skip
    assert [r.label for r in both] == ["PDG-DS", "PDG-DS, B=I", "DGD #1", "DGD #2"]
    np.testing.assert_array_equal(both["DGD #1"].error, both["DGD #2"].error)
    alone = run(hg.PDGDS(), iterations=20, trials=2)
    np.testing.assert_array_equal(both["PDG-DS"].error, alone.error)
    assert both.rows()[0]["messages_per_link"] == 1
    with pytest.raises(KeyError, match="PDG-DS, B=I"):
        both["nothing"]
    with pytest.raises(InputError, match="at least one algorithm"):
        hg.compare([], Q.problem, NETWORK, iterations=2)


def test_progress_is_told_and_ends_at_the_total():
    told = []
    run(trials=20, iterations=100, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (2000, 2000)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
