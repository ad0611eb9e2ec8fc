"""Certificates: conditions on both sides of their borders, and never a false "proven"."""

import json
import tomllib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import hushgrad as hg
from hushgrad.cli import app
from hushgrad.schema.toml import to_toml
from hushgrad.stepsizes import Constant, Harmonic
from hushgrad.studies.study import load_study
from hushgrad.theory import theorem3
from hushgrad.theory.series import theorem_1_series, theorem_3_series

NETWORK = hg.Network(hg.graphs.paper())
PROBLEM = hg.problems.estimation(seed=0)

powers = st.floats(0.05, 3.0)


# ---- series: the sums themselves are the oracle


def grows(terms):
    """Whether partial sums keep growing: the last of three decades adds as much as the others."""
    n = np.geomspace(1e3, 1e12, 10)
    # Σ over a decade of n^−s is ∫: its ratio to the decade before is 10^(1−s)
    return terms(n[-1]) * n[-1] >= terms(n[0]) * n[0] * (1 - 1e-9)


@given(powers, powers)
def test_theorem_1_is_decided_on_both_sides_of_each_condition(p, q):
    schedule = hg.stepsizes.diminishing(power=p, deviation=hg.stepsizes.harmonic(q))
    total, square, spread = theorem_1_series(schedule, 5)
    assert total.holds == grows(lambda n: n**-p)
    assert square.holds == (not grows(lambda n: n ** (-2 * p)))
    assert spread.holds == (not grows(lambda n: n ** (-p - q)))
    fails = schedule.theorem_1()
    assert (not fails) == all(a.holds for a in (total, square, spread))


@given(powers, st.sampled_from(["each", "once"]))
def test_theorem_3_series_are_decided_on_both_sides(q, drawn):
    schedule = hg.stepsizes.constant(0.1, hg.stepsizes.harmonic(q, drawn=drawn))
    total, change, spread, limit = theorem_3_series(schedule, 5)
    assert total.holds
    assert limit.holds
    assert spread.holds == (not grows(lambda n: n ** (-2 * q)))
    assert change.holds == (drawn == "once" or not grows(lambda n: n ** (-2 * q)))


def test_a_schedule_of_a_users_own_class_is_not_decided():
    class Mine(Constant):
        def base(self, n):
            return 1.0 / n

    class Odd(Harmonic):
        pass

    for schedule in (Mine(value=1.0), hg.stepsizes.constant(0.1, Odd())):
        for series in (theorem_1_series, theorem_3_series):
            assert [a.holds for a in series(schedule, 3)] == [None] * len(series(schedule, 3))
        for algorithm in (hg.PDGDS, hg.PDGNDS, hg.EXTRA):
            assert not hg.certify(algorithm(stepsize=schedule), PROBLEM, NETWORK).is_proven


# ---- Theorem 3


@settings(max_examples=25)
@given(
    st.floats(1e-8, 0.5),
    st.floats(0.1, 50),
    st.integers(2, 40),
    st.floats(0, 0.99),
    st.floats(0.1, 2),
)
def test_theorem_3_holds_exactly_where_some_delta_and_c_satisfy_it(lam, L, m, eta, r):
    got = theorem3.inequalities(lam, L=L, m=m, eta=eta, r=r).hold
    norm2 = m * lam * lam
    grid = np.linspace(0.0005, 0.9995, 400)
    delta, c = np.meshgrid(grid, grid)
    some = (
        (2 * L * lam / m <= 1 - eta)
        & (lam * L <= delta / (1 + delta))
        & (eta + 6 * m**2 * L**2 * norm2 / (1 - eta) <= c)
        & (6 * L**2 * norm2 * np.maximum(m**2 * r**2 / (1 - delta), m**3)
           <= (1 - eta) ** 3 * (1 - c))
    ).any()  # fmt: skip
    if some:
        assert got
    largest = theorem3.largest_stepsize(L=L, m=m, eta=eta, r=r)
    assert got == (lam <= largest) or abs(lam / largest - 1) < 1e-9


def test_the_papers_figure_3_misses_the_condition_and_converges():
    for form in ("lazy", "square"):
        found = hg.certify(hg.PDGNDS(form=form), PROBLEM, NETWORK)
        assert not found.is_proven
        assert found.verdict.startswith("sufficient condition not met (by the factor ")
        assert "spectral radius 0.98" in found.verdict
        assert ": converges" in found.verdict
        assert found.converges


def test_a_stepsize_within_theorem_3_is_proven_and_a_larger_one_is_not():
    eta, W = NETWORK.eta, NETWORK.matrix()
    r = np.linalg.norm(W - np.eye(5), 2)
    largest = theorem3.largest_stepsize(L=PROBLEM.smoothness(), m=5, eta=eta, r=r)
    for ratio, proven in ((0.99, True), (1.01, False)):
        lam = hg.stepsizes.constant(ratio * largest)
        found = hg.certify(hg.PDGNDS(form="square", stepsize=lam), PROBLEM, NETWORK)
        assert found.is_proven == proven
        assert found.verdict.startswith("proven by Theorem 3") == proven


# ---- what no theorem covers


def test_masks_splits_and_losses_that_no_theorem_covers_are_never_proven():
    tiny = hg.stepsizes.constant(1e-6)
    assert hg.certify(hg.PDGNDS(stepsize=tiny), PROBLEM, NETWORK).is_proven
    for algorithm in (
        hg.PDGNDS(stepsize=tiny, design="recommended"),
        hg.PDGNDS(stepsize=tiny, split=hg.splits.isotropic()),
        hg.PDGDS(masks=hg.masks.zero_sum()),
    ):
        assert not hg.certify(algorithm, PROBLEM, NETWORK).is_proven
    mine = hg.Problem(lambda theta, p: ((theta - p) ** 2).sum(), np.eye(5)[:, :2])
    found = hg.certify(hg.PDGDS(), mine, NETWORK)
    assert not found.is_proven
    assert any("lower bound of L" in line.text for line in found.lines)
    bent = hg.Problem(
        lambda theta, p: ((theta - p) ** 2).sum() - 0.2 * (theta**2).sum() * p[0], np.ones((5, 2))
    )
    assert hg.certify(hg.PDGDS(), bent, NETWORK).is_proven is False


def test_a_bias_of_dgd_is_the_distance_at_which_a_run_stops():
    algorithm = hg.DGD(stepsize=hg.stepsizes.constant(0.02))
    found = hg.certify(algorithm, PROBLEM, NETWORK)
    with pytest.warns(hg.errors.RiskWarning):
        run = hg.run(algorithm, PROBLEM, NETWORK, iterations=1200, engine="agents")
    text = next(line.text for line in found.lines if line.about == "bias")
    assert f"ends {run.error[0, -1]:.3g} off" in text


# ---- what people see


def test_every_line_cites_what_it_rests_on_and_json_has_them_all():
    found = hg.certify(hg.PDGNDS(stepsize="auto"), PROBLEM, NETWORK)
    assert all(line.cites for line in found.lines)
    document = found.to_json()
    assert json.loads(json.dumps(document))["verdict"] == found.verdict
    assert len(document["lines"]) == len(found.lines)
    assert str(found).count("\n") == len(found.lines)


STUDY = """
[network]
graph = "ring"
n_agents = 5
[problem]
kind = "estimation"
[[algorithm]]
name = "PDGNDS"
stepsize = "auto"
[[algorithm]]
name = "PDGDS"
stepsize = "auto"
[run]
iterations = 300
"""


def call(*arguments, code=0):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, result.output
    return result


def test_the_command_certifies_every_algorithm_of_a_study(tmp_path):
    study = tmp_path / "study.toml"
    study.write_text(STUDY)
    text = call("certify", study).stdout
    assert "PDG-NDS: sufficient condition not met (by the factor" in text
    assert "PDG-DS: proven by Theorem 1" in text
    document = json.loads(call("certify", study, "--format", "json").stdout)
    assert [c["proven"] for c in document["certificates"]] == [False, True]
    proposals = json.loads(call("certify", study, "--design", "--format", "json").stdout)
    names = [p["name"] for p in proposals["proposals"]]
    assert len(names) == 3
    masked = next(p for p in proposals["proposals"] if p["name"].startswith("recommended"))
    assert masked["exposed"] == []
    assert all(p["exposed"] for p in proposals["proposals"] if p is not masked)
    assert "rounds" in call("certify", study, "--design").stdout


def test_the_tables_of_a_proposal_make_a_study_with_that_design(tmp_path):
    study = tmp_path / "study.toml"
    study.write_text(STUDY)
    document = json.loads(call("certify", study, "--design", "--format", "json").stdout)
    text = call("certify", study, "--design").stdout
    of_study = tomllib.loads(STUDY)
    for proposal in document["proposals"]:
        tables = proposal["study"]
        shown = to_toml({"algorithm": tables["algorithm"]}).splitlines()
        assert all(line in text for line in shown)
        study.write_text(to_toml({
            **of_study, **tables, "network": of_study["network"] | tables["network"],
        }))  # fmt: skip
        (found,) = json.loads(call("certify", study, "--format", "json").stdout)["certificates"]
        assert found["iterations"] == pytest.approx(proposal["iterations"])
        (built,) = load_study(study).build().algorithms.values()
        for name, part in (("split", built.splitting), ("masks", built.masking)):
            assert repr(part) == proposal[name]
        assert repr(built.schedule.deviation) == proposal["deviation"]


def test_a_design_without_a_linear_rate_says_so(tmp_path):
    """Five agents see five of six directions."""
    study = tmp_path / "study.toml"
    few = 'kind = "estimation"\ns = 1\nd = 6\nregularisation = 0'
    study.write_text(STUDY.replace('kind = "estimation"', few))
    text = call("certify", study, "--design").stdout
    assert "no linear rate, so no number of rounds is known" in text


def test_a_network_with_links_in_one_direction_has_no_designs(tmp_path):
    study = tmp_path / "study.toml"
    study.write_text(STUDY.replace('"ring"', '"random_directed"\ndegree = 2'))
    study.write_text(study.read_text().replace("PDGNDS", "PushPull").replace("PDGDS", "ADDOPT"))
    assert "links in both directions" in call("certify", study, "--design", code=2).stderr


def test_rounds_without_design_are_refused(tmp_path):
    study = tmp_path / "study.toml"
    study.write_text(STUDY)
    assert "comes without --design" in call("certify", study, "--rounds", 9, code=2).stderr


def test_a_wrong_stepsize_in_a_study_names_auto_as_a_way_out(tmp_path):
    study = tmp_path / "study.toml"
    study.write_text(STUDY.replace('"auto"', '"fast"', 1))
    assert 'or "auto"' in call("certify", study, code=2).stderr
