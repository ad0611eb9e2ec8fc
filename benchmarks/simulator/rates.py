"""`python -m benchmarks.simulator.rates`: the pictures of docs/certificates.md.

Rates against the stepsize, theory as lines and runs as dots; the error that a private deviation
leaves; rates against 1 − η on the common graphs. The files go to docs/images.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

import hushgrad as hg
from hushgrad.errors import RiskWarning
from hushgrad.report.plots import COLOURS, DASHES, MARKERS
from hushgrad.theory.curvature import local_curvature
from hushgrad.theory.linear import linear_step
from hushgrad.theory.rates import spectral_radius, stable_range

IMAGES = Path(__file__).parents[2] / "docs" / "images"
_STILL = hg.stepsizes.none()  # no deviation: its floor has a picture of its own
METHODS = {
    "PDG-NDS": lambda lam: hg.PDGNDS(stepsize=hg.stepsizes.constant(lam, _STILL)),
    "PDG-NDS square": lambda lam: hg.PDGNDS(
        stepsize=hg.stepsizes.constant(lam, _STILL), form="square"
    ),
    "EXTRA": lambda lam: hg.EXTRA(stepsize=hg.stepsizes.constant(lam)),
    "DIGing": lambda lam: hg.DIGing(stepsize=hg.stepsizes.constant(lam)),
    "Aug-DGM": lambda lam: hg.AugDGM(stepsize=hg.stepsizes.constant(lam)),
    "AB": lambda lam: hg.AB(stepsize=hg.stepsizes.constant(lam)),
    "Push-Pull": lambda lam: hg.PushPull(stepsize=hg.stepsizes.constant(lam)),
    "ADD-OPT": lambda lam: hg.ADDOPT(stepsize=hg.stepsizes.constant(lam)),
}
GRAPHS = {
    "ring": [hg.graphs.ring(m) for m in (5, 8, 12, 20, 30)],
    "path": [hg.graphs.path(m) for m in (4, 6, 10, 16)],
    "star": [hg.graphs.star(m) for m in (5, 10, 20)],
    "grid": [hg.graphs.grid(n, n) for n in (3, 4, 6)],
    "exponential": [hg.graphs.exponential(m, is_directed=False) for m in (8, 16, 32)],
}
FLOORS = {
    "$\\varrho/k$": hg.stepsizes.harmonic(1),
    "$\\varrho/k^2$ (the paper's)": hg.stepsizes.harmonic(2),
    "$\\varrho\\,0.97^k$": hg.stepsizes.geometric(0.97),
}


def measured(error: np.ndarray, iterations: np.ndarray) -> float:
    """The rate of a run: the slope of its error between 1e-4 and 1e-11 of the start."""
    part = error / error[0]
    inside = (part < 1e-4) & (part > 1e-11)
    if inside.sum() < 10:
        return np.nan
    return float(np.exp(np.polyfit(iterations[inside], np.log(error[inside]), 1)[0]))


def draw_rates(figure: Figure) -> None:
    axes = figure.subplots()
    network, problem = hg.Network(hg.graphs.paper()), hg.problems.estimation(seed=0)
    hessians, L = local_curvature(problem).hessians, problem.smoothness()
    lams = np.geomspace(0.15, 2.0, 120) / L
    warnings.simplefilter("ignore", RiskWarning)  # stepsizes near the limit are meant here
    for n, (name, method) in enumerate(METHODS.items()):
        step = linear_step(method(1.0 / L), hessians, network)
        assert step is not None
        radius = np.array([spectral_radius(step, lam).value for lam in lams])
        stable = radius < 1
        colour, dash = COLOURS[n % len(COLOURS)], DASHES[n % len(DASHES)]
        axes.plot(lams[stable] * L, radius[stable], color=colour, linestyle=dash, label=name)
        for lam in lams[stable][5 :: max(1, stable.sum() // 9)]:
            run = hg.run(method(lam), problem, network, iterations=4000, record_every=5,
                         engine="stacked", progress=False)  # fmt: skip
            rate = measured(run.error[0], run.iterations)
            axes.plot(lam * L, rate, MARKERS[n % len(MARKERS)], color=colour,
                      markersize=3)  # fmt: skip
    axes.set(xlabel="$\\lambda L$", ylabel="rate per iteration", ylim=(0.7, 1.0))
    axes.legend(frameon=False, fontsize=7)


def draw_floors(figure: Figure) -> None:
    axes = figure.subplots()
    network, problem = hg.Network(hg.graphs.paper()), hg.problems.estimation(seed=0)
    for n, (name, deviation) in enumerate(FLOORS.items()):
        algorithm = hg.PDGNDS(stepsize=hg.stepsizes.constant(0.02, deviation))
        run = hg.run(algorithm, problem, network, iterations=5_000, trials=20, progress=False,
                     record_every=20)  # fmt: skip
        k = run.iterations[1:]
        axes.plot(k, run.median_error[1:], color=COLOURS[n], label=name)
        if n < 2:
            at = 3 * len(k) // 5
            guide = run.median_error[1 + at] * (k / k[at]) ** -(n + 1.0)
            axes.plot(k[k > 400], guide[k > 400], ":", color=COLOURS[n], linewidth=1)
    axes.set(xscale="log", yscale="log", xlabel="iteration $k$", ylabel="median error",
             ylim=(1e-13, 10))  # fmt: skip
    axes.legend(frameon=False, fontsize=7, title="deviation (dotted: its power of k)")


def draw_graphs(figure: Figure) -> None:
    axes = figure.subplots()
    for n, (name, graphs) in enumerate(GRAPHS.items()):
        for method, marker in (("EXTRA", "o"), ("DIGing", "s")):
            points = []
            for graph in graphs:
                network = hg.Network(graph)
                problem = hg.problems.estimation(n_agents=graph.n_agents, seed=1)
                step = linear_step(METHODS[method](1.0), local_curvature(problem).hessians, network)
                assert step is not None
                found = stable_range(step)
                assert found is not None
                points.append((1 - network.eta, 1 - found.radius))
            label = f"{name}, {method}"
            axes.plot(*np.array(points).T, marker=marker, color=COLOURS[n], label=label,
                      linestyle="-" if method == "EXTRA" else ":", markersize=3)  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel="$1-\\eta$",
             ylabel="1 − rate of the fastest stepsize")  # fmt: skip
    axes.set_xlim(0.004, 1.0)
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.legend(frameon=False, fontsize=6, ncols=2)


PICTURES = {
    "rates-stepsize": draw_rates,
    "rates-floor": draw_floors,
    "rates-graphs": draw_graphs,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=sorted(PICTURES))
    chosen = parser.parse_args().only
    for name, draw in PICTURES.items():
        if chosen in (None, name):
            with mpl.rc_context({"font.family": "STIXGeneral", "mathtext.fontset": "stix"}):
                figure = Figure(figsize=(5.2, 3.4), layout="constrained")
                draw(figure)
                figure.savefig(IMAGES / f"{name}.png", dpi=150)
            print(IMAGES / f"{name}.png")


if __name__ == "__main__":
    main()
