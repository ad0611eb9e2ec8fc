"""Every refusal names the rule, the place, the value and the way out."""

import jax.numpy as jnp
import numpy as np
import pytest

from hushgrad.errors import ProblemError
from hushgrad.problems import (
    Problem,
    dataset,
    estimation,
    estimation_from,
    huber,
    logistic,
    rendezvous,
    ridge,
)


def total(theta, data):
    return sum(jnp.sum(leaf) for leaf in data.values()) * jnp.sum(theta)


def at(shape, place, value):
    array = np.zeros(shape)
    array[place] = value
    return array


ROWS = [np.ones((2, 3)), np.ones((4, 3))], [np.ones(2), np.ones(4)]

CASES = {
    "agent axis": (
        lambda: Problem(total, {"X": np.ones((3, 2)), "y": np.ones((4, 2))}, dim=1),
        ["agents", "data['X']", "3", "data['y']", "4", "list"],
    ),
    "no agent axis": (
        lambda: Problem(total, {"X": np.ones((3, 2)), "scale": 2.0}, dim=1),
        ["data['scale']", "()", "broadcast_to"],
    ),
    "trial axis": (
        lambda: Problem(total, {"X": np.ones((3, 2)), "y": np.ones((4, 2))}, dim=1, per_trial=True),
        ["trials", "data['y']", "4"],
    ),
    "list with trials": (
        lambda: Problem(total, [{"X": np.ones(2)}] * 3, per_trial=True),
        ["per_trial=True", "list of 3", "Stack"],
    ),
    "zero agents": (
        lambda: Problem(total, {"X": np.ones((0, 2))}, dim=1),
        ["agents", "data['X']", "(0, 2)"],
    ),
    "empty list": (lambda: Problem(total, [], dim=1), ["at least one agent", "empty"]),
    "no arrays": (lambda: Problem(total, {}, dim=1), ["at least one array"]),
    "agent without arrays": (
        lambda: Problem(total, [{}], dim=1),
        ["at least one array", "agent 0"],
    ),
    "empty array": (
        lambda: Problem(total, {"X": np.ones((3, 0))}, dim=1),
        ["data['X']", "(3, 0)", "empty"],
    ),
    "empty agent": (
        lambda: Problem(total, [{"X": np.ones(2)}, {"X": np.ones(0)}], dim=1),
        ["data[1]['X']", "agent 1", "(0,)"],
    ),
    "nan": (
        lambda: Problem(total, {"X": at((3, 4, 2), (2, 3, 1), np.nan)}, dim=1),
        ["data['X']", "agent 2", "nan", "(3, 1)", "impute"],
    ),
    "infinite in a trial": (
        lambda: Problem(total, {"X": at((3, 4, 2), (2, 3, 1), -np.inf)}, dim=1, per_trial=True),
        ["data['X']", "trial 2, agent 3", "-inf", "(1,)"],
    ),
    "nan in a list": (
        lambda: Problem(total, [{"X": np.ones(2)}, {"X": at(3, 2, np.nan)}], dim=1),
        ["data['X']", "agent 1", "nan", "(2,)"],
    ),
    "strings": (
        lambda: Problem(total, {"X": np.array(["a", "b"])}, dim=1),
        ["data['X']", "<U1", "float64"],
    ),
    "strings in a list": (
        lambda: Problem(total, [{"X": np.ones(2)}, {"X": "no"}], dim=1),
        ["data[1]['X']", "<U2"],
    ),
    "complex": (
        lambda: Problem(total, {"X": np.ones(3, complex)}, dim=1),
        ["real", "data['X']", "complex128"],
    ),
    "structure": (
        lambda: Problem(total, [{"X": np.ones(2), "y": np.ones(2)}, {"X": np.ones(2)}], dim=1),
        ["structure", "agent 1 lacks ['y']", "agent 0"],
    ),
    "loss not scalar": (
        lambda: Problem(lambda t, a: t * a, np.ones((3, 2)), dim=2),
        ["loss", "()", "agent 0", "(2,)", "Sum"],
    ),
    "loss not scalar for some agent": (
        lambda: Problem(
            lambda t, a: t.sum() if a.size == 2 else t, [np.ones(2), np.ones(3)], dim=2
        ),
        ["loss", "agent 1", "(2,)"],
    ),
    "loss not scalar in NumPy": (
        lambda: Problem(lambda t, a: t * a, np.ones((3, 2)), dim=2, gradient=lambda t, a: t * a),
        ["loss", "(2,)"],
    ),
    "loss raises": (
        lambda: Problem(lambda t, a: (a["Y"] @ t).sum(), {"X": np.ones((3, 2))}, dim=2),
        ["loss", "agent 0", "KeyError: 'Y'", "dim="],
    ),
    "loss not traceable": (
        lambda: Problem(lambda t, a: float(t.sum()), np.ones((3, 2)), dim=2),
        ["loss", "ConcretizationTypeError", "jax.numpy"],
    ),
    "loss an integer": (
        lambda: Problem(lambda t, a: a.sum(), np.ones((3, 2), int), dim=2),
        ["loss", "'i'"],
    ),
    "gradient shape": (
        lambda: Problem(
            lambda t, a: (t * a).sum(), np.ones((3, 2)), gradient=lambda t, a: (t * a).sum()
        ),
        ["gradient", "(2,)", "()", "∇loss"],
    ),
    "dim by none": (
        lambda: Problem(lambda t, a: t @ t * a, np.ones(3)),
        ["none", "[]", "dim="],
    ),
    "dim by several": (
        lambda: Problem(lambda t, a: t @ t * a.sum(), np.ones((3, 2, 5))),
        ["[2, 5]", "dim="],
    ),
    "dim": (lambda: Problem(lambda t, a: t @ t, np.ones(3), dim=0), ["dim", "positive", "0"]),
    "agent number": (lambda: estimation().agent_data(5), ["0 to 4", "5"]),
    "no trial": (
        lambda: estimation(trials=3).local_gradient(0),
        ["trial=", "0 to 2", "None"],
    ),
    "trial number": (lambda: estimation(trials=3).agent_data(0, 3), ["0 to 2", "3"]),
    "theta": (lambda: estimation().value(np.zeros(3)), ["(2,)", "(3,)"]),
    "given solution": (
        lambda: Problem(lambda t, a: t @ a, np.ones((3, 2)), solution=[1.0]).solution(),
        ["(2,)", "(1,)", "solution="],
    ),
    "unknown strong convexity": (
        lambda: Problem(lambda t, a: t @ a, np.ones((3, 2))).strong_convexity(),
        ["strong_convexity="],
    ),
    "count": (lambda: estimation(0), ["n_agents", "positive", "0"]),
    "count not whole": (lambda: estimation(s=2.5), ["s is", "2.5"]),
    "seed": (lambda: estimation(seed=-1), ["seed", "-1"]),
    "noise": (lambda: estimation(noise=-0.1), ["noise", "-0.1"]),
    "trials": (lambda: estimation(trials=0), ["trials", "0"]),
    "sigma": (
        lambda: estimation_from(np.ones((2, 1, 1)), np.ones((2, 1)), sigma=[1, -1]),
        ["sigma", "2 agents", "[1, -1]"],
    ),
    "positions": (lambda: rendezvous([1.0, 2.0]), ["positions", "(agents, d)", "(2,)"]),
    "positions and count": (
        lambda: rendezvous([[1.0], [2.0]], n_agents=3),
        ["n_agents", "(2, 1)", "3"],
    ),
    "positions not finite": (lambda: rendezvous([[1.0], [np.nan]]), ["['p']", "agent 1", "nan"]),
    "pooled rows": (
        lambda: ridge(np.ones((4, 3)), np.ones(4)),
        ["X[0]", "(rows, d)", "(3,)", "divided"],
    ),
    "not rows": (lambda: ridge(3.0, 4.0), ["X and y", "float", "Divide"]),
    "rows as text": (lambda: ridge([[["a"]]], [[1.0]]), ["X[0]", "<U1"]),
    "ragged rows": (lambda: ridge([[[1.0], [1.0, 2.0]]], [[1.0, 2.0]]), ["X[0]", "rows, d"]),
    "agents of X and y": (lambda: ridge(ROWS[0], ROWS[1][:1]), ["2", "1", "equally many"]),
    "rows of X and y": (
        lambda: ridge(ROWS[0], [np.ones(2), np.ones(3)]),
        ["X[1]", "y[1]", "4 rows", "3 entries"],
    ),
    "columns": (
        lambda: huber([np.ones((2, 3)), np.ones((4, 2))], ROWS[1]),
        ["X[1]", "agent 1", "2", "3"],
    ),
    "regularisation": (lambda: ridge(*ROWS, regularisation=-1), ["regularisation", "-1"]),
    "delta": (lambda: huber(*ROWS, delta=0), ["delta", "above 0"]),
    "rows not finite": (
        lambda: ridge([at((2, 3), (1, 2), np.inf)], [np.ones(2)]),
        ["data['X']", "agent 0", "inf", "(1, 2)"],
    ),
    "labels": (
        lambda: logistic(ROWS[0], [[1, 1], [1, -1, 2, 1]]),
        ["{0, 1}", "{-1, 1}", "row 2 of agent 1", "2"],
    ),
    "labels of both codings": (
        lambda: logistic(ROWS[0], [[1, -1], [1, 0, 1, 1]]),
        ["row 1 of agent 0", "-1 while others have 0"],
    ),
    "continuous labels": (
        lambda: logistic(dataset="diabetes", n_agents=3),
        ["Labels", "agent 0"],
    ),
    "no data": (lambda: ridge(), ["X is missing", "dataset=", "diabetes"]),
    "no targets": (lambda: ridge(ROWS[0]), ["y is missing"]),
    "rows and dataset": (lambda: ridge(*ROWS, dataset="diabetes"), ["both", "'diabetes'"]),
    "rows and options": (lambda: ridge(*ROWS, n_agents=2), ["'n_agents'", "dataset"]),
    "unknown option": (
        lambda: ridge(dataset="diabetes", agents=2),
        ["'agents'", "n_agents", "skew"],
    ),
    "dataset": (lambda: dataset("iris", 3), ["'iris'", "breast_cancer, diabetes, digits"]),
    "split": (lambda: dataset("digits", 3, split="odd"), ["'odd'", "label_skew"]),
    "skew": (lambda: dataset("digits", 3, split="label_skew", skew=2), ["skew", "2"]),
    "sizes": (lambda: dataset("digits", 3, sizes=[1, 2]), ["3 agents", "[1, 2]"]),
    "sizes not positive": (lambda: dataset("digits", 2, sizes=[1, 0]), ["positive", "[1, 0]"]),
    "too many agents": (
        lambda: dataset("diabetes", 443),
        ["at least one of the 442 rows", "443", "fewer agents"],
    ),
    "positive of a number": (lambda: dataset("diabetes", 2, positive=[1]), ["positive=", "[1]"]),
    "positive unknown": (lambda: dataset("digits", 2, positive=[1, 10]), ["[1, 10]", "classes"]),
    "positive all": (lambda: dataset("breast_cancer", 2, positive=[0, 1]), ["not all", "[0, 1]"]),
}


@pytest.mark.parametrize("case", CASES)
def test_refusal_names_rule_place_value_and_way_out(case):
    act, parts = CASES[case]
    with pytest.raises(ProblemError) as caught:
        act()
    message = str(caught.value)
    assert [part for part in parts if part not in message] == [], message
