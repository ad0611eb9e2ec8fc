"""Schedules give the paper's numbers and name the conditions of Theorem 1 that they fail."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hushgrad as hg
from hushgrad import stepsizes as S
from hushgrad.errors import AlgorithmError, StepsizeError


class Agent:
    """A view of an agent with given draws."""

    xp = np

    def __init__(self, k, fresh=0.25, once=0.5, times=()):
        self.k, self.fresh, self.once_drawn, self.times = float(k), fresh, once, times

    def uniform(self, stream, *, slot=0, once=False):
        assert stream == hg.draws.Stream.STEPSIZE
        if slot:
            assert once
            return self.times[slot - 1]
        return self.once_drawn if once else self.fresh


@pytest.mark.parametrize("k", [0, 1, 9])
def test_the_papers_schedules_have_the_papers_numbers(k):
    n = k + 1
    assert S.diminishing(deviation=S.harmonic())(Agent(k)) == pytest.approx((1 - 0.25 / n**2) / n)
    assert S.constant(0.02, S.harmonic())(Agent(k)) == pytest.approx(0.02 * (1 - 0.25 / n**2))
    assert S.constant(0.02, S.harmonic(drawn="once"))(Agent(k)) == pytest.approx(
        0.02 * (1 - 0.5 / n**2)
    )
    assert S.constant(0.02, S.geometric(0.9))(Agent(k)) == pytest.approx(0.02 * (1 - 0.25 * 0.9**n))
    assert S.diminishing(2.0, 0.75, 10)(Agent(k)) == pytest.approx(2 / (n + 10) ** 0.75)


def test_bursts_fall_on_their_secret_iterations_only():
    schedule = S.constant(1.0, S.bursts(2, size=8.0, within=10))
    hits = [k for k in range(12) if schedule(Agent(k, times=(0.31, 0.95))) != 1.0]
    assert hits == [math.ceil(3.1) - 1, math.ceil(9.5) - 1]
    assert schedule(Agent(3, times=(0.31, 0.95))) == 1 + 8 * 0.25


def test_pdg_classes_deviate_harmonically_unless_told_otherwise():
    assert hg.PDGDS().schedule.deviation == S.harmonic()
    assert hg.PDGNDS(stepsize=S.constant(1.0)).schedule.deviation == S.harmonic()
    assert hg.PDGNDS(stepsize=S.constant(1.0, S.none())).schedule.deviation == S.none()
    assert hg.DIGing(stepsize=S.constant(1.0)).schedule.deviation is None
    assert hg.PDGNDS(stepsize=S.constant(1.0)).stepsize.deviation is None  # stored unchanged


@pytest.mark.parametrize(
    ("schedule", "fails"),
    [
        (S.diminishing(deviation=S.harmonic()), ()),
        (S.diminishing(power=0.75), ()),
        (S.diminishing(power=0.5), ("Σ λ² = ∞",)),
        (S.diminishing(power=1.5), ("Σ λ < ∞",)),
        (S.constant(0.1), ("Σ λ² = ∞",)),
        (S.diminishing(power=0.6, deviation=S.harmonic(0.3)), ("Σ |λ_i − λ_j| = ∞",)),
        (S.diminishing(power=0.6, deviation=S.harmonic(0.5)), ()),
        (S.diminishing(power=0.6, deviation=S.geometric(0.99)), ()),
    ],
)
def test_theorem_1_names_the_conditions_that_fail(schedule, fails):
    assert schedule.theorem_1() == fails


@given(st.floats(0.51, 1.0), st.floats(0.1, 3.0))
def test_theorem_1_agrees_with_partial_sums(power, deviation):
    """Σ n^−(p+q) grows without bound exactly where `theorem_1` names a failed condition."""
    claimed = (
        "Σ |λ_i − λ_j| = ∞"
        not in S.diminishing(power=power, deviation=S.harmonic(deviation)).theorem_1()
    )
    exponent = power + deviation
    if abs(exponent - 1) < 0.05:
        return
    n = 2.0 ** np.arange(10, 60)
    blocks = n ** (1 - exponent)  # the sum over [n, 2n) is of this order
    assert claimed == bool(blocks[-1] < blocks[0])


def test_numpy_numbers_are_numbers():
    assert S.diminishing(scale=np.int64(2)) == S.diminishing(scale=2.0)
    assert S.constant(np.float32(0.5)) == S.constant(0.5)


@pytest.mark.parametrize(
    "bad",
    [
        lambda: S.constant(-0.1),
        lambda: S.constant(0),
        lambda: S.constant(float("nan")),
        lambda: S.constant(True),
        lambda: S.diminishing(scale=0),
        lambda: S.diminishing(power=-1),
        lambda: S.diminishing(offset=-1),
        lambda: S.geometric(1.0),
        lambda: S.harmonic(0),
        lambda: S.harmonic(drawn="sometimes"),
        lambda: S.bursts(0, 1.0),
        lambda: S.bursts(3, -2.0),
        lambda: S.constant(0.1, deviation=0.5),
        lambda: hg.DGD(stepsize=0.1),
        lambda: hg.PDGNDS(stepsize="fast"),
    ],
)
def test_bad_stepsizes_are_refused_at_once(bad):
    with pytest.raises(StepsizeError, match=r"but (got|\w+ = )"):
        bad()


@pytest.mark.parametrize(
    "bad",
    [
        lambda: hg.splits.isotropic(0),
        lambda: hg.splits.isotropic("big"),
        lambda: hg.PDGDS(split="fresh"),
        lambda: hg.PDGNDS(form="cube"),
    ],
)
def test_bad_splits_and_forms_are_refused_at_once(bad):
    with pytest.raises(AlgorithmError, match=r"but (got|\w+ = )"):
        bad()
