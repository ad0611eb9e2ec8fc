"""The command in the hands of a user: results on stdout, messages on stderr, exit codes."""

import csv
import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

import hushgrad as hg
from hushgrad.cli import app
from hushgrad.cli.new import EXAMPLE
from hushgrad.files.locks import locked
from hushgrad.studies import Unfinished, load_study
from support.studies import study_text

STUDY = study_text({"PDGNDS": 0.1, "EXTRA": 0.1}, iterations=8, trials=2, engine="agents")
SWEEP = STUDY + '[sweep]\n"algorithm.stepsize.value" = [0.05, 0.1]\n"run.seed" = [1, 2]\n'


@pytest.fixture
def study(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    return path


@pytest.fixture
def sweep(tmp_path):
    path = tmp_path / "sweep.toml"
    path.write_text(SWEEP)
    return path


def call(*arguments, code=0):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, result.output
    return result


def strict(text):
    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_run_prints_a_table_of_every_algorithm(study):
    out = call("run", study).stdout
    for part in ("PDG-NDS", "EXTRA", "median", "worst", "converged", "rounds", "bytes/", "it/s"):
        assert part in out


def test_run_in_json_is_one_strict_document_with_the_numbers_of_the_run(study):
    document = strict(call("run", study, "--format", "json").stdout)
    runs = load_study(study).run()
    got = [r["median_error"] for r in document["results"]]
    assert got == [float(run.median_error[-1]) for run in runs]
    assert document["study"] == str(study)
    assert document["files"] == []


def test_options_overrule_the_study(study):
    options = ("--trials", 3, "--iterations", 4, "--seed", 7)
    result = strict(call("run", study, *options, "--format", "json").stdout)["results"][0]
    same = load_study(study).with_run(trials=3, iterations=4, seed=7).run()[0]
    assert (result["trials"], result["iterations"]) == (3, 4)
    assert result["median_error"] == float(same.median_error[-1])


def test_run_writes_the_formats_asked_for_and_says_so_on_stderr(study, tmp_path):
    result = call("run", study, "--out", tmp_path / "out", "--formats", "csv,json")
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"study.csv", "summary.json"}
    assert "wrote" in result.stderr
    assert "wrote" not in result.stdout
    quiet = call("run", study, "--out", tmp_path / "out", "--formats", "csv", "-q")
    assert quiet.stderr == ""


def test_the_study_s_output_table_is_used_and_overruled(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(STUDY + '[output]\ndirectory = "here"\nformats = ["csv"]\n')
    call("run", path)
    assert [p.name for p in (tmp_path / "here").iterdir()] == ["study.csv"]
    call("run", path, "--formats", "json", "--out", tmp_path / "there")
    assert [p.name for p in (tmp_path / "there").iterdir()] == ["summary.json"]


def test_a_sweep_prints_and_writes_its_table(sweep, tmp_path):
    document = strict(call("run", sweep, "--format", "json").stdout)
    written = tmp_path / "sweep-results" / "sweep.csv"
    assert document["files"] == [str(written)]
    assert len(document["results"]) == 8
    assert len(written.read_text().splitlines()) == 9
    assert "stepsize" in call("run", sweep, "-q").stdout


def test_a_row_alone_gives_the_numbers_of_the_sweep_and_can_be_saved(sweep, tmp_path):
    every = strict(call("run", sweep, "--format", "json").stdout)["results"]
    out = tmp_path / "out"
    alone = strict(
        call("run", sweep, "--row", 3, "--out", out, "--formats", "csv", "--format", "json").stdout
    )
    among = [r for r in every if r["row"] == 3]
    for one, other in zip(alone["results"], among, strict=True):
        assert one["median_error"] == other["median_error"]
    saved = strict(call("run", out / "sweep-row3.toml", "--format", "json").stdout)
    assert saved["results"][0]["median_error"] == among[0]["median_error"]


def test_a_metric_from_a_file_shows_up(study, tmp_path):
    (tmp_path / "mine.py").write_text("def gap(x, problem): return abs(x).max((1, 2))\n")
    study.write_text(STUDY + 'metrics = { gap = "mine.py:gap" }\n')
    assert "gap" in call("run", study).stdout
    results = strict(call("run", study, "--format", "json").stdout)["results"]
    runs = load_study(study).run()
    assert results[0]["gap"] == float(np.median(abs(runs[0].x).max((1, 2))))


def test_what_the_study_s_code_prints_does_not_get_into_the_json(study, tmp_path):
    (tmp_path / "mine.py").write_text("def gap(x, problem):\n    print('hello')\n    return 0\n")
    study.write_text(STUDY + 'metrics = { gap = "mine.py:gap" }\n')
    result = call("run", study, "--format", "json")
    assert strict(result.stdout)["results"][0]["gap"] == 0
    assert "hello" in result.stderr


def test_a_label_is_shown_as_it_is_written(study):
    study.write_text(STUDY.replace('name = "EXTRA"', 'name = "EXTRA"\nlabel = "[red] $1"'))
    assert "[red] $1" in call("run", study).stdout


def test_warnings_are_shown_once_on_stderr_and_listed_in_json(study):
    study.write_text(STUDY.replace('"EXTRA"', '"DGD"').replace('"PDGNDS"', '"DGD"'))
    result = call("run", study, "--format", "json")
    assert result.stderr.count("warning: DGD with a constant stepsize") == 1
    assert len(strict(result.stdout)["warnings"]) == 1
    assert call("run", study, "--quiet").stderr == ""


def test_exit_code_is_1_only_when_every_trial_of_every_algorithm_diverged(study):
    far = STUDY.replace("value = 0.1", "value = 1e60", 1)
    study.write_text(far)
    assert "diverged" in call("run", study, "-q").stdout
    study.write_text(far.replace("value = 0.1", "value = 1e60"))
    result = call("run", study, "--format", "json", "-q", code=1)
    assert strict(result.stdout)["results"][0]["diverged"] == 2
    assert strict(result.stdout)["results"][0]["median_error"] is None


def test_compare_runs_the_named_algorithms_on_the_study_s_problem(study):
    document = strict(call("compare", study, "PDGNDS,DIGing", "AB", "--format", "json").stdout)
    assert [r["algorithm"] for r in document["results"]] == ["PDG-NDS", "DIGing", "AB"]
    own = load_study(study).run()[0]  # PDGNDS keeps the study's parameters
    assert document["results"][0]["median_error"] == float(own.median_error[-1])


def test_compare_without_names_runs_all_that_the_network_allows(study):
    text = STUDY.replace('"ring"', '"random_directed"\ndegree = 1').replace('"PDGNDS"', '"AB"')
    study.write_text(text.replace('"EXTRA"', '"ADDOPT"'))
    result = call("compare", study, "--format", "json")
    names = [r["algorithm"] for r in strict(result.stdout)["results"]]
    assert sorted(names) == ["AB", "ADD-OPT", "Push-Pull"]
    assert "EXTRA is left out" in result.stderr


def test_saved_runs_are_compared_without_running_them_again(study, tmp_path):
    call("run", study, "--save", tmp_path / "runs")
    files = sorted((tmp_path / "runs").iterdir())
    assert [f.name for f in files] == ["EXTRA.npz", "PDG-NDS.npz"]
    document = strict(call("compare", *files, "--format", "json").stdout)
    errors = [float(hg.load_run(f).median_error[-1]) for f in files]
    assert [r["median_error"] for r in document["results"]] == errors
    twice = strict(call("compare", files[0], files[0], "--format", "json").stdout)
    assert "EXTRA (" in twice["results"][0]["algorithm"]


def test_cite_prints_exactly_the_entries_of_the_algorithms_used(study):
    out = call("cite", study).stdout
    assert re.findall(r"@\w+\{(\w+),", out) == ["wang2023decentralized", "shi2015extra"]
    assert re.findall(r"@\w+\{(\w+),", call("cite").stdout) == ["hushgrad"]
    assert call("cite", "--all").stdout.count("\n@") == 11
    entries = strict(call("cite", study, "--format", "json").stdout)["entries"]
    assert [e["key"] for e in entries] == ["wang2023decentralized", "shi2015extra"]


def test_new_writes_a_study_that_loads_and_never_overwrites(tmp_path):
    path = tmp_path / "mine.toml"
    assert "hushgrad run" in call("new", path).stderr
    assert list(load_study(path).build().algorithms) == ["PDG-NDS", "EXTRA"]
    path.write_text("precious")
    assert "is there already" in call("new", path, code=2).stderr
    assert path.read_text() == "precious"
    bare = re.sub(r'^# (\[|"|directory|formats)', r"\1", EXAMPLE, flags=re.MULTILINE)
    path.write_text(bare)
    assert len(load_study(path).sweep()) == 6  # what is commented out is right too


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "{dir}/none.toml"), "there is no study"),
        (("run", "{study}", "--formats", "pgn"), 'Did you mean "png"'),
        (("run", "{study}", "--row", "1"), "rows 0 to 0"),
        (("run", "{study}", "--trials", "0"), "--trials"),
        (("run",), "STUDY"),
        (("compare", "{study}", "PDGD"), 'Did you mean "PDGDS"'),
        (("compare", "{sweep}"), "sweep of 4 rows"),
        (("compare", "{dir}/none.npz"), "there is no run"),
        (("compare", "{dir}/none.npz", "EXTRA"), "also 'EXTRA'"),
        (("run", "{sweep}", "--seed", "3"), "sweeps over run.seed"),
        (("cite", "{dir}/none.toml"), "there is no study"),
        (("new", "{dir}/no/such/place.toml"), "cannot be written"),
    ],
)
def test_bad_input_is_exit_code_2_and_one_message_on_stderr(arguments, said, study, sweep):
    names = {"dir": study.parent, "study": study, "sweep": sweep}
    result = call(*(a.format(**names) for a in arguments), code=2)
    assert said in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


def test_square_says_how_many_links_it_needs_besides_the_graph(study):
    study.write_text(STUDY.replace('name = "PDGNDS"', 'name = "PDGNDS"\nform = "square"', 1))
    said = call("run", study).stderr
    assert "PDG-NDS (square) also sends between agents two hops apart: 2 links" in said


def _records(path):
    with path.open() as file:
        return [{k: v for k, v in r.items() if k != "seconds"} for r in csv.DictReader(file)]


def test_rows_that_several_commands_ran_are_gathered_into_the_table_of_one_command(sweep, tmp_path):
    call("run", sweep, "--out", tmp_path / "whole")
    out = tmp_path / "parts"
    call("run", sweep, "--rows", "0,2-3", "--out", out)
    told = call("gather", sweep, out, code=1)
    assert "no part has the rows 1." in told.stderr
    call("run", sweep, "--row", "1", "--out", out)
    document = strict(call("gather", sweep, out, "--format", "json").stdout)
    assert (document["rows"], document["missing"]) == (4, [])
    assert _records(out / "sweep.csv") == _records(tmp_path / "whole/sweep.csv")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "sweep.toml", "--rows", "2-4"], "rows 0 to 3, but row = 4"),
        (["run", "sweep.toml", "--rows", "two"], "'two' is neither"),
        (["run", "sweep.toml", "--row", "1", "--jobs", "2"], "--jobs is for the rows of a sweep"),
        (["run", "study.toml", "--rows", "0"], "but the study has no [sweep]"),
        (["gather", "sweep.toml", "nothing"], "'nothing' has no parts of a sweep"),
    ],
)
def test_rows_that_there_are_not_are_refused(study, sweep, arguments, said, monkeypatch):
    monkeypatch.chdir(sweep.parent)
    assert said in call(*arguments, code=2).stderr


def test_a_study_that_runs_twice_at_once_keeps_two_parts(study, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    keep = Unfinished(load_study(study))
    kept = keep.directory / "run-0.npz"  # of the other program
    with locked(keep.lock_file()):
        keep.done("run-0")
        keep.directory.mkdir()
        kept.write_bytes(b"half")
        assert "another program runs this study too" in call("run", study).stderr
        assert "which --resume would disturb" in call("run", study, "--resume", code=2).stderr
        assert kept.read_bytes() == b"half"
    assert [path.name for path in keep.directory.parent.iterdir()] == [keep.directory.name]
