"""Fluctuations follow from the weights; Spread reads gradients in them, and starves without."""

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.privacy import Curious, Knowledge
from hushgrad.privacy.attacks import fluctuations
from hushgrad.privacy.attacks.spread import Spread
from hushgrad.privacy.attacks.whittle import Whittle
from support import cases
from support.pdg_runs import (
    FAMILY,
    FIG3,
    PAPER,
    beside,
    cosine,
    estimates,
    long_run,
    network,
    recorded,
    recorded_trials,
)
from support.tables import some


@pytest.mark.parametrize("n", [2, 3, 5, 9])
def test_moments_of_splits_are_those_of_draws(n):
    u = np.random.default_rng(0).random((100_000, n))
    b = u / u.sum(axis=1, keepdims=True)
    for powers in [(1,), (2,), (1, 1), (3,)]:
        sample = np.prod([b[:, i] ** p for i, p in enumerate(powers)], axis=0)
        exact = fluctuations.split_moment(n, *powers)
        assert abs(sample.mean() - exact) < 4 * sample.std() / np.sqrt(len(sample)) + 1e-12


def simulated_fluctuations(name, W, g, pairs, rng, s, copies=3000, settled=80, n=60):
    """r_jl (copies, n, pairs) about its mean, with resting scalar gradients g, straight from the
    algorithm, in units that shrink by s.
    """
    m = len(W)
    half, square = (np.eye(m) + W) / 2, W @ W
    now, earlier = {"PDG-DS": (W, 0 * W), "square": (2 * W, -square)}.get(name, (2 * half, -half))
    pattern = (square if name == "square" else W) > 0
    x, before, rho_before = (np.zeros((copies, m)) for _ in range(3))
    receivers, senders = np.array(pairs).T
    r = np.empty((copies, n, len(pairs)))
    for k in range(-settled, n):
        B = rng.random((copies, m, m)) * pattern
        B /= B.sum(axis=1, keepdims=True)
        rho = rng.random((copies, m))
        if name == "PDG-DS":
            share = (B - pattern / pattern.sum(axis=0)) * g
        else:  # λ is 1 − ϱ times its mean: its change is what is shared
            share = B * ((rho_before / s - rho) * g)[:, None]
        sent = now * x[:, None] + earlier * before[:, None] / s - share
        if k >= 0:
            mine = now * x[:, :, None] + earlier * before[:, :, None] / s  # with x_j for x_l
            r[:, k] = (sent - mine)[:, receivers, senders]
        x, before, rho_before = sent.sum(axis=2) / s, x, rho
        x -= x.mean(axis=1, keepdims=True)  # what all have in common grows, and nobody sees it
    return r - r.mean(axis=(0, 1))


@pytest.mark.parametrize(
    ("name", "net"),
    some(
        [
            ("square", cases.nonsymmetric()),
            ("PDG-DS", cases.nonsymmetric()),
            ("lazy", PAPER),
            ("geometric", hg.Network(hg.graphs.complete(5))),  # forgets faster than ϱ fades
        ]
    ),
)
def test_covariances_at_all_lags_follow_from_the_weights(name, net):
    """Against a recursion of its own, 3000 independent times: within five standard errors, which
    are less than 1 %.
    """
    ratio = 0.75
    fading = hg.stepsizes.constant(0.02, deviation=hg.stepsizes.geometric(ratio))
    algorithm = FAMILY.get(name) or hg.PDGNDS(stepsize=fading)
    view = Knowledge.of(recorded(algorithm, n=3, net=net), Curious({0}))
    pairs = fluctuations.pairs_of(view)
    rng = np.random.default_rng(1)
    g = rng.normal(size=net.n_agents)
    omega = (np.arange(512) + 0.5) * 2 * np.pi / 512  # not zero, where the common mode rests
    spectrum = np.einsum("abpq,a->bpq", fluctuations.spectra(view, pairs, omega), g**2)
    shrink = ratio if name == "geometric" else 1.0
    r = simulated_fluctuations(name, view.network.matrix(), g, pairs, rng, shrink)
    size = np.sqrt(np.einsum("bpp->p", spectrum).real / len(omega))
    for lag in range(4):
        expected = np.einsum("b,bpq->pq", np.exp(1j * lag * omega), spectrum).real / len(omega)
        late, early = r[:, lag:], r[:, : r.shape[1] - lag]
        measured = np.einsum("ctp,ctq->cpq", late, early) / late.shape[1]
        error = measured.std(axis=0) / np.sqrt(len(r))
        assert (error / np.outer(size, size)).max() < 0.01
        assert (np.abs(measured.mean(axis=0) - expected) / error).max() < 5


def test_score_and_information_are_the_slope_and_mean_curvature_of_the_likelihood():
    """With the model itself for a periodogram the slope is zero and −∂²/∂g² the information."""
    rng, (m, bands, pairs, q) = np.random.default_rng(0), (6, 5, 3, 2)
    A = rng.normal(size=(m, bands, pairs, pairs)) + 1j * rng.normal(size=(m, bands, pairs, pairs))
    g, T, counts = rng.normal(size=(m, q)), A @ A.conj().swapaxes(2, 3), np.arange(1.0, bands + 1)
    waves = rng.normal(size=(bands, pairs * q, 20)) + 1j * rng.normal(size=(bands, pairs * q, 20))
    noisy = Whittle(waves @ waves.conj().swapaxes(1, 2), T, counts, {0: g[0]})

    def slope(fit, g, h=1e-5):
        e = h * np.eye(m * q).reshape(-1, m, q)[q:]
        return np.array([(fit.evidence(g + x) - fit.evidence(g - x)) / (2 * h) for x in e])

    np.testing.assert_allclose(noisy.derivatives(g)[0], slope(noisy, g), rtol=1e-5, atol=1e-5)
    model = sum(np.einsum("bps,i,j->bpisj", T[a], g[a], g[a]) for a in range(m))
    exact = Whittle(model.reshape(bands, pairs * q, -1), T, counts, {0: g[0]})
    e = 1e-4 * np.eye(m * q).reshape(-1, m, q)[q:]
    curvature = np.array([(slope(exact, g + x) - slope(exact, g - x)) / 2e-4 for x in e])
    information = exact.derivatives(g)[1]
    assert np.abs(curvature + information).max() < 0.01 * np.abs(information).max()


def spread_results(run):
    """(cosine, relative error of the size, whether the sign is claimed and right) of neighbours."""
    found, asked = [], 0
    for view, truth, i in beside(run):
        asked += 1
        got, g = estimates(Spread(), view, i), truth.at_optimum[i]
        if not got:
            continue
        signed = "gradient at optimum" in got
        value = got["gradient at optimum" + " up to sign" * (not signed)].value
        right = value @ g > 0 if signed else np.nan
        found.append((cosine(value, g), np.linalg.norm(value) / np.linalg.norm(g) - 1, right))
    return np.array(found), asked


@pytest.mark.parametrize("name", some(["PDG-DS", "lazy"]))
def test_one_curious_neighbour_reads_gradients_in_the_spread(name):
    found, asked = spread_results(long_run(name))
    good = (found[:, 0] >= 0.99) & (np.abs(found[:, 1]) <= 0.1)
    assert len(found) == asked
    assert good.all()
    if name == "PDG-DS":
        assert (found[:, 2] == 1).mean() > 0.8
        assert not (found[:, 2] == 0).any()
    else:
        assert np.isnan(found[:, 2]).all()  # the sign stays hidden


def test_spread_knows_what_it_does_not_know():
    """A short run: whatever is claimed is right, and little is."""
    run = recorded(FAMILY["PDG-DS"], 1, n=600)
    found, asked = spread_results(run)
    assert len(found) < asked
    assert (found[:, 0] > 0.95).all()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"split": hg.splits.private_constant()}, "splits do not fluctuate"),
        ({"split": hg.splits.isotropic()}, "splits do not fluctuate"),
        ({"stepsize": hg.stepsizes.constant(0.02, hg.stepsizes.none())}, "stepsizes do not keep"),
        (
            {"stepsize": hg.stepsizes.constant(0.02, hg.stepsizes.geometric(0.9, drawn="once"))},
            "stepsizes do not keep",
        ),
        ({"design": "recommended"}, "splits do not fluctuate"),
    ],
)
def test_spread_starves_where_nothing_fluctuates(options, reason):
    run = recorded(hg.PDGNDS(**{"stepsize": FIG3} | options), n=50)
    assert reason in Spread().applies(Knowledge.of(run, Curious({1})), 0)


@pytest.mark.slow  # long runs
def test_constant_splits_and_deviations_drawn_once_leave_only_rounding():
    once = hg.stepsizes.geometric(0.97, drawn="once")
    quiet = hg.PDGNDS(
        stepsize=hg.stepsizes.constant(0.02, once), split=hg.splits.private_constant()
    )
    size = {}
    for name, run in {"paper": long_run("lazy"), "quiet": recorded(quiet, n=2000)}.items():
        view, late = Knowledge.of(run, Curious({1})), slice(1500, 2000)
        r = fluctuations.seen(view, fluctuations.pairs_of(view))[late]
        size[name] = np.abs(fluctuations.without_course(r, late)).max()
    assert size["quiet"] < 3e-15
    assert size["paper"] > 1e5 * size["quiet"]


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILY)
def test_spread_study(name):
    """24 random problems and seeds on 5 graphs; every agent, from each single neighbour."""
    found, asked = zip(
        *(
            spread_results(recorded_trials(FAMILY[name], network(s), 20_000, 4, s))
            for s in range(6)
        ),
        strict=True,
    )
    found, asked = np.concatenate(found), sum(asked)
    signed = found[np.isfinite(found[:, 2])]
    good = (found[:, 0] >= 0.99) & (np.abs(found[:, 1]) <= 0.1)
    print(
        f"spread, {name}: {len(found)} of {asked} pairs claimed, cosine median "
        f"{np.median(found[:, 0]):.6f}, worst {found[:, 0].min():.4f}, size median "
        f"{np.median(np.abs(found[:, 1])):.4f}, worst {np.abs(found[:, 1]).max():.4f}, both within "
        f"0.99 and 10 % {good.mean():.4f}, signs claimed {len(signed)}, right "
        f"{int(signed[:, 2].sum())}"
    )
    assert len(found) > 0.9 * asked
    assert good.mean() > (0.9 if name == "square" else 0.98)
    assert signed[:, 2].sum() >= 0.99 * len(signed)
