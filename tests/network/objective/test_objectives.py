"""An agent's objective from its own file: the same as the library's on the pooled data."""

import csv
import subprocess
import sys

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.errors import ConfigError, MissingExtra, ProblemError
from hushgrad.network.objective.columns import read_columns
from hushgrad.network.objective.objectives import ObjectiveSpec, load_objective
from hushgrad.network.objective.units import Standardise
from hushgrad.schema.places import Source

SIZES = (40, 3, 17)  # rows of the agents: more and fewer than columns
NAMES = ("age", "dose", "weight", "pulse")


def rng():
    return np.random.default_rng(7)


def write(path, columns):
    """A dict of columns as CSV, Parquet or NPZ, with a column of text where the format has it."""
    if path.suffix == ".csv":
        with path.open("w", newline="") as file:
            out = csv.writer(file)
            out.writerow(["patient", *columns])
            for n, row in enumerate(zip(*columns.values(), strict=True)):
                out.writerow([f"p, {n}", *(repr(float(v)) for v in row)])
    elif path.suffix == ".parquet":
        table = pytest.importorskip("pyarrow").table(
            {"patient": ["p"] * len(columns["age"]), **columns}
        )
        pytest.importorskip("pyarrow.parquet").write_table(table, path, row_group_size=7)
    else:
        np.savez(path, **columns)
    return path


def agents(tmp_path, kind, suffix):
    """The agents' files, with the arrays that are in them."""
    draw = rng()
    theta = draw.normal(size=len(NAMES))
    files, parts, targets = [], [], []
    for i, n in enumerate(SIZES):
        X = draw.normal(size=(n, len(NAMES)))
        y = X @ theta + 0.3 * draw.normal(size=n)
        y = (y > 0).astype(float) if kind == "logistic" else y
        columns = dict(zip(NAMES, X.T, strict=True)) | {"outcome": y}
        files.append(write(tmp_path / f"agent{i}{suffix}", columns))
        parts.append(X)
        targets.append(y)
    return files, parts, targets


def spec_of(kind, file, **options):
    return ObjectiveSpec(
        kind=kind, file=file, n_agents=len(SIZES), columns=NAMES, target="outcome", **options
    )


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz"])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("kind", ["ridge", "logistic"])
def test_gradients_are_those_of_the_librarys_problem(tmp_path, kind, intercept, suffix):
    files, parts, targets = agents(tmp_path, kind, suffix)
    problem = getattr(hg.problems, kind)(parts, targets, regularisation=0.7, intercept=intercept)
    for i, file in enumerate(files):
        spec = spec_of(kind, file, regularisation=0.7, intercept=intercept)
        objective = load_objective(spec, problem.dim)
        for theta in rng().normal(size=(5, problem.dim)):
            expected = problem.local_gradient(i)(theta)
            np.testing.assert_allclose(objective.gradient(theta), expected, rtol=1e-12, atol=1e-12)
    assert str(SIZES[-1]) in objective.describe


LOSSES = {
    "least_squares": lambda theta, X, y: 0.5 * ((X @ theta - y) ** 2).sum(),
    "ridge": lambda theta, X, y: 0.5 * ((X @ theta - y) ** 2).sum() + 0.9 / 6 * (theta @ theta),
    "logistic": lambda theta, X, y: (
        np.log1p(np.exp(-(2 * y - 1) * (X @ theta))).sum() + 0.9 / 6 * (theta @ theta)
    ),
}


@pytest.mark.parametrize("kind", LOSSES)
def test_gradients_are_finite_differences_of_the_documented_loss(tmp_path, kind):
    files, parts, targets = agents(tmp_path, kind, ".csv")
    regularisation = 0.0 if kind == "least_squares" else 0.9
    for file, X, y in zip(files, parts, targets, strict=True):
        objective = load_objective(spec_of(kind, file, regularisation=regularisation), len(NAMES))
        theta = rng().normal(size=len(NAMES))
        steps = 1e-6 * np.eye(len(NAMES))
        difference = [
            (LOSSES[kind](theta + e, X, y) - LOSSES[kind](theta - e, X, y)) / 2e-6 for e in steps
        ]
        np.testing.assert_allclose(objective.gradient(theta), difference, rtol=1e-6, atol=1e-6)


def test_the_pooled_solution_is_scikit_learns(tmp_path):
    """Standardised with common constants, the sum of the gradients vanishes at sklearn's fit."""
    from sklearn.linear_model import LogisticRegression, Ridge

    mean, scale = (1.0, -2.0, 0.5, 0.0), (2.0, 0.5, 1.0, 3.0)
    common = Standardise(mean=mean, scale=scale)
    for kind in ("ridge", "logistic"):
        files, parts, targets = agents(tmp_path, kind, ".csv")
        X = (np.concatenate(parts) - mean) / scale
        y = np.concatenate(targets)
        fit = (
            Ridge(alpha=0.8, tol=1e-12)
            if kind == "ridge"
            else LogisticRegression(C=1 / 0.8, tol=1e-12, max_iter=10_000)
        ).fit(X, y)
        theta = np.append(fit.coef_.ravel(), fit.intercept_)
        options = {"regularisation": 0.8, "intercept": True, "standardise": common}
        parts_of = [load_objective(spec_of(kind, f, **options), 5).gradient(theta) for f in files]
        assert np.abs(parts_of).max() > 0.1  # each alone pulls
        np.testing.assert_allclose(np.sum(parts_of, axis=0), 0, atol=1e-6)


def test_labels_of_either_coding_are_the_same_objective(tmp_path):
    draw = rng()
    X, y = draw.normal(size=(20, 4)), draw.integers(0, 2, 20).astype(float)
    gradients = []
    for name, labels in (("a", y), ("b", 2 * y - 1)):
        columns = dict(zip(NAMES, X.T, strict=True)) | {"outcome": labels}
        file = write(tmp_path / f"{name}.csv", columns)
        gradients.append(load_objective(spec_of("logistic", file), 4).gradient(np.ones(4)))
    np.testing.assert_array_equal(*gradients)


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_an_agent_may_hold_one_class_alone(tmp_path, label):
    columns = dict(zip(NAMES, rng().normal(size=(4, 6)), strict=True))
    file = write(tmp_path / "a.csv", columns | {"outcome": np.full(6, label)})
    objective = load_objective(spec_of("logistic", file), 4)
    X = np.column_stack(list(columns.values()))
    np.testing.assert_allclose(objective.gradient(np.zeros(4)), (0.5 - label) * X.sum(axis=0))


def test_rendezvous_pulls_to_the_position_inline_or_in_a_file(tmp_path):
    (tmp_path / "p.csv").write_text("y,x\n4,3\n")
    inline = ObjectiveSpec(kind="rendezvous", n_agents=3, position=(3.0, 4.0))
    in_file = ObjectiveSpec(
        kind="rendezvous", n_agents=3, file=tmp_path / "p.csv", columns=("x", "y")
    )
    problem = hg.problems.rendezvous([[3.0, 4.0], [0.0, 0.0]])
    theta = np.array([1.0, -1.0])
    for spec in (inline, in_file):
        np.testing.assert_array_equal(
            load_objective(spec, 2).gradient(theta), problem.local_gradient(0)(theta)
        )
    (tmp_path / "p.csv").write_text("y,x\n4,3\n1,1\n")
    with pytest.raises(ProblemError, match=r"one vector, but .* has 2 rows"):
        load_objective(in_file, 2)


def test_matrices_of_an_npz_file_stand_for_their_columns(tmp_path):
    draw = rng()
    X, y = draw.normal(size=(9, 3)), draw.normal(size=9)
    np.savez(tmp_path / "d.npz", X=X[:, :2], z=X[:, 2], y=y)
    spec = ObjectiveSpec(
        kind="least_squares", n_agents=1, file=tmp_path / "d.npz", columns=("X", "z"), target="y"
    )
    theta = draw.normal(size=3)
    np.testing.assert_allclose(load_objective(spec, 3).gradient(theta), X.T @ (X @ theta - y))


# ---- what is wrong with a file is said by place

HEADER = "age,dose,weight,pulse,outcome\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEADER + "1,2,3,4,0\n1,,3,4,0\n", r"d\.csv:3: column dose is empty"),
        (HEADER + "1,2,3,4,0\n1,x,3,4,0\n", r"d\.csv:3: column dose is 'x', which is no finite"),
        (HEADER + "\n1,2,nan,4,0\n", r"d\.csv:3: column weight is nan"),
        (HEADER + '1,2,3,4,0\n1,2,3,"inf",0\n', r"d\.csv:3: column pulse is inf"),
        (HEADER + "1,2,3\n", r"d\.csv:2: the row has 3 cells and the header 5"),
        (HEADER + "1,2,3,4,2\n", r"d\.csv:2: column outcome is 2, but labels"),
        (HEADER + "1,2,3,4,0\n1,2,3,4,-1\n", r"d\.csv:3: .* is -1, .* others are 0"),
        (HEADER, "has no rows"),
        ("", r"d\.csv:1: there is no column 'outcome'"),
        (
            "Age,dose,weight,pulse,outcome\n",
            r"no column 'age'. Did you mean \"Age\"\? Allowed: Age",
        ),
        ("age,age,dose,weight,pulse,outcome\n", "the column 'age' is there twice"),
        (HEADER.replace(",", ";"), "set delimiter to the character between cells"),
        (HEADER + '1,2,3,4,"0\n', "cannot be read: unexpected end of data"),
    ],
)
def test_a_bad_cell_is_named_by_file_line_and_column(tmp_path, text, message):
    (tmp_path / "d.csv").write_text(text)
    with pytest.raises(ProblemError, match=message):
        load_objective(spec_of("logistic", tmp_path / "d.csv"), 4)


def test_cells_over_several_lines_do_not_shift_the_line_numbers(tmp_path):
    (tmp_path / "d.csv").write_text(
        'note,age,dose,weight,pulse,outcome\n"a\nb",1,2,3,4,0\nc,x,2,3,4,0\n'
    )
    with pytest.raises(ProblemError, match=r"d\.csv:4: column age is 'x'"):
        load_objective(spec_of("logistic", tmp_path / "d.csv"), 4)


def test_other_separators_and_byte_order_marks_are_read(tmp_path):
    (tmp_path / "d.csv").write_text("\ufeff" + HEADER.replace(",", ";") + "1;2;3;4;1\n")
    spec = spec_of("logistic", tmp_path / "d.csv", delimiter=";")
    np.testing.assert_array_equal(
        load_objective(spec, 4).gradient(np.zeros(4)), [-0.5, -1.0, -1.5, -2.0]
    )


def test_nulls_of_a_parquet_file_are_named_by_row(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {name: [1.0] * 9 for name in (*NAMES, "outcome")}
    columns["dose"][8] = None
    parquet.write_table(arrow.table(columns), tmp_path / "d.parquet", row_group_size=4)
    with pytest.raises(ProblemError, match=r"d\.parquet, row 9: column dose is empty"):
        load_objective(spec_of("ridge", tmp_path / "d.parquet"), 4)
    columns["dose"] = ["a"] * 9
    parquet.write_table(arrow.table(columns), tmp_path / "d.parquet")
    with pytest.raises(ProblemError, match="column dose holds values of type object"):
        load_objective(spec_of("ridge", tmp_path / "d.parquet"), 4)
    (tmp_path / "d.parquet").write_text("no")
    with pytest.raises(ProblemError, match="cannot be read as Parquet"):
        load_objective(spec_of("ridge", tmp_path / "d.parquet"), 4)


def test_a_parquet_file_of_many_batches_is_read_whole(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    x = np.arange(150_000.0)  # a batch has 65 536
    parquet.write_table(arrow.table({"x": x, "y": x % 7}), tmp_path / "d.parquet")
    block = read_columns(tmp_path / "d.parquet", ["y", "x"], ones=1)
    np.testing.assert_array_equal(block.values, np.column_stack([x % 7, x, np.ones_like(x)]))


def test_parquet_without_its_library_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "d.parquet").touch()
    with pytest.raises(MissingExtra, match=r"pip install 'hushgrad\[parquet\]'"):
        load_objective(spec_of("ridge", tmp_path / "d.parquet"), 4)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"age": np.ones(3)}, "there is no column 'outcome'"),
        ({n: np.ones(3 + (n == "dose")) for n in (*NAMES, "outcome")}, "unequal numbers .* dose 4"),
        ({n: np.array(["a"]) for n in (*NAMES, "outcome")}, "array outcome holds values of type"),
        ({n: np.ones((1, 1, 1)) for n in (*NAMES, "outcome")}, r"its shape is \(1, 1, 1\)"),
        ({n: np.full(2, np.inf) for n in (*NAMES, "outcome")}, "row 0: column outcome is inf"),
    ],
)
def test_bad_npz_files_are_refused(tmp_path, arrays, message):
    np.savez(tmp_path / "d.npz", **arrays)
    with pytest.raises(ProblemError, match=message):
        load_objective(spec_of("ridge", tmp_path / "d.npz"), 4)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04torn", b"text"])
def test_what_is_no_npz_is_said(tmp_path, content):
    (tmp_path / "d.npz").write_bytes(content)
    with pytest.raises(ProblemError, match="cannot be read"):
        load_objective(spec_of("ridge", tmp_path / "d.npz"), 4)


def test_pickles_are_never_read(tmp_path):
    columns = {n: np.array([1.0], object) for n in (*NAMES, "outcome")}
    np.savez(tmp_path / "d.npz", **columns)
    with pytest.raises(ProblemError, match="allow_pickle"):
        load_objective(spec_of("ridge", tmp_path / "d.npz"), 4)


@pytest.mark.parametrize(
    ("options", "dim", "message"),
    [
        ({}, 5, "dim = 5 entries .* columns are 4"),
        ({"intercept": True}, 4, "columns are 5, the intercept included"),
        ({"standardise": Standardise(mean=(0.0,), scale=(1.0,) * 4)}, 4, "has 1 means and 4"),
    ],
)
def test_what_does_not_fit_together_is_refused(tmp_path, options, dim, message):
    (tmp_path / "d.csv").write_text(HEADER + "1,2,3,4,0\n")
    with pytest.raises(ProblemError, match=message):
        load_objective(spec_of("ridge", tmp_path / "d.csv", **options), dim)


def test_unknown_kinds_of_files_are_refused(tmp_path):
    with pytest.raises(ProblemError, match=r"ends in '.xlsx'"):
        load_objective(spec_of("ridge", tmp_path / "d.xlsx"), 4)
    with pytest.raises(ProblemError, match="there is no data file"):
        load_objective(spec_of("ridge", tmp_path / "d.csv"), 4)


# ---- the user's own code

CODE = """
import numpy as np
buffer = np.zeros(2)
def gradient(theta):
    buffer[:] = 3 * theta
    return buffer
def loss(theta):
    return 1.5 * (theta @ theta)
def wide(theta):
    return np.ones(3)
def nothing(theta):
    return theta / 0.0
def greedy(theta):
    theta += 1
    return theta
def clumsy(theta):
    raise LookupError("no such thing")
"""


def function(tmp_path, name, **options):
    (tmp_path / "mine.py").write_text(CODE)
    source = Source("agent.toml", tmp_path, what="agent's file", raises=ConfigError)
    spec = ObjectiveSpec(
        kind="function", n_agents=3, function=f"mine.py:{name}", source=source, **options
    )
    return load_objective(spec, 2)


def test_functions_are_gradients_and_jax_losses_are_differentiated(tmp_path):
    theta = np.array([1.0, -2.0])
    by_hand = function(tmp_path, "gradient").gradient
    first = by_hand(theta)
    by_hand(0 * theta)
    np.testing.assert_array_equal(first, 3 * theta)  # the function's own buffer was copied
    derived = function(tmp_path, "loss", jax=True).gradient(theta)
    assert derived.dtype == np.float64
    np.testing.assert_allclose(derived, 3 * theta, rtol=1e-15)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wide", r"gives \(3,\)"),
        ("loss", r"gives \(\)"),
        ("greedy", "raised ValueError: .*read-only"),
    ],
)
def test_what_a_function_does_wrong_is_said(tmp_path, name, message):
    theta = np.array([1.0, 2.0])
    with pytest.raises(ProblemError, match=message):
        function(tmp_path, name).gradient(theta)
    np.testing.assert_array_equal(theta, [1.0, 2.0])


@pytest.mark.parametrize("jax", [False, True])
def test_whatever_a_function_raises_names_the_function(tmp_path, jax):
    with pytest.raises(ProblemError, match=r"mine\.py:clumsy raised LookupError: no such thing"):
        function(tmp_path, "clumsy", jax=jax).gradient(np.array([1.0, 2.0]))


def test_gradients_that_are_not_finite_are_refused(tmp_path):
    with np.errstate(divide="ignore"), pytest.raises(ProblemError, match="gives inf in entry 0"):
        function(tmp_path, "nothing").gradient(np.array([1.0, 2.0]))


def test_what_a_gradient_gives_may_be_changed():
    def frozen(theta):
        g = 2 * theta
        g.flags.writeable = False
        return g

    g = load_objective(frozen, 2).gradient(np.ones(2))
    g += 1
    np.testing.assert_array_equal(g, [3.0, 3.0])


def test_finite_gradients_whose_sum_is_not_are_taken():
    huge = np.array([1e308, 1e308])
    np.testing.assert_array_equal(load_objective(np.copy, 2).gradient(huge), huge)


def test_a_missing_function_is_named_with_its_place(tmp_path):
    with pytest.raises(ConfigError, match=r'agent\.toml: objective\.function .* "gradient"'):
        function(tmp_path, "gradent")


@pytest.mark.parametrize("kind", [np.asarray, np.float32, list])
def test_a_gradient_of_the_callers_is_taken_as_it_is(kind):
    objective = load_objective(lambda theta: kind(theta - 1), 2)
    np.testing.assert_array_equal(objective.gradient(np.zeros(2)), [-1.0, -1.0])


def test_built_ins_load_no_heavy_library(tmp_path):
    (tmp_path / "d.csv").write_text(HEADER + "1,2,3,4,0\n")
    code = f"""
from pathlib import Path
import numpy as np
from hushgrad.network.objective.objectives import ObjectiveSpec, load_objective
for kind in ("ridge", "logistic"):
    spec = ObjectiveSpec(kind=kind, n_agents=1, file=Path({str(tmp_path / "d.csv")!r}),
                         columns={NAMES!r}, target="outcome")
    load_objective(spec, 4).gradient(np.ones(4))
import sys; print(*sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & {"jax", "scipy", "sklearn", "networkx", "pyarrow"}
