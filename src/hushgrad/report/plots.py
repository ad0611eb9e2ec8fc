"""Pictures of runs for papers: medians and bands on a log axis, without pyplot or a display.

`Run.plot`, `Comparison.plot`, the exports and the paper's figures draw with `plot_runs`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hushgrad.errors import InputError, optional
from hushgrad.files.atomic import replacing
from hushgrad.report.curves import Curve, Ints, SampledRun, curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe & Ito's palette for the colour-blind, without its yellow, too pale for a line on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00")
DASHES: tuple[Any, ...] = (  # on, off in line widths; the styles survive a black-and-white printer
    "solid",
    (0, (4.5, 1.6)),
    (0, (1.1, 1.3)),
    (0, (5.5, 1.4, 1.1, 1.4)),
    (0, (2.4, 1.2)),
    (0, (5.5, 1.2, 1.1, 1.2, 1.1, 1.2)),
)
MARKERS = "osD^vPX"
_N_MARKERS = 6  # on each line, staggered, so that lines that coincide are still seen to be several

# The endings of files, and the options that make a file the same on every day and machine.
ENDINGS: dict[str, dict[str, Any]] = {
    ".png": {"dpi": 200},
    ".svg": {"metadata": {"Date": None}},
    ".pdf": {"metadata": {"CreationDate": None}},
}
_IN_A_CORNER = 4  # legend entries that leave room for the lines
SIZE = (3.5, 2.6)  # inches: one column of a two-column paper
_STYLE: dict[Any, Any] = {
    "font.family": "STIXGeneral",  # Times-like, comes with matplotlib
    "mathtext.fontset": "stix",
    "font.size": 8.0,
    "axes.labelsize": 8.5,
    "axes.titlesize": 8.5,
    "legend.fontsize": 7.5,
    "legend.title_fontsize": 7.0,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "grid.linewidth": 0.4,
    "grid.color": "0.9",
    "pdf.fonttype": 42,  # TrueType, which publishers ask for
    "svg.fonttype": "none",  # text stays text: searched, edited, read aloud
    "svg.hashsalt": "hushgrad",
}
_LABELS = {
    "error": r"error  $\max_i\,\Vert x_i-\theta^{*}\Vert$",
    "consensus": r"disagreement  $\max_i\,\Vert x_i-\bar{x}\Vert$",
}
_STYLE_LOCK = threading.Lock()  # rc_context is global while it lasts


def plot_runs(
    runs: Iterable[SampledRun],
    path: str | Path | None = None,
    *,
    title: str | None = None,
    band: tuple[float, float] | None = (0.1, 0.9),
    log_x: bool = False,
    metric: str = "error",
) -> Figure:
    """Errors against iterations, one line per run: the median over trials, with a quantile band.

    path     written by its ending: .png, .svg or .pdf; the same runs give the same bytes
    band     two quantiles, or None
    metric   "error", "consensus", or a metric that the runs sampled

    A line leaves the picture upwards where its median diverges (the legend counts diverged
    trials), and downwards where it is exactly zero.
    """
    curves = [curve(run, metric, band) for run in runs]
    if not curves:
        raise InputError("a picture shows at least one run, but the list is empty.")
    ylabel = _LABELS.get(metric, metric)
    return drawn(lambda: _draw(curves, title=title, band=band, log_x=log_x, ylabel=ylabel), path)


def drawn(draw: Callable[[], Figure], path: str | Path | None) -> Figure:
    """The figure that a function draws, in the style of papers; written to `path` by its ending."""
    target = None if path is None else _check_ending(Path(path))
    optional("matplotlib", "sim")
    from matplotlib import rc_context

    with _STYLE_LOCK, rc_context(_STYLE):
        figure = draw()
        if target is not None:
            with replacing(target) as partial:
                figure.savefig(
                    partial, format=target.suffix[1:].lower(), **ENDINGS[target.suffix.lower()]
                )
    return figure


def _check_ending(path: Path) -> Path:
    if path.suffix.lower() not in ENDINGS:
        raise InputError(
            f"pictures are written as {', '.join(ENDINGS)}, but path = '{path}'. "
            f"Use '{path.with_suffix('.svg')}'."
        )
    return path


def _draw(
    curves: Sequence[Curve],
    *,
    title: str | None,
    band: tuple[float, float] | None,
    log_x: bool,
    ylabel: str,
) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_yscale("log", nonpositive="clip")
    if log_x:
        axes.set_xscale("log")
    bottom, top = _limits(curves)
    axes.set_ylim(bottom, top)  # before the lines: matplotlib would warn of data without limits
    for n, one in enumerate(curves):
        _draw_curve(axes, one, n, len(curves), log_x=log_x, top=top)
    drawn = np.concatenate([c.iterations[_start(c, log_x) :] for c in curves])
    if drawn.min() < drawn.max():
        axes.set_xlim(int(drawn.min()), int(drawn.max()))
    axes.set_xlabel("iteration  $k$")
    axes.set_ylabel(literal(ylabel) if ylabel not in _LABELS.values() else ylabel)
    if title:
        axes.set_title(literal(title))
    axes.grid(visible=True, which="major")
    axes.set_axisbelow(True)
    _draw_legend(figure, axes, _note(curves, band))
    return figure


def _draw_legend(figure: Figure, axes: Axes, note: str | None) -> None:
    """A legend in a free corner, or below the axes if its entries are too many for a corner."""
    options: dict[str, Any] = {
        "title": note,
        "frameon": True,
        "framealpha": 0.6,
        "edgecolor": "none",
        "handlelength": 3.2,
        "labelspacing": 0.35,
        "borderaxespad": 0.2,
        "alignment": "left",
    }
    entries = len(axes.get_lines())
    if entries <= _IN_A_CORNER:
        axes.legend(**options)
    else:
        options["title"] = note and note.replace("\n", " ")
        figure.set_figheight(SIZE[1] + 0.15 * (entries // 2 + 2))
        figure.legend(loc="outside lower center", ncols=2, **options)


def _draw_curve(axes: Axes, one: Curve, n: int, of: int, *, log_x: bool, top: float) -> None:
    start = _start(one, log_x)
    x = one.iterations[start:]
    colour = COLOURS[n % len(COLOURS)]
    if one.low is not None and one.high is not None:
        low, high = one.low[start:], np.minimum(one.high[start:], 10 * top)
        axes.fill_between(
            x,
            low,
            high,
            where=np.isfinite(low),
            color=colour,
            alpha=min(0.14, 0.32 / of),  # bands that coincide must not add up to a wall
            linewidth=0,
            zorder=1.5,
        )
    y = one.middle[start:]
    axes.plot(
        x,
        np.where(np.isfinite(y), y, np.nan),
        color=colour,
        linestyle=DASHES[n % len(DASHES)],
        linewidth=1.3,
        marker=MARKERS[n % len(MARKERS)],
        markevery=_marked(x, n, of, log_x),
        markersize=3.6,
        markerfacecolor="white",
        markeredgewidth=0.9,
        zorder=2 + 0.01 * n,
        label=literal(one.title),
    )


def _start(one: Curve, log_x: bool) -> int:
    """The first sample that has a place on the axis: a log axis has no 0."""
    return int(log_x and one.iterations[0] == 0)


def _marked(x: Ints, n: int, of: int, log_x: bool) -> list[int]:
    """Samples of line n of `of` that get a marker: spread over the axis, shifted by line."""
    place = np.log(x) if log_x else x.astype(np.float64)
    wanted = (
        place[0] + (place[-1] - place[0]) * (np.arange(_N_MARKERS) + (n + 0.5) / of) / _N_MARKERS
    )
    return [int(i) for i in np.unique(np.abs(place[:, None] - wanted).argmin(axis=0))]


def _limits(curves: Sequence[Curve]) -> tuple[float, float]:
    """The range of the y axis: everything positive and finite, with divergence cut off."""
    least, most = np.inf, 0.0
    for one in curves:
        drawn = np.concatenate([v for v in (one.low, one.middle, one.high) if v is not None])
        drawn = drawn[np.isfinite(drawn) & (drawn > 0)]
        if not len(drawn):
            continue
        ceiling = one.ceiling or 1e3 * float(drawn[0])
        least = min(least, float(drawn.min()))
        most = max(most, min(float(drawn.max()), ceiling) if one.n_diverged else float(drawn.max()))
    if most == 0.0:
        return 1e-16, 1.0
    margin = max(0.05 * np.log10(most / least), 0.1) if most > least else 0.5
    return least / 10**margin, most * 10**margin


def _note(curves: Sequence[Curve], band: tuple[float, float] | None) -> str | None:
    numbers = {c.n_trials for c in curves}
    if numbers == {1}:
        return None
    of = f" of {numbers.pop()} trials" if len(numbers) == 1 else ""
    shade = "" if band is None else f",\n{100 * band[0]:g}–{100 * band[1]:g} % shaded"
    return f"median{of}{shade}"


def literal(text: str) -> str:
    """Text whose $ are dollars, not mathematics."""
    return text.replace("$", r"\$")
