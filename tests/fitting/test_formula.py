"""Formulas: the design that a hand would write, one contract for one model, errors by character."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import hushgrad as hg
from hushgrad.errors import ModelError, ProblemError
from hushgrad.fitting import contract, load_model, rows_of, table_of
from hushgrad.fitting.formula import read_formula, read_term, term_text
from hushgrad.fitting.rows import needed
from hushgrad.fitting.terms import Part, blocks
from support.fits import LEVELS, fit, pooled_columns, reweighted, synthetic

FACTORS = {"stage": LEVELS, "arm": ("control", "new")}
SITES = {
    name: site | {"arm": np.where(np.arange(len(site["age"])) % 3 == 0, "new", "control")}
    for name, site in synthetic((200, 800, 3000)).items()
}
ROWS = pooled_columns(SITES)
AGE, DOSE, YEAR = ROWS["age"], ROWS["dose"], ROWS["year"]
MIDDLE, HIGH = ROWS["stage"] == "middle", ROWS["stage"] == "high"
LOW, NEW = ROWS["stage"] == "low", ROWS["arm"] == "new"


def model(formula, kind="logistic", **options):
    return hg.Model(kind=kind, formula=formula, **options)


def factors_in(formula):
    return {name: levels for name, levels in FACTORS.items() if name in formula}


DESIGNS = {
    "death ~ age + dose": {"age": AGE, "dose": DOSE},
    "death ~ age + stage + age:stage": {
        "age": AGE, "stage[middle]": MIDDLE, "stage[high]": HIGH,
        "age:stage[middle]": AGE * MIDDLE, "age:stage[high]": AGE * HIGH,
    },
    "death ~ arm*stage": {
        "arm[new]": NEW, "stage[middle]": MIDDLE, "stage[high]": HIGH,
        "arm[new]:stage[middle]": NEW * MIDDLE, "arm[new]:stage[high]": NEW * HIGH,
    },
    "death ~ age:dose + log(dose) + year^2": {
        "log(dose)": np.log(DOSE), "year^2": YEAR**2, "age:dose": AGE * DOSE,
    },
    "death ~ 0 + stage + arm": {
        "stage[low]": LOW, "stage[middle]": MIDDLE, "stage[high]": HIGH, "arm[new]": NEW,
    },
    "death ~ stage:age": {
        "stage[low]:age": LOW * AGE, "stage[middle]:age": MIDDLE * AGE,
        "stage[high]:age": HIGH * AGE,
    },
    "death ~ age*arm*dose - 1": {
        "age": AGE, "arm[control]": ~NEW, "arm[new]": NEW, "dose": DOSE, "age:arm[new]": AGE * NEW,
        "age:dose": AGE * DOSE, "arm[new]:dose": NEW * DOSE, "age:arm[new]:dose": AGE * NEW * DOSE,
    },
}  # fmt: skip


@pytest.mark.parametrize("formula", DESIGNS)
def test_the_design_is_the_one_that_a_hand_writes(formula):
    declared = model(formula, factors=factors_in(formula))
    wanted = DESIGNS[formula]
    has_intercept = "0" not in formula and "- 1" not in formula
    assert declared.names == (("intercept",) if has_intercept else ()) + tuple(wanted)
    table = table_of(ROWS, needed(declared), site="all")
    assert_allclose(rows_of(declared, table).X, np.column_stack(list(wanted.values())), rtol=1e-15)


def test_a_fit_with_an_interaction_is_the_pooled_maximum_of_likelihood():
    formula = "death ~ age + stage + age:stage"
    result = fit(model(formula, factors={"stage": LEVELS}), SITES)
    X = np.column_stack([np.ones(len(AGE)), *DESIGNS[formula].values()])
    b, covariance, _ = reweighted("logistic", X, ROWS["death"])
    assert_allclose(result.estimate, b, rtol=1e-9)
    assert_allclose(result.standard_error, np.sqrt(np.diag(covariance)), rtol=1e-9)


@settings(max_examples=40)
@given(
    st.lists(
        st.lists(st.sampled_from("abcxy"), min_size=1, max_size=4, unique=True),
        min_size=1, max_size=6,
    ),
    st.booleans(),
)  # fmt: skip
def test_blocks_span_all_terms_and_are_independent(terms, has_intercept):
    """Against the rank of the columns of all levels, which repeat each other."""
    rng = np.random.default_rng(0)
    levels = {"a": ("1", "2"), "b": ("1", "2", "3"), "c": ("1", "2")}
    codes = {name: rng.integers(0, len(of), 400).astype(float) for name, of in levels.items()}
    numbers = {"x": rng.standard_normal(400), "y": rng.standard_normal(400)}
    parsed = [tuple(Part(name) for name in term) for term in terms]
    found = blocks(parsed, levels, has_intercept=has_intercept)
    one = [np.ones((400, 1))] if has_intercept else []
    ours = np.hstack([*one, *(block.columns(numbers, codes, levels) for block in found)])
    every = list(one)
    for term in terms:
        columns = np.ones((400, 1))
        for name in term:
            part = numbers[name][:, None] if name in numbers else np.eye(3)[codes[name].astype(int)]
            columns = (columns[:, :, None] * part[:, None, :]).reshape(400, -1)
        every.append(columns)
    rank = np.linalg.matrix_rank(np.hstack(every))
    assert np.linalg.matrix_rank(ours) == ours.shape[1] == rank
    assert np.linalg.matrix_rank(np.hstack([ours, *every])) == rank
    assert sum(block.width(levels) for block in found) + has_intercept == rank


NAMES = st.text("aé_.1 :+(~", min_size=1, max_size=5)
PARTS = st.builds(Part, NAMES, st.sampled_from(["", "log"]), st.integers(1, 9))


@given(st.lists(PARTS, min_size=1, max_size=3, unique=True))
def test_a_term_is_read_from_its_text(parts):
    assert read_term(term_text(tuple(parts))) == tuple(parts)


def test_a_formula_and_its_columns_have_one_contract():
    ours = model("death ~ stage + age", factors={"stage": LEVELS})
    theirs = hg.Model(
        kind="logistic", outcome="death", columns=["stage", "age"], factors={"stage": LEVELS}
    )
    assert contract(ours) == contract(theirs)
    ours = model("death ~ age*stage", factors={"stage": LEVELS})
    theirs = hg.Model(
        kind="logistic", outcome="death", columns=["age", "stage"], factors={"stage": LEVELS},
        terms=["age", "stage", "age:stage"],
    )  # fmt: skip
    assert contract(ours) == contract(theirs)
    assert contract(ours)["terms"] != contract(model("death ~ age + dose"))["terms"]


def test_all_that_a_formula_says():
    found = read_formula("Surv(time, event) ~ 0 + b:a + `odd name` + b*a + offset(z) + a:b + 1")
    assert (found.outcome, found.event, found.offset) == ("time", "event", "z")
    assert [term_text(term) for term in found.terms] == ["`odd name`", "b", "a", "b:a"]
    assert found.intercept
    declared = model("Surv(time, event) ~ age", "cox")
    assert (declared.outcome, declared.event, declared.names) == ("time", "event", ("age",))
    assert model("visits ~ age + offset(log_exposure)", "poisson").offset == "log_exposure"


@pytest.mark.parametrize(
    ("formula", "place", "part"),
    [
        ("death age", 6, "left of the sign ~"),
        ("~ age", 0, "name of a column"),
        ("death ~", 7, "name of a column"),
        ("death ~ 1", 9, "at least one column"),
        ("death ~ age + + dose", 14, "name of a column"),
        ("death ~ age dose", 12, "joined by"),
        ("death ~ age - dose", 14, "only the intercept"),
        ("death ~ sin(age)", 8, "functions"),
        ("death ~ age^0", 12, "1 to 9"),
        ("death ~ age^10", 12, "1 to 9"),
        ("death ~ 2", 8, "1 and 0"),
        ("death ~ (age + dose)", 8, "name of a column"),
        ("death ~ `age", 8, "name of a column"),
        ("death ~ log(age", 15, "log(name)"),
        ("death ~ offset(a) + offset(b)", 20, "one offset"),
        ("Surv(time) ~ age", 9, "Surv(time, event)"),
    ],
)
def test_a_mistake_is_pointed_at(formula, place, part):
    with pytest.raises(ModelError) as refused:
        read_formula(formula)
    first, line, caret = str(refused.value).splitlines()
    assert part in first
    assert f"character {place + 1} is" in first
    assert line == f"  {formula}"
    assert caret == " " * (place + 2) + "^"


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (
            {"formula": "death ~ age", "columns": ["dose"]},
            "columns does not stand beside a formula",
        ),
        ({"formula": "death ~ age", "intercept": False}, "intercept does not stand beside"),
        ({"formula": "death ~ age + offset(z)"}, "offset belongs to poisson"),
        ({"formula": "death ~ death + age"}, "named twice"),
        ({"formula": "death ~ log(stage)", "factors": {"stage": LEVELS}}, "a power of a factor"),
        ({"formula": 3}, "formula is a text"),
        ({"outcome": "death", "columns": ["age"], "terms": ["age", "age:dosis"]}, "no column"),
        ({"outcome": "death", "columns": ["age", "dose"], "terms": ["age"]}, "no term uses"),
        ({"outcome": "death", "columns": ["age"], "terms": ["age age"]}, "a term is a product"),
        ({"columns": ["age"]}, "names the column of y"),
    ],
)
def test_a_model_refuses_by_name(options, part):
    with pytest.raises(ModelError, match="model: ") as refused:
        hg.Model(kind="logistic", **options)
    assert part in str(refused.value)


def test_a_logarithm_of_zero_and_a_huge_power_are_refused_by_row():
    site = {"y": [0, 1, 1], "x": [1.0, 0.0, 2.0]}
    with pytest.raises(ProblemError, match=r"site a: row 1: column x is 0\.0, but log\(x\) needs"):
        hg.fit(model("y ~ log(x)"), {"a": site})
    site = {"y": [0, 1, 1], "x": [1.0, 1e4, 2.0]}
    with pytest.raises(ProblemError, match=r"row 1: column x\^9 is (1e\+36|9\.99)"):
        hg.fit(model("y ~ x^9"), {"a": site})


def test_a_model_file_has_a_formula(tmp_path):
    file = tmp_path / "model.toml"
    file.write_text('[model]\nkind = "logistic"\nformula = "death ~ age*dose"\n')
    assert load_model(file).names == ("intercept", "age", "dose", "age:dose")
    file.write_text('[model]\nkind = "logistic"\nformula = "death ~ age*"\n')
    with pytest.raises(ModelError, match=r"model\.toml: model: formula: the name of a column"):
        load_model(file)
