"""Runs as files for papers and other programs: pictures, LaTeX, MATLAB, CSV, JSON.

`hushgrad run --out` and `hushgrad compare --out` write with `export`.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrad.errors import InputError, optional
from hushgrad.files.atomic import output_directory, write_file
from hushgrad.files.strict_json import strict_json
from hushgrad.report.curves import Curve, SampledRun, curve, summary
from hushgrad.report.plots import COLOURS, plot_runs

FORMATS = ("pdf", "svg", "png", "pgfplots", "table", "mat", "csv", "json")
_PICTURES = ("pdf", "svg", "png")
_POINTS = 500  # on one pgfplots line; TeX's memory ends at some ten thousand in all
_MATLAB_NAME = 63  # characters, MATLAB's namelengthmax
_MATLAB_WORDS = (
    "break case catch classdef continue else elseif end for function global if otherwise parfor "
    "persistent return spmd switch try while"
)
_TIDY = ("algorithm", "trial", "iteration", "error", "consensus")


def export(
    runs: Sequence[SampledRun],
    directory: str | Path,
    formats: Iterable[str],
    *,
    name: str = "errors",
    title: str | None = None,
) -> list[Path]:
    """Write runs into a directory, one file per format, and say which.

    pdf svg png   name.pdf …: medians and bands
    pgfplots      name.pgf.tex: the same picture, drawn by LaTeX in its own fonts
    table         table.tex: a booktabs table of messages, iterations and errors
    mat           runs.mat: one MATLAB struct per run
    csv           name.csv: one row per algorithm, trial and sample, digits exact
    json          summary.json: one record per run

    Nothing is written if a format is unknown or its package missing.
    """
    wanted = list(dict.fromkeys([formats] if isinstance(formats, str) else formats))
    for unknown in (f for f in wanted if f not in FORMATS):
        raise InputError(f"runs are exported as {', '.join(FORMATS)}, but not as {unknown!r}.")
    if not runs:
        raise InputError("an export holds at least one run, but the list is empty.")
    if not name or Path(name).name != name:
        raise InputError(f"name is a plain file name without its ending, but name = {name!r}.")
    if any(f in _PICTURES for f in wanted):
        optional("matplotlib", "sim")
    if "mat" in wanted:
        optional("scipy.io", "sim")
    into = output_directory(directory)
    return [_write(runs, into, f, name, title) for f in wanted]


def _write(runs: Sequence[SampledRun], into: Path, what: str, name: str, title: str | None) -> Path:
    if what in _PICTURES:
        path = into / f"{name}.{what}"
        plot_runs(runs, path, title=title)
        return path
    files: dict[str, tuple[str, Callable[[], str | bytes]]] = {
        "pgfplots": (f"{name}.pgf.tex", lambda: pgfplots(runs, title=title)),
        "table": ("table.tex", lambda: latex_table(runs)),
        "mat": ("runs.mat", lambda: _mat(runs)),
        "csv": (f"{name}.csv", lambda: _csv(runs)),
        "json": (
            "summary.json",
            lambda: strict_json([summary(r) | {"config": r.config} for r in runs]),
        ),
    }
    file, content = files[what]
    return write_file(into / file, content())


# ---- LaTeX


def pgfplots(
    runs: Sequence[SampledRun],
    *,
    title: str | None = None,
    band: tuple[float, float] | None = (0.1, 0.9),
) -> str:
    r"""A tikzpicture for \input: medians as lines, bands by fillbetween, coordinates inline."""
    curves = [curve(run, band=band) for run in runs]
    colours = [COLOURS[n % len(COLOURS)] for n in range(len(curves))]
    options = [
        "ymode=log",
        "width=\\linewidth",
        "height=0.72\\linewidth",
        "xlabel={iteration $k$}",
        "ylabel={error $\\max_i \\lVert x_i-\\theta^{*}\\rVert$}",
        *([f"title={{{escape(title)}}}"] if title else []),
        "enlarge x limits=false",
        "grid=major",
        "grid style={black!10}",
        "axis lines=left",
        "legend cell align=left",
        "legend style={draw=none, fill opacity=0.8, text opacity=1, font=\\footnotesize}",
        "unbounded coords=jump",
    ]
    lines = [
        "% Needs in the preamble:",
        "%   \\usepackage{amsmath}",
        "%   \\usepackage{pgfplots}",
        "%   \\pgfplotsset{compat=1.18}",
        "%   \\usepgfplotslibrary{fillbetween}",
        "% and where the picture goes: \\input{this file}. To see it alone, put that between",
        "%   \\documentclass{standalone}, these lines, \\begin{document} and \\end{document}.",
        f"% {_spread(curves, band)}",
        "\\begin{tikzpicture}",
        *(f"\\definecolor{{hushgrad{n}}}{{HTML}}{{{c[1:]}}}" for n, c in enumerate(colours)),
        "\\begin{axis}[",
        *(f"  {option}," for option in options),
        "]",
    ]
    for n, one in enumerate(curves):
        lines += _pgf_band(one, n)
        style = _PGF_DASHES[n % len(_PGF_DASHES)]
        lines += [
            f"\\addplot[hushgrad{n}, thick, {style}] coordinates {{",
            *_coordinates(one, one.middle),
            "};",
        ]
        lines.append(f"\\addlegendentry{{{escape(one.title)}}}")
    return "\n".join([*lines, "\\end{axis}", "\\end{tikzpicture}", ""])


_PGF_DASHES = ("solid", "dashed", "densely dotted", "dashdotted", "densely dashed", "dashdotdotted")


def _spread(curves: Sequence[Curve], band: tuple[float, float] | None) -> str:
    trials = ", ".join(str(n) for n in sorted({c.n_trials for c in curves}))
    shade = "" if band is None else f"; bands from the {band[0]:g} to the {band[1]:g} quantile"
    return f"Lines are medians over the trials ({trials}){shade}."


def _pgf_band(one: Curve, n: int) -> list[str]:
    if one.low is None or one.high is None:
        return []
    shown = np.isfinite(one.high) & (one.low > 0)  # fillbetween wants unbroken lines
    if not shown.any():
        return []
    return [
        line
        for side, values in (("low", one.low), ("high", one.high))
        for line in (
            f"\\addplot[draw=none, forget plot, name path={side}{n}] coordinates {{",
            *_coordinates(one, values, shown),
            "};",
        )
    ] + [
        f"\\addplot[hushgrad{n}, fill opacity=0.13, forget plot] "
        f"fill between[of=low{n} and high{n}];"
    ]


def _coordinates(
    one: Curve, values: NDArray[np.float64], shown: NDArray[np.bool_] | None = None
) -> list[str]:
    """(k,value) lines, thinned for TeX; a value that a log axis cannot show is nan: a gap."""
    indices = np.arange(len(values)) if shown is None else np.flatnonzero(shown)
    if len(indices) > _POINTS:
        indices = indices[np.unique(np.linspace(0, len(indices) - 1, _POINTS).astype(int))]
    return [
        f"({int(one.iterations[i])},{float(values[i])!r})"
        if np.isfinite(values[i]) and values[i] > 0
        else f"({int(one.iterations[i])},nan)"
        for i in indices
    ]


def latex_table(runs: Sequence[SampledRun]) -> str:
    """A booktabs tabular: the messages and the final error of each algorithm."""
    rows = [
        " & ".join(
            (
                escape(str(record["algorithm"])),
                f"{record['messages_per_link']:g}",
                f"{record['rounds_per_iteration']}",
                "--" if record["iterations_to_1e-6"] is None else f"{record['iterations_to_1e-6']}",
                power_of_ten(record["median_error"]),
            )
        )
        + " \\\\"
        for record in map(summary, runs)
    ]
    return "\n".join(
        [
            "% Needs \\usepackage{booktabs}. Messages are d-vectors per link and iteration, rounds",
            "% are per iteration; iterations to 10^{-6}: until the median error over the trials is",
            "% 10^{-6} of what it was at the start.",
            "\\begin{tabular}{lrrrr}",
            "\\toprule",
            "Algorithm & Messages & Rounds & Iterations to $10^{-6}$ & Median final error \\\\",
            "\\midrule",
            *rows,
            "\\bottomrule",
            "\\end{tabular}",
            "",
        ]
    )


def power_of_ten(value: float) -> str:
    r"""A number as LaTeX sets it.

    >>> power_of_ten(4.44e-9), power_of_ten(0.0), power_of_ten(float("inf"))
    ('$4.4\\cdot10^{-9}$', '$0$', 'diverged')
    """
    if not math.isfinite(value):
        return "diverged"
    if value == 0:
        return "$0$"
    digits, exponent = f"{value:.1e}".split("e")
    return f"${digits}\\cdot10^{{{int(exponent)}}}$"


_GREEK = (
    "αalpha βbeta γgamma δdelta εepsilon ζzeta ηeta θtheta λlambda μmu νnu ξxi πpi ρrho ϱvarrho "
    "σsigma τtau φphi χchi ψpsi ωomega"
)
_LATEX = {
    "\\": "\\textbackslash{}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "<": "\\textless{}",
    ">": "\\textgreater{}",
    "|": "\\textbar{}",
    **{c: "\\" + c for c in "{}$&#_%"},
    **dict.fromkeys("\n\r\t", " "),
    "−": "\\ensuremath{-}",
    "–": "--",
    "—": "---",
    "…": "\\dots{}",
    "·": "\\ensuremath{\\cdot}",
    "×": "\\ensuremath{\\times}",
    "≤": "\\ensuremath{\\le}",
    "≥": "\\ensuremath{\\ge}",
    "²": "\\ensuremath{^2}",
    **{word[0]: f"\\ensuremath{{\\{word[1:]}}}" for word in _GREEK.split()},
}


def escape(text: str) -> str:
    r"""Text that LaTeX prints as it stands.

    >>> print(escape("50% of {a_1} & λ"))
    50\% of \{a\_1\} \& \ensuremath{\lambda}
    """
    return "".join(_LATEX.get(c, c) for c in text)


# ---- MATLAB, CSV, JSON


def matlab_names(labels: Sequence[str]) -> list[str]:
    """Legal, different variable names.

    >>> matlab_names(["PDG-DS", "PDG-DS, B=I", "2 hops", "end", "PDG DS"])
    ['PDG_DS', 'PDG_DS_B_I', 'run_2_hops', 'run_end', 'PDG_DS_2']
    """
    names: list[str] = []
    for label in labels:
        plain = re.sub("[^A-Za-z0-9]+", "_", label).strip("_")
        if not plain[:1].isalpha() or plain in _MATLAB_WORDS.split():
            plain = f"run_{plain}".rstrip("_")
        plain = plain[: _MATLAB_NAME - 4]  # room for a number
        number = 1
        while (name := plain if number == 1 else f"{plain}_{number}") in names:
            number += 1
        names.append(name)
    return names


def _mat(runs: Sequence[SampledRun]) -> bytes:
    from scipy.io import savemat

    content: dict[str, Any] = {}
    for name, run in zip(matlab_names([r.label for r in runs]), runs, strict=True):
        content[name] = {
            "label": run.label,
            "error": run.error,
            "consensus": run.consensus,
            "iterations": run.iterations.astype(
                np.float64
            ),  # MATLAB's integers do not mix with doubles
            "x": run.x,
            "solution": run.solution,
            "trials": run.trials.astype(np.float64),
            "seed": float(run.seed),
            "status": np.array(run.status, dtype=object),
        }
        if run.metrics:
            keys = matlab_names(list(run.metrics))
            content[name]["metrics"] = dict(zip(keys, run.metrics.values(), strict=True))
    file = io.BytesIO()
    savemat(file, content, long_field_names=True, oned_as="row")
    # The first 116 bytes are free text, where scipy puts the time: equal runs, equal files.
    return b"MATLAB 5.0 MAT-file, written by hushgrad".ljust(116) + file.getvalue()[116:]


def _csv(runs: Sequence[SampledRun]) -> str:
    metrics = list(dict.fromkeys(name for run in runs for name in run.metrics))
    file = io.StringIO()
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow([*_TIDY, *(f"metric {m}" if m in _TIDY else m for m in metrics)])
    for run in runs:
        sampled = [run.error, run.consensus, *(run.metrics.get(m) for m in metrics)]
        for t, trial in enumerate(run.trials.tolist()):
            columns = [
                [""] * len(run.iterations) if v is None else map(repr, v[t].tolist())
                for v in sampled
            ]
            for k, *values in zip(run.iterations.tolist(), *columns, strict=True):
                rows.writerow([run.label, trial, k, *values])
    return file.getvalue()
