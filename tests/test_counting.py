"""A run's messages, rounds and bytes equal the counts of its transcript."""

import numpy as np
import pytest

import hushgrad as hg
from support import cases
from support.tables import combinations

Q = cases.Quadratics()
N_ARCS = 2 * len(cases.UNDIRECTED)
ITERATIONS = 12

# (algorithm, d-vectors per link and iteration, further numbers per link, rounds)
COUNTS = [
    (hg.PDGDS(), 1, 0, 1),
    (hg.PDGNDS(), 1, 0, 1),
    (hg.DGD(), 1, 0, 1),
    (hg.EXTRA(), 1, 0, 1),
    (hg.DIGing(), 2, 0, 1),
    (hg.AugDGM(), 2, 0, 2),
    (hg.AB(), 2, 0, 2),
    (hg.PushPull(), 2, 0, 1),
    (hg.ADDOPT(), 2, 1, 1),
]


def run(algorithm, network=None, engine="stacked", **options):
    return hg.run(
        algorithm, Q.problem, network or cases.undirected(), iterations=ITERATIONS, x0=Q.x0,
        engine=engine, **options,
    )  # fmt: skip


def sent(transcript):
    """{(sender, receiver): numbers} over the whole transcript, read message by message."""
    numbers = {}
    for k in range(ITERATIONS):
        for j, i in transcript.links:
            numbers[j, i] = numbers.get((j, i), 0) + sum(
                len(v) for v in transcript.messages(k, j, i)
            )
    return numbers


@pytest.mark.parametrize(("engine", "count"), combinations(["stacked", "agents"], COUNTS))
def test_vectors_per_link_and_iteration(engine, count):
    algorithm, vectors, scalars, rounds = count
    result = run(algorithm, engine=engine, transcript=True)
    d = cases.D
    assert result.messages_per_link == vectors
    assert result.traffic.numbers_per_link == vectors * d + scalars
    assert result.rounds_per_iteration == rounds
    assert result.bytes_per_iteration == 8 * N_ARCS * (vectors * d + scalars)
    counted = sent(result.transcript)
    assert set(counted) == {(j, i) for a, b in cases.UNDIRECTED for j, i in ((a, b), (b, a))}
    assert set(counted.values()) == {ITERATIONS * (vectors * d + scalars)}


@pytest.mark.parametrize("engine", ["stacked", "agents"])
def test_directed_links_carry_in_their_direction_only(engine):
    result = run(hg.PushPull(), cases.directed(), engine, transcript=True)
    assert result.transcript.links == set(cases.DIRECTED)
    assert result.messages_per_link == 2


@pytest.mark.parametrize("engine", ["stacked", "agents"])
def test_square_reports_its_two_hop_links_and_sends_one_vector_over_each(engine):
    W = cases.undirected().matrix()
    two_hop = {(int(j), int(i)) for i, j in np.argwhere(W @ W > 0) if i != j}
    result = run(hg.PDGNDS(form="square"), engine=engine, transcript=True)
    assert result.messages_per_link == 1
    assert result.traffic.links == len(two_hop)
    assert result.traffic.extra_links == len(two_hop) - N_ARCS > 0
    assert result.transcript.links == two_hop
    assert result.bytes_per_iteration == 8 * cases.D * len(two_hop)


@pytest.mark.parametrize("engine", ["stacked", "agents"])
def test_asyn_dgm_uses_only_the_link_that_is_awake(engine):
    result = run(hg.AsynDGM(), engine=engine, transcript=True)
    for k in range(ITERATIONS):
        awake = {link for link in result.transcript.links if result.transcript.messages(k, *link)}
        (a, b), *_ = awake
        assert awake == {(a, b), (b, a)}
        assert len(result.transcript.messages(k, a, b)) == 2  # x, then y
    assert result.bytes_per_iteration == 8 * cases.D * 4  # two vectors in two directions
    assert result.rounds_per_iteration == 2
    assert result.traffic.links == N_ARCS
    assert result.messages_per_link == pytest.approx(4 / N_ARCS)


@pytest.mark.parametrize("engine", ["stacked", "agents"])
def test_transcripts_know_whether_sender_or_receiver_weighs(engine):
    kinds = {
        a.title: [c.kind for c in run(a, engine=engine, transcript=True).transcript.channels]
        for a in (hg.DGD(), hg.PDGDS(), hg.PushPull(), hg.AB())
    }
    assert kinds == {
        "DGD": ["pull"], "PDG-DS": ["push"], "Push-Pull": ["pull", "push"], "AB": ["pull", "push"],
    }  # fmt: skip


def test_the_scalar_of_add_opt_is_no_message_even_where_d_is_one():
    q = cases.Quadratics(d=1)
    for engine in ("stacked", "agents"):
        result = hg.run(hg.ADDOPT(), q.problem, cases.undirected(), iterations=3, engine=engine)
        assert result.messages_per_link == 2
        assert result.traffic.numbers_per_link == 3


def test_a_single_iteration_of_square_counts_its_one_hop_start():
    for engine in ("stacked", "agents"):
        result = hg.run(
            hg.PDGNDS(form="square"), Q.problem, cases.undirected(), iterations=1, engine=engine
        )
        assert result.bytes_per_iteration == 8 * cases.D * N_ARCS


def test_recording_after_a_plain_run_of_the_same_kind_keeps_everything():
    """Runs share compiled code, and the sharing must not lose the messages of a recorder."""
    for algorithm in (hg.PDGDS(), hg.PDGNDS(form="square"), hg.AsynDGM()):
        first = run(algorithm, transcript=True).transcript.n_messages
        run(algorithm)
        assert run(algorithm, transcript=True).transcript.n_messages == first > 0


def test_one_agent_sends_nothing():
    alone = cases.Quadratics(m=1)
    result = hg.run(
        hg.PDGNDS(stepsize=hg.stepsizes.constant(0.3, hg.stepsizes.geometric(0.9))), alone.problem,
        hg.Network(hg.graphs.complete(1)), iterations=2000,
    )  # fmt: skip
    assert result.traffic.links == 0
    assert result.bytes_per_iteration == 0
    np.testing.assert_allclose(result.x[0, 0], alone.solution, atol=1e-9)


def test_a_pulled_vector_is_the_same_on_every_link_and_a_pushed_one_is_not():
    pulled = run(hg.DGD(), transcript=True).transcript
    pushed = run(hg.PDGDS(), transcript=True).transcript
    a, b = ((0, i) for i in (1, 2))
    np.testing.assert_array_equal(pulled.messages(3, *a)[0], pulled.messages(3, *b)[0])
    assert np.abs(pushed.messages(3, *a)[0] - pushed.messages(3, *b)[0]).max() > 1e-3


def test_messages_of_a_missing_link_are_refused_with_a_reason():
    with pytest.raises(hg.errors.InputError, match="none leads from 0 to 6"):
        run(hg.DGD(), transcript=True).transcript.messages(0, 0, 6)
