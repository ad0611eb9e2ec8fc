"""Every algorithm equals a dense recursion written from its paper (support/conformance.py)."""

import numpy as np
import pytest

import hushgrad as hg
from support import cases
from support.conformance import ROWS, SEED, K, Q, Truth, assert_same, networks


def test_every_algorithm_has_a_row():
    assert {type(row.algorithm) for row in ROWS.values()} == set(hg.algorithms.ALL)


@pytest.mark.parametrize(("row", "network"), list(networks()))
def test_stacked_equals_the_dense_recursion(row, network):
    got = cases.trajectory(row.algorithm, Q.problem, network, Q.x0, K, seed=SEED, trials=[3, 0])
    for t, trial in enumerate((3, 0)):
        assert_same(got[t, 1:], row.reference(Truth(network, trial)))


@pytest.mark.parametrize(("row", "network"), list(networks()))
def test_agent_by_agent_equals_the_dense_recursion(row, network):
    got = cases.trajectory(
        row.algorithm, Q.problem, network, Q.x0, K, seed=SEED, trials=[3], engine="agents"
    )
    assert_same(got[0, 1:], row.reference(Truth(network, 3)))


@pytest.mark.parametrize(("row", "network"), list(networks()))
def test_recorder_forms_the_same_iterates_from_its_messages(row, network):
    run = hg.run(
        row.algorithm,
        Q.problem,
        network,
        iterations=K,
        x0=Q.x0,
        seed=SEED,
        trials=[3],
        transcript=True,
    )
    assert_same(run.x, row.reference(Truth(network, 3))[-1:])


@pytest.mark.parametrize(("row", "network"), list(networks()))
def test_transcripts_of_recorder_and_agents_agree_message_by_message(row, network):
    runs = [
        hg.run(
            row.algorithm, Q.problem, network, iterations=6, x0=Q.x0, seed=SEED, transcript=True,
            trials=[3], engine=engine,
        )
        for engine in ("stacked", "agents")
    ]  # fmt: skip
    stacked, alone = (run.transcript for run in runs)
    assert stacked.n_messages == alone.n_messages > 0
    for k in range(6):
        for j, i in stacked.links:
            theirs = alone.messages(k, j, i) if (j, i) in alone.links else ()
            ours = stacked.messages(k, j, i)
            assert len(ours) == len(theirs)
            for a, b in zip(ours, theirs, strict=True):
                np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)
    np.testing.assert_allclose(runs[0].x, runs[1].x, rtol=0, atol=1e-12)


def in_pieces(monkeypatch, algorithm, network):
    """A run with whole vectors, and a run that combines them in pieces of two numbers."""

    def run():
        return cases.trajectory(algorithm, Q.problem, network, Q.x0, 20, seed=SEED, engine="agents")

    whole = run()
    assert Q.x0.shape[1] > 2
    monkeypatch.setattr("hushgrad.agent.combination.PIECE", 2)
    return whole, run()


@pytest.mark.parametrize(("row", "network"), list(networks()))
def test_combining_long_vectors_in_pieces_changes_no_bit(row, network, monkeypatch):
    whole, pieces = in_pieces(monkeypatch, row.algorithm, network)
    np.testing.assert_array_equal(pieces, whole)


def test_combining_long_shares_in_pieces_changes_no_bit(monkeypatch):
    algorithm = hg.PDGDS(split=hg.splits.isotropic())
    whole, pieces = in_pieces(monkeypatch, algorithm, cases.undirected())
    np.testing.assert_array_equal(pieces, whole)
