"""What is wrong with a study is said before it runs: file, line, key, value, what is allowed."""

import copy

import pytest

from hushgrad.errors import GraphError, StudyError
from hushgrad.studies import load_study, parse_study

GOOD = """\
[network]
graph = "ring"
n_agents = 4
mixing = "metropolis"

[problem]
kind = "estimation"
s = 3

[[algorithm]]
name = "DGD"

[[algorithm]]
name = "PDGNDS"
form = "lazy"
stepsize = { kind = "constant", value = 0.02, deviation = { kind = "harmonic", power = 2 } }

[run]
iterations = 10
trials = 2
"""

# What is replaced, by what, and what the message then says, place first.
WRONG = [
    ("[run]", "[rnu]", ":18: rnu is not a table", '"run"', "algorithm, network"),
    ('"ring"', '"rign"', ':2: network.graph = "rign"', '"ring"', "complete, erdos_renyi"),
    ('"ring"', "7", ":2: network.graph = 7", "Allowed: complete"),
    ("n_agents = 4", "n_agnets = 4", ":3: network.n_agnets", '"n_agents"', "graph, matrix, mixing"),
    ("n_agents = 4", "", ":1: network needs the key n_agents", "a whole number"),
    ("n_agents = 4", 'n_agents = "4"', ':3: network.n_agents = "4" is not a whole number'),
    ("n_agents = 4", "n_agents = true", ":3: network.n_agents = true is not a whole number"),
    ('"metropolis"', '"metro"', ':4: network.mixing = "metro"', "lazy_metropolis, max_degree"),
    ('graph = "ring"', "", ":1: network needs one of graph, edges or file, but has none"),
    ('graph = "ring"', 'graph = "ring"\nfile = "a.csv"', "but has graph and file"),
    ('"estimation"', '"estimate"', ':7: problem.kind = "estimate"', '"estimation"', "huber"),
    ("s = 3", "z = 3", ":8: problem.z is not a key", "noise, regularisation, s, seed"),
    ('"DGD"', '"dgd"', ':11: algorithm[0].name = "dgd"', '"DGD"', "AB, ADDOPT, AsynDGM"),
    ('name = "DGD"', "", ":10: algorithm[0] needs the key name", "PushPull"),
    ("form =", "from =", ":15: algorithm[1].from is not a key of PDGNDS", '"form"', "split"),
    ('"lazy"', '"lzay"', ':15: algorithm[1].form = "lzay" is not one of "lazy", "square"'),
    ('"constant"', '"const"', ':16: algorithm[1].stepsize.kind = "const"', "constant, diminishing"),
    ("value = 0.02", "valu = 0.02", ":16: algorithm[1].stepsize.valu", '"value"', "deviation"),
    ("power = 2", 'power = "2"', '16: algorithm[1].stepsize.deviation.power = "2" is not a number'),
    ("trials = 2", "trails = 2", ":20: run.trails is not a key", '"trials"', "iterations, metrics"),
    ("trials = 2", "trials = 0.5", ":20: run.trials = 0.5 is not a whole number or a list"),
    ("trials = 2", 'engine = "jax"', ':20: run.engine = "jax" is not one of "stacked", "agents"'),
    ("iterations = 10", "", ":18: run needs the key iterations"),
    ("trials = 2", 'metrics = { gap = "gap" }', ':20: run.metrics.gap = "gap" is not of the form'),
    ("[run]", '[output]\nformats = ["pgn"]\n[run]', ':19: output.formats = "pgn"', '"png"', "pdf"),
]  # fmt: skip


def message_of(text, tmp_path):
    file = tmp_path / "study.toml"
    file.write_text(text)
    with pytest.raises(StudyError) as caught:
        load_study(file).build()
    return str(caught.value), caught.value


@pytest.mark.parametrize(("old", "new", "place", "said"), [(o, n, p, s) for o, n, p, *s in WRONG])
def test_an_error_names_file_line_key_value_and_what_is_allowed(old, new, place, said, tmp_path):
    assert old in GOOD
    message, _ = message_of(GOOD.replace(old, new, 1), tmp_path)
    for part in (str(tmp_path / "study.toml"), place, *said):
        assert part in message


def test_the_good_study_is_good():
    assert parse_study(GOOD).build().options == {"iterations": 10, "trials": 2}


def test_all_errors_of_a_file_are_told_at_once(tmp_path):
    text = GOOD.replace('"ring"', '"rign"').replace("s = 3", "q = 3").replace('"DGD"', '"DDG"')
    message, _ = message_of(text, tmp_path)
    assert [line.split(" ")[1] for line in message.splitlines()] == [
        "network.graph",
        "problem.q",
        "algorithm[0].name",
    ]


def test_an_error_of_a_builder_is_told_with_its_place_and_chained(tmp_path):
    message, error = message_of(GOOD.replace("n_agents = 4", "n_agents = 0"), tmp_path)
    assert "study.toml:3: network.n_agents: ring needs a whole number" in message
    assert isinstance(error.__cause__, GraphError)
    message, _ = message_of(GOOD.replace("value = 0.02", "value = -1"), tmp_path)
    assert "study.toml:16: algorithm[1].stepsize.value: a stepsize is positive" in message
    message, _ = message_of(GOOD.replace('graph = "ring"', 'graph = "exponential"'), tmp_path)
    assert "study.toml:4: network.mixing: mixing 'metropolis' needs an undirected graph" in message


def test_an_algorithm_that_the_network_does_not_allow_is_found_before_running(tmp_path):
    text = GOOD.replace('"ring"', '"random_directed"\ndegree = 1').replace(
        'mixing = "metropolis"', ""
    )
    message, _ = message_of(text, tmp_path)
    assert "algorithm[0]: DGD needs a doubly stochastic W" in message


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("", "names no function of mine.py"),
        ("def biuld(): pass", 'Did you mean "biuld"?'),
        ("def build(): return 3", "returned a int, not an hg.Problem"),
        ("def build(): raise KeyError('x')", "raised KeyError: 'x'"),
        ("def build(): return 1 +", "cannot be loaded: SyntaxError"),
        ("import nowhere_at_all", "cannot be loaded: No module named 'nowhere_at_all'"),
        ("def build(size): pass", "problem needs the key size"),
    ],
)
def test_a_function_that_does_not_work_is_told_with_its_key(code, said, tmp_path):
    (tmp_path / "mine.py").write_text(code)
    text = GOOD.replace('kind = "estimation"\ns = 3', 'function = "mine.py:build"')
    message, _ = message_of(text, tmp_path)
    assert "study.toml:" in message
    assert "problem" in message
    assert said in message


def test_a_metric_that_raises_is_told_with_its_key(tmp_path):
    (tmp_path / "mine.py").write_text("def gap(x, problem): return x.nothing\n")
    text = GOOD + 'engine = "agents"\nmetrics = { gap = "mine.py:gap" }\n'
    (tmp_path / "study.toml").write_text(text.replace('"DGD"', '"EXTRA"'))
    with pytest.raises(StudyError, match=r"study.toml:22: run.metrics.gap raised AttributeError"):
        load_study(tmp_path / "study.toml").run()


def test_text_that_is_not_toml_and_files_that_are_not_there_are_errors(tmp_path):
    message, _ = message_of("[run\n", tmp_path)
    assert "this is not TOML" in message
    assert "line 1" in message
    with pytest.raises(StudyError, match="no study at"):
        load_study(tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(StudyError, match="cannot be read"):
        load_study(tmp_path / "binary.toml")
    with pytest.raises(StudyError, match="cannot be read"):
        load_study(tmp_path)


def test_a_study_may_begin_with_the_mark_of_some_editors(tmp_path):
    (tmp_path / "study.toml").write_text(GOOD, encoding="utf-8-sig")
    assert load_study(tmp_path / "study.toml").tables == parse_study(GOOD).tables


def test_tables_given_as_python_values_are_checked_and_not_changed():
    given = {"network": {"graph": "ring"}, "problem": {}, "algorithm": "DGD", "run": 3}
    before = copy.deepcopy(given)
    with pytest.raises(StudyError) as caught:
        parse_study(given, source="mine")
    assert given == before
    lines = str(caught.value).splitlines()
    for line, start in zip(lines, ("network", "problem", "run", "algorithm"), strict=True):
        assert line.startswith(f"mine: {start}")
