"""The picture and the LaTeX table of a tuning; `hushgrad.tune` returns an object that has both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hushgrad.errors import InputError
from hushgrad.report.export import escape, power_of_ten
from hushgrad.report.plots import COLOURS, DASHES, MARKERS, SIZE, drawn, literal

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# label, x ascending, y (infinite: no value), whether all runs at x diverged
type Line = tuple[str, Sequence[float], Sequence[float], Sequence[bool]]

_ROOM = 1.6  # least factor above the largest value, where crosses stand
_SHARE = 0.08  # of the height, for them


def plot_sensitivity(
    lines: Sequence[Line],
    path: str | Path | None = None,
    *,
    xlabel: str,
    measure: str,
    target: float,
    title: str | None = None,
) -> Figure:
    """One line per method on two log axes: a star at its best, crosses where it diverges."""
    if not lines:
        raise InputError("a picture shows at least one method, but none has this number.")

    def draw() -> Figure:
        return _draw(lines, xlabel, _ylabel(measure, target), title)

    return drawn(draw, path)


def _ylabel(measure: str, target: float) -> str:
    if measure == "error":
        return r"final error  $\max_i\,\Vert x_i-\theta^{*}\Vert$"
    words = {"gradients": "gradient calls", "bytes": "bytes on all links"}
    return f"{words.get(measure, measure)} to error {target:g}"


def _draw(lines: Sequence[Line], xlabel: str, ylabel: str, title: str | None) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_xscale("log")
    axes.set_yscale("log")
    seen = np.array([y for _, _, ys, _ in lines for y in ys if np.isfinite(y) and y > 0] or [1.0])
    room = max(_ROOM, float(seen.max() / seen.min()) ** _SHARE)
    low, high = float(seen.min()) / room, float(seen.max()) * room
    every = [x for _, xs, _, _ in lines for x in xs]
    if min(every) < max(every):
        axes.set_xlim(min(every), max(every))
    axes.set_ylim(low, high * room)
    for n, (label, xs, ys, lost) in enumerate(lines):
        colour = COLOURS[n % len(COLOURS)]
        x, y = np.array(xs), np.array(ys)
        alive = np.isfinite(y) & (y > 0)
        title_of = label if alive.any() else f"{label} (none)"
        axes.plot(
            x, np.where(alive, y, np.nan), color=colour, linestyle=DASHES[n % len(DASHES)],
            linewidth=1.2, marker=MARKERS[n % len(MARKERS)], markersize=2.6,
            markerfacecolor="white", markeredgewidth=0.7, label=literal(title_of),
            zorder=2 + 0.01 * n, clip_on=False,
        )  # fmt: skip
        if alive.any():
            best = int(np.argmin(np.where(alive, y, np.inf)))
            axes.plot(
                x[best], y[best], marker="*", markersize=9, color=colour, linestyle="none",
                markeredgecolor="white", markeredgewidth=0.5, zorder=4, clip_on=False,
            )  # fmt: skip
        gone = x[np.array(lost)]
        # methods one below the other, so that crosses of several can be told apart
        height = high * room ** (0.8 - 0.8 * n / len(lines))
        axes.plot(
            gone, np.full(len(gone), height), marker="x", markersize=3.2, color=colour,
            linestyle="none", markeredgewidth=0.8, zorder=3, clip_on=False,
        )  # fmt: skip
    axes.set_xlabel(literal(xlabel))
    axes.set_ylabel(ylabel)
    if title:
        axes.set_title(literal(title))
    axes.grid(visible=True, which="major")
    axes.set_axisbelow(True)
    handles, labels = axes.get_legend_handles_labels()
    figure.set_figheight(SIZE[1] + 0.15 * ((len(labels) + 1) // 2 + 1))
    figure.legend(
        handles, labels, loc="outside lower center", ncols=2, frameon=False, handlelength=3.2,
        title="star: best; cross: diverges", alignment="left",
    )  # fmt: skip
    return figure


def latex_tuning(rows: Sequence[Mapping[str, Any]], target: float) -> str:
    """A booktabs tabular of the best cell of each method."""
    body: list[str] = []
    for row in rows:
        named = (f"{escape(name)} = {_value(value)}" for name, value in row["settings"].items())
        best = ", ".join(named)
        cells = [escape(str(row["algorithm"])), best or "--"]
        cells += ["--" if row[by] is None else f"{row[by]:g}" for by in ("iterations", "rounds")]
        cells += ["--" if row["bytes"] is None else power_of_ten(row["bytes"])]
        cells += ["--" if row["gradients"] is None else f"{row['gradients']:g}"]
        cells += ["diverged" if row["error"] is None else power_of_ten(row["error"])]
        body.append(" & ".join(cells) + " \\\\")
    return "\n".join(
        [
            "% Needs \\usepackage{booktabs}. Iterations, rounds, bytes on all links and calls of",
            f"% an agent's gradient until the median error over the trials is {target:g}.",
            "\\begin{tabular}{llrrrrr}",
            "\\toprule",
            "Method & Best & Iterations & Rounds & Bytes & Gradients & Final error \\\\",
            "\\midrule",
            *body,
            "\\bottomrule",
            "\\end{tabular}",
            "",
        ]
    )


def _value(value: Any) -> str:
    return power_of_ten(value) if isinstance(value, float) else escape(str(value))
