"""The numbers of stepsizes are arguments of compiled programs: another number compiles nothing."""

from dataclasses import dataclass

import jax
import numpy as np
import pytest

import hushgrad as hg
from hushgrad import stepsizes as S
from support import cases

Q = cases.Quadratics()


def run(algorithm, engine="stacked"):
    return hg.run(
        algorithm, Q.problem, cases.undirected(), iterations=30, x0=Q.x0, seed=4, engine=engine
    ).x


@pytest.fixture
def compiled():
    """The durations of compilations since the start of the test."""
    seen = []

    def note(event, duration, **_):
        if event.endswith("backend_compile_duration"):
            seen.append(duration)

    jax.monitoring.register_event_duration_secs_listener(note)
    yield seen
    jax.monitoring.unregister_event_duration_listener(note)


SCHEDULES = {
    "constant": [S.constant(0.05), S.constant(0.11)],
    "constant, geometric": [S.constant(v, S.geometric(r)) for v, r in ((0.05, 0.9), (0.03, 0.5))],
    "diminishing": [S.diminishing(scale=0.3), S.diminishing(scale=0.2)],
    "diminishing, bursts": [
        S.diminishing(scale=0.3, deviation=S.bursts(2, size, within=20)) for size in (0.5, 3.0)
    ],
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_another_number_compiles_nothing_and_is_used(name, compiled):
    method = hg.PDGNDS if name.startswith("constant") else hg.PDGDS
    one, other = (method(stepsize=schedule) for schedule in SCHEDULES[name])
    run(one)
    assert compiled
    compiled.clear()
    found = run(other)
    assert not compiled
    np.testing.assert_allclose(found, run(other, "agents"), rtol=0, atol=1e-12)
    assert np.abs(found - run(one)).max() > 1e-6


def test_another_rule_is_another_program(compiled):
    run(hg.PDGDS(stepsize=S.diminishing(power=0.7)))
    compiled.clear()
    found = run(hg.PDGDS(stepsize=S.diminishing(power=0.9)))
    assert compiled
    np.testing.assert_allclose(
        found, run(hg.PDGDS(stepsize=S.diminishing(power=0.9)), "agents"), rtol=0, atol=1e-12
    )


@dataclass(frozen=True, kw_only=True)
class Cautious(hg.EXTRA):
    """EXTRA that looks at its stepsize and halves a long one."""

    def lam(self, agent):
        return self.stepsize.value / (2.0 if self.stepsize.value > 0.1 else 1.0)


def test_a_step_may_look_at_its_stepsize():
    for value in (0.05, 0.2):
        used = value / 2 if value > 0.1 else value
        expected = run(hg.EXTRA(stepsize=S.constant(used)))
        found = run(Cautious(stepsize=S.constant(value)))
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)


def test_numbers_are_exchanged_in_their_order():
    schedule = S.constant(0.05, S.geometric(0.9))
    assert S.numbers_of(schedule) == (0.05, 0.9)
    assert S.with_numbers(schedule, (0.1, 0.5)) == S.constant(0.1, S.geometric(0.5))
    assert S.with_numbers(S.constant(0.05), (0.1,)) == S.constant(0.1)
