import csv
import json
import re
import sys

import numpy as np
import pytest
import scipy.io

from hushgrad.errors import InputError, MissingExtra
from hushgrad.report.export import FORMATS, escape, export, latex_table, matlab_names, pgfplots
from hushgrad.simulate.result import Run, Traffic

LABELS = ("PDG-DS", "PDG-DS, B=I", "50% of {a_1} & \\b ~ λ #2 $x^2$")


def make_run(label="PDG-DS", trials=5, samples=9, seed=0, error=None, messages=1.0, metrics=None):
    rng = np.random.default_rng(seed)
    if error is None:
        error = 10.0 ** -np.linspace(0, 8, samples) * rng.uniform(0.5, 2.0, (trials, samples))
    trials, samples = error.shape
    return Run(
        title=label,
        label=label,
        error=error,
        consensus=error / 3,
        iterations=7 * np.arange(samples),
        x=rng.normal(size=(trials, 4, 2)),
        solution=rng.normal(size=2),
        status=("converged",) * (trials - 1) + ("iteration limit",),
        trials=10 + np.arange(trials),
        seed=3,
        traffic=Traffic(1, 8, 0, messages, 2 * messages, 128.0),
        seconds=0.1,
        metrics=metrics or {},
        config={"algorithm": {"kind": "PDGDS", "ratio": float("inf")}},
    )


@pytest.fixture
def runs():
    return [make_run(label, seed=n, messages=1.0 + n) for n, label in enumerate(LABELS)]


def tex_is_balanced(text):
    """Braces and environments match, comments and escapes aside."""
    text = re.sub(r"(?m)(?<!\\)%.*$", "", text).replace("\\\\", "")
    depth = 0
    for brace in re.findall(r"(?<!\\)[{}]", text):
        depth += 1 if brace == "{" else -1
        assert depth >= 0
    stack = []
    for what, name in re.findall(r"\\(begin|end)\{(\w+)\}", text):
        if what == "begin":
            stack.append(name)
        else:
            assert stack.pop() == name
    return (
        depth == 0
        and not stack
        and text.count("$") - text.count("\\$")
        == 2 * len(re.findall(r"(?<!\\)\$[^$]*(?<!\\)\$", text))
    )


def test_every_format_is_written_under_its_name_and_twice_with_the_same_bytes(tmp_path, runs):
    paths = export(runs, tmp_path / "new" / "place", FORMATS, title="All")
    assert [p.name for p in paths] == [
        "errors.pdf",
        "errors.svg",
        "errors.png",
        "errors.pgf.tex",
        "table.tex",
        "runs.mat",
        "errors.csv",
        "summary.json",
    ]
    assert sorted(paths) == sorted((tmp_path / "new" / "place").iterdir())
    again = export(runs, tmp_path / "again", FORMATS[3:], title="All")  # pictures: test_plots.py
    assert [p.read_bytes() for p in paths[3:]] == [p.read_bytes() for p in again]


def test_an_unknown_format_is_refused_before_anything_is_written(tmp_path, runs):
    with pytest.raises(InputError, match=r"pdf, svg, png, pgfplots, table, mat, csv, json.*'docx'"):
        export(runs, tmp_path / "out", ["csv", "docx"])
    assert not (tmp_path / "out").exists()


def test_a_missing_package_is_named_before_anything_is_written(tmp_path, runs, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"pip install 'hushgrad\[sim\]'"):
        export(runs, tmp_path / "out", ["csv", "pdf"])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["../errors", "a/b", ""])
def test_names_do_not_leave_the_directory(tmp_path, runs, name):
    with pytest.raises(InputError, match="plain file name"):
        export(runs, tmp_path / "out", ["csv"], name=name)


def test_a_file_in_the_place_of_the_directory_is_named(tmp_path, runs):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be one"):
        export(runs, tmp_path / "file", ["csv"])


def test_no_runs_are_refused(tmp_path):
    with pytest.raises(InputError, match="at least one run"):
        export([], tmp_path, ["csv"])


def test_csv_read_back_equals_the_runs_exactly(tmp_path):
    cost = np.random.default_rng(5).normal(size=(5, 9))
    runs = [make_run(LABELS[2], metrics={"cost": cost, "error": -cost}), make_run("DGD", seed=1)]
    runs[1].error[2, 4:] = [1e90, np.inf, np.nan, np.nan, np.nan]
    (path,) = export(runs, tmp_path, ["csv"])
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == [
        "algorithm", "trial", "iteration", "error", "consensus", "cost", "metric error"
    ]  # fmt: skip
    assert len(rows) == sum(r.error.size for r in runs)
    for run in runs:
        mine = [row for row in rows if row["algorithm"] == run.label]
        for name in ("error", "consensus"):
            back = np.array([float(row[name]) for row in mine]).reshape(run.error.shape)
            np.testing.assert_array_equal(back, getattr(run, name))
        assert {int(row["trial"]) for row in mine} == set(run.trials.tolist())
        assert [int(row["iteration"]) for row in mine[:9]] == run.iterations.tolist()
    back = [float(row["cost"]) for row in rows[:45]]
    np.testing.assert_array_equal(np.reshape(back, (5, 9)), cost)
    assert {row["cost"] for row in rows[45:]} == {""}


def test_mat_read_back_by_scipy_equals_the_runs(tmp_path, runs):
    runs.append(make_run("one", trials=1, metrics={"my cost": np.ones((1, 9))}))
    (path,) = export(runs, tmp_path, ["mat"])
    stored = scipy.io.loadmat(path, simplify_cells=True)
    for name, run in zip(matlab_names([r.label for r in runs]), runs, strict=True):
        struct = stored[name]
        assert struct["label"] == run.label
        for field in ("error", "consensus", "x"):
            np.testing.assert_array_equal(struct[field], np.squeeze(getattr(run, field)))
        np.testing.assert_array_equal(struct["iterations"], run.iterations)
        assert list(np.atleast_1d(struct["status"])) == list(run.status)
    np.testing.assert_array_equal(stored["one"]["metrics"]["my_cost"], np.ones(9))


def test_matlab_names_are_legal_and_different():
    labels = [*LABELS, "PDG DS", "", "end", "1st", "_x", "x" * 80, "x" * 81, "λ"]
    names = matlab_names(labels)
    assert len(set(names)) == len(labels)
    assert all(re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,62}", name) for name in names)
    assert "end" not in names


def coordinates(block):
    return np.array([(int(k), float(v)) for k, v in re.findall(r"\((\d+),([^)]+)\)", block)])


def test_pgfplots_coordinates_parse_back_to_medians_and_quantiles(runs):
    text = pgfplots(runs)
    plots = re.findall(r"\\addplot\[([^\]]*)\] coordinates \{(.*?)\};", text, re.DOTALL)
    assert len(plots) == 3 * len(runs)  # low, high, median of each
    for n, run in enumerate(runs):
        ordered = np.sort(run.error, axis=0)  # of five values 0.1 lies 0.4 between the first two
        wanted = (
            ordered[0] + 0.4 * (ordered[1] - ordered[0]),
            ordered[4] - 0.4 * (ordered[4] - ordered[3]),
            ordered[2],
        )
        for (options, block), values in zip(plots[3 * n : 3 * n + 3], wanted, strict=True):
            k, back = coordinates(block).T
            np.testing.assert_array_equal(k, run.iterations)
            np.testing.assert_allclose(back, values, rtol=1e-14)
            assert f"{n}" in options
        assert f"fill between[of=low{n} and high{n}]" in text


def test_pgfplots_is_balanced_tex_that_names_its_packages(runs):
    text = pgfplots(runs, title="100% {of} it")
    assert tex_is_balanced(text)
    assert text.startswith("%")
    assert "\\usepgfplotslibrary{fillbetween}" in text
    assert f"\\addlegendentry{{{escape(LABELS[2])}}}" in text
    assert "title={100\\% \\{of\\} it}" in text


def test_pgfplots_jumps_over_zeros_and_divergence_and_needs_no_band_for_one_trial():
    text = pgfplots([make_run(error=np.array([[1.0, 0.0, 2.5, np.inf]]))])
    assert "fill between" not in text.split("\\begin{axis}")[1]
    assert re.findall(r"\(\d+,[^)]+\)", text) == ["(0,1.0)", "(7,nan)", "(14,2.5)", "(21,nan)"]
    assert "unbounded coords=jump" in text


def test_pgfplots_thins_what_tex_cannot_hold_and_keeps_both_ends():
    run = make_run(error=np.random.default_rng(0).uniform(1, 2, (1, 20_001)))
    back = coordinates(pgfplots([run]))
    assert len(back) <= 500
    np.testing.assert_array_equal(back[[0, -1], 1], run.error[0, [0, -1]])


def test_the_table_says_what_each_algorithm_needed(runs):
    text = latex_table(runs)
    assert tex_is_balanced(text)
    body = text.split("\\midrule\n")[1].split("\n\\bottomrule")[0].splitlines()
    assert len(body) == len(runs)
    for n, (row, run) in enumerate(zip(body, runs, strict=True)):
        name, messages, rounds, reached, last = re.split(r"(?<!\\) & ", row.removesuffix(" \\\\"))
        medians = np.median(run.error, axis=0)
        assert name == escape(run.label)
        assert (messages, rounds) == (f"{n + 1}", "1")
        assert int(reached) == run.iterations[np.argmax(medians <= 1e-6 * medians[0])]
        digits, exponent = re.fullmatch(r"\$(\d\.\d)\\cdot10\^\{(-?\d+)\}\$", last).groups()
        assert float(digits) * 10.0 ** int(exponent) == pytest.approx(medians[-1], rel=0.06)


def test_the_table_says_when_a_goal_was_not_reached_or_a_run_diverged():
    error = np.array([[1.0, 0.5], [1.0, 0.5], [1.0, 0.5]])
    assert "& -- & $5.0\\cdot10^{-1}$ " in latex_table([make_run(error=error)])
    assert "& -- & diverged " in latex_table([make_run(error=error * [1.0, np.inf])])


def test_escape_leaves_nothing_for_latex_to_interpret():
    assert escape("a\\b{c}d$e&f#g^h_i~j%k\nl") == (
        "a\\textbackslash{}b\\{c\\}d\\$e\\&f\\#g\\textasciicircum{}h\\_i\\textasciitilde{}j\\%k l"
    )
    assert escape("λ ≤ θ") == "\\ensuremath{\\lambda} \\ensuremath{\\le} \\ensuremath{\\theta}"


def test_summary_json_is_strict_and_holds_every_run(tmp_path, runs):
    runs[0].error[:, -1] = np.inf
    (path,) = export(runs, tmp_path, "json")

    def refuse(constant):
        raise AssertionError(constant)

    records = json.loads(path.read_text(), parse_constant=refuse)
    assert [record["algorithm"] for record in records] == list(LABELS)
    assert records[0]["median_error"] is None
    assert records[1]["median_error"] == np.median(runs[1].error[:, -1])
    assert records[1]["config"] == {"algorithm": {"kind": "PDGDS", "ratio": None}}
