"""Data by the agents' numbers: made for those that are asked for, summed part by part."""

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.errors import ProblemError
from hushgrad.problems import late

M = np.random.default_rng(0).normal(size=(50, 3, 2))
Z = np.random.default_rng(1).normal(size=(50, 3))


def loss(theta, data):
    away = data["M"] @ theta - data["z"]
    return away @ away


def rows(agents):
    return {"M": M[agents], "z": Z[agents]}


def test_rows_by_number_are_the_problem_of_the_same_arrays(monkeypatch):
    monkeypatch.setattr(late, "PART", 7)
    whole = hg.Problem(loss, {"M": M, "z": Z})
    by_number = hg.Problem(loss, hg.problems.AgentRows(50, rows, "rows"), dim=2)
    theta = np.array([0.3, -1.0])
    assert by_number.solution() == pytest.approx(whole.solution(), abs=1e-14)
    assert by_number.smoothness() == pytest.approx(whole.smoothness(), rel=1e-14)
    assert by_number.value(theta) == pytest.approx(whole.value(theta), rel=1e-14)
    assert by_number.gradient_sum(theta) == pytest.approx(whole.gradient_sum(theta), rel=1e-13)
    assert np.array_equal(by_number.agent_data(8)["M"], M[8])
    assert np.array_equal(by_number.data["z"], Z)


def test_rows_from_several_files(tmp_path):
    for name, array in (("M", M), ("z", Z)):
        for n, part in enumerate(np.split(array, [11, 30])):
            np.save(tmp_path / f"{name}-{n}.npy", part)
    found = hg.problems.rows_from_files({k: tmp_path / f"{k}-*.npy" for k in ("M", "z")})
    some = np.array([3, 10, 11, 29, 49])
    assert found.n_agents == 50
    assert np.array_equal(found.make(some)["M"], M[some])
    assert np.array_equal(found.make(some)["z"], Z[some])
    with pytest.raises(ProblemError, match="no file matches"):
        hg.problems.rows_from_files({"M": tmp_path / "X-*.npy"})
    with pytest.raises(ProblemError, match="one row for each agent, but"):
        hg.problems.rows_from_files({"M": tmp_path / "M-*.npy", "z": tmp_path / "z-0.npy"})


def test_addressed_data_of_some_agents_are_drawn_without_the_others(monkeypatch):
    monkeypatch.setattr(late, "DRAWN", 8)
    problem = hg.problems.estimation(30, 3, 2, seed=4, addressed=True)
    some = np.array([2, 7, 8, 29])
    for name, leaf in problem.rows(some).items():
        assert np.array_equal(leaf, problem.data[name][some])
    drawn = problem.data["M"]
    assert len(np.unique(drawn)) == drawn.size
    pooled = hg.problems.estimation_from(drawn, problem.data["z"], sigma=0.1)
    assert problem.solution() == pytest.approx(pooled.solution(), abs=1e-13)
    assert problem.smoothness() == pooled.smoothness()


def test_wrong_rows_are_refused():
    with pytest.raises(ProblemError, match="for 1 agents they gave 50"):
        hg.Problem(loss, hg.problems.AgentRows(50, lambda _: {"M": M, "z": Z}, "all"), dim=2)
    with pytest.raises(ProblemError, match="the same in every trial"):
        hg.Problem(loss, hg.problems.AgentRows(50, rows, "rows"), dim=2, per_trial=True)
    with pytest.raises(ProblemError, match="the same in every trial"):
        hg.problems.estimation(5, addressed=True, trials=3)
