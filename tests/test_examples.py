"""Every example runs without a warning and prints what its docstring claims."""

import re
import runpy
from pathlib import Path

import pytest

import hushgrad as hg
from support import scripts
from support.scripts import numbers

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def output(tmp_path, monkeypatch, capsys):
    """What an example prints, run in this process, which has imported and compiled already."""

    def run(name):
        monkeypatch.chdir(tmp_path)
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        printed = capsys.readouterr()
        assert printed.err == ""
        assert list(tmp_path.iterdir()) == []
        return printed.out

    return run


def test_every_example_is_short_and_tested():
    names = sorted(p.name for p in EXAMPLES.glob("*.py"))
    assert len(names) == 7
    tests = Path(__file__).read_text(encoding="utf-8")
    for name in names:
        source = (EXAMPLES / name).read_text(encoding="utf-8")
        assert source.startswith('"""')
        assert len(source.splitlines()) < 50
        assert f'"{name}"' in tests


def test_the_first_run_brings_every_agent_to_the_exact_answer(tmp_path):
    text = scripts.output(EXAMPLES / "01_first_run.py", tmp_path)  # as a user starts it
    assert numbers("start, # after", text)[0] < 1e-12
    assert "status: converged" in text
    assert "1 message per link and iteration, 1 round" in text
    answers = [line.split("[")[1] for line in text.splitlines() if "[" in line]
    assert len(answers) == 6
    assert len(set(answers)) == 1


def test_compared_methods_are_exact_and_diging_sends_twice_as_much(output):
    text = output("02_compare_methods.py")
    rows = {
        cells[0]: [float(c) for c in cells[1:]] for cells in map(str.split, text.splitlines()[1:])
    }
    assert 1.1 < rows["PDG-NDS"][0] / rows["EXTRA"][0] < 1.3
    assert [row[1] for row in rows.values()] == [1, 1, 2]
    assert rows["DIGing"][2] == 2 * rows["EXTRA"][2] == 2 * rows["PDG-NDS"][2]
    assert max(row[3] for row in rows.values()) < 1e-8


def test_three_methods_are_exact_on_a_directed_network_and_dgd_is_refused(output):
    text = output("03_directed_network.py")
    assert re.search(r"refused: DGD needs a doubly stochastic W, but column \d+ sums to", text)
    assert [line.split()[0] for line in text.splitlines()[2:]] == ["AB", "Push-Pull", "ADD-OPT"]
    assert max(numbers("error #,", text)) < 1e-13
    assert numbers(", # rounds", text) == [2, 1, 1]
    assert numbers(", # numbers", text) == [4, 4, 5]


def test_a_custom_objective_is_solved_and_its_metric_sampled(output):
    text = output("04_your_objective.py")
    errors, gaps = numbers("error #", text), numbers("excess #", text)
    assert len(errors) == len(gaps) == 6
    assert errors[-1] < 1e-7 < 1 < errors[0]
    assert gaps[-1] < 1e-12 < 1 < gaps[0]
    assert numbers("log-cosh #", text)[-1] < 0.1 < 0.5 < numbers("least squares #", text)[0]


def test_hospitals_that_pool_nothing_get_the_pooled_fit(output):
    text = output("05_hospitals_logistic.py")
    assert sum(int(n) for n in re.findall(r"(\d+) rows", text)) == 569
    shares = [int(n) for n in re.findall(r"(\d+)% benign", text)]
    assert max(shares) - min(shares) > 40
    assert "converged" in text
    assert numbers("pooled fit: #", text)[0] < 1e-6
    assert min(numbers("alone: # off", text)) > 0.1


def test_dgd_gives_its_gradient_away_to_a_formula_that_fails_on_pdg_ds(output):
    dgd, pdg_ds = output("06_transcript.py").split("PDG-DS: ")
    assert numbers("]: # off", dgd)[0] < 1e-12
    assert numbers("]: # off", pdg_ds)[0] > 0.1
    to_one, to_two = re.findall(r"sends \[(.*?)\] to 1 and \[(.*?)\] to 2", dgd)[0]
    assert to_one == to_two
    to_one, to_two = re.findall(r"sends \[(.*?)\] to 1 and \[(.*?)\] to 2", pdg_ds)[0]
    assert to_one != to_two


def test_the_audit_exposes_dgd_and_the_papers_design_and_recovers_nothing_of_the_recommended(
    output,
):
    dgd, paper, recommended = output("07_audit.py").split("PDG-NDS")
    assert numbers(" # of 5 exposed", dgd) == [5, 5, 5]
    assert numbers(" # of 5 exposed", paper) == [5, 0, 5]
    assert numbers(" # of 5 exposed", recommended) == [0, 0, 0]
    assert dgd.count(", < 1e-9 off") == 3
    assert max(numbers(", # off", paper)) < 1e-6
    assert numbers("accurate to #", recommended)[0] < 1e-7
    assert "agent 0 is exposed by agents 1, 2, 4\n" in paper
    assert "agent 0 is exposed by agents 1, 2, 3, 4\n" in recommended


def test_the_example_study_is_a_study():
    runs = hg.load_study(EXAMPLES / "study.toml").with_run(trials=2).run(progress=False)
    assert [run.label for run in runs] == ["PDG-NDS", "EXTRA"]
    assert all(status == "converged" for run in runs for status in run.status)
