"""The conformance table: every algorithm with a dense recursion written from its paper.

A new algorithm adds one row to `ROWS` and, in dense.py, its recursion.
"""

import functools
from typing import NamedTuple

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.draws import Stream
from support import cases, dense

K, SEED = 100, 5
Q = cases.Quadratics()
BY_HAND = cases.Quadratics(by_hand=True)  # the same numbers; agents need no compiler
LAM = 0.05
CONSTANT = hg.stepsizes.constant(LAM)
BARE = hg.masks.zero_sum(linear=0, quadratic=0)


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
    "Consensus": Row(hg.Consensus(masks=BARE), lambda t: dense.consensus(t.W, -Q.g(0 * Q.x0), K)),
    "Consensus Chebyshev": Row(
        hg.Consensus(masks=BARE, acceleration="chebyshev", eta=0.8),
        lambda t: dense.chebyshev_consensus(t.W, -Q.g(0 * Q.x0), K, 0.8),
    ),
    "ADDOPT": Row(
        hg.ADDOPT(stepsize=CONSTANT), lambda t: dense.add_opt(t.C, Q.g, Q.x0, K, LAM), True
    ),
}  # fmt: skip


@functools.cache
def reference(row, network, trial):
    """x^1 … x^K of the dense recursion, (K, m, d)."""
    return row.reference(Truth(network, trial))


def assert_same(got, reference):
    scale = np.maximum(1.0, np.abs(reference).max(axis=(1, 2), keepdims=True))
    assert got.shape == reference.shape
    assert (np.abs(got - reference) / scale).max() < 1e-12


def _networks():
    for name, row in ROWS.items():
        if "symmetric" in row.algorithm.needs.values() or not row.algorithm.needs:
            yield pytest.param(row, cases.undirected(), id=f"{name}-undirected")
        else:
            yield pytest.param(row, cases.circulating(), id=f"{name}-circulating")
        if row.directed:
            yield pytest.param(row, cases.directed(), id=f"{name}-directed")


NETWORKS = list(_networks())  # every row with the networks that its algorithm serves
