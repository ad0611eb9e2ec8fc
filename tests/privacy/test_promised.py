"""An audit shows what the masks of a run promise, next to what attacks found."""

import math

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.agent.masking import mask_sizes
from hushgrad.privacy.page import page
from hushgrad.privacy.promised import largest_row, promises
from hushgrad.privacy.result import Audit

pytestmark = pytest.mark.filterwarnings("ignore::hushgrad.errors.RiskWarning")

NETWORK = hg.Network(hg.graphs.ring(5))
RNG = np.random.default_rng(0)
X = [RNG.normal(size=(n, 2)) for n in (4, 6, 3, 5, 4)]
Y = [x @ np.ones(2) + 0.1 * RNG.normal(size=len(x)) for x in X]
RIDGE = hg.problems.ridge(X, Y)
STEP = hg.stepsizes.constant(0.05 / RIDGE.smoothness())
WHO = [hg.Eavesdropper(), hg.Curious({1}), hg.Curious({0, 1, 3, 4})]


@pytest.fixture(scope="module")
def run():
    return hg.run(
        hg.PDGNDS(stepsize=STEP, design="recommended"), RIDGE, NETWORK, iterations=60,
        engine="agents", transcript=True,
    )  # fmt: skip


def test_an_audit_promises_what_the_formula_says_about_its_largest_row(run):
    promised = promises(run, 0, WHO, range(5))
    norm = max(np.linalg.norm(x, axis=1).max() for x in X)
    target = max(np.abs(y).max() for y in Y)
    sizes = mask_sizes(run.algorithm, NETWORK, 2, float(run.mask_scale[0]))
    unit = math.hypot(norm * target / sizes.linear, norm**2 / sizes.quadratic)
    outsider, one, four = promised.lines
    assert outsider.mu == pytest.approx(unit * math.sqrt(2 / 5), rel=1e-9)  # all pairs are partners
    assert one.mu == pytest.approx(unit * math.sqrt(2 / 4), rel=1e-9)
    assert (four.mu, four.epsilon, four.advantage, four.hidden_among) == (None, None, 1.0, 1)
    assert [line.adversary for line in promised.lines] == [
        "outsider", "agent 1", "agents 0, 1, 3, 4",
    ]  # fmt: skip
    assert f"‖x‖ = {norm:.3g} and |y| = {target:.3g}" in promised.bound


def test_the_promise_is_on_the_page_and_in_the_json(run):
    audit = hg.audit(run, WHO[:2], agents=[0, 2], attacks=[], coalitions=False)
    assert Audit.from_json(audit.to_json()) == audit
    text = page([audit])
    assert "What the masks promise" in text
    for line in audit.promised.lines:
        assert f"{line.mu:.3g}" in text
    assert audit.promised.bound in text


def test_runs_without_masked_statistics_and_data_without_rows_promise_nothing(run):
    paper = hg.run(hg.PDGNDS(stepsize=STEP), RIDGE, NETWORK, iterations=20, engine="agents")
    assert promises(paper, 0, WHO, range(5)) is None
    assert "What the masks promise" not in page([hg.audit(paper, "eavesdropper", attacks=[])])
    assert largest_row(hg.problems.rendezvous()) is None


def test_the_largest_row_counts_no_padding_and_every_kind_has_its_bound():
    logistic = hg.problems.logistic(X, [np.sign(y) for y in Y])
    huber = hg.problems.huber(X, Y, delta=0.2)
    norm = max(np.linalg.norm(x, axis=1).max() for x in X)
    target = max(np.abs(y).max() for y in Y)
    assert largest_row(logistic)[0] == hg.theory.logistic_row(norm)
    assert largest_row(huber)[0] == hg.theory.huber_row(norm, target, 0.2)
