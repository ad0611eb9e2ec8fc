"""Attacks on masks: first messages, structure of Hessians, membership of a row, repeated runs.

Each attack gets what its derivation says, and no more than its formula says.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.errors import InputError
from hushgrad.privacy import Curious, Eavesdropper, Knowledge, Truth
from hushgrad.privacy.attacks import masked, membership
from hushgrad.privacy.attacks.first_message import FirstMessage, fitted_rho, steps
from hushgrad.privacy.attacks.masked import ShareSizes, component, honest_laplacian
from hushgrad.privacy.attacks.membership import Membership
from hushgrad.privacy.attacks.structured_hessian import (
    Pool,
    StructuredHessian,
    positive,
    structured,
)
from hushgrad.privacy.lab import Lab
from hushgrad.privacy.page import page
from hushgrad.privacy.result import Audit
from hushgrad.privacy.rows import n_rows, suspicions
from hushgrad.privacy.verdict import advantage
from support import cases
from support.private_runs import recorded

S = hg.stepsizes
ONCE = S.geometric(0.5, drawn="once")
COUNTS = (6, 9, 12, 20)
RNG = np.random.default_rng(0)
X = [RNG.normal(size=(n, 3)) for n in COUNTS]
Y = [x @ np.ones(3) + 0.3 * RNG.normal(size=len(x)) for x in X]
RIDGE = hg.problems.ridge(X, Y)
ONE_LESS = hg.problems.ridge([X[0][:-1], *X[1:]], [Y[0][:-1], *Y[1:]])
NETWORK = hg.Network(hg.graphs.complete(4))
LAM = 0.2 * (1 - NETWORK.eta) / RIDGE.smoothness()


# the parts of the recommended design without its stages: sizes of masks follow the stepsize alone
PARTS = {
    "split": hg.splits.private_constant(own=0.45),
    "deviation": S.geometric(0.5, drawn="once"),
}


def record(problem=RIDGE, network=NETWORK, *, lam=LAM, n=300, seed=0, x0=None, **design):
    schedule = S.constant(lam, deviation=design.pop("deviation", None))
    algorithm = hg.PDGNDS(stepsize=schedule, **(design or {"design": "recommended"}))
    return recorded(algorithm, problem, network, iterations=n, seed=seed, x0=x0)


def sine(u, v):
    u, v = u / np.linalg.norm(u), v / np.linalg.norm(v)
    return np.linalg.norm(u - (u @ v) * v)


# ---- the first message


@pytest.mark.parametrize("split", [hg.splits.fresh(), hg.splits.private_constant()])
@pytest.mark.parametrize("name", ["PDGDS", "PDGNDS"])
def test_one_message_from_a_known_start_tells_the_direction_of_the_first_gradient(name, split):
    problem, network = cases.Quadratics(by_hand=True).problem, cases.undirected()
    algorithm = getattr(hg, name)(split=split)
    run = hg.run(algorithm, problem, network, iterations=3, transcript=True, engine="agents")
    truth = Truth(run)
    for i, j in ((6, 1), (0, 3), (4, 5)):  # a leaf, a hub, one between
        view = Knowledge.of(run, Curious({j}))
        (found,) = FirstMessage()(view, i)
        assert found.quantity == "direction"
        g = truth.gradients(i)[0]
        assert sine(found.value[0], g) < 1e-12
        assert found.value[0] @ g > 0
    audit = hg.audit(run, "neighbour", coalitions=False)
    assert {f.verdict for f in audit.findings} == {"direction exposed"}


def test_a_start_that_members_share_is_taken_out_and_one_that_nobody_knows_hides_the_step():
    same = np.tile([1.0, -2.0, 0.5], (4, 1))
    constant = {"split": hg.splits.private_constant()}
    known = record(n=3, x0=same, **constant)
    (found, *_) = FirstMessage()(Knowledge.of(known, Curious({1, 2})), 0)
    assert sine(found.value[0], Truth(known).gradients(0)[0]) < 1e-9
    own = record(n=3, x0=100 * np.random.default_rng(1).normal(size=(4, 3)), **constant)
    (lost, *_) = FirstMessage()(Knowledge.of(own, Curious({1})), 0)
    assert sine(lost.value[0], Truth(own).gradients(0)[0]) > 0.01


def test_what_carries_no_share_along_the_step_is_refused():
    view = Knowledge.of(record(n=3, split=hg.splits.isotropic()), Eavesdropper())
    assert "do not point along" in FirstMessage().applies(view, 0)
    view = Knowledge.of(record(n=3, form="square"), Eavesdropper())
    assert "square" in FirstMessage().applies(view, 0)
    few = Eavesdropper([(1, 0), (0, 1)])
    assert "hears nothing" in FirstMessage().applies(Knowledge.of(record(n=3), few), 2)


@pytest.mark.parametrize("d", [1, 3])
def test_all_links_give_the_first_gradient_with_its_size_by_the_fitted_deviation(d):
    problem, network = cases.Quadratics(d=d, by_hand=True).problem, cases.undirected()
    hidden = {"split": hg.splits.private_constant(own=0.45)}
    algorithm = hg.PDGNDS(stepsize=S.constant(0.1, ONCE), **hidden)
    run = hg.run(algorithm, problem, network, iterations=150, transcript=True, engine="agents")
    view, truth = Knowledge.of(run, Eavesdropper()), Truth(run)
    for i in (0, 1, 2, 3):
        x, h = steps(view, i, 60)
        np.testing.assert_allclose(x, truth.x[:60, i], atol=1e-9)
        np.testing.assert_allclose(h, truth.h(i)[:60], atol=1e-9)
        rho, residual = fitted_rho(view, x, h)
        assert residual < 1e-8
        assert 0.1 * (1 - rho / 2) == pytest.approx(truth.lam(i)[0], rel=1e-6)
        found = {e.quantity: e for e in FirstMessage()(view, i)}
        g = truth.gradients(i)[0]
        np.testing.assert_allclose(found["gradient"].value[0], g, rtol=1e-5, atol=1e-9)
    leaf = FirstMessage()(view, 6) if d > 1 else ()  # one receiver: no size
    assert all(e.quantity == "direction" for e in leaf)
    assert d > 1 or "2 needed" in FirstMessage().applies(view, 6)


def test_where_no_quadratic_fits_the_deviation_stays_open():
    labels = [np.sign(y) for y in Y]
    problem = hg.problems.logistic(X, labels)
    run = record(problem, lam=0.05, n=100, split=hg.splits.private_constant())
    assert {e.quantity for e in FirstMessage()(Knowledge.of(run, Eavesdropper()), 0)} == {
        "direction"
    }


def test_masks_longer_than_the_gradient_leave_the_first_message_nothing_to_claim():
    run = record()
    assert FirstMessage()(Knowledge.of(run, Eavesdropper()), 0) == ()
    all_partners = {e.quantity: e for e in FirstMessage()(Knowledge.of(run, Curious({1, 2, 3})), 0)}
    g = Truth(run).gradients(0)[0]
    np.testing.assert_allclose(all_partners["gradient"].value[0], g, rtol=1e-6)


# ---- masks of honest pairs


def test_the_inner_product_is_that_of_the_inverse_covariance_of_a_share():
    rng, d = np.random.default_rng(0), 3
    upper = np.triu_indices(d)
    u = np.concatenate([np.zeros(d), 1.0 * (upper[0] == upper[1])])
    covariance = np.diag([4.0] * d + [0.25] * 6) + 0.49 * np.outer(u, u)

    def flat(a):
        return np.concatenate([a[:, -1], a[:, :-1][upper]])

    def random():
        H = rng.normal(size=(d, d))
        return np.column_stack([H + H.T, rng.normal(size=d)])

    a, b = random(), random()
    direct = flat(a) @ np.linalg.solve(covariance, flat(b))
    assert ShareSizes(2.0, 0.5, 0.7).inner(a, b) == pytest.approx(direct)
    assert ShareSizes(2.0, 0.0, 0.0).inner(a, a) == math.inf
    assert ShareSizes(0.0, 0.0, 0.0).inner(0 * a, 0 * a) == 0.0


def test_honest_pairs_are_what_is_left_of_the_mask_graph():
    view = Knowledge.of(record(n=3), Curious({2}))
    honest, L = honest_laplacian(view)
    assert honest == [0, 1, 3]
    np.testing.assert_array_equal(L, 3 * np.eye(3) - 1)
    assert component(np.diag([1.0, 1.0, 0.0]) - np.eye(3)[[1, 0, 2]] * [1, 1, 0], 0) == [0, 1]


# ---- membership


def test_rows_add_up_to_the_objective_and_padding_is_no_row():
    assert [n_rows(RIDGE, i) for i in range(4)] == list(COUNTS)
    estimation = hg.problems.estimation_from(X, Y, sigma=0)
    for problem in (hg.problems.ridge(X, Y, regularisation=0), estimation):
        for i, one in suspicions(problem).items():
            assert len(one.rows) == COUNTS[i]
            np.testing.assert_allclose(one.rows.sum(axis=0), one.objective, rtol=1e-9, atol=1e-9)
    assert n_rows(hg.problems.rendezvous(n_agents=3), 0) is None
    assert suspicions(hg.problems.logistic(X, [np.sign(y) for y in Y])) == {}


def played(monkeypatch, view, sizes, draws, *, heard, is_members):
    """ℓ and μ of the test for agent 0 in worlds where its worst row is its own, or agent 1's."""
    rng = np.random.default_rng(5)
    d, upper = view.dim, np.triu_indices(view.dim)
    honest, L = honest_laplacian(view)
    row = max(view.suspects[0].rows, key=lambda row: sizes.inner(row, row))
    found = []
    for _ in range(draws):
        y = {i: view.suspects[i].objective.copy() for i in honest}
        if not is_members:
            y[0] -= row
            y[1] += row
        for a, i in enumerate(honest):
            for b in range(a):
                if L[a, b]:
                    Q = np.zeros((d, d))
                    Q[upper] = sizes.white * rng.normal(size=len(upper[0]))
                    Q += Q.T - np.diag(np.diag(Q)) + sizes.identity * rng.normal() * np.eye(d)
                    share = np.column_stack([Q, sizes.linear * rng.normal(size=d)])
                    y[i] += share
                    y[honest[b]] -= share
        monkeypatch.setattr(
            membership, "masked_objective", lambda _, i, y=y: y[i] if i in heard else None
        )
        (estimate,) = Membership()(view, 0)
        found.append(estimate.value)
    ratios, mus = np.array(found).T
    assert np.ptp(mus) == 0
    return ratios, mus[0]


def check_membership(monkeypatch, draws, heard):
    view = replace(
        Knowledge.of(record(n=3), Curious({3})), suspects=suspicions(RIDGE)
    )  # honest 0, 1, 2: a triangle of masks
    sizes = ShareSizes(3.0, 4.0, 2.0)
    monkeypatch.setattr(ShareSizes, "of", staticmethod(lambda view: sizes))
    own, mu = played(monkeypatch, view, sizes, draws, heard=heard, is_members=True)
    other, _ = played(monkeypatch, view, sizes, draws, heard=heard, is_members=False)
    row = max(view.suspects[0].rows, key=lambda row: sizes.inner(row, row))
    resistance = 2 / 3 if len(heard) == 3 else 1 / 2  # of a triangle's side; of two partners
    assert mu == pytest.approx(math.sqrt(resistance * sizes.inner(row, row)))
    slack = 4 / math.sqrt(draws)
    for ratios, sign in ((own, 1), (other, -1)):
        assert ratios.mean() == pytest.approx(sign * mu**2 / 2, abs=slack * mu)
        assert ratios.std() == pytest.approx(mu, rel=slack)
    best = (own > 0).mean() - (other > 0).mean()
    assert best == pytest.approx(advantage(mu), abs=slack)
    thresholds = np.quantile(np.concatenate([own, other]), np.linspace(0, 1, 101))
    curve = [(own > t).mean() - (other > t).mean() for t in thresholds]
    assert max(curve) < advantage(mu) + slack  # no threshold beats the formula
    return mu


@pytest.mark.parametrize("heard", [{0, 1, 2}, {0}], ids=["component", "target alone"])
def test_the_likelihood_ratio_test_has_the_advantage_of_its_formula(monkeypatch, heard):
    mu = check_membership(monkeypatch, 400, heard)
    assert 0.5 < mu < 5  # a question that is neither settled nor hopeless


@pytest.mark.slow
def test_the_likelihood_ratio_test_has_the_advantage_of_its_formula_closely(monkeypatch):
    check_membership(monkeypatch, 10_000, {0, 1, 2})


def test_an_agent_without_honest_partner_and_one_without_masks_hide_no_row():
    for run, adversary in (
        (record(), Curious({1, 2, 3})),
        (record(split=hg.splits.private_constant()), Eavesdropper()),
    ):
        (found,) = hg.audit(run, adversary, agents=[0], coalitions=False).findings
        (bit,) = [e for e in found.evidence if e.quantity == "membership"]
        assert (bit.error, bit.counts) == (0.0, True)


# ---- the structure of Hessians


def gram(rng, n, d):
    rows = rng.normal(size=(n, d))
    return rows.T @ rows


def masked_hessian(rng, H, partners, sizes):
    d = len(H)
    upper = np.triu_indices(d)
    for _ in range(partners):
        Q = np.zeros((d, d))
        Q[upper] = sizes.white * rng.normal(size=len(upper[0]))
        H = H + Q + Q.T - np.diag(np.diag(Q)) + sizes.identity * rng.normal() * np.eye(d)
    return H


def relative(A, B):
    return np.linalg.norm(A - B) / np.linalg.norm(B)


def test_white_masks_give_the_number_of_rows_away_and_masks_of_the_identity_do_not():
    """d = 20: masks as large as the Hessian as an operator tell n_i to a few percent."""
    rng, d, n, partners = np.random.default_rng(0), 20, 120, 2
    pool = Pool(100.0 * np.eye(d), 100.0)
    for identity in (0.0, 160.0):
        sizes, errors, predicted = ShareSizes(1.0, 160 / math.sqrt(d), identity), [], []
        for _ in range(200):
            seen = masked_hessian(rng, gram(rng, n, d), partners, sizes)
            found = structured(seen, partners, sizes, pool)
            errors.append(found.count / n - 1)
            predicted.append(found.count_error * abs(found.count) / n)
        spread = np.sqrt(np.mean(np.square(errors)))
        mask = math.sqrt(partners * (sizes.white**2 / d + identity**2)) / n
        assert spread == pytest.approx(math.hypot(mask, math.sqrt(2 / n / d)), rel=0.2)
        assert spread > 1 if identity else spread < 0.12
        assert np.median(predicted) == pytest.approx(spread, rel=0.25)


@pytest.mark.parametrize("white", [0.3, 3.0, 30.0])
def test_shrinkage_is_better_than_what_was_seen_and_than_what_is_usual(white):
    rng, d, n = np.random.default_rng(1), 4, 25
    pool, sizes = Pool(20.0 * np.eye(d), 20.0), ShareSizes(1.0, white, 0.0)
    errors = {"found": [], "seen": [], "usual": [], "predicted": []}
    for _ in range(300):
        H = gram(rng, n, d)
        seen = masked_hessian(rng, H, 1, sizes)
        found = structured(seen, 1, sizes, pool)
        errors["found"].append(relative(found.hessian, H) ** 2)
        errors["seen"].append(relative(seen, H) ** 2)
        errors["usual"].append(relative(found.count / 20 * pool.mean, H) ** 2)
        errors["predicted"].append(found.error)
    found, seen, usual = (math.sqrt(np.mean(errors[name])) for name in ("found", "seen", "usual"))
    assert found < 1.02 * min(seen, usual)
    assert np.median(errors["predicted"]) == pytest.approx(found, rel=0.35)


def test_the_projection_is_positive_and_nearer_to_every_hessian():
    rng = np.random.default_rng(2)
    for _ in range(50):
        H = gram(rng, 3, 4)
        seen = masked_hessian(rng, H, 1, ShareSizes(1.0, 3.0, 0.0))
        near = positive(seen)
        assert np.linalg.eigvalsh(near)[0] > -1e-9
        assert relative(near, H) <= relative(seen, H) + 1e-12


def test_without_a_pool_the_projection_is_all_and_singular_pools_do_no_harm():
    seen = np.diag([3.0, -1.0])
    alone = structured(seen, 1.0, ShareSizes(1.0, 0.01, 0.0), None)
    np.testing.assert_allclose(alone.hessian, np.diag([3.0, 0.0]), atol=1e-12)
    assert alone.count is None
    for mean in (np.zeros((2, 2)), np.full((2, 2), np.nan), np.ones((2, 2))):
        found = structured(seen, 1.0, ShareSizes(1.0, 0.01, 0.1), Pool(mean, 5.0))
        assert np.isfinite(found.hessian).all()


@pytest.mark.filterwarnings("ignore::hushgrad.errors.RiskWarning")
def test_small_masks_expose_the_hessian_and_the_number_of_rows_in_a_run():
    rng, counts = np.random.default_rng(3), (300, 500, 900, 1400)
    rows = [rng.normal(size=(n, 3)) for n in counts]
    problem = hg.problems.ridge(rows, [r @ np.ones(3) + rng.normal(size=len(r)) for r in rows])
    lam = 0.2 / problem.smoothness()
    masks = hg.masks.zero_sum(linear=1.0, quadratic=0.0005)
    run = record(problem, lam=lam, masks=masks, **PARTS)
    audit = hg.audit(run, "eavesdropper", coalitions=False, attacks=[StructuredHessian()])
    counting = {(f.agent, e.quantity) for f in audit.findings for e in f.evidence if e.counts}
    assert counting == {(i, quantity) for i in range(4) for quantity in ("curvature", "count")}
    assert {f.verdict for f in audit.findings} == {"exposed"}
    equal = hg.problems.ridge([r[:300] for r in rows], [np.ones(300)] * 4)
    again = record(equal, lam=lam, masks=masks, **PARTS)
    (found, *_) = hg.audit(again, "eavesdropper", attacks=[StructuredHessian()]).findings
    (count,) = [e for e in found.evidence if e.quantity == "count"]
    assert count.error < 0.1
    assert not count.counts  # everyone has as many: no secret


# ---- repeated runs


def errors_of(runs, who="eavesdropper", agent=0):
    audit = hg.audit_repeated(runs, who, agents=[agent])
    (finding,) = audit.findings
    assert not finding.failed
    return audit, {(e.attack.split()[0], e.quantity): e.error for e in finding.evidence}


def test_the_same_masks_on_changed_data_expose_the_change_and_the_row():
    first = record()
    audit, errors = errors_of([first, record(ONE_LESS)])
    assert audit.findings[0].verdict == "exposed"
    assert errors["difference", "change"] < 1e-6
    assert errors["difference", "row"] < 1e-6
    assert "2 runs" in str(audit)
    assert "difference of runs" in page([audit])
    assert Audit.from_json(audit.to_json()) == audit
    again, errors = errors_of([first, record(ONE_LESS, seed=1)])
    assert again.findings[0].exposure == "not recovered"
    assert errors["difference", "change"] > 10


def test_the_same_masks_at_another_stepsize_expose_the_objective():
    masked = {"masks": hg.masks.zero_sum(quadratic=0.1), **PARTS}
    first, second, other = (
        record(lam=lam, seed=seed, **masked)
        for lam, seed in ((LAM, 0), (0.5 * LAM, 0), (0.5 * LAM, 1))
    )
    audit, errors = errors_of([first, second])
    assert audit.findings[0].verdict == "exposed"
    assert errors["same", "objective"] < 1e-6
    _, errors = errors_of([first, other])
    assert errors["same", "objective"] > 1


def test_equal_runs_tell_nothing_new():
    run = record()
    audit, errors = errors_of([run, run])
    once = hg.audit(run, "eavesdropper", agents=[0], coalitions=False, attacks=[Membership()])
    assert set(errors) == {("membership", "membership")}
    assert errors["membership", "membership"] == once.findings[0].evidence[0].error
    assert audit.findings[0].refused["average of runs"] == "these runs give nothing to combine"


@pytest.mark.slow
def test_the_error_of_an_average_falls_with_the_root_of_the_number_of_runs():
    """The part of a mask in the identity is one number, so few averages would scatter widely."""
    errors = []
    for seed in range(5000, 5096):
        lab = Lab(record(seed=seed, n=150), trial=0, attacks=(), at=None)
        view = lab.view(Eavesdropper())
        errors.append(
            [masked.masked_objective(view, i)[:, :-1] - lab.truth.hessian(i) for i in (0, 2)]
        )
    one = np.array(errors)
    averages = one.reshape(12, 8, *one.shape[1:]).mean(axis=1)
    ratio = math.sqrt((one**2).mean() / (averages**2).mean())
    assert ratio == pytest.approx(math.sqrt(8), rel=0.25)


def test_ratios_of_independent_masks_add_up():
    runs = [record(seed=s) for s in range(3)]
    once = hg.audit(runs[0], "eavesdropper", agents=[0], coalitions=False, attacks=[Membership()])
    one = once.findings[0].evidence[0].error
    _, errors = errors_of(runs)
    mu = next(m for m in np.linspace(0, 5, 50_001) if advantage(m) >= 1 - one)
    assert 1 - errors["membership", "membership"] == pytest.approx(
        advantage(math.sqrt(3) * mu), rel=1e-2
    )


def test_repeated_runs_are_several_of_the_same_agents():
    run = record(n=3)
    with pytest.raises(InputError, match="two or more"):
        hg.audit_repeated([run])
    other = hg.run(hg.DGD(), RIDGE, NETWORK, iterations=3, transcript=True, engine="agents")
    with pytest.raises(InputError, match="algorithm is PDGNDS in run 0 and DGD in run 1"):
        hg.audit_repeated([run, other])
    (finding,) = hg.audit_repeated([other, other], "eavesdropper", agents=[0]).findings
    assert finding.verdict == "no attack applies"
