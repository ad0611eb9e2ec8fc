"""`hg.tune` against separate runs, agent by agent in NumPy."""

import json
from dataclasses import dataclass

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.errors import InputError, StepsizeError
from hushgrad.studies import parse_study
from support import cases

Q = cases.Quadratics(by_hand=True)
NETWORK = cases.undirected()
STEPSIZES = [0.05, 0.2, 0.6, 4.0]
TARGET = 1e-3


def tuned(algorithms, **options):
    options = {"iterations": 120, "record_every": 1, "target": TARGET, **options}
    return hg.tune(algorithms, Q.problem, NETWORK, x0=Q.x0, seed=4, **options)


def alone(algorithm, **options):
    return hg.run(
        algorithm, Q.problem, NETWORK, iterations=120, record_every=1, x0=Q.x0, seed=4,
        engine="agents", **options,
    )  # fmt: skip


@pytest.fixture(scope="module")
def grid():
    return tuned({"EXTRA": hg.EXTRA(), "Aug": hg.AugDGM()}, stepsizes=STEPSIZES, trials=2)


@pytest.mark.parametrize(
    ("label", "method"),
    [pytest.param("EXTRA", hg.EXTRA, marks=pytest.mark.slow), ("Aug", hg.AugDGM)],
)
def test_every_cell_is_the_run_that_it_would_be_alone(grid, label, method):
    for cell, value in zip(grid[label].cells, STEPSIZES, strict=True):
        run = alone(method(stepsize=hg.stepsizes.constant(value)), trials=2)
        assert cell.settings == {"stepsize": value}
        assert cell.algorithm == method(stepsize=hg.stepsizes.constant(value))
        if "diverged" in run.status[0]:
            assert (cell.n_diverged, cell.error, cell.iterations) == (2, np.inf, None)
            continue
        expected = run.median_error
        if expected[-1] > 1e6:  # it grows, and has not left all bounds yet
            np.testing.assert_allclose(cell.median_error, expected, rtol=1e-9)
            continue
        np.testing.assert_allclose(cell.median_error, expected, rtol=0, atol=1e-12)
        reached = [int(k) for k, e in zip(run.iterations, expected, strict=True) if e <= TARGET]
        assert cell.iterations == (reached[0] if reached else None)
        if reached:
            assert cell.rounds == reached[0] * run.rounds_per_iteration
            assert cell.bytes == pytest.approx(reached[0] * run.bytes_per_iteration)
            assert cell.gradients == reached[0] * run.traffic.gradients_per_iteration


def test_the_best_is_the_cheapest_cell_that_stays_finite(grid):
    for method in grid:
        best = method.best()
        reached = [c.iterations for c in method.cells if c.iterations is not None]
        assert best.iterations == min(reached)
        assert method.best("error").error == min(c.error for c in method.cells)
        assert grid.best[method.label] == best.algorithm
    aug, extra = grid["Aug"].best("rounds"), grid["EXTRA"].best("rounds")
    assert (aug.rounds, extra.rounds) == (2 * aug.iterations, extra.iterations)


def test_the_largest_stepsize_diverges_and_is_marked():
    found = tuned(hg.EXTRA(), stepsizes=[0.1, 9.0], iterations=400, record_every=20)
    assert [cell.n_diverged for cell in found[0].cells] == [0, 1]
    assert found.rows()[0]["diverged_cells"] == 1
    assert "1 of 2" in str(found)
    early = tuned(hg.EXTRA(), stepsizes=[0.1, 9.0], iterations=40, record_every=20)
    assert [cell.n_diverged for cell in early[0].cells] == [0, 1]  # 1e60 and still finite
    assert np.isfinite(early[0].cells[1].median_error).all()
    hopeless = tuned(hg.EXTRA(), stepsizes=[8.0, 9.0], iterations=400, record_every=20)
    assert hopeless.best == {"EXTRA": None}
    assert hopeless.rows()[0]["iterations"] is None


def test_output_can_be_read_by_people_latex_and_programs(grid, tmp_path):
    text = str(grid)
    assert "EXTRA" in text
    assert "Best by the fewest iterations to 0.001" in text
    document = json.loads(grid.to_json())
    assert [len(m["cells"]) for m in document["methods"]] == [4, 4]
    assert document["best"][0]["iterations"] == grid["EXTRA"].best().iterations
    latex = grid.latex()
    assert latex.count("\\\\\n") == 3
    assert f"& {grid['Aug'].best().rounds} &" in latex
    figure = grid.plot(tmp_path / "t.svg")
    (axes,) = figure.axes
    stars = [line for line in axes.get_lines() if line.get_marker() == "*"]
    best = grid["EXTRA"].best()
    assert stars[0].get_xydata().tolist() == [[best.settings["stepsize"], best.iterations]]
    assert (tmp_path / "t.svg").stat().st_size > 0


def test_a_grid_of_other_parameters_applies_where_it_can():
    private = hg.PDGNDS(split=hg.splits.private_constant(own=0.4))
    found = tuned(
        [private, hg.EXTRA()],
        grid={"stepsize.value": [0.05, 0.1], "split.own": [0.3, 0.6]},
        iterations=40, by="error",
    )  # fmt: skip
    assert [len(method.cells) for method in found] == [4, 2]
    cell = found[0].cells[1]
    assert cell.settings == {"stepsize.value": 0.05, "split.own": 0.6}
    run = hg.run(
        hg.PDGNDS(
            stepsize=hg.stepsizes.constant(0.05), split=hg.splits.private_constant(own=0.6)
        ),
        Q.problem, NETWORK, iterations=40, x0=Q.x0, seed=4, engine="agents",
    )  # fmt: skip
    assert cell.error == pytest.approx(run.error[0, -1], abs=1e-12)


@dataclass(frozen=True, kw_only=True)
class Cautious(hg.EXTRA):
    """EXTRA that looks at its stepsize."""

    def lam(self, agent):
        return self.stepsize.value / (2.0 if self.stepsize.value > 0.1 else 1.0)


def test_a_step_that_looks_at_its_number_is_tuned_cell_by_cell():
    found = tuned(Cautious(), stepsizes=[0.05, 0.2])
    for cell, used in zip(found[0].cells, (0.05, 0.1), strict=True):
        expected = alone(hg.EXTRA(stepsize=hg.stepsizes.constant(used))).median_error
        np.testing.assert_allclose(cell.median_error, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("error", "message", "options"),
    [
        (InputError, "has none", {"stepsizes": []}),
        (InputError, "no method has 'split.own'", {"grid": {"split.own": [0.3]}}),
        (InputError, "a list of values", {"grid": {"stepsize.value": 0.3}}),
        (StepsizeError, "positive", {"stepsizes": [-1.0]}),
        (InputError, "target", {"target": 0.0}),
        (InputError, "by = 'speed'", {"by": "speed"}),
    ],
)
def test_mistakes_are_named(error, message, options):
    with pytest.raises(error, match=message):
        tuned(hg.EXTRA(), **options)


def test_a_study_has_its_grid_in_a_table(tmp_path):
    study = parse_study(
        """
        [network]
        graph = "ring"
        n_agents = 4
        [problem]
        kind = "estimation"
        [[algorithm]]
        name = "EXTRA"
        [run]
        iterations = 50
        [tune]
        stepsizes = [0.05, 0.1]
        target = 0.5
        by = "bytes"
        """
    )
    found = study.tune(False)
    assert (found.by, found.target, found.iterations) == ("bytes", 0.5, 50)
    assert [cell.settings["stepsize"] for cell in found[0].cells] == [0.05, 0.1]
    with pytest.raises(hg.errors.StudyError, match=r"tune\.stepsizes"):
        parse_study({**study.tables, "tune": {"stepsizes": ["fast"]}})
