"""The conformance table: every algorithm equals a dense recursion written from its paper.

A new algorithm adds one row to `ROWS` and, in dense.py, its recursion.
"""

from typing import NamedTuple

import numpy as np
import pytest

import cases
import dense
import hushgrad as hg
from hushgrad.draws import Stream

K, SEED = 200, 5
Q = cases.Quadratics()
LAM = 0.05
CONSTANT = hg.stepsizes.constant(LAM)


class Truth:
    """Matrices and draws of one trial, for the dense side."""

    def __init__(self, network, trial):
        self.network = network
        self.coins = dense.Coins(SEED, trial, network.n_agents)
        self.W = network.matrix("doubly") if "doubly" in network.kinds else None
        self.R, self.C = network.matrix("row"), network.matrix("column")

    def diminishing(self, k):
        return (1 - self.coins.rho(k) / (k + 1) ** 2) / (k + 1)

    def constant(self, k):
        return LAM * (1 - self.coins.rho(k) / (k + 1) ** 2)

    def B(self, k):
        return self.coins.B(k, self.W > 0)

    def B_two_hop(self, k):
        return self.coins.B(k, self.W @ self.W > 0)


class Row(NamedTuple):
    algorithm: hg.Algorithm
    reference: object  # Truth → (K, m, d)
    directed: bool = False


ROWS = {
    "PDGDS": Row(
        hg.PDGDS(), lambda t: dense.pdg_ds(t.W, Q.g, Q.x0, K, t.diminishing, t.B)
    ),
    "PDGDS constant B": Row(
        hg.PDGDS(split=hg.splits.private_constant()),
        lambda t: dense.pdg_ds(
            t.W, Q.g, Q.x0, K, t.diminishing,
            lambda k: t.coins.B(2**32 - 1, t.W > 0, Stream.SPLIT_CONSTANT),
        ),
    ),
    "PDGNDS lazy": Row(
        hg.PDGNDS(stepsize=CONSTANT),
        lambda t: dense.pdg_nds_lazy(t.W, Q.g, Q.x0, K, t.constant, t.B),
    ),
    "PDGNDS square": Row(
        hg.PDGNDS(stepsize=CONSTANT, form="square"),
        lambda t: dense.pdg_nds_square(t.W, Q.g, Q.x0, K, t.constant, t.B_two_hop),
    ),
    "DGD": Row(hg.DGD(), lambda t: dense.dgd(t.W, Q.g, Q.x0, K, lambda k: 1 / (k + 1))),
    "EXTRA": Row(hg.EXTRA(stepsize=CONSTANT), lambda t: dense.extra(t.W, Q.g, Q.x0, K, LAM)),
    "DIGing": Row(hg.DIGing(stepsize=CONSTANT), lambda t: dense.diging(t.W, Q.g, Q.x0, K, LAM)),
    "AugDGM": Row(hg.AugDGM(stepsize=CONSTANT), lambda t: dense.aug_dgm(t.W, Q.g, Q.x0, K, LAM)),
    "AsynDGM": Row(
        hg.AsynDGM(stepsize=CONSTANT),
        lambda t: dense.asyn_dgm(t.network.graph.links, Q.g, Q.x0, K, LAM, t.coins.coin),
    ),
    "AB": Row(hg.AB(stepsize=CONSTANT), lambda t: dense.ab(t.R, t.C, Q.g, Q.x0, K, LAM), True),
    "PushPull": Row(
        hg.PushPull(stepsize=CONSTANT), lambda t: dense.push_pull(t.R, t.C, Q.g, Q.x0, K, LAM), True
    ),
    "ADDOPT": Row(
        hg.ADDOPT(stepsize=CONSTANT), lambda t: dense.add_opt(t.C, Q.g, Q.x0, K, LAM), True
    ),
}  # fmt: skip


def assert_same(got, reference):
    scale = np.maximum(1.0, np.abs(reference).max(axis=(1, 2), keepdims=True))
    assert got.shape == reference.shape
    assert (np.abs(got - reference) / scale).max() < 1e-12


def networks():
    for name, row in ROWS.items():
        yield pytest.param(row, cases.undirected(), id=f"{name}-undirected")
        if all(kind != "symmetric" for kind in row.algorithm.needs.values()):
            yield pytest.param(row, cases.nonsymmetric(), id=f"{name}-nonsymmetric")
        if row.directed:
            yield pytest.param(row, cases.directed(), id=f"{name}-directed")


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
    """A run with whole vectors, and one in which two numbers are long already."""

    def run():
        return cases.trajectory(algorithm, Q.problem, network, Q.x0, 20, seed=SEED, engine="agents")

    whole = run()
    assert Q.x0.shape[1] > 2
    monkeypatch.setattr("hushgrad.simulate.long.PIECE", 2)
    return whole, run()


@pytest.mark.parametrize(("row", "network"), list(networks()))
def test_long_vectors_in_pieces_are_whole_ones(row, network, monkeypatch):
    whole, pieces = in_pieces(monkeypatch, row.algorithm, network)
    np.testing.assert_array_equal(pieces, whole)


def test_shares_of_long_vectors_too(monkeypatch):
    algorithm = hg.PDGDS(split=hg.splits.isotropic())
    whole, pieces = in_pieces(monkeypatch, algorithm, cases.undirected())
    np.testing.assert_array_equal(pieces, whole)
