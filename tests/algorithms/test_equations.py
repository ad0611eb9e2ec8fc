"""Every algorithm equals a dense recursion written from its paper (support/conformance.py)."""

import numpy as np
import pytest

import hushgrad as hg
from support import cases
from support.conformance import BY_HAND, NETWORKS, ROWS, SEED, K, Q, assert_same, reference
from support.tables import some


def test_every_algorithm_has_a_row():
    assert {type(row.algorithm) for row in ROWS.values()} == set(hg.algorithms.ALL)


@pytest.mark.parametrize(("row", "network"), some(NETWORKS, 2))
def test_stacked_equals_the_dense_recursion(row, network):
    got = cases.trajectory(row.algorithm, Q.problem, network, Q.x0, K, seed=SEED, trials=[3, 0])
    for t, trial in enumerate((3, 0)):
        assert_same(got[t, 1:], reference(row, network, trial))


@pytest.mark.parametrize(("row", "network"), NETWORKS)
def test_agent_by_agent_equals_the_dense_recursion(row, network):
    got = cases.trajectory(
        row.algorithm, BY_HAND.problem, network, Q.x0, K, seed=SEED, trials=[3], engine="agents"
    )
    assert_same(got[0, 1:], reference(row, network, 3))


@pytest.mark.filterwarnings("ignore:Consensus gives the average")  # other f_i are here on purpose
@pytest.mark.parametrize(("row", "network"), some(NETWORKS, 5))
def test_recorder_keeps_the_agents_messages_and_forms_the_same_iterates_from_them(row, network):
    recorded, alone = (
        hg.run(
            row.algorithm, BY_HAND.problem, network, iterations=K, x0=Q.x0, seed=SEED,
            transcript=True, trials=[3], engine=engine,
        )
        for engine in ("stacked", "agents")
    )  # fmt: skip
    assert_same(recorded.x, reference(row, network, 3)[-1:])
    np.testing.assert_allclose(recorded.x, alone.x, rtol=0, atol=1e-12)
    stacked, sent = recorded.transcript, alone.transcript
    assert stacked.n_messages == sent.n_messages > 0
    for k in (*range(6), K - 1):
        for j, i in stacked.links:
            theirs = sent.messages(k, j, i) if (j, i) in sent.links else ()
            ours = stacked.messages(k, j, i)
            assert len(ours) == len(theirs)
            for a, b in zip(ours, theirs, strict=True):
                np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)
