"""A wrong site is handled right, or refused by name: site, place, column, value, way out."""

import re

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.errors import FitError, ModelError, ProblemError
from hushgrad.fitting import load_model, read_table

GOOD = """age,dose,stage,death
61,0.5,low,0
55,1.5,high,1
70,1.0,low,1
44,2.5,high,0
66,0.1,low,1
58,2.0,high,1
49,1.1,low,0
73,0.3,high,0
"""
DECLARED = {
    "kind": "logistic",
    "outcome": "death",
    "columns": ["age", "dose", "stage"],
    "factors": {"stage": ["low", "high"]},
}
MODEL = hg.Model(**DECLARED)


def write(path, text, encoding="utf-8"):
    path.write_text(text, encoding=encoding)
    return path


@pytest.fixture
def east(tmp_path):
    return write(tmp_path / "east.csv", GOOD)


@pytest.fixture
def expected(east):
    return hg.fit(MODEL, {"east": east, "west": east})


def swapped(text):
    return "".join(",".join(reversed(line.split(","))) + "\n" for line in text.splitlines())


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (GOOD, "utf-8-sig"),
        (GOOD.replace(",", ";"), "utf-8"),
        (GOOD.replace(",", "\t"), "utf-8"),
        (GOOD.replace(",", " , "), "utf-8"),
        (GOOD.replace("\n", "\r\n"), "utf-8"),
        (GOOD.replace(",1\n", ",1.0\n"), "utf-8"),
        (swapped(GOOD), "utf-8"),
        (GOOD + "\n\n", "utf-8"),
    ],
    ids=["BOM", "semicolons", "tabs", "spaces", "CRLF", "1.0", "other order", "empty lines"],
)
def test_harmless_differences_of_files_change_nothing(east, expected, tmp_path, text, encoding):
    west = write(tmp_path / "west.csv", text, encoding)
    found = hg.fit(MODEL, {"east": east, "west": west})
    assert found.estimate.tolist() == expected.estimate.tolist()


def test_a_decimal_comma_is_read_where_it_is_declared(east, expected, tmp_path):
    west = write(tmp_path / "west.csv", GOOD.replace(",", ";").replace(".", ","))
    with pytest.raises(ProblemError, match=re.escape("column dose is '0,5'")) as refused:
        hg.fit(MODEL, {"east": east, "west": west})
    assert "site west" in str(refused.value)
    assert 'decimal=","' in str(refused.value)
    table = read_table(west, ["death", "age", "dose", "stage"], site="west", decimal=",")
    found = hg.fit(MODEL, {"east": east, "west": table})
    assert found.estimate.tolist() == expected.estimate.tolist()
    mixed = write(tmp_path / "mixed.csv", GOOD.replace(",", ";"))
    table = read_table(mixed, ["death", "age", "dose", "stage"], site="west", decimal=",")
    with pytest.raises(ProblemError, match=r"column dose is '0\.5', but it must be a number"):
        hg.fit(MODEL, {"east": east, "west": table})


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        (",0\n", ",2\n", [":2: column death is '2'", "0 or 1", "positive"]),
        (",1\n", ",yes\n", [":3: column death is 'yes'", "0 or 1", "positive"]),
        ("70,1.0,low", "70,1.0,medium", [":4: column stage is 'medium'", "low, high", "agree"]),
        ("70,1.0,low", "70,1.0,Low", ["column stage is 'Low'", 'Did you mean "low"?']),
        ("70,1.0", "70,", [":4: column dose is missing", 'missing = "drop"']),
        ("70,1.0", "70,nan", ["column dose is missing"]),
        ("70,1.0", "70,inf", ["column dose is 'inf'", "must be a number"]),
        ("70,1.0", "70,1_0", ["column dose is '1_0'"]),
        ("70,1.0", "70,1e30", ["column dose is 1e+30", "another unit"]),
        ("70,1.0", "70,1,0", [":4: the row has 5 cells and the header 4"]),
        ("dose,", "dosis,", [":1: there is no column 'dose'", 'Did you mean "dosis"?']),
        ("stage,death", "dose,death", ["the column 'dose' is there twice"]),
        (GOOD, GOOD.splitlines()[0] + "\n", ["has no rows"]),
    ],
)  # fmt: skip
def test_a_wrong_cell_is_refused_by_site_place_column_and_value(east, tmp_path, old, new, parts):
    west = write(tmp_path / "west.csv", GOOD.replace(old, new))
    with pytest.raises(ProblemError) as refused:
        hg.fit(MODEL, {"east": east, "west": west})
    for part in ["site west", str(west), *parts]:
        assert part in str(refused.value), part


def test_codes_of_the_outcome_are_declared_and_a_third_code_is_refused(east, expected, tmp_path):
    declared = hg.Model(**DECLARED, positive="2", negative="1")
    coded = GOOD.replace(",1\n", ",2\n").replace(",0\n", ",1\n")
    one = write(tmp_path / "coded.csv", coded)
    found = hg.fit(declared, {"east": one, "west": one})
    assert found.estimate.tolist() == expected.estimate.tolist()
    with pytest.raises(
        ProblemError, match=r"site west.*column death is '0', but the codes are '2'"
    ):
        hg.fit(declared, {"east": one, "west": east})


def test_swapped_contents_under_right_names_are_refused_by_a_declared_range(east, tmp_path):
    declared = hg.Model(**DECLARED, ranges={"age": (18, 110)}, units={"age": "years"})
    west = write(tmp_path / "west.csv", GOOD.replace("age,dose", "dose,age"))
    with pytest.raises(ProblemError, match=r"west.csv:2: column age is 0.5.*18 to 110 years"):
        hg.fit(declared, {"east": east, "west": west})


def test_missing_rows_are_dropped_and_counted_where_that_is_agreed(east, tmp_path):
    west = write(tmp_path / "west.csv", GOOD + "80,,low,1\n81,3.0,NA,0\n")
    declared = hg.Model(**DECLARED, missing="drop")
    found = hg.fit(declared, {"east": east, "west": west})
    assert (found.n_rows, found.n_dropped) == (16, 2)
    arrays = {"age": [1.0, 2.0], "dose": [np.nan, 1.0], "stage": ["low", None], "death": [0, 1]}
    with pytest.raises(ProblemError, match="site west: all 2 rows have a missing value"):
        hg.fit(declared, {"east": east, "west": arrays})


@pytest.mark.parametrize(
    ("field", "theirs", "said"),
    [
        ("penalty", 2.0, "penalty is 1.0 at site east and 2.0 at site west"),
        ("kind", "poisson", "kind is 'logistic' at site east and 'poisson' at site west"),
        ("columns", ["dose", "age", "stage"], "columns[0] is 'age' at site east and 'dose'"),
        ("units", {"age": "months"}, "units.age is 'years' at site east and 'months'"),
        ("factors", {"stage": ["high", "low"]}, "factors.stage[0] is 'low' at site east"),
        ("missing", "drop", "missing is 'refuse' at site east and 'drop' at site west"),
    ],
)
def test_a_site_with_another_model_is_refused_and_the_field_is_named(east, field, theirs, said):
    ours = DECLARED | {"penalty": 1.0, "units": {"age": "years"}}
    models = {"east": hg.Model(**ours), "west": hg.Model(**(ours | {field: theirs}))}
    with pytest.raises(ModelError, match=re.escape(said)):
        hg.fit(models, {"east": east, "west": east})


def columns(**changed):
    rng = np.random.default_rng(3)
    n = 60
    found = {
        "x": rng.standard_normal(n),
        "z": 100 + rng.standard_normal(n),
        "group": rng.choice(["a", "b"], n),
        "y": rng.integers(0, 2, n).astype(float),
        "event": np.ones(n),
    }
    return found | changed


def sites(**changed):
    whole = columns(**changed)
    return {name: {k: v[part] for k, v in whole.items()}
            for name, part in (("east", slice(20)), ("west", slice(20, None)))}  # fmt: skip


@pytest.mark.parametrize(
    ("options", "changed", "said"),
    [
        ({}, {"z": np.full(60, 0.1)}, r"'z' is constant: 0.1 in all 60 rows"),
        ({}, {"z": np.full(60, 1e-13)}, r"'z' is constant: 1e-13"),
        ({}, {"z": 1e9 + 1e-7 * np.arange(60)}, r"'z' is constant: 1e\+09"),
        ({}, {"y": np.ones(60)}, r"needs both outcomes, but 60 of 60 rows are positive"),
        ({}, {"group": np.full(60, "b")}, r"'group\[b\]' is constant"),
        ({"factors": {"group": ["c", "a", "b"]}}, {}, r"reference level 'c' of 'group'"),
        ({}, {"z": 3 - 2 * columns()["x"]}, r"'z' is a combination of 'x'"),
        ({"columns": ["x", "group"], "standard_errors": "site"}, {}, "three sites or more"),
        ({}, {"x": columns()["y"] * 9 + columns()["x"]}, "separate the outcomes.*'x'"),
        ({"kind": "linear"}, {"y": np.full(60, 3.0)}, "outcome 'y' is constant"),
        ({"kind": "poisson"}, {"y": np.zeros(60)}, "'y' is 0 in all 60 rows"),
        ({"kind": "cox", "event": "event"}, {"event": np.zeros(60)}, "needs events"),
        ({"kind": "huber", "delta": 1e-9}, {"y": np.sin(7 * columns()["z"])},
         "within delta = 1e-09"),
        ({"kind": "linear"}, {"y": columns()["x"] * 3 + 1}, "determine 'y' to ten digits"),
        ({"kind": "huber", "delta": 1.0}, {"y": columns()["x"] * 3}, "determine 'y' to ten digits"),
        ({"kind": "linear", "columns": ["z"], "factors": {}, "intercept": False},
         {"z": np.zeros(60)}, "'z' is 0 in all 60 rows"),
    ],
)  # fmt: skip
def test_pooled_rows_without_a_fit_are_refused_and_the_column_is_named(options, changed, said):
    given = {"kind": "logistic", "outcome": "y", "columns": ["x", "z", "group"],
             "factors": {"group": ["a", "b"]}}  # fmt: skip
    with pytest.raises(FitError, match=said):
        hg.fit(hg.Model(**(given | options)), sites(**changed))


@pytest.mark.parametrize("kind", ["logistic", "poisson", "cox"])
def test_a_level_without_events_is_named(kind):
    base = columns()
    none = np.where(base["group"] == "b", 0.0, base["y"])
    options = {"event": "event"} if kind == "cox" else {}
    changed = {"y": none} if kind != "cox" else {"y": np.abs(base["x"]), "event": none}
    declared = hg.Model(kind=kind, outcome="y", columns=["z", "group"],
                        factors={"group": ["a", "b"]}, **options)  # fmt: skip
    with pytest.raises(FitError, match=r"no curvature left.*those of 'group\[b\]'\."):
        hg.fit(declared, sites(**changed))


@pytest.mark.parametrize(
    ("options", "column", "value", "said"),
    [
        ({"kind": "poisson"}, "y", -1.0, "a count is a whole number ≥ 0"),
        ({"kind": "poisson"}, "y", 1.5, "a count is a whole number ≥ 0"),
        ({"kind": "poisson", "offset": "z"}, "z", 100.0, "an offset is a logarithm"),
        ({"kind": "linear", "weights": "z"}, "z", 0.0, "a weight is between 1e-9 and 1e9"),
        ({"kind": "cox", "event": "event"}, "y", -2.0, "a time is ≥ 0"),
        ({"kind": "cox", "event": "event"}, "event", 2.0, "it must be 0 or 1"),
    ],
)
def test_a_value_that_its_role_forbids_is_refused(options, column, value, said):
    given = columns(z=np.ones(60))
    given[column][7] = value
    declared = hg.Model(**({"outcome": "y", "columns": ["x"]} | options))
    with pytest.raises(ProblemError, match=rf"site east: row 7: column {column} is .*{said}"):
        hg.fit(declared, {"east": given})


@pytest.mark.parametrize(("n", "ones", "others"), [(6, 1, 1), (10, 1, 2), (30, 2, 1), (30, 9, 9)])
@pytest.mark.parametrize("weights", [None, "w"])
def test_quasi_separation_is_no_fit_however_few_the_rows(n, ones, others, weights):
    """All rows with a = 1 are positive: the coefficient of a has no finite value."""
    a, y = (np.arange(n) < ones) * 1.0, (np.arange(n) < ones + others) * 1.0
    both = {"a": a, "y": y, "w": np.linspace(0.9, 1.1, n)}
    declared = hg.Model(kind="logistic", outcome="y", columns=["a"], weights=weights)
    with pytest.raises(FitError, match=r"no curvature left.*'a'"):
        hg.fit(declared, {"east": both})


def test_a_penalty_is_a_way_out_of_separation():
    changed = {"x": columns()["y"] * 9 + columns()["x"]}
    declared = hg.Model(kind="logistic", outcome="y", columns=["x", "z"], penalty=1.0)
    assert hg.fit(declared, sites(**changed))["x"] > 0


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"kind": "logit"}, 'kind is one of a few words. Did you mean "logistic"?'),
        ({"columns": []}, "columns is a list of names"),
        ({"columns": "age"}, "columns is a list of names"),
        ({"columns": ["age", "age"]}, "named twice"),
        ({"columns": ["age", "death"]}, "named twice"),
        ({"factors": {"sex": ["m", "f"]}}, "is no column of the model"),
        ({"factors": {"stage": ["low"]}}, "two or more different texts"),
        ({"factors": {"stage": ["low", "NA"]}}, "missing_values too"),
        ({"positive": "yes"}, "given together"),
        ({"kind": "linear", "penalty": 1.0}, 'Use kind = "ridge"'),
        ({"kind": "ridge"}, "of a ridge is > 0"),
        ({"kind": "huber"}, "delta of Huber's loss"),
        ({"kind": "cox"}, "event names Cox's column"),
        ({"delta": 1.0}, "delta belongs to huber, not to logistic"),
        ({"penalty": -1.0}, "penalty is a finite number ≥ 0"),
        ({"penalty": float("nan")}, "penalty is a finite number ≥ 0"),
        ({"level": 95}, "level is a number between 0 and 1"),
        ({"ranges": {"age": [5, 1]}}, "low < high"),
        ({"penalty": 1.0, "standard_errors": "sandwich"}, "fits without penalty"),
        ({"columns": ["stage", "stage[high]"]}, "its own name"),
        ({"intercept": "no"}, "intercept is true or false"),
        ({"factors": ["stage"]}, "factors is a table"),
    ],
)
def test_a_model_that_breaks_a_rule_is_refused(changed, said):
    with pytest.raises(ModelError, match=re.escape(said)):
        hg.Model(**(DECLARED | changed))


def test_a_model_file_is_the_model_and_its_mistakes_are_named_by_line(tmp_path):
    text = """[model]
kind = "logistic"
outcome = "death"
columns = ["age", "dose", "stage"]
penalty = 0.5
[model.factors]
stage = ["low", "high"]
"""
    path = write(tmp_path / "model.toml", text)
    assert load_model(path) == hg.Model(**DECLARED, penalty=0.5)
    write(path, text.replace("penalty", "penalti"))
    with pytest.raises(ModelError, match=r'model.toml:5: model.penalti .*Did you mean "penalty"'):
        load_model(path)
    write(path, text.replace('"logistic"', '"logit"'))
    with pytest.raises(ModelError, match=r"model.toml:2: model.kind"):
        load_model(path)
    write(path, text.replace("0.5", "-1"))
    with pytest.raises(ModelError, match=r"model\.toml.*penalty is a finite number"):
        load_model(path)
    write(path, text.replace("outcome", "[[["))
    with pytest.raises(ModelError, match="this is not TOML"):
        load_model(path)
    with pytest.raises(ModelError, match="there is no model file"):
        load_model(tmp_path / "none.toml")


def test_sites_models_and_network_belong_together(east):
    with pytest.raises(hg.HushgradError, match="has 4 agents and there are 2 sites"):
        hg.fit(MODEL, {"a": east, "b": east}, network=hg.Network(hg.graphs.ring(4)))
    with pytest.raises(hg.HushgradError, match="have the same names"):
        hg.fit({"a": MODEL}, {"a": east, "b": east})
    with pytest.raises(hg.HushgradError, match="sites are a mapping"):
        hg.fit(MODEL, {})
    with pytest.raises(ModelError, match="site a: a model is a"):
        hg.fit("logistic", {"a": east})
    with pytest.raises(ProblemError, match="there is no file"):
        hg.fit(MODEL, {"a": "nowhere.csv"})
    with pytest.raises(ProblemError, match="columns have equal numbers of rows"):
        hg.fit(MODEL, {"a": {"age": [1.0], "dose": [1.0, 2.0], "stage": ["low"], "death": [1]}})
