import re
import subprocess
import sys
import threading
import xml.etree.ElementTree as ET
from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest

from hushgrad.errors import InputError
from hushgrad.report.plots import Curve, curve, plot_runs
from hushgrad.simulate.result import Run, Traffic


def make_run(label="PDG-DS", trials=7, samples=12, seed=0, error=None, status=None, **changes):
    rng = np.random.default_rng(seed)
    if error is None:
        error = 10.0 ** -np.linspace(0, 8, samples) * rng.uniform(0.5, 2.0, (trials, samples))
    trials, samples = error.shape
    made = Run(
        title=label,
        label=label,
        error=error,
        consensus=error / 3,
        iterations=5 * np.arange(samples),
        x=rng.normal(size=(trials, 4, 2)),
        solution=np.zeros(2),
        status=status or ("converged",) * trials,
        trials=np.arange(trials),
        seed=0,
        traffic=Traffic(1, 8, 0, 1.0, 2.0, 128.0),
        seconds=0.1,
    )
    return replace(made, **changes)


def lines(figure):
    return figure.axes[0].get_lines()


def legend(figure):
    return [text.get_text() for text in figure.axes[0].get_legend().get_texts()]


def test_each_line_is_the_median_over_trials_at_every_sample():
    runs = [make_run("a", seed=1), make_run("b", trials=6, seed=2)]
    for run, line in zip(runs, lines(plot_runs(runs)), strict=True):
        middle = np.sort(run.error, axis=0)
        n = len(run.error)
        np.testing.assert_allclose(line.get_ydata(), (middle[(n - 1) // 2] + middle[n // 2]) / 2)
        np.testing.assert_array_equal(line.get_xdata(), run.iterations)


def test_the_band_spans_the_quantiles_asked_for():
    run = make_run(trials=11)  # quantile 0.2 of 11 sorted values is the third
    (patch,) = plot_runs([run], band=(0.2, 0.8)).axes[0].collections
    corners = patch.get_paths()[0].vertices
    for k, low, high in zip(run.iterations, *np.sort(run.error, axis=0)[[2, 8]], strict=True):
        at = corners[corners[:, 0] == k, 1]
        np.testing.assert_allclose([at.min(), at.max()], [low, high])


def test_one_trial_has_a_line_and_no_band():
    figure = plot_runs([make_run(trials=1)])
    assert len(lines(figure)) == 1
    assert not figure.axes[0].collections
    assert figure.axes[0].get_legend().get_title().get_text() == ""


def test_runs_differ_in_colour_and_in_line_style():
    drawn = lines(plot_runs([make_run(str(n)) for n in range(6)]))
    assert len({line.get_color() for line in drawn}) == 6
    assert len({str(line._unscaled_dash_pattern) for line in drawn}) == 6


def test_many_entries_go_below_the_axes_and_cover_no_line():
    figure = plot_runs([make_run(f"method {n}") for n in range(7)])
    figure.canvas.draw()
    assert figure.axes[0].get_legend() is None
    (below,) = figure.legends
    assert len(below.get_texts()) == 7
    assert not below.get_window_extent().overlaps(figure.axes[0].get_tightbbox())


def test_labels_say_the_mathematics_and_the_trials():
    figure = plot_runs([make_run("PDG-DS, B=I")])
    axes = figure.axes[0]
    assert axes.get_yscale() == "log"
    assert r"\max_i" in axes.get_ylabel()
    assert r"\theta^{*}" in axes.get_ylabel()
    assert axes.get_xlabel().startswith("iteration")
    assert legend(figure) == ["PDG-DS, B=I"]
    assert axes.get_legend().get_title().get_text() == "median of 7 trials,\n10–90 % shaded"


def test_diverged_trials_are_counted_in_the_legend_and_do_not_stretch_the_axis():
    good = make_run("good", trials=10)
    error = good.error.copy()
    error[:3, 5:] = [1e90, 1e99, np.inf, np.nan, np.nan, np.nan, np.nan]
    bad = make_run("bad", error=error, status=("diverged at 30",) * 3 + ("converged",) * 7)
    figure = plot_runs([good, bad])
    assert legend(figure) == ["good", "bad (3 of 10 diverged)"]
    assert figure.axes[0].get_ylim()[1] < 100
    np.testing.assert_array_equal(lines(figure)[1].get_ydata(), bad.median_error)


def test_a_line_ends_where_its_median_diverges():
    error = 10.0 ** np.arange(0, 120, 10)[None].repeat(4, 0)
    error[:, 8:] = np.nan
    figure = plot_runs([make_run("lost", error=error, status=("diverged at 40",) * 4)])
    drawn = lines(figure)[0].get_ydata()
    assert np.isfinite(drawn[:8]).all()
    assert np.isnan(drawn[8:]).all()
    assert legend(figure) == ["lost (4 of 4 diverged)"]
    assert figure.axes[0].get_ylim()[1] < 1e5


def test_a_single_diverged_trial_is_called_diverged():
    error = np.array([[1.0, 1e80, np.nan]])
    assert legend(plot_runs([make_run("lost", error=error)])) == ["lost (diverged)"]


def test_zeros_leave_the_limits_to_what_is_positive(tmp_path):
    error = np.array([[1.0, 1e-3, 0.0], [2.0, 1e-3, 0.0], [4.0, 1e-4, 0.0]])
    figure = plot_runs([make_run(error=error)], tmp_path / "zeros.svg")
    low, high = figure.axes[0].get_ylim()
    assert 1e-5 < low < 1e-3
    assert 3 < high < 10
    np.testing.assert_array_equal(lines(figure)[0].get_ydata(), [2.0, 1e-3, 0.0])


def test_a_run_that_is_exact_from_the_start_can_be_drawn(tmp_path):
    plot_runs([make_run(error=np.zeros((2, 3)))], tmp_path / "exact.png", log_x=True)
    assert (tmp_path / "exact.png").stat().st_size > 1000


def test_a_log_axis_of_iterations_starts_after_zero():
    run = make_run()
    figure = plot_runs([run], log_x=True)
    assert figure.axes[0].get_xscale() == "log"
    np.testing.assert_array_equal(lines(figure)[0].get_xdata(), run.iterations[1:])
    assert figure.axes[0].get_xlim()[0] == run.iterations[1]


def test_consensus_and_sampled_metrics_can_be_drawn():
    run = make_run(metrics={"cost": np.full((7, 12), 2.0)})
    np.testing.assert_allclose(
        lines(plot_runs([run], metric="consensus"))[0].get_ydata(), np.median(run.consensus, 0)
    )
    figure = plot_runs([run], metric="cost")
    assert figure.axes[0].get_ylabel() == "cost"
    with pytest.raises(InputError, match="error, consensus, cost, but metric = 'speed'"):
        plot_runs([run], metric="speed")


@pytest.mark.parametrize(
    "ending", ["svg", pytest.param("png", marks=pytest.mark.slow)]
)  # test_export.py has all three endings
def test_the_same_runs_give_the_same_bytes(tmp_path, ending):
    for name in "ab":
        plot_runs([make_run("a"), make_run("b", seed=2)], tmp_path / f"{name}.{ending}", title="t")
    first, second = ((tmp_path / f"{name}.{ending}").read_bytes() for name in "ab")
    assert first == second
    assert len(first) > 1000
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"a.{ending}", f"b.{ending}"]


def test_svg_keeps_text_as_text_and_has_no_date(tmp_path):
    plot_runs([make_run("PDG-DS, B=I & <more> $x$")], tmp_path / "a.svg", title="A title")
    svg = (tmp_path / "a.svg").read_text()
    texts = [
        "".join(e.itertext()).strip() for e in ET.fromstring(svg).iter() if e.tag.endswith("}text")
    ]
    assert {"PDG-DS, B=I & <more> $x$", "A title"} <= set(texts)
    assert "dc:date" not in svg


def test_png_has_200_dots_per_inch_and_pdf_embeds_truetype(tmp_path):
    plot_runs([make_run()], tmp_path / "a.png")
    png = (tmp_path / "a.png").read_bytes()
    assert int.from_bytes(png[16:20]) == 700  # 3.5 inches
    plot_runs([make_run()], tmp_path / "a.pdf")
    pdf = (tmp_path / "a.pdf").read_bytes()
    assert b"/Subtype /Type3" not in pdf
    assert b"/CIDFontType2" in pdf or b"/TrueType" in pdf
    assert b"CreationDate" not in pdf


def test_missing_directories_are_made_and_bad_places_named(tmp_path):
    plot_runs([make_run()], tmp_path / "new" / "a.svg")
    assert (tmp_path / "new" / "a.svg").exists()
    with pytest.raises(InputError, match=re.escape(str(tmp_path / "new" / "a.svg"))):
        plot_runs([make_run()], tmp_path / "new" / "a.svg" / "b.svg")


@pytest.mark.parametrize("name", ["a.jpg", "a", "a.svg.txt"])
def test_other_endings_are_refused_with_the_allowed_ones(tmp_path, name):
    with pytest.raises(InputError, match=r"\.png, \.svg, \.pdf"):
        plot_runs([make_run()], tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_no_runs_and_upside_down_bands_are_refused():
    with pytest.raises(InputError, match="at least one run"):
        plot_runs([])
    with pytest.raises(InputError, match=r"band = \(0\.9, 0\.1\)"):
        plot_runs([make_run()], band=(0.9, 0.1))


def test_a_failed_write_leaves_the_old_file_and_no_rest(tmp_path, monkeypatch):
    path = tmp_path / "a.png"
    path.write_text("old")

    def fail(*args, **options):
        raise RuntimeError("disk full")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", fail)
    with pytest.raises(RuntimeError, match="disk full"):
        plot_runs([make_run()], path)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.png"]


def test_the_callers_settings_of_matplotlib_stay_and_threads_agree(tmp_path):
    before = dict(mpl.rcParams)
    paths = [tmp_path / f"{n}.svg" for n in range(2)]
    threads = [threading.Thread(target=plot_runs, args=([make_run()], path)) for path in paths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert dict(mpl.rcParams) == before
    assert len({path.read_bytes() for path in paths}) == 1


def test_hushgrad_imports_no_matplotlib_and_plots_need_no_pyplot():
    code = (
        "import sys, hushgrad, hushgrad.report.plots, hushgrad.report.export\n"
        "assert 'matplotlib' not in sys.modules\n"
        "import runpy; make = runpy.run_path(sys.argv[1])['make_run']\n"
        "hushgrad.report.plots.plot_runs([make()])\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code, __file__], check=True)


def test_a_curve_counts_diverged_trials_as_infinite():
    error = np.array([[1.0, 1.0], [2.0, np.nan], [3.0, 3.0]])
    found = curve(make_run(error=error))
    assert isinstance(found, Curve)
    np.testing.assert_array_equal(found.middle, [2.0, 3.0])
    assert found.high is not None
    assert np.isinf(found.high[1])
    assert (found.n_diverged, found.ceiling) == (1, 3.0)


def test_reports_need_nothing_of_the_simulator():
    code = (
        "import sys, hushgrad.report.export\n"
        "found = [name for name in sys.modules if name.startswith('hushgrad.simulate')]\n"
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
