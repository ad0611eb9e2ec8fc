"""Span gives directions, positions and steps, and says what it does not know."""

from dataclasses import replace

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.privacy import Curious, Eavesdropper, Knowledge, Truth
from hushgrad.privacy.attacks import span
from hushgrad.privacy.attacks.objective_fit import ObjectiveFit
from hushgrad.privacy.attacks.pdg import net_inflow
from hushgrad.privacy.attacks.span import Span
from support import cases
from support.pdg_runs import (
    FAMILY,
    PAPER,
    cosine,
    eavesdropper,
    estimates,
    long_run,
    neighbours,
    objective_fits,
    recorded,
    relative,
    views,
)
from support.tables import combinations, some


def path_errors(run, adversaries=eavesdropper):
    """{target: (k, error of x, error of λg)}, relative to the size of x."""
    found = {}
    for view, truth, i in views(run, adversaries):
        if Span().applies(view, i) is None:
            got = estimates(Span(), view, i)
            x, h = got["position"], got["scaled gradient"]
            size = np.linalg.norm(truth.x[x.k, i], axis=1)
            found[len(found)] = (
                x.k,
                np.linalg.norm(x.value - truth.x[x.k, i], axis=1) / size,
                np.linalg.norm(h.value - truth.h(i)[h.k], axis=1) / size,
            )
    return found


@pytest.mark.parametrize(
    ("case", "seed"),
    combinations([("PDG-DS", 2), ("PDG-DS", 5), ("lazy", 3), ("square", 2)], [0, 1]),
)
def test_span_gives_every_position_and_step(case, seed):
    name, d = case
    for k, x, h in path_errors(recorded(FAMILY[name], seed, d=d)).values():
        assert len(set(range(1, 201)) - set(k.tolist())) <= 4  # where directions hardly turn
        assert max(x.max(), h.max()) < 3e-9


def test_span_gives_positions_of_the_lazy_form_in_two_dimensions_after_some_iterations():
    shares, late = [], []
    for k, x, _ in path_errors(recorded(FAMILY["lazy"], seed=0)).values():
        shares.append(np.isin(range(100, 201), k).mean())
        late += x[k >= 100].tolist()
    assert np.median(shares) == 1
    assert np.median(late) < 1e-9


@pytest.mark.parametrize("name", ["PDG-DS", "square"])
def test_weights_that_differ_by_direction_are_read_in_the_right_one(name):
    run = recorded(FAMILY[name], d=3, net=cases.nonsymmetric())
    for _, x, h in path_errors(run).values():
        assert max(x.max(), h.max()) < 3e-9
    assert objective_fits(run)[:, 0].max() < 1e-10


def test_all_neighbours_together_know_as_much_as_an_eavesdropper():
    for k, x, _ in path_errors(recorded(FAMILY["PDG-DS"], 1, d=3), neighbours).values():
        assert len(k) >= 199
        assert x.max() < 3e-9


def test_span_finds_gradients_through_the_mean_stepsize():
    run = recorded(FAMILY["PDG-DS"], 0, d=3)
    for view, truth, i in views(run, eavesdropper):
        g = estimates(Span(), view, i)["gradient"]
        # (1 − ϱ/n²) / (1 − 1/2n²), and rounding of the path
        bound = 0.5 / ((g.k + 1.0) ** 2 - 0.5) + 1e-6
        assert (relative(g.value, truth.gradients(i)[g.k]) <= bound).all()


def test_a_path_is_computed_once_for_each_target_of_a_view():
    run = recorded(FAMILY["PDG-DS"], 0, d=3)
    view, truth = Knowledge.of(run, Eavesdropper()), Truth(run)
    for i in range(run.network.n_agents):
        path = Span().path(view, i)
        assert Span().path(view, i) is path
        assert relative(path.x, truth.x[path.k, i]).max() < 1e-6
    assert Span(first=50).path(view, 0).k.max() <= 51 < Span().path(view, 0).k.max()


def test_two_heard_messages_give_the_direction_and_no_position():
    run = recorded(FAMILY["PDG-DS"], 0)
    view, truth = Knowledge.of(run, Eavesdropper([(0, 1), (0, 2)])), Truth(run)
    got = estimates(Span(), view, 0)
    assert set(got) == {"direction"}
    direction = got["direction"]
    assert len(direction.k) == run.iterations[-1]
    assert (1 - cosine(direction.value, truth.gradients(0)[direction.k])).max() < 1e-10


def test_late_directions_of_the_lazy_form_are_those_of_the_gradient_at_the_optimum():
    run = long_run("lazy")
    at_optimum = Truth(run).at_optimum
    for sender, receivers in {0: (1, 2), 1: (0, 2), 4: (0, 3)}.items():
        view = Knowledge.of(run, Eavesdropper([(sender, j) for j in receivers]))
        direction = estimates(Span(), view, sender)["direction"].value
        assert cosine(direction, at_optimum[sender]) > 0.999


def test_span_has_no_direction_in_one_dimension():
    view = Knowledge.of(recorded(FAMILY["PDG-DS"], d=1), Eavesdropper())
    assert "d ≥ 2" in Span().applies(view, 0)
    assert "d ≥ 2" in ObjectiveFit().applies(view, 0)


def test_span_needs_two_messages_and_three_of_the_square_form():
    star = hg.Network(hg.graphs.star(4))
    leaf = recorded(FAMILY["PDG-DS"], net=star)
    assert (
        Span().applies(Knowledge.of(leaf, Eavesdropper()), 1).startswith("hears 1 of the messages")
    )
    square = recorded(FAMILY["square"], 0)
    two, three = [(0, 1), (0, 2)], [(0, 1), (0, 2), (0, 3)]
    assert "3 needed" in Span().applies(Knowledge.of(square, Eavesdropper(two)), 0)
    assert Span().applies(Knowledge.of(square, Eavesdropper(three)), 0) is None


def test_rank_one_losses_leak_their_feature_and_no_position():
    rng = np.random.default_rng(0)
    features, answers = rng.normal(size=(5, 1, 3)), rng.normal(size=(5, 1))
    problem = hg.problems.estimation_from(features, answers, sigma=0)
    run = hg.run(FAMILY["PDG-DS"], problem, PAPER, iterations=100, transcript=True, engine="agents")
    view = Knowledge.of(run, Eavesdropper())
    for i in range(5):
        got = estimates(Span(), view, i)
        assert set(got) == {"direction"}
        assert (1 - cosine(got["direction"].value, features[i])).max() < 1e-9
        assert ObjectiveFit()(view, i) == ()


def sensors(algorithm, seed):
    """The five sensors of examples/deploy: every one sees one direction only."""
    rng = np.random.default_rng(seed)
    angle = np.pi * np.arange(5) / 5
    along = np.column_stack([np.cos(angle), np.sin(angle)])  # (5, 2)
    features = rng.uniform(0.5, 1.5, (5, 20, 1)) * along[:, None]
    answers = features @ [2.0, -1.0] + rng.normal(0, 0.05, (5, 20))
    problem = hg.problems.estimation_from(features, answers, sigma=0)
    return hg.run(
        algorithm, problem, PAPER, iterations=210, seed=seed, transcript=True, engine="agents",
        accept_exposure=["curvature"],
    )  # fmt: skip


@pytest.mark.filterwarnings("ignore::hushgrad.errors.RiskWarning")  # x grows by 2^48 in PDG-DS
@pytest.mark.parametrize(("name", "seed"), combinations([*FAMILY], [3, 7]))
def test_span_solves_a_system_that_the_messages_leave_open(name, seed, monkeypatch):
    """Directions never turn: only the guesses decide, by more than rounding ever could."""
    diagonals = []

    def solve(R, known):
        diagonals.append(np.abs(np.diag(R)).min())
        return real(R, known)

    real = np.linalg.solve
    run = sensors(FAMILY[name], seed)
    monkeypatch.setattr(np.linalg, "solve", solve)
    for view, _, i in views(run, eavesdropper):
        lines = span.lines_of(view, i)
        still = replace(lines, u=np.broadcast_to(lines.u[5], lines.u.shape))
        Span().along(view, i, lines)
        assert not len(Span().along(view, i, still).k)
    assert min(diagonals) > 100  # rounding is about 1 there


@pytest.mark.parametrize("name", FAMILY)
@pytest.mark.parametrize("size", [1e-290, 1e-30, 1e30, 1e290])
def test_span_solves_the_same_system_at_every_scale(name, size):
    run = recorded(FAMILY[name], 0)
    view = Knowledge.of(run, Eavesdropper())
    lines, F = span.lines_of(view, 0), net_inflow(view, 0)[:100]
    large = replace(lines, noise=size * lines.noise, combined=size * lines.combined)
    x, off = span._solve(view, lines, F)
    scaled, scaled_off = span._solve(view, large, size * F)
    sure = off < 1e-6 * np.linalg.norm(x, axis=1)
    assert sure.any()
    np.testing.assert_allclose(scaled[sure] / size, x[sure], rtol=1e-6, atol=1e-6 * np.abs(x).max())
    assert (np.abs(np.log(scaled_off / size / off)) < 1)[sure].all()


@pytest.mark.parametrize("name", FAMILY)
def test_span_says_nothing_of_agents_that_said_nothing(name):
    run = recorded(FAMILY[name], 0)
    view = Knowledge.of(run, Eavesdropper())
    lines, F = span.lines_of(view, 0), np.zeros((100, 2))
    silent = replace(lines, combined=0 * lines.combined, noise=np.full_like(lines.noise, np.inf))
    x, off = span._solve(view, silent, F)
    assert not x.any()
    assert np.isinf(off).all()


@pytest.mark.parametrize("d", some([2, 4, 20], 2))
def test_isotropic_splits_put_directions_at_chance_for_two_colluders(d):
    stepsize = hg.stepsizes.diminishing(0.2)
    run = recorded(hg.PDGDS(stepsize=stepsize, split=hg.splits.isotropic()), d=d, n=150)
    view, truth = Knowledge.of(run, Curious({1, 2})), Truth(run)
    direction = estimates(Span(), view, 0)["direction"]
    square = cosine(direction.value, truth.gradients(0)[direction.k]) ** 2
    # a random unit vector has mean 1/d here, variance 2(d − 1)/d²(d + 2)
    spread = np.sqrt(2 * (d - 1) / d**2 / (d + 2) / len(square))
    assert abs(square.mean() - 1 / d) < 4 * spread


@pytest.mark.slow
@pytest.mark.parametrize(("name", "d"), [("PDG-DS", 2), ("PDG-DS", 3), ("lazy", 3), ("square", 2)])
def test_span_study(name, d):
    """20 random problems and seeds on 14 graphs, every agent."""
    paths = [p for s in range(20) for p in path_errors(recorded(FAMILY[name], s, d=d)).values()]
    k = sum(len(set(range(1, 201)) & set(k.tolist())) for k, _, _ in paths) / 200 / len(paths)
    errors = np.concatenate([np.maximum(x, h)[(k >= 1) & (k <= 200)] for k, x, h in paths])
    print(
        f"span, {name}, d = {d}: {len(paths)} agents, {k:.4f} of 1 ≤ k ≤ 200, median "
        f"{np.median(errors):.1e}, within 1e-9 {(errors < 1e-9).mean():.5f}, {errors.max():.1e}"
    )
    assert k > 0.99
    assert (errors < 1e-9).mean() > 0.999
    assert errors.max() < 1e-7
