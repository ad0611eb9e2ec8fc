"""The paper's figures have the paper's setting, its claims hold, and the demo writes both."""

import json
import platform
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

import hushgrad as hg
from hushgrad import paper
from hushgrad.cli import app
from hushgrad.simulate.result import Comparison

FEW = 4  # trials of a test that needs no statistics


@pytest.fixture(scope="module")
def fig2():
    return paper.fig2()


@pytest.fixture(scope="module")
def fig3():
    return paper.fig3(trials=FEW)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The directory of a small demo, its return value, and its calls of the progress callback."""
    out = tmp_path_factory.mktemp("demo") / "new"
    told: list[tuple[int, int]] = []
    content = paper.demo(out, trials=FEW, progress=lambda *now: told.append(now))
    return out, content, told


def changed(comparison, label, **changes):
    return Comparison(
        tuple(replace(r, **changes) if r.label == label else r for r in comparison.runs)
    )


def claim(found, words):
    (record,) = (record for sentence, record in found.items() if words in sentence)
    return record


# ---- the paper's figures


def test_pdg_ds_ends_below_dgd_in_95_of_100_random_problems(fig2):
    ours, dgd = fig2["PDG-DS"], fig2["DGD"]
    assert ours.error.shape[0] == dgd.error.shape[0] == 100
    assert ours.iterations[-1] == dgd.iterations[-1] == 1000
    assert (ours.error[:, -1] < dgd.error[:, -1]).sum() >= 95


def test_pdg_ds_ends_below_pdg_ds_with_identity_split_in_95_of_100_random_problems(fig2):
    assert (fig2["PDG-DS"].error[:, -1] < fig2["PDG-DS, B=I"].error[:, -1]).sum() >= 95


def test_the_labels_are_the_papers(fig2, fig3):
    assert [r.label for r in fig2] == ["PDG-DS", "PDG-DS, B=I", "DGD"]
    assert [r.label for r in fig3] == ["PDG-NDS", "DIGing", "Push-Pull", "ADD-OPT"]


def test_every_trial_is_a_problem_of_its_own_and_all_methods_share_it(fig2, fig3):
    assert len(np.unique(fig2["DGD"].solution[:, 0])) == 100
    for run in fig3:
        np.testing.assert_array_equal(run.solution, fig2["DGD"].solution[:FEW])


def recursion(trial):
    """W, the gradients and θ* of a trial, straight from its numbers."""
    data = hg.problems.estimation(n_agents=5, s=3, d=2, seed=0, trials=trial + 1).data
    M, z, sigma = (np.asarray(data[name])[trial] for name in ("M", "z", "sigma"))
    links = {frozenset(link) for link in ((0, 1), (1, 2), (2, 3), (3, 4), (0, 4), (0, 2))}
    degree = [sum(i in link for link in links) for i in range(5)]
    W = np.zeros((5, 5))
    for i, j in links:
        W[i, j] = W[j, i] = 1 / (1 + max(degree[i], degree[j]))
    W += np.diag(1 - W.sum(1))
    H = 2 * (np.einsum("isa,isb->iab", M, M) + sigma[:, None, None] * np.eye(2))
    q = 2 * np.einsum("isa,is->ia", M, z)
    return W, lambda x: np.einsum("iab,ib->ia", H, x) - q, np.linalg.solve(H.sum(0), q.sum(0))


def test_dgd_of_fig_2_is_its_recursion_with_stepsize_one_over_k(fig2):
    W, gradient, solution = recursion(3)
    x = np.zeros((5, 2))
    for k in range(1, 1001):
        x = W @ x - gradient(x) / k
    error = np.linalg.norm(x - solution, axis=1).max()
    assert fig2["DGD"].error[3, -1] == pytest.approx(error, rel=1e-9)


def test_diging_of_fig_3_is_its_recursion_with_stepsize_2_percent(fig3):
    W, gradient, solution = recursion(3)
    x = np.zeros((5, 2))
    y = g = gradient(x)
    for _ in range(200):
        x = W @ x - 0.02 * y
        y, g = W @ y + gradient(x) - g, gradient(x)
    error = np.linalg.norm(x - solution, axis=1).max()
    at = list(fig3["DIGing"].iterations).index(200)
    assert fig3["DIGing"].error[3, at] == pytest.approx(error, rel=1e-9)


def test_risk_warnings_of_the_papers_own_parameters_stay_quiet(monkeypatch):
    monkeypatch.setattr(hg.DGD, "risks", lambda *_: iter(["a risk"]))
    assert len(paper.fig2(trials=1, iterations=5)) == 3


# ---- claims


def test_claims_count_trials_and_hold_on_the_papers_experiments(fig2, fig3):
    found = paper.claims(fig2, fig3)
    assert len(found) == 5
    assert all(record["holds"] is True for record in found.values())
    below = claim(found, "ends below DGD after 1000")
    assert below["figure"] == (fig2["PDG-DS"].error[:, -1] < fig2["DGD"].error[:, -1]).sum()
    assert f"{below['figure']} of 100" in below["measured"]
    assert claim(found, "one message")["figure"] == {
        "PDG-DS": 1, "PDG-NDS": 1, "DIGing": 2, "Push-Pull": 2, "ADD-OPT": 2
    }  # fmt: skip
    assert json.loads(json.dumps(found)) == found


def test_a_claim_fails_below_95_percent(fig2, fig3):
    error = fig2["PDG-DS"].error.copy()
    worse = fig2["DGD"].error[:, -1] <= error[:, -1]
    more = np.flatnonzero(~worse)[: 6 - worse.sum()]
    error[more, -1] = 2 * fig2["DGD"].error[more, -1]
    record = claim(paper.claims(changed(fig2, "PDG-DS", error=error), fig3), "below DGD")
    assert (record["holds"], record["figure"]) == (False, 94)


def test_a_diverged_pdg_ds_ends_below_no_method(fig2, fig3):
    error = np.full_like(fig2["PDG-DS"].error, np.nan)
    found = paper.claims(changed(fig2, "PDG-DS", error=error), fig3)
    assert claim(found, "below DGD")["figure"] == 0
    assert claim(found, "B = I")["holds"] is False


@pytest.mark.parametrize(("factor", "holds"), [(1.9, True), (2.1, False), (0.4, False)])
def test_similar_means_within_a_factor_of_two(fig2, fig3, factor, holds):
    run = fig3["DIGing"]
    k = run.iterations
    slope = np.log(1e-6) / 399  # below 1e-6 at the sample 400
    lines = {r.label: np.exp(slope * k)[None] for r in fig3} | {
        "PDG-NDS": np.exp(slope / factor * k)[None]
    }
    made = Comparison(tuple(replace(r, error=lines[r.label].repeat(FEW, 0)) for r in fig3))
    record = claim(paper.claims(fig2, made), "speed similar")
    assert record["holds"] is holds
    assert record["figure"]["DIGing"] == 400
    assert record["ratio"]["ADD-OPT"] == pytest.approx(factor, abs=0.02)


def test_a_method_that_never_reaches_the_error_is_not_similar(fig2, fig3):
    record = claim(
        paper.claims(fig2, changed(fig3, "Push-Pull", error=np.ones_like(fig3[0].error))),
        "speed similar",
    )
    assert record["holds"] is False
    assert record["ratio"]["Push-Pull"] is None
    assert "Push-Pull not reached" in record["measured"]


def test_a_second_message_is_noticed(fig2, fig3):
    twice = replace(fig3["PDG-NDS"].traffic, messages_per_link=2.0)
    found = paper.claims(fig2, changed(fig3, "PDG-NDS", traffic=twice))
    assert claim(found, "one message")["holds"] is False


def test_exactness_is_judged_by_trials_and_the_claim_tells_of_the_stall(fig2, fig3):
    record = claim(paper.claims(fig2, fig3), "exact solution")
    assert record["stalls"] is True
    assert "stalls" in record["measured"]
    assert -4 < record["late_slope"] < -1
    same = changed(fig3, "PDG-NDS", error=fig3["DIGing"].error)
    assert "stalls" not in claim(paper.claims(fig2, same), "exact solution")["measured"]
    short = changed(fig3, "ADD-OPT", status=("converged",) * (FEW - 1) + ("iteration limit",))
    assert claim(paper.claims(fig2, short), "exact solution")["holds"] is False


# ---- the demo


def test_the_demo_writes_the_promised_files(written):
    out, content, _ = written
    assert sorted(p.name for p in out.iterdir()) == sorted(content["files"])
    assert {"fig2.svg", "fig2.png", "fig3.svg", "fig3.png", "summary.json"} <= set(content["files"])
    stored = json.loads((out / "summary.json").read_text(), parse_constant=pytest.fail)
    assert stored == content
    assert set(stored["fig2"]) == {"PDG-DS", "PDG-DS, B=I", "DGD"}
    assert set(stored["fig3"]) == {"PDG-NDS", "DIGing", "Push-Pull", "ADD-OPT"}
    for record in stored["claims"].values():
        assert isinstance(record["holds"], bool)
        assert record["figure"] is not None
    assert stored["environment"]["hushgrad"] == hg.__version__
    assert stored["environment"]["python"] == platform.python_version()


def test_the_demos_medians_equal_the_medians_of_the_runs(written, fig3):
    for run in fig3:
        stored = written[1]["fig3"][run.label]
        assert stored["iterations"] == run.iterations.tolist()
        assert stored["median_error"] == np.median(run.error, axis=0).tolist()


def test_a_geometric_deviation_removes_the_stall(written):
    _, content, _ = written
    medians = {label: of["median_error"][-1] for label, of in content["extras"].items()}
    assert medians["PDG-NDS, geometric"] < 1e-11 < medians["PDG-NDS"]
    assert claim(content["claims"], "geometric")["holds"]
    assert claim(content["claims"], "two-hop")["extra_links"] == {"PDG-NDS (square)": 8}


def test_progress_is_one_rising_count_that_ends_at_its_total(written):
    done, totals = zip(*written[2], strict=True)
    assert len(set(totals)) == 1
    assert list(done) == sorted(done)
    assert done[-1] == totals[0] == FEW * (3 * 1000 + 4 * 1000 + 4 * 3000)


@pytest.fixture
def command(written, monkeypatch):
    """Run the command `hushgrad demo` with the finished small demo in place of a new one."""
    _, content, _ = written
    asked = {}

    def fake(out, **options):
        asked.update(options, out=out)
        out.mkdir()
        (out / "summary.json").write_text(json.dumps(content))
        return content

    monkeypatch.setattr(paper, "demo", fake)
    return lambda *words: (CliRunner().invoke(app, ["demo", *map(str, words)]), asked)


def test_the_command_prints_every_claim_and_where_the_files_are(command, written, tmp_path):
    result, asked = command("--out", tmp_path / "o", "--trials", FEW)
    assert result.exit_code == 0
    assert asked == {"out": tmp_path / "o", "trials": FEW, "progress": False}
    words = " ".join(result.stdout.split())
    assert words.count(" yes ") + words.count(" no ") == len(written[1]["claims"])
    assert "PDG-DS ends below DGD" in words
    assert str(tmp_path / "o") in words
    assert all(file in words for file in ("fig2.svg", "fig3.svg", "summary.json"))


def test_the_command_prints_one_json_document(command, written, tmp_path):
    result, _ = command("--out", tmp_path / "o", "--format", "json")
    assert json.loads(result.stdout) == written[1]


def test_bad_input_of_the_command_is_refused(command, tmp_path):
    assert command("--trials", "0")[0].exit_code == 2
    assert command("--format", "xml")[0].exit_code == 2


def test_an_output_directory_that_is_a_file_is_bad_input_with_a_message(tmp_path):
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "file")])
    assert result.exit_code == 2
    assert "cannot be one" in result.stderr
    assert result.stdout == ""
