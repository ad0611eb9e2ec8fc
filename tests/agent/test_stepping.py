"""A step that is traced gives the numbers of the step as it is, and a step that is not linear is
never traced.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hushgrad as hg
from hushgrad.agent import machine as machine_module
from hushgrad.agent import stepping, vectors
from hushgrad.agent.local import local_agents
from hushgrad.agent.machine import StepMachine
from hushgrad.agent.stepping import Combination, Recipe, computed
from support import cases
from support.conformance import NETWORKS, ROWS

DIM, AHEAD = 5, 3
VECTORS = np.random.default_rng(0).normal(size=(4, DIM))
numbers = st.floats(-4, 4).filter(lambda c: abs(c) > 1e-3)
factors = st.lists(numbers, min_size=AHEAD, max_size=AHEAD).map(
    lambda every: np.array(every)[None, None]
)


def both(n):
    """A vector as a combination, and as its array in every iteration."""
    return Combination({n: 1.0}), np.repeat(VECTORS[n][None, :, None], AHEAD, 2)


def linear(children):
    pairs = st.tuples(children, children)
    scaled = st.tuples(st.one_of(numbers, factors), children)
    return st.one_of(
        pairs.map(lambda p: (p[0][0] + p[1][0], p[0][1] + p[1][1])),
        pairs.map(lambda p: (p[0][0] - p[1][0], p[0][1] - p[1][1])),
        children.map(lambda c: (-c[0], -c[1])),
        scaled.map(lambda p: (p[0] * p[1][0], p[0] * p[1][1])),
        scaled.map(lambda p: (p[1][0] / p[0], p[1][1] / p[0])),
    )


@given(st.recursive(st.sampled_from(range(len(VECTORS))).map(both), linear, max_leaves=12))
def test_every_linear_expression_is_its_array_in_every_iteration(pair):
    found, expected = pair
    recipe = Recipe.to(found, AHEAD)
    scale = np.abs(recipe.weights or 1.0).sum() * np.abs(VECTORS).max()
    for at in range(AHEAD):
        np.testing.assert_allclose(
            computed([recipe], VECTORS, at)[0], expected[0, :, at],
            rtol=0, atol=1e-14 * max(scale, 1),
        )  # fmt: skip


@pytest.mark.parametrize(
    "operation",
    [
        lambda a, b: a * b,
        lambda a, b: a / b,
        lambda a, b: 1.0 / b,
        lambda a, b: a**2,
        lambda a, b: np.sqrt(a),
        lambda a, b: np.maximum(a, b),
        lambda a, b: a.sum(1, keepdims=True),
        lambda a, b: a[:, ::-1],
        lambda a, b: a + np.ones((1, DIM, 1)),
        lambda a, b: np.ones((1, DIM, 1)) - a,
        lambda a, b: a * np.ones((1, DIM, 1)),
        lambda a, b: np.ones((2, 1, 1)) * a,
        lambda a, b: np.ones(AHEAD) * a,
        lambda a, b: b if a else a,
        lambda a, b: b if a == 0.0 else a,
        lambda a, b: b if a > 0.0 else a,
    ],
)
def test_an_operation_that_is_not_linear_ends_the_trace(operation):
    with pytest.raises((TypeError, AttributeError)):
        operation(Combination({0: 1.0}), Combination({1: 1.0}))


def run(algorithm, network, iterations=20):
    Q = cases.Quadratics()
    return cases.trajectory(algorithm, Q.problem, network, Q.x0, iterations, engine="agents")


@pytest.mark.parametrize(("row", "network"), NETWORKS)
def test_a_traced_step_is_the_step_as_it_is(row, network, monkeypatch):
    monkeypatch.setattr(stepping, "AHEAD", 8)  # several plans
    traced = run(row.algorithm, network)
    monkeypatch.setattr(machine_module, "traced", lambda *_: None)
    plain = run(row.algorithm, network)
    np.testing.assert_allclose(traced, plain, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ROWS)
def test_every_step_without_a_quotient_is_traced(name):
    algorithm = ROWS[name].algorithm
    Q, network = cases.Quadratics(), (cases.directed if ROWS[name].directed else cases.undirected)()
    (local, *_) = local_agents(algorithm, Q.problem, network, seed=0, trial=0)
    machine = StepMachine(algorithm, local, Q.x0[0])
    machine.begin()
    plan = stepping.traced(algorithm, local, type(machine.state), 1)
    assert (plan is not None) == (name != "ADDOPT")


@dataclass(frozen=True, kw_only=True)
class Halting(hg.DGD):
    """DGD that leaves its gradient out from iteration 5 on, by a branch on k."""

    def step(self, agent, s):
        lam = 0.1 if agent.k < 5 else 0.0
        h = lam * agent.gradient(s.x)
        Wx = yield hg.algorithms.Pull(agent.W @ s.x)
        return type(s)(x=Wx - h)


def test_a_step_that_branches_on_k_runs_as_it_is():
    network = cases.undirected()
    halting = run(Halting(), network, 10)
    with pytest.warns(hg.errors.RiskWarning):
        steady = run(hg.DGD(stepsize=hg.stepsizes.constant(0.1)), network, 10)
    np.testing.assert_allclose(halting[:, :6], steady[:, :6], rtol=0, atol=1e-13)
    means = halting[0].mean(1)
    np.testing.assert_allclose(means[6:], means[5:-1], rtol=0, atol=1e-13)
    assert np.abs(means[5] - means[4]).max() > 1e-3


@pytest.mark.parametrize(
    ("most", "expected"), [(stepping._MOST, range(256, 512)), (1, range(300, 302))]
)
def test_plans_of_a_run_and_of_its_rerun_begin_at_the_same_iterations(most, expected, monkeypatch):
    """The bits of a number may depend on its place in an array. A plan of one iteration could not
    tell a branch on k.
    """
    monkeypatch.setattr(stepping, "_MOST", most)
    (local, *_) = local_agents(
        hg.DGD(), cases.Quadratics().problem, cases.undirected(), seed=0, trial=0
    )
    assert all(
        stepping.traced(hg.DGD(), local, hg.algorithms.DGDState, k).iterations == expected
        for k in (300, 301)
    )
    assert stepping.traced(Halting(), local, hg.algorithms.DGDState, 300) is None


@pytest.mark.parametrize("algorithm", [hg.PDGNDS(), hg.DIGing(), hg.AsynDGM()])
def test_a_step_that_runs_again_within_a_plan_sends_the_same_bits(algorithm):
    Q, network = cases.Quadratics(), cases.undirected()
    (local, *_) = local_agents(algorithm, Q.problem, network, seed=0, trial=0)

    def machine():
        return StepMachine(algorithm, local, Q.x0[0])

    one, other = machine(), machine()
    one.begin()
    for k in range(30):
        if k == 17:
            other.state = type(one.state)(*[np.array(u) for u in one.state])
            other.resume(one.k, one.round)
        has_ended = False
        while not has_ended:
            sizes, payloads = one.outbox
            if k >= 17:
                assert as_bytes(other.outbox.payloads) == as_bytes(payloads)
            inbox = {i: tuple([np.sin(np.arange(n) + k) for n in sizes]) for i in payloads}
            has_ended = one.advance(one.receive(inbox))
            if k >= 17:
                other.advance(other.receive(inbox))
        one.go_on()
        if k >= 17:
            other.go_on()


def as_bytes(payloads):
    return {i: [u.tobytes() for u in payload] for i, payload in payloads.items()}


@given(st.lists(st.sampled_from((0.0, 1.0, -2.5)), min_size=1, max_size=5), st.integers(1, 40))
def test_a_combination_is_the_product_and_changes_no_vector(weights, dim):
    known = np.random.default_rng(dim).normal(size=(len(weights), dim))
    before = known.copy()
    found = vectors.combine(weights, list(known))
    np.testing.assert_allclose(found, np.array(weights) @ known, rtol=0, atol=1e-12)
    messages, rest = vectors.divide([weights, weights], list(known))
    np.testing.assert_allclose(rest + messages[0] + messages[1], known.sum(0), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(known, before)


@pytest.mark.parametrize(
    "algorithm",
    [
        hg.PDGDS(),
        hg.PDGDS(split=hg.splits.isotropic()),
        hg.PDGNDS(),
        hg.PDGNDS(form="square"),
    ],
)
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
