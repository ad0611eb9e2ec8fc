"""Studies run what they say: equal to the same objects in Python, file by file."""

import tomllib

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.errors import StudyError
from hushgrad.schema.toml import to_toml
from hushgrad.studies import load_study, parse_study

TEXT = """
[network]
graph = "erdos_renyi"
n_agents = 6
p = 0.6
seed = 3
mixing = "lazy_metropolis"
[problem]
kind = "estimation"
s = 4
d = 3
seed = 2
[[algorithm]]
name = "PDGNDS"
form = "square"
stepsize = { kind = "constant", value = 0.01, deviation = { kind = "geometric", ratio = 0.9 } }
split = { kind = "isotropic", scale = 0.5 }
[[algorithm]]
name = "DIGing"
[run]
iterations = 30
trials = 2
seed = 9
engine = "agents"
"""


def tables(**changes):
    """A small study as tables; a change replaces a table."""
    return {
        "network": {"graph": "ring", "n_agents": 4},
        "problem": {"kind": "rendezvous"},
        "algorithm": [{"name": "EXTRA"}],
        "run": {"iterations": 5, "engine": "agents"},
    } | changes


def test_a_study_runs_what_the_same_objects_run_in_python():
    study = parse_study(TEXT).run()
    network = hg.Network(hg.graphs.erdos_renyi(6, 0.6, seed=3), mixing="lazy_metropolis")
    problem = hg.problems.estimation(n_agents=6, s=4, d=3, seed=2)
    deviation = hg.stepsizes.geometric(0.9)
    private = hg.PDGNDS(
        form="square",
        stepsize=hg.stepsizes.constant(0.01, deviation=deviation),
        split=hg.splits.isotropic(0.5),
    )
    options = {"iterations": 30, "trials": 2, "seed": 9, "engine": "agents"}
    for mine, algorithm in zip(study, (private, hg.DIGing()), strict=True):
        theirs = hg.run(algorithm, problem, network, **options)
        np.testing.assert_array_equal(mine.error, theirs.error)
        np.testing.assert_array_equal(mine.x, theirs.x)


def test_build_gives_network_problem_algorithms_by_label_and_options():
    network, problem, algorithms, options = parse_study(TEXT).build()
    assert network.n_agents == problem.n_agents == 6
    assert list(algorithms) == ["PDG-NDS (square)", "DIGing"]
    assert options == {"iterations": 30, "trials": 2, "seed": 9, "engine": "agents"}


def test_equal_labels_are_numbered_and_given_ones_kept():
    entries = [{"name": "EXTRA"}, {"name": "EXTRA"}, {"name": "EXTRA", "label": "mine"}]
    built = parse_study(tables(algorithm=entries)).build()
    assert list(built.algorithms) == ["EXTRA #1", "EXTRA #2", "mine"]


@pytest.mark.parametrize(
    "network",
    [
        {"graph": "grid", "rows": 2, "columns": 3},
        {"edges": [[0, 1], [1, 2], [2, 3], [3, 4], [4, 5]]},
        {"file": "net.csv"},
    ],
)
def test_the_problem_has_the_agents_of_the_network_however_that_is_given(network, tmp_path):
    (tmp_path / "net.csv").write_text("0,1\n1,2\n2,3\n3,4\n4,5\n")
    study = parse_study(tables(network=network), directory=tmp_path)
    assert study.build().problem.n_agents == 6


def test_data_in_the_study_says_itself_how_many_agents_it_has():
    positions = {"kind": "rendezvous", "positions": [[0.0], [1.0], [2.0], [3.0]]}
    assert parse_study(tables(problem=positions)).build().problem.dim == 1
    with pytest.raises(StudyError, match=r"problem gives the problem 3 agents.* network has 4"):
        parse_study(tables(problem={"kind": "rendezvous", "positions": [[0.0]] * 3})).build()


def test_a_dataset_is_divided_among_the_network_s_agents():
    ridge = {"kind": "ridge", "dataset": "diabetes", "split": "label_skew", "skew": 1.0}
    assert parse_study(tables(problem=ridge)).build().problem.n_agents == 4


def test_weights_are_a_rule_a_matrix_or_both_kinds():
    half = {"edges": [[0, 1]], "matrix": [[0.75, 0.25], [0.25, 0.75]]}
    matrix = parse_study(tables(network=half)).build().network.matrix()
    np.testing.assert_array_equal(matrix, half["matrix"])
    both = {
        "graph": "exponential",
        "n_agents": 5,
        "mixing": {"row": "uniform_row", "column": "uniform_column"},
    }
    built = parse_study(tables(network=both, algorithm=[{"name": "PushPull"}])).build()
    assert built.network.mixing == "uniform_row, uniform_column"


def test_functions_of_a_file_beside_the_study_give_problem_and_metrics(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import hushgrad as hg\n"
        "def build(n_agents, far=1.0):\n"
        "    return hg.problems.rendezvous([[far * i] for i in range(n_agents)])\n"
        "def spread(x, problem):\n"
        "    return x.max((1, 2)) - x.min((1, 2))\n"
    )
    (tmp_path / "study.toml").write_text(
        to_toml(
            tables(
                problem={"function": "mine.py:build", "far": 2.0},
                run={"iterations": 5, "engine": "agents", "metrics": {"spread": "mine.py:spread"}},
            )
        )
    )
    run = load_study(tmp_path / "study.toml").run()[0]
    np.testing.assert_allclose(run.solution, [3.0])
    np.testing.assert_allclose(run.metrics["spread"][:, -1], np.ptp(run.x, axis=(1, 2)))


def test_an_algorithm_can_be_a_class_of_the_user_s_own(tmp_path):
    (tmp_path / "own.py").write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "import hushgrad as hg\n"
        "@dataclass(frozen=True, kw_only=True)\n"
        "class Mine(hg.DGD):\n"
        "    times: int = 1\n"
    )
    entries = [{"name": "own.py:Mine", "times": 3}]
    study = parse_study(tables(algorithm=entries), directory=tmp_path)
    assert study.build().algorithms["DGD"].times == 3
    entries = [{"name": "own.py:Mine", "tmes": 3}]
    with pytest.raises(StudyError, match=r'algorithm\[0\].tmes is not a key of Mine.*"times"'):
        parse_study(tables(algorithm=entries), directory=tmp_path).build()


def test_citations_are_those_of_the_algorithms_each_once():
    entries = [{"name": "PDGDS"}, {"name": "EXTRA"}, {"name": "PDGNDS"}]
    cites = parse_study(tables(algorithm=entries)).citations()
    assert cites == ["wang2023decentralized", "shi2015extra"]


def test_with_run_overrules_and_leaves_the_rest():
    study = parse_study(TEXT).with_run(trials=5, seed=None)
    assert study.tables["run"] == {"iterations": 30, "trials": 5, "seed": 9, "engine": "agents"}
    with pytest.raises(StudyError, match=r"run\.trials"):
        study.with_run(trials="many")


def test_with_algorithms_keeps_the_study_s_parameters_and_adds_defaults():
    built = parse_study(TEXT).with_algorithms(["PDGNDS", "EXTRA"]).build()
    private, extra = built.algorithms.values()
    assert private.form == "square"
    assert extra == hg.EXTRA()


def test_toml_text_of_a_study_reads_back_as_the_same_tables():
    study = parse_study(TEXT)
    assert tomllib.loads(study.to_toml()) == study.tables


def test_the_emitter_writes_every_kind_of_value_that_toml_has():
    odd = {
        "a": {
            "text": 'quote " backslash \\ tab \t del \x7f newline \n θ',
            "numbers": [1, -2, 1e-300, 1e22, 0.1, float("inf")],
            "truth": [True, False],
            "deep": {"a key with spaces": {"x": [[1, 2], [3]]}, "empty": {}},
            "quoted.key": [],
        },
        "list": [{"x": 1}, {"y": "z"}],
    }
    assert tomllib.loads(to_toml(odd)) == odd


def test_a_study_written_elsewhere_still_finds_its_files(tmp_path):
    (tmp_path / "net.csv").write_text("0,1\n1,2\n")
    elsewhere = tmp_path / "deep" / "er"
    elsewhere.mkdir(parents=True)
    study = parse_study(tables(network={"file": "net.csv"}), directory=tmp_path)
    (elsewhere / "s.toml").write_text(study.to_toml(elsewhere))
    assert load_study(elsewhere / "s.toml").build().network.n_agents == 3
