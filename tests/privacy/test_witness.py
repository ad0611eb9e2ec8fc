"""Theorems 2 and 4 by construction: other gradients, the same messages; and who believes it."""

import math
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hushgrad as hg
from hushgrad.errors import PrivacyError
from hushgrad.privacy import Truth
from hushgrad.privacy.witness import witness
from support import cases
from support.tables import some

LN2 = math.log(2)
FIG3 = hg.stepsizes.constant(0.02)
ALGORITHMS = {
    "PDG-DS": hg.PDGDS(),
    "lazy": hg.PDGNDS(stepsize=FIG3),
    "square": hg.PDGNDS(stepsize=FIG3, form="square"),
    "constant split": hg.PDGNDS(stepsize=FIG3, split=hg.splits.private_constant()),
    "isotropic split": hg.PDGDS(split=hg.splits.isotropic()),
    "no split": hg.PDGDS(split=hg.splits.identity()),
    "recommended": hg.PDGNDS(stepsize=FIG3, design="recommended"),
}
N = 40


@lru_cache
def recorded(name, engine="agents"):
    quadratics = cases.Quadratics(by_hand=True)
    return hg.run(
        ALGORITHMS[name], quadratics.problem, cases.undirected(), iterations=N, seed=3,
        x0=quadratics.x0, transcript=True, engine=engine, trials=2, accept_exposure=["curvature"],
    )  # fmt: skip


@pytest.mark.parametrize("name", some(ALGORITHMS, 2))
@settings(max_examples=8)
@given(n=st.integers(-200, 200), agent=st.integers(0, cases.M - 1))
def test_powers_of_two_lead_to_the_same_messages_bit_for_bit(name, n, agent):
    run = recorded(name)
    found = witness(run, agent, n * LN2)
    assert found.identical
    assert found.replay_difference == found.difference == 0
    truth = Truth(run)
    np.testing.assert_array_equal(found.stepsizes, truth.lam(agent) * 2.0**-n)
    h = found.stepsizes[:, None] * found.gradients
    np.testing.assert_allclose(h, truth.h(agent), rtol=1e-12)


@pytest.mark.parametrize("name", some(ALGORITHMS))
@settings(max_examples=8)
@given(zeta=st.floats(-138, 138), agent=st.integers(0, cases.M - 1), trial=st.integers(0, 1))
def test_any_factor_leads_to_the_same_messages_but_for_rounding(name, zeta, agent, trial):
    found = witness(recorded(name), agent, zeta, trial=trial)
    assert max(found.replay_difference, found.difference) <= 1e-13
    run = recorded(name)
    receivers = [i for j, i in run.transcript.links if j == agent]
    first = (cases.undirected().graph.senders == agent).sum()  # W² is not used yet
    assert found.n_messages == first + (N - 1) * len(receivers)


@settings(max_examples=20)
@given(st.lists(st.floats(-100, 100), min_size=N, max_size=N))
def test_factors_may_differ_from_iteration_to_iteration(zetas):
    found = witness(recorded("lazy"), 2, np.array(zetas))
    assert found.difference <= 1e-13
    expected = np.exp(zetas)[:, None] * Truth(recorded("lazy")).gradients(2)
    np.testing.assert_allclose(found.gradients, expected, rtol=1e-9)


@pytest.mark.parametrize("name", some(["square", "PDG-DS"]))
def test_a_record_of_the_stacked_engine_is_met_to_rounding_and_the_replay_to_the_bit(name):
    found = witness(recorded(name, engine="stacked"), 1, 50 * LN2)
    assert found.identical
    assert found.replay_difference == 0
    assert found.difference <= 1e-13


def test_gradients_alone_do_not_pass(monkeypatch):
    """The comparison can fail: without the stepsize's factor the messages differ."""
    from hushgrad.privacy import witness as module

    monkeypatch.setattr(module._Scaled, "__call__", lambda self, agent: self.inner(agent))
    found = witness(recorded("PDG-DS"), 0, LN2)
    assert not found.identical
    assert found.difference > 0.01


def implied_draws(algorithm, lam):
    """The ϱ that these stepsizes need under 1 − ϱ/n²."""
    n = np.arange(1.0, len(lam) + 1)
    base = algorithm.schedule.base(n)
    return (1 - lam / base) * n**2


@pytest.mark.parametrize("name", ["PDG-DS", "lazy"])
@settings(max_examples=20)
@given(part=st.floats(-1.5, 1.5).filter(lambda p: abs(abs(p) - 1) > 1e-3), agent=st.integers(0, 6))
def test_the_admissible_range_is_where_all_implied_draws_are_possible(name, part, agent):
    run = recorded(name)
    low, high = witness(run, agent, 0.0).admissible
    assert low <= 0 <= high
    assert high - low < 1 / N**2 * 1.1  # narrow: the last iteration's spread
    found = witness(run, agent, part * (high if part > 0 else -low))
    rho = implied_draws(ALGORITHMS[name], found.stepsizes)
    possible = (rho > 0) & (rho <= 1)
    if abs(part) < 1:
        assert possible.all()
        assert found.first_impossible_k is None
        assert found.log_likelihood_ratio == 0
        assert found.is_deniable
    else:
        assert found.first_impossible_k == np.flatnonzero(~possible)[0]
        assert found.log_likelihood_ratio == -math.inf
        assert not found.is_deniable


@pytest.mark.parametrize(
    "deviation",
    [hg.stepsizes.none(), hg.stepsizes.harmonic(drawn="once"), hg.stepsizes.bursts(3, 2.0)],
)
def test_schedules_that_draw_once_or_not_at_all_leave_nothing_to_deny(deviation):
    algorithm = hg.PDGNDS(stepsize=hg.stepsizes.constant(0.02, deviation=deviation))
    problem = hg.problems.estimation(seed=0)
    run = hg.run(
        algorithm, problem, hg.Network(hg.graphs.paper()), iterations=10, transcript=True,
        engine="agents",
    )  # fmt: skip
    assert witness(run, 0, 0.0).first_impossible_k is None
    found = witness(run, 0, 1e-3)
    assert found.difference <= 1e-13
    assert found.admissible == (0, 0)
    assert found.first_impossible_k is not None


def test_conditions_are_those_of_the_schedule():
    assert all(witness(recorded("PDG-DS"), 0, 1.0).conditions.values())
    assert all(witness(recorded("lazy"), 0, 1.0).conditions.values())
    problem, network = hg.problems.estimation(seed=0), hg.Network(hg.graphs.paper())
    slow = hg.PDGDS(stepsize=hg.stepsizes.diminishing(0.1, power=0.4))
    with pytest.warns(hg.errors.RiskWarning):
        run = hg.run(slow, problem, network, iterations=5, transcript=True, engine="agents")
    assert witness(run, 0, 1.0).conditions == {
        "Σ λ = ∞": True,
        "Σ λ² < ∞": False,
        "Σ |λ_i − λ_j| < ∞": True,
    }


def test_the_summary_says_what_was_shown_and_who_would_not_believe_it():
    found = witness(recorded("PDG-DS"), 2, 3 * LN2)
    assert str(found) == found.summary()
    assert "e^2.079" in found.summary()
    assert "the same to the bit" in found.summary()
    assert f"at k = {found.first_impossible_k}" in found.summary()
    assert "as likely as the true ones" in witness(recorded("PDG-DS"), 2, 1e-9).summary()


def test_bad_requests_say_what_is_wrong():
    run = recorded("PDG-DS")
    with pytest.raises(PrivacyError, match="agents are numbered 0 to 6, but agent = 7"):
        witness(run, 7, 1.0)
    with pytest.raises(PrivacyError, match=r"one for each of the 40 iterations, but .* \(3,\)"):
        witness(run, 0, [1.0, 2.0, 3.0])
    with pytest.raises(PrivacyError, match="within ±500"):
        witness(run, 0, math.inf)
    problem, network = hg.problems.estimation(seed=0), hg.Network(hg.graphs.paper())
    other = hg.run(
        hg.EXTRA(stepsize=FIG3), problem, network, iterations=2, transcript=True, engine="agents"
    )
    with pytest.raises(PrivacyError, match="about PDG-DS and PDG-NDS, but this run is of EXTRA"):
        witness(other, 0, 1.0)
    unrecorded = hg.run(hg.PDGDS(), problem, network, iterations=2, engine="agents")
    with pytest.raises(PrivacyError, match="kept no transcript"):
        witness(unrecorded, 0, 1.0)
