"""No verdict, no picture and no singular system hangs on the last digit of a number.

Kernels of linear algebra round differently from one processor to the next. So rounding is added
here, larger than theirs, and nothing that is told may change.
"""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.privacy import Curious, Knowledge, drawing
from hushgrad.privacy.attacks import fluctuations, whittle
from hushgrad.privacy.attacks.base import Estimate
from hushgrad.privacy.attacks.drift import Drift
from hushgrad.privacy.attacks.flow import Flow
from hushgrad.privacy.attacks.gossip_reconstruction import GossipReconstruction
from hushgrad.privacy.attacks.objective_fit import _null_vector
from hushgrad.privacy.attacks.whitening import _unpredicted
from hushgrad.privacy.attacks.whittle import Whittle
from hushgrad.privacy.findings import Finding
from hushgrad.privacy.places import recovered_place
from hushgrad.privacy.verdict import Evidence

AUDIT = """
import hushgrad as hg
network, step = hg.Network(hg.graphs.paper()), hg.stepsizes.constant(0.02)
problem = hg.problems.estimation(n_agents=5, s=3, d=2, seed=0)
for design in ("paper", "recommended"):
    algorithm = hg.PDGNDS(stepsize=step, design=design)
    run = hg.run(
        algorithm, problem, network, iterations=400, transcript=True, engine="agents",
        accept_exposure=["curvature"],
    )
    audit = hg.audit(run, ["eavesdropper", "neighbours"], agents=[0, 3], coalitions=False)
    assert not any(finding.failed for finding in audit.findings)
    print(design, [finding.verdict for finding in audit.findings])
"""


def printed(kernel, *code):
    """The output of a program whose linear algebra runs on these kernels."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", *code],
        capture_output=True, text=True, timeout=300, check=False,
        env=os.environ | {"OPENBLAS_CORETYPE": kernel, "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    if done.returncode == -signal.SIGILL:
        pytest.skip(f"this processor cannot run the kernels of {kernel}")
    assert done.returncode == 0, done.stderr
    return done.stdout


def evidence(error, guess=1.0):
    return Evidence(attack="flow", quantity="gradient", k=None, error=error, guess=guess)


def finding(adversary, error):
    return Finding(
        agent=0,
        kind="neighbour",
        adversary=adversary,
        evidence=(evidence(error),),
        tried=("flow",),
        refused={},
    )


def recorded(algorithm, net, iterations, d=2, **options):
    problem = hg.problems.estimation(n_agents=net.n_agents, s=3, d=d, seed=0)
    return hg.run(algorithm, problem, net, iterations=iterations, transcript=True, **options)


def test_kernels_of_linear_algebra_agree_on_every_verdict():
    """Prescott's kernels have neither AVX nor fused products, Haswell's both."""
    said = [printed(kernel, AUDIT) for kernel in ("Prescott", "Haswell")]
    assert said[0] == said[1]
    assert "paper ['exposed'" in said[0]
    assert "recommended ['not recovered (" in said[0]


def test_nothing_is_exposed_where_the_guess_is_right_up_to_rounding():
    assert evidence(0.0, guess=1e-3).counts
    assert not evidence(0.0, guess=1e-15).counts


@pytest.mark.parametrize("errors", [(1e-14, 2e-14), (2e-14, 1e-14)])
def test_of_adversaries_that_are_all_but_exact_the_first_is_the_worst(errors):
    run = recorded(hg.DGD(), hg.Network(hg.graphs.ring(3)), 5, engine="agents")
    audit = hg.audit(run, "eavesdropper", agents=[0], coalitions=False)
    findings = tuple(finding(f"agent {n}", error) for n, error in enumerate(errors))
    assert replace(audit, findings=findings).worst(0, "neighbour").adversary == ("agent 0")


@pytest.mark.parametrize("graph", ["ring", "path", "star", "complete", "paper"])
def test_a_network_is_drawn_alike_whatever_axes_the_solver_gives(graph, monkeypatch):
    made = getattr(hg.graphs, graph)(*(() if graph == "paper" else (6,)))
    links = list(zip(made.senders.tolist(), made.receivers.tolist(), strict=True))
    before = drawing.layout(made.n_agents, links)
    real, rng = np.linalg.eigh, np.random.default_rng(0)

    def eigh(A):
        noise = 1e-14 * np.abs(A).max() * rng.normal(size=A.shape)
        size, axes = real(A + noise + noise.T)
        return size, axes * rng.choice([-1.0, 1.0], A.shape[1])

    monkeypatch.setattr(np.linalg, "eigh", eigh)
    for _ in range(4):
        np.testing.assert_allclose(drawing.layout(made.n_agents, links), before, atol=1e-3)


@pytest.mark.parametrize("size", [1e-25, 1.0, 1e25])
def test_the_size_of_gradients_does_not_matter_to_the_fit_of_their_spectrum(size):
    rng, (m, bands, pairs, q) = np.random.default_rng(0), (4, 20, 3, 2)
    A = rng.normal(size=(m, bands, pairs, pairs)) + 1j * rng.normal(size=(m, bands, pairs, pairs))
    T, g = A @ A.conj().swapaxes(2, 3), rng.normal(size=(m, q))
    f = sum(np.einsum("bps,i,j->bpisj", T[a], g[a], g[a]) for a in range(m))
    f = size**2 * f.reshape(bands, pairs * q, -1)
    found, error = Whittle(f, T, np.full(bands, 100.0), {0: size * g[0]}).fit()
    signs = np.sign((found * g).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(signs * found / size, g, atol=0.02)
    assert (error[1:] < 0.1 * size * np.linalg.norm(g[1:], axis=1)).all()


def test_variances_are_those_of_the_inverse_and_finite_where_there_is_none():
    A = np.random.default_rng(0).normal(size=(6, 4))
    exact = np.diag(np.linalg.inv(A.T @ A))
    np.testing.assert_allclose(whittle._variances(A.T @ A), exact, rtol=1e-9)
    assert np.isfinite(whittle._variances(A @ A.T)).all()
    assert whittle._variances(A @ A.T).max() > 1e4


@pytest.mark.parametrize("m", [5, 60])
def test_the_mean_response_is_that_of_the_pseudo_inverse(m):
    """With a tolerance well above the rounding of I − W, which has no inverse."""
    net = hg.Network(hg.graphs.random_regular(m, 4, seed=0))
    view = Knowledge.of(recorded(hg.PDGDS(), net, 2, engine="agents"), Curious({0}))
    pairs, W = fluctuations.pairs_of(view), net.matrix()
    E_B = (W > 0) / 5.0
    rest = -np.linalg.pinv(np.eye(m) - W, rcond=1e-9) @ E_B
    direct = [W[j, i] * (rest[i] - rest[j]) - E_B[j, i] * (np.arange(m) == i) for j, i in pairs]
    np.testing.assert_allclose(fluctuations.mean_response(view, pairs), direct, atol=1e-12)


@pytest.mark.parametrize("algorithm", [hg.PDGDS(), hg.PDGNDS(stepsize=hg.stepsizes.constant(0.02))])
def test_slow_common_changes_leave_the_spectra_regular(algorithm):
    """To 1e-7 of a turn: the common mode alone would be magnified by 1e14."""
    run = recorded(algorithm, hg.Network(hg.graphs.paper()), 3, engine="agents")
    view = Knowledge.of(run, Curious({0}))
    pairs = fluctuations.pairs_of(view)
    slow, slower = fluctuations.spectra(view, pairs, np.array([1e-6, 1e-7])).swapaxes(0, 1)
    np.testing.assert_allclose(slow, slower, atol=1e-5 * np.abs(slow).max())


def test_positions_that_rest_or_lie_on_a_line_determine_no_objective():
    rng = np.random.default_rng(0)
    n, exact = 60, np.full(60, 1e-13)
    assert _null_vector(np.ones((n, 2)), rng.normal(size=(n, 2)), exact) is None
    along = np.outer(rng.normal(size=n), [1.0, 2.0])  # H across it is open: two null vectors
    gradients = along @ np.diag([3.0, 1.0]) + [1.0, -1.0]
    for _ in range(20):
        noisy = gradients + 1e-14 * rng.normal(size=(n, 2))
        assert _null_vector(along, noisy, exact) is None
    plane = rng.normal(size=(n, 2))
    assert _null_vector(plane, plane @ np.diag([3.0, 1.0]) + [1.0, -1.0], exact) is not None


def test_a_prediction_does_not_hang_on_columns_of_rounding():
    rng = np.random.default_rng(0)
    y = np.outer(rng.normal(size=400), [1.0, 2.0, -1.0])  # three columns, one of them news
    left = [_unpredicted(y + 1e-13 * rng.normal(size=y.shape), 3) for _ in range(3)]
    np.testing.assert_allclose(left[0], left[1], atol=1e-9)
    np.testing.assert_allclose(left[0], left[2], atol=1e-9)


def test_flow_does_not_hang_on_an_approach_that_is_rounding(monkeypatch):
    """All start in θ* and step by so little that x stays there: no direction moves."""
    step = hg.stepsizes.diminishing(1e-12)
    net = hg.Network(hg.graphs.paper())
    problem = hg.problems.estimation(n_agents=5, s=3, d=2, seed=0)
    start = np.tile(problem.solution(), (5, 1))
    run = hg.run(
        hg.PDGDS(stepsize=step), problem, net, iterations=500, x0=start, transcript=True,
        engine="agents",
    )  # fmt: skip
    view = Knowledge.of(run, hg.Eavesdropper())
    (before,) = Flow()(view, 0)
    real, rng = np.linalg.svd, np.random.default_rng(0)

    def svd(A, **options):
        return real(A + 1e-15 * np.abs(A).max() * rng.normal(size=A.shape), **options)

    monkeypatch.setattr(np.linalg, "svd", svd)
    (after,) = Flow()(view, 0)
    np.testing.assert_allclose(after.value, before.value, rtol=1e-3)


def test_drift_refuses_stepsizes_that_rounding_swallows():
    run = recorded(
        hg.PDGDS(stepsize=hg.stepsizes.diminishing(1e-14)),
        hg.Network(hg.graphs.complete(4)),
        2000,
        engine="agents",
    )
    assert "lost in rounding" in Drift().applies(Knowledge.of(run, Curious({0})), 1)


def test_gossip_of_a_member_that_starts_at_its_minimum_claims_nothing():
    features, answers = np.ones((3, 4, 1)), np.arange(3.0)[:, None] * np.ones((3, 4))
    problem = hg.problems.estimation_from(features, answers, sigma=0)
    run = hg.run(
        hg.DGD(stepsize=hg.stepsizes.diminishing(0.01)), problem, hg.Network(hg.graphs.path(3)),
        iterations=20, transcript=True, engine="agents",
    )  # fmt: skip
    view = Knowledge.of(run, Curious({0}))
    assert GossipReconstruction().applies(view, 2) is None
    assert GossipReconstruction()(view, 2) == ()


def test_a_place_is_not_read_from_what_is_not_finite_or_flat():
    lost = Estimate(attack="x", target=0, quantity="data", value=np.array([np.nan, 0.0]))
    flat = np.array([[2.0, 0.0, -2.0], [0.0, 1e-15, -1e-15]])
    objective = Estimate(attack="x", target=0, quantity="objective", value=flat)
    assert recovered_place("x", [lost], np.zeros(2)) is None
    assert recovered_place("x", [lost, objective], np.zeros(2)) == pytest.approx((1.0, 0.0))


SENSORS = """
import sys
sys.path.insert(0, sys.argv[1])
import hushgrad as hg
from make_agents import LINKS, measurements
data = [measurements(i) for i in range(5)]
problem = hg.problems.ridge([a[:, :2] for a in data], [a[:, 2] for a in data], regularisation=0.0)
algorithm = hg.PDGNDS(stepsize=hg.stepsizes.constant(0.01), design="recommended")
network = hg.Network(hg.graphs.from_edges(LINKS))
run = hg.run(
    algorithm, problem, network, iterations=225, seed=3, transcript=True, engine="agents",
    accept_exposure=["curvature"],
)
audit = hg.audit(run, agents=[2])
print([(finding.verdict, finding.failed) for finding in audit.findings], audit.coalition(2))
"""


@pytest.mark.parametrize(
    "kernel",
    [
        "Haswell",
        pytest.param("Zen", marks=pytest.mark.slow),
        pytest.param("Prescott", marks=pytest.mark.slow),
    ],
)
def test_the_sensors_that_see_one_direction_each_end_no_attack(kernel):
    """Losses of rank one leave Span one direction only: its system has no solution of its own."""
    sensors = Path(__file__).parents[2] / "examples" / "deploy" / "sensors"
    said = printed(kernel, SENSORS, str(sensors))
    assert "Error" not in said
    assert said.count("{}") == 5
