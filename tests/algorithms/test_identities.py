"""Special cases in which two methods are equal, and the errors of the printed forms."""

from dataclasses import dataclass

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.algorithms.pdg_nds import PDGNDSState
from hushgrad.exchange import Push
from support import cases, dense
from support.tables import some

K, LAM = 200, 0.05
Q = cases.Quadratics()
W = cases.undirected().matrix()
EQUAL = hg.stepsizes.constant(LAM, deviation=hg.stepsizes.none())


def follow(algorithm, **options):
    return cases.trajectory(algorithm, Q.problem, cases.undirected(), Q.x0, K, **options)[0, 1:]


@dataclass(frozen=True, kw_only=True)
class SplitByW(hg.splits.Split):
    def __call__(self, agent, over=None):
        return agent.W


@dataclass(frozen=True, kw_only=True)
class StartedLikeEXTRA(hg.PDGNDS):
    """The lazy form from x^1 = W x^0 − λ g^0."""

    first_differs = True

    def first(self, agent, s):
        h = self.lam(agent) * agent.gradient(s.x)
        x = yield Push(agent.W @ s.x - agent.I @ h)
        return PDGNDSState(x=x, x_prev=s.x, h_prev=h)


@pytest.mark.parametrize("engine", some(["stacked", "agents"]))
def test_pdg_nds_square_with_identity_split_and_equal_stepsizes_is_diging(engine):
    ours = follow(
        hg.PDGNDS(stepsize=EQUAL, form="square", split=hg.splits.identity()), engine=engine
    )
    np.testing.assert_allclose(ours, dense.diging(W, Q.g, Q.x0, K, LAM), rtol=0, atol=1e-12)
    theirs = follow(hg.DIGing(stepsize=EQUAL), engine=engine)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("engine", ["stacked", "agents"])
def test_pdg_nds_lazy_started_alike_with_identity_split_is_extra(engine):
    ours = follow(StartedLikeEXTRA(stepsize=EQUAL, split=hg.splits.identity()), engine=engine)
    np.testing.assert_allclose(ours, dense.extra(W, Q.g, Q.x0, K, LAM), rtol=0, atol=1e-12)


def test_pdg_nds_square_with_b_equal_to_w_is_the_diging_that_the_paper_prints():
    ours = follow(hg.PDGNDS(stepsize=EQUAL, form="square", split=SplitByW()))
    np.testing.assert_allclose(
        ours, dense.diging_as_printed(W, Q.g, Q.x0, K, LAM), rtol=0, atol=1e-12
    )


def test_pdg_ds_with_identity_split_and_no_deviation_is_dgd():
    steps = hg.stepsizes.diminishing(deviation=hg.stepsizes.none())
    ours = follow(hg.PDGDS(stepsize=steps, split=hg.splits.identity()))
    theirs = follow(hg.DGD(stepsize=steps))
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        ours, dense.dgd(W, Q.g, Q.x0, K, lambda k: 1 / (k + 1)), rtol=0, atol=1e-12
    )


# ---- the corrections to the print (docs/notation.md)


def two_step(second, lam, B, K):
    """x^{k+1} = 2W x^k + second x^{k−1} − B (λg^k − λg^{k−1}) from the paper's start, densely."""
    old, new = Q.x0, W @ Q.x0 - lam * Q.g(Q.x0)
    for k in range(1, K):
        if np.abs(new).max() > 1e6:
            return k
        old, new = new, 2 * W @ new + second @ old - B(k) @ (lam * (Q.g(new) - Q.g(old)))
    return new


def random_column(support, seed=0):
    rng = np.random.default_rng(seed)

    def B(k):
        draw = np.where(support, rng.uniform(size=support.shape), 0)
        return draw / draw.sum(0)

    return B


def test_printed_plus_sign_diverges_and_minus_converges():
    """Correction 1: the printed message of an agent has + {W²}_ij x_j^{k−2}; minus is right."""
    B = random_column(W @ W > 0)
    assert two_step(+W @ W, LAM, B, 2000) < 100  # the iteration at which the iterates exceed 1e6
    assert np.abs(two_step(-W @ W, LAM, B, 4000) - Q.solution).max() < 1e-6


def test_w_squared_cut_to_one_hop_diverges():
    """Correction 2: W² reaches over two links. Messages to neighbours alone change the mean."""
    cut = np.where(W > 0, W @ W, 0)
    assert two_step(-cut, LAM, random_column(W > 0), 2000) < 1000


def test_our_square_and_lazy_forms_converge_where_the_printed_ones_do_not():
    geometric = hg.stepsizes.constant(LAM, deviation=hg.stepsizes.geometric(0.95))
    for form in ("square", "lazy"):
        run = hg.run(
            hg.PDGNDS(stepsize=geometric, form=form), Q.problem, cases.undirected(),
            iterations=4000, x0=Q.x0,
        )  # fmt: skip
        assert run.error[0, -1] < 1e-9


def nonsymmetric_ring(m=8):
    """A doubly stochastic W on an undirected ring that is not symmetric: P ≠ Pᵀ."""
    P = np.roll(np.eye(m), 1, axis=0)
    return 0.05 * np.eye(m) + 0.9 * P + 0.05 * P.T


def test_lazy_form_on_a_nonsymmetric_w_diverges_densely_and_is_refused():
    """The condition of correction 3: the one-hop form needs W = Wᵀ."""
    q = cases.Quadratics(m=8)
    N = nonsymmetric_ring()
    assert (
        np.abs(dense.pdg_nds_lazy(N, q.g, q.x0, 400, lambda k: LAM, lambda k: np.eye(8))[-1]).max()
        > 1e6
    )
    network = hg.Network(hg.graphs.ring(8), mixing=N)
    with pytest.raises(hg.errors.MixingError, match=r"PDGNDS needs a symmetric .*form=\"square\""):
        hg.run(hg.PDGNDS(), q.problem, network, iterations=10)


def test_square_form_takes_a_nonsymmetric_w():
    q = cases.Quadratics(m=8)
    N = nonsymmetric_ring()
    network = hg.Network(hg.graphs.ring(8), mixing=N)
    algorithm = hg.PDGNDS(stepsize=EQUAL, form="square", split=hg.splits.identity())
    got = cases.trajectory(algorithm, q.problem, network, q.x0, 50)[0, 1:]
    np.testing.assert_allclose(got, dense.diging(N, q.g, q.x0, 50, LAM), rtol=1e-12, atol=1e-12)
