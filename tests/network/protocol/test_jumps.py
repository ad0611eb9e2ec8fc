"""A message that moves too far for its history is found, and no message of an honest run is."""

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.network.protocol import jumps
from hushgrad.network.protocol.jumps import FACTOR, FLOOR, FORGETS, MOST, WARM_UP, JumpWatch
from support import conformance
from support.tables import some
from support.watched import random_setting, watched_run

LATE = 300  # an iteration after the warm-up


def course(messages, *, turns=1, begin=0):
    """The iterations in which a watch finds jumps of one neighbour; None: no message."""
    watch, found = JumpWatch(), []
    for n, message in enumerate(messages):
        k = begin + n // turns
        payload = (None if message is None else np.atleast_1d(np.asarray(message, float)),)
        if watch.look({3: payload}, stage=0, k=k):
            found.append(k)
    return found


def approaching(n=400, rate=0.97, d=3):
    """Messages that converge geometrically to a point."""
    direction = np.arange(1.0, d + 1)
    return [7.0 + direction * rate**k for k in range(n)]


def test_the_rule_is_the_documented_one():
    """Against the formula in plain Python, on walks whose steps have heavy tails."""
    rng = np.random.default_rng(0)
    walk = np.cumsum(rng.standard_cauchy(size=(2000, 2)) ** 5, axis=0)
    m, s, records, expected = 0.0, max(abs(walk[0])), [(0.0, 0)], []
    for k in range(1, len(walk)):
        c, most = max(abs(walk[k] - walk[k - 1])), FACTOR * m + FLOOR * s
        last = records[-1][1]
        if k - last > WARM_UP and c > most:
            expected.append(k)
            c = most
            records.append((max(c, records[-1][0]), last))
        if c > records[-1][0]:
            records.append((c, k))
        m, s = max(c, FORGETS * m), s + c
    assert len(expected) > 3
    assert course(walk) == expected


@pytest.mark.filterwarnings("ignore:overflow")  # as in the sum of such messages
def test_a_perturbation_and_its_withdrawal_are_both_found():
    messages = approaching()
    assert course(messages) == []
    messages[LATE] = messages[LATE] + [0.0, 0.0, 1.0]
    assert course(messages) == [LATE, LATE + 1]
    messages[LATE] = np.full(3, 1e308)
    messages[LATE + 1] = np.full(3, -1e308)  # the change is not a finite number
    assert course(messages)[:3] == [LATE, LATE + 1, LATE + 2]


@pytest.mark.parametrize("d", [1, MOST + 1000])
def test_a_perturbation_of_all_entries_is_found_in_long_messages_too(d):
    messages = approaching(d=d)
    messages[LATE] = messages[LATE] + 1.0 * d
    assert LATE in course(messages)


def test_rounding_errors_are_no_jumps():
    """A neighbour stands still to the last bit for long; then the last bits flip."""
    messages = approaching(n=40, rate=0.4) + [np.full(3, 7.0)] * 2000
    messages += [7.0 * (1 + 4e-16 * (k % 3)) * np.ones(3) for k in range(50)]
    assert course(messages) == []
    assert course([*messages, messages[-1] + 1e-9]) == [len(messages)]


def test_messages_are_not_judged_while_they_move_farther_and_farther():
    quiet = [0.0] * 100  # nothing has come through yet
    growing = [1000.0**k for k in range(30)]
    fading = [growing[-1] * (1 + 0.5**k) for k in range(WARM_UP + 1)]
    assert course([*quiet, *growing, *fading]) == []
    assert course([*quiet, *growing, *fading[:-1], 1e99]) == []
    assert course([*quiet, *growing, *fading, 1e99]) == [130 + len(fading)]


def test_turns_exchanges_and_stages_have_histories_of_their_own():
    large, small = approaching(rate=0.99), [1e-6 * v for v in approaching(rate=0.99)]
    small[LATE] = small[LATE] + 0.01  # much for this turn, nothing beside the other
    alternating = [v for pair in zip(large, small, strict=True) for v in pair]
    assert course(alternating, turns=2) == [LATE, LATE + 1]
    assert course(alternating) == []
    small[LATE] = small[LATE] - 0.01
    for changes in (0, 1):
        watch, found = JumpWatch(), []
        for k in range(600):
            u, v = large[k % 400], small[k % 400]
            came = {1: (u, v), 2: (v, None)}
            found += watch.look(came, stage=changes * (k // 400), k=k)
        assert bool(found) != bool(changes)  # iteration 400 begins anew, in a new stage or not


def test_a_link_that_sleeps_keeps_its_history():
    messages = approaching()
    for k in range(0, 400, 3):
        messages[k] = None
    assert course(messages) == []
    messages[LATE + 1] = messages[LATE + 1] + 1.0
    assert course(messages) == [LATE + 1, LATE + 2]


@pytest.fixture
def strict(monkeypatch):
    """The rule with a third of its factor: honest runs keep this margin."""
    monkeypatch.setattr(jumps, "FACTOR", FACTOR / 3)


@pytest.mark.parametrize(("row", "network"), some(conformance.NETWORKS))
def test_no_algorithm_jumps_when_all_agents_are_honest(strict, row, network):
    q = conformance.BY_HAND
    _, found = watched_run(row.algorithm, q.problem, network, iterations=120, x0=q.x0, seed=5)
    assert found == []


def staged_logistic():
    rng = np.random.default_rng(4)
    network = hg.Network(hg.graphs.ring(5))
    X = [rng.normal(size=(12, 3)) for _ in range(5)]
    y = [np.sign(x @ np.ones(3) + rng.normal(size=12)) for x in X]
    problem = hg.problems.logistic(X, y, regularisation=2.0)
    stepsize = hg.stepsizes.constant(0.2 * (1 - network.eta) / problem.smoothness())
    return hg.PDGNDS(stepsize=stepsize, design="recommended"), problem, network


def test_in_a_run_in_stages_only_the_active_neighbour_is_found(strict):
    """Half of all iterations belong to the last of eight stages."""
    algorithm, problem, network = staged_logistic()
    active = hg.Active({2}, size=1e-2, at=[650])
    _, found = watched_run(algorithm, problem, network, iterations=800, seed=2, inner=active.tamper)
    first = min(k for k, *_ in found)
    assert first == 650
    assert {(j, i) for k, j, i, _ in found if k == first} == {(2, 1), (2, 3)}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::hushgrad.errors.RiskWarning")
@pytest.mark.parametrize("first", range(100, 350, 25))
def test_no_message_of_250_random_honest_runs_comes_near_the_bound(monkeypatch, first):
    """All algorithms and splits; quadratic, logistic and Huber; also runs that diverge at first."""
    monkeypatch.setattr(jumps, "FACTOR", FACTOR / 4)
    for seed in range(first, first + 25):
        algorithm, problem, network = random_setting(seed)
        _, found = watched_run(algorithm, problem, network, iterations=600, seed=seed)
        assert found == [], seed


@pytest.mark.slow
def test_late_in_a_run_a_perturbation_of_a_billionth_is_found():
    """Iteration 2900 of 3000: messages of the size 0.24 change by 1e-12."""
    algorithm, problem, network = staged_logistic()
    seen = {}
    for size in (1e-12, 1e-9, 1e-6):
        active = hg.Active({2}, size=size, at=[2900])
        run, found = watched_run(
            algorithm, problem, network, iterations=3000, seed=2, inner=active.tamper
        )
        seen[size] = {(k, sender) for k, sender, *_ in found if k < 2902}
        assert run.error[0, -1] < 1e-6
    assert seen[1e-12] == set()
    assert (2900, 2) in seen[1e-9]  # and its withdrawal is within the bound that it widened
    assert {(2900, 2), (2901, 2)} <= seen[1e-6]
