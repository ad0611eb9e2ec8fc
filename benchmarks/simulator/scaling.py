"""Time and memory of an iteration as sizes grow, measured and plotted for `--scaling`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.simulator.processes import worker

BASE = {"n_agents": 1000, "s": 3, "d": 10, "degree": 6, "trials": 1}

# axis: (label, changed values of BASE at each point)
AXES: dict[str, tuple[str, list[dict[str, int]]]] = {
    "n_agents": ("agents m", [{"n_agents": 10**e} for e in range(2, 7)]),
    "d": ("dimension d", [{"d": d} for d in (1, 10, 100, 1000)]),
    "degree": ("links of an agent", [{"degree": n} for n in (2, 4, 8, 16, 32, 64, 128)]),
    "trials": (
        "trials, of 6 agents with d = 2",
        [{"n_agents": 6, "degree": 3, "d": 2, "trials": 10**e} for e in range(5)],
    ),
}


def measure(
    seconds: float, million: dict[str, Any] | None, say: Callable[[str], None]
) -> dict[str, list[dict[str, Any]]]:
    """The points of each axis: {value, seconds_per_iteration, engine_mb}.

    `million` is the result of workload f. If it is given, the point of a million agents uses it.
    """
    known: dict[tuple[str, int], dict[str, Any]] = {}
    if million is not None:
        known["n_agents", 10**6] = {
            "seconds_per_iteration": million["times"]["engine ds"]["seconds_per_iteration"],
            "engine_mb": million["memory"]["engine_mb"],
        }
    results: dict[str, list[dict[str, Any]]] = {}
    for axis, (label, points) in AXES.items():
        say(f"scaling: {label}")
        results[axis] = [
            {"value": changed[axis]}
            | (
                known.get((axis, changed[axis]))
                or worker("point", on=1, **(BASE | changed), seconds=seconds)
            )
            for changed in points
        ]
    return results


def plot(scaling: dict[str, list[dict[str, Any]]], path: Path) -> Path:
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(
        2, len(scaling), figsize=(3.1 * len(scaling), 5.2), squeeze=False, sharey="row",
        layout="constrained",
    )  # fmt: skip
    for column, (axis, points) in zip(panels.T, scaling.items(), strict=True):
        values = [p["value"] for p in points]
        for panel, key, scale in zip(
            column, ("seconds_per_iteration", "engine_mb"), (1e6, 1.0), strict=True
        ):
            # a small run adds less memory than the system can report
            panel.loglog(values, [max(p[key] * scale, 1e-3) for p in points], "o-")
            panel.grid(alpha=0.3)
        column[1].set_xlabel(AXES[axis][0])
    panels[0, 0].set_ylabel("µs per iteration")
    panels[1, 0].set_ylabel("MB that the engine adds")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path
