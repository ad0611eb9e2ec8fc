"""The numbers of algorithms are arguments of compiled programs: another number compiles nothing."""

from dataclasses import dataclass, replace

import jax
import numpy as np
import pytest

import hushgrad as hg
from hushgrad import splits
from hushgrad import stepsizes as S
from hushgrad.simulate.checkpoint import Checkpoint
from hushgrad.simulate.request import RunRequest
from hushgrad.simulate.stacked.driver import simulate
from hushgrad.simulate.stacked.numbers import (
    NumbersSeenError,
    numbers_of,
    pattern_of,
    with_numbers,
)
from support import cases
from support.tables import some

Q = cases.Quadratics(by_hand=True)
NETWORK = cases.undirected()


def run(algorithm, engine="stacked"):
    return hg.run(
        algorithm, Q.problem, NETWORK, iterations=30, x0=Q.x0, seed=4, engine=engine
    ).x  # fmt: skip


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


def masked(**sizes):
    """Masks without stages: the gradients themselves are masked."""
    return hg.PDGNDS(
        stepsize=S.constant(0.05), masks=hg.masks.zero_sum(**sizes), stages=0,
        split=splits.private_constant(),
    )  # fmt: skip


PAIRS = {
    "constant, harmonic": [
        hg.PDGNDS(stepsize=S.constant(v, S.harmonic(p))) for v, p in ((0.05, 2), (0.03, 1.5))
    ],
    "constant, geometric": [
        hg.PDGNDS(stepsize=S.constant(v, S.geometric(r))) for v, r in ((0.05, 0.9), (0.03, 0.5))
    ],
    "power, offset": [
        hg.PDGDS(stepsize=S.diminishing(scale, power, offset))
        for scale, power, offset in ((0.3, 0.7, 0), (0.2, 2, 3.5))
    ],
    "power one": [
        hg.PDGDS(stepsize=S.diminishing(scale, 1, offset)) for scale, offset in ((0.3, 0), (0.2, 4))
    ],
    "bursts": [
        hg.PDGDS(stepsize=S.diminishing(0.3, deviation=S.bursts(2, size, within=within)))
        for size, within in ((0.5, 20), (3.0, 25))
    ],
    "own share": [hg.PDGNDS(split=splits.private_constant(own=own)) for own in (0.45, 0.3)],
    "isotropic": [hg.PDGNDS(split=splits.isotropic(scale)) for scale in (0.5, 1.25)],
    "Chebyshev": [
        hg.Consensus(
            acceleration="chebyshev", eta=eta, scale=scale,
            masks=hg.masks.zero_sum(linear=linear, quadratic=0),
        )
        for eta, scale, linear in ((0.8, 1.0, 1e4), (0.7, 2.0, 10.0))
    ],
    "masks": [
        masked(linear=linear, quadratic=quadratic) for linear, quadratic in ((1, 0.01), (2, 0.02))
    ],
    "one for each agent": [
        hg.AugDGM(stepsize=S.constant(list(top - np.arange(7) / 200))) for top in (0.1, 0.08)
    ],
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::hushgrad.errors.RiskWarning")
@pytest.mark.parametrize("name", some(PAIRS, 5))
def test_another_number_compiles_nothing_and_is_used(name, compiled):
    one, other = PAIRS[name]
    before = run(one)
    assert compiled
    compiled.clear()
    found = run(other)
    assert not compiled
    # masks of 10⁴ leave an average with eleven digits
    np.testing.assert_allclose(found, run(other, "agents"), rtol=0, atol=1e-11)
    assert np.abs(found - before).max() > 1e-7


def test_another_rule_is_another_program(compiled):
    run(hg.PDGNDS(split=splits.isotropic(0.5)))
    compiled.clear()
    run(hg.PDGNDS(split=splits.identity()))
    assert compiled


@dataclass(frozen=True, kw_only=True)
class Cautious(hg.EXTRA):
    """EXTRA that looks at its stepsize and halves a long one."""

    def lam(self, agent):
        return self.stepsize.value / (2.0 if self.stepsize.value > 0.1 else 1.0)


@dataclass(frozen=True, kw_only=True)
class Derived(hg.EXTRA):
    """EXTRA that computes its stepsize when it is made."""

    factor: float = 1.0

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "used", self.factor * self.stepsize.value)

    def lam(self, agent):
        return self.used


@pytest.mark.parametrize("value", [0.05, 0.2])
def test_a_step_may_look_at_its_stepsize(value):
    expected = run(hg.EXTRA(stepsize=S.constant(value / 2 if value > 0.1 else value)))
    found = run(Cautious(stepsize=S.constant(value)))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)


def test_a_program_of_looked_at_numbers_is_compiled_once(compiled):
    cautious = Cautious(stepsize=S.constant(0.07))
    run(cautious)
    compiled.clear()
    run(cautious)
    assert not compiled


@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_values_that_an_algorithm_computed_itself_are_not_stale(factor):
    expected = run(hg.EXTRA(stepsize=S.constant(factor * 0.1)))
    found = run(Derived(stepsize=S.constant(0.1), factor=factor))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)


def test_numbers_are_exchanged_in_their_order():
    one = hg.PDGNDS(stepsize=S.constant(0.05, S.geometric(0.9)), split=splits.isotropic(0.5))
    assert sorted(numbers_of(one)) == [0.05, 0.5, 0.9]
    assert with_numbers(pattern_of(one), numbers_of(one)) == one
    other = replace(one, stepsize=S.constant(0.1, S.geometric(0.4)))
    assert other != one
    assert pattern_of(other) == pattern_of(one) != pattern_of(hg.PDGNDS())
    assert with_numbers(pattern_of(one), numbers_of(other)) == other


def together(variants, trials, samples=(0, 20, 40)):
    """One request in which each trial has its own algorithm."""
    n = len(variants) * len(trials)
    return simulate(
        RunRequest(
            algorithm=variants[0], problem=Q.problem, network=NETWORK, seed=4,
            trials=np.tile(trials, len(variants)), x0=np.broadcast_to(Q.x0, (n, *Q.x0.shape)),
            samples=np.array(samples), metrics={}, recording=None, tick=lambda _: None,
            checkpoint=Checkpoint(None, ""),
            variants=tuple(v for v in variants for _ in trials),
        )
    )  # fmt: skip


def alone(variant, iterations=40, **options):
    """The same in NumPy, agent by agent."""
    return hg.run(
        variant, Q.problem, NETWORK, iterations=iterations, record_every=20, x0=Q.x0, seed=4,
        engine="agents", **options,
    )  # fmt: skip


@pytest.mark.filterwarnings("ignore::hushgrad.errors.RiskWarning")
@pytest.mark.parametrize(
    "name", some(["power, offset", "own share", "isotropic", "masks", "one for each agent"], 5)
)
def test_numbers_of_each_trial_give_what_separate_runs_give(name):
    trials = [3, 0]
    outcome = together(PAIRS[name], trials)
    for v, variant in enumerate(PAIRS[name]):
        part, expected = slice(2 * v, 2 * v + 2), alone(variant, trials=trials)
        np.testing.assert_allclose(outcome.x[part], expected.x, rtol=0, atol=1e-12)
        np.testing.assert_allclose(outcome.error[part], expected.error, rtol=0, atol=1e-12)


def test_trials_cannot_share_a_step_that_looks_at_their_numbers():
    with pytest.raises(NumbersSeenError):
        together([Cautious(stepsize=S.constant(value)) for value in (0.05, 0.2)], [0])


def test_a_trial_that_diverges_among_others_is_named_as_alone():
    variants = [hg.EXTRA(stepsize=S.constant(value)) for value in (0.05, 3.0, 8.0)]
    outcome = together(variants, [0], samples=range(0, 401, 20))
    ends = outcome.diverged.tolist()
    assert ends[0] == -1 < ends[2] < ends[1]
    for variant, end in zip(variants[1:], ends[1:], strict=True):
        assert alone(variant, 400).status == (f"diverged at {end}",)
