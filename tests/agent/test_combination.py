"""A combination gives the same numbers as its array, in every operation of a step."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hushgrad as hg
from hushgrad.agent import combination
from hushgrad.agent.combination import Combination, late
from hushgrad.agent.local import local_agents
from hushgrad.agent.machine import StepMachine
from support import cases

DIM = 5
VECTORS = np.random.default_rng(0).normal(size=(4, DIM))
numbers = st.floats(-4, 4).filter(lambda c: abs(c) > 1e-3)


def both(vector):
    """A vector as a combination, and as an array."""
    return Combination.of(vector), vector[None, :, None]


leaves = st.sampled_from(range(len(VECTORS))).map(lambda n: both(VECTORS[n]))


def linear(children):
    pairs = st.tuples(children, children)
    return st.one_of(
        pairs.map(lambda p: (p[0][0] + p[1][0], p[0][1] + p[1][1])),
        pairs.map(lambda p: (p[0][0] - p[1][0], p[0][1] - p[1][1])),
        children.map(lambda c: (-c[0], -c[1])),
        st.tuples(numbers, children).map(lambda p: (p[0] * p[1][0], p[0] * p[1][1])),
        st.tuples(children, numbers).map(lambda p: (p[0][0] / p[1], p[0][1] / p[1])),
        st.tuples(numbers, children).map(  # a number of each agent's own, as an array of one
            lambda p: (np.full((1, 1, 1), p[0]) * p[1][0], p[0] * p[1][1])
        ),
        pairs.map(lambda p: (p[0][1] - p[1][0], p[0][1] - p[1][1])),  # an array on the left
    )


@given(st.recursive(leaves, linear, max_leaves=12))
def test_every_linear_expression_is_its_array_and_is_computed_late(pair):
    found, expected = pair
    assert isinstance(found, Combination)
    assert found.shape == expected.shape
    scale = sum(abs(c) for c, _ in found.parts.values()) * np.abs(VECTORS).max()
    np.testing.assert_allclose(np.asarray(found), expected, rtol=0, atol=1e-14 * max(scale, 1))


@pytest.mark.parametrize(
    "operation",
    [
        lambda a, b: a * b,
        lambda a, b: a / b,
        lambda a, b: 1.0 / b,
        lambda a, b: a**2,
        lambda a, b: np.sqrt(a * a),
        lambda a, b: np.maximum(a, b),
        lambda a, b: (a * b).sum(1, keepdims=True) * a,
        lambda a, b: a[:, ::-1],
        lambda a, b: np.where(np.asarray(a) > 0, a, b),
        lambda a, b: np.zeros((1, 1, 1)) / a,
        lambda a, b: a + np.ones((1, 1, 1)),
    ],
)
def test_an_operation_that_is_not_linear_computes_and_goes_on(operation):
    (a, x), (b, y) = both(VECTORS[0]), both(VECTORS[1])
    np.testing.assert_allclose(np.asarray(operation(2 * a - b, b)), operation(2 * x - y, y))


def test_a_division_by_zero_gives_the_same_as_arrays():
    with np.errstate(divide="ignore"):
        assert np.isinf(np.asarray(Combination.of(VECTORS[0]) / 0.0)).all()


def test_a_vector_that_is_used_twice_is_read_once():
    a, b = (Combination.of(v) for v in VECTORS[:2])
    found = 2 * a - b + 0.5 * (b - a)
    assert [c for c, _ in found.parts.values()] == [1.5, -0.5]


def test_no_operation_changes_a_vector_of_the_step():
    kept = VECTORS.copy()
    a, b = (Combination.of(v) for v in VECTORS[:2])
    a += b
    a *= 2.0
    a -= np.ones((1, DIM, 1))
    np.testing.assert_allclose(a.vector, 2 * (kept[0] + kept[1]) - 1)
    np.testing.assert_array_equal(VECTORS, kept)


@given(st.lists(numbers, min_size=1, max_size=5), st.integers(1, 40), st.integers(1, 9))
def test_numbers_do_not_depend_on_the_pieces_that_they_are_computed_in(coefficients, dim, piece):
    vectors = np.random.default_rng(dim).normal(size=(len(coefficients), dim))

    def summed():
        every = [c * Combination.of(v) for c, v in zip(coefficients, vectors, strict=True)]
        return sum(every[1:], every[0]).vector

    whole = summed()
    np.testing.assert_allclose(whole, np.array(coefficients) @ vectors, rtol=0, atol=1e-12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(combination, "PIECE", piece)
        np.testing.assert_array_equal(summed(), whole)


def test_late_takes_arrays_and_combinations():
    a = Combination.of(VECTORS[0])
    assert late(a) is a
    np.testing.assert_array_equal(late(VECTORS[0][None, :, None]).vector, VECTORS[0])


def test_a_step_of_pdg_nds_computes_no_vector_before_its_round():
    """The vectors are combinations of x, x⁻, g and h⁻; the round computes only the messages."""
    Q, network = cases.Quadratics(), cases.undirected()
    (local, *_) = local_agents(hg.PDGNDS(), Q.problem, network, seed=0, trial=0)
    machine = StepMachine(hg.PDGNDS(), local, Q.x0[0])
    machine.begin()
    inbox = {i: (np.ones(cases.D),) for i in machine.outbox.payloads}
    machine.advance(machine.receive(inbox))
    step = hg.PDGNDS().step(machine.agent, machine._state)
    ((_, mixed), (_, moved)) = next(step).terms.parts
    assert [len(u.parts) for u in (mixed, moved)] == [2, 2]
    assert all(u._vector is None for u in (mixed, moved))


@pytest.mark.parametrize("algorithm", [hg.PDGDS(), hg.PDGNDS(), hg.PDGNDS(form="square")])
def test_an_own_share_is_the_rest_of_the_messages_that_were_really_sent(algorithm):
    """In the first step of each method, the shares of an agent add up to x^0 − λ^0 g^0."""
    Q, network = cases.Quadratics(), cases.undirected()
    for local in local_agents(algorithm, Q.problem, network, seed=0, trial=0):
        machine = StepMachine(algorithm, local, Q.x0[local.number])
        machine.begin()
        (own,), sent = machine._opened.own, machine.outbox.payloads.values()
        whole = own.copy()
        for (message,) in sent:
            whole = whole + message
        g = np.asarray(local.gradient(Q.x0[local.number]))
        lam = float(np.asarray(algorithm.lam(machine.agent)).ravel()[0])
        np.testing.assert_allclose(whole, Q.x0[local.number] - lam * g, rtol=0, atol=1e-14)
