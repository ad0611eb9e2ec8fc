"""The result of a run: samples, statuses, traffic; saved and loaded without pickle.

`run` and `compare` return these objects; reports, the privacy lab and the commands read them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from hushgrad.errors import DivergedError, InputError
from hushgrad.files.atomic import replacing
from hushgrad.report.curves import summary
from hushgrad.report.plots import plot_runs
from hushgrad.simulate.transcript import Channel, Transcript

type Floats = NDArray[np.float64]
type Ints = NDArray[np.int64]

FORMAT = 1  # the version of the files of saved runs


@dataclass(frozen=True)
class Traffic:
    """The traffic of a run, counted from its exchanges; an agent's link to itself never counts."""

    rounds_per_iteration: int
    links: int  # directed links that carry messages
    extra_links: int  # those that the graph itself does not have
    messages_per_link: float  # d-vectors per link and iteration
    numbers_per_link: float  # float64 numbers per link and iteration
    bytes_per_iteration: float  # on all links together, 8 per number
    gradients_per_iteration: float = 1.0  # of each agent; files of earlier versions do not tell


@dataclass(frozen=True)
class Run:
    """A finished run of one algorithm: trials × samples.

    Errors are max_i ‖x_i − θ*‖, consensus is max_i ‖x_i − x̄‖.
    """

    title: str  # the algorithm as papers print it
    label: str  # the title, with the differences to other runs of a comparison
    error: Floats  # (trials, samples)
    consensus: Floats  # (trials, samples)
    iterations: Ints  # (samples,)
    x: Floats  # (trials, agents, d) at the end
    solution: Floats  # (d,), or (trials, d) where every trial has its own problem
    status: tuple[str, ...]  # per trial: converged, iteration limit, diverged at k
    trials: Ints  # (trials,) their numbers
    seed: int
    traffic: Traffic
    seconds: float  # wall time, compilation included
    # (trials, samples) each
    metrics: Mapping[str, Floats] = field(default_factory=dict[str, Floats])
    # algorithm, problem, network and options of the run, as JSON has them
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    transcript: Transcript | None = None
    # (trials, n + 1, agents, d): x^0 … x^n, kept with a transcript to judge what attacks recover
    trace: Floats | None = field(default=None, repr=False, compare=False)
    x0: Floats | None = field(default=None, repr=False, compare=False)  # None after loading
    stage: int = field(default=0, repr=False, compare=False)  # of a longer run, whose draws it has
    # (trials,) the unit of linear masks in a run with stages
    mask_scale: Floats | None = field(default=None, repr=False, compare=False)
    algorithm: Any = field(default=None, repr=False, compare=False)  # None after loading
    problem: Any = field(default=None, repr=False, compare=False)
    network: Any = field(default=None, repr=False, compare=False)

    @property
    def messages_per_link(self) -> float:
        return self.traffic.messages_per_link

    @property
    def rounds_per_iteration(self) -> int:
        return self.traffic.rounds_per_iteration

    @property
    def bytes_per_iteration(self) -> float:
        return self.traffic.bytes_per_iteration

    @property
    def revealed(self) -> Mapping[str, Any] | None:
        """The numbers that the stages reveal about honest rows: `numbers`, `rows`, `share`, more.

        `rows` and `share` are None where the problem does not tell its rows. The whole is None in a
        run without stages.
        """
        return self.config.get("revealed")

    @property
    def median_error(self) -> Floats:
        """(samples,) over the trials; a diverged trial counts as infinite."""
        return np.median(np.where(np.isfinite(self.error), self.error, np.inf), axis=0)

    def throw(self) -> Run:
        """This run, or DivergedError if a trial diverged."""
        bad = [
            (int(t), s) for t, s in zip(self.trials, self.status, strict=True) if "diverged" in s
        ]
        if bad:
            trial, text = bad[0]
            raise DivergedError(
                f"{len(bad)} of {len(self.status)} trials of {self.label} diverged; trial {trial} "
                f"{text}. Use a smaller stepsize."
            )
        return self

    def __repr__(self) -> str:
        counts = {s.split(" at ")[0]: 0 for s in self.status}
        for s in self.status:
            counts[s.split(" at ")[0]] += 1
        said = ", ".join(f"{n} {s}" if len(self.status) > 1 else s for s, n in counts.items())
        return (
            f"Run({self.label}: {len(self.trials)} trial{'s' * (len(self.trials) != 1)}, "
            f"{self.iterations[-1]} iterations, median error {self.median_error[-1]:.3g}, {said})"
        )

    def plot(self, path: str | Path | None = None, **options: Any) -> Any:
        """The error against iterations, median and band; written to `path` by its ending."""
        return plot_runs([self], path, **options)

    def save(self, path: str | Path) -> Path:
        """Write everything but the objects to one .npz file, atomically."""
        path = Path(path)
        if path.suffix != ".npz":
            raise InputError(f"runs are saved as .npz, but path = '{path}'. Use '{path}.npz'.")
        arrays, meta = _pack(self)
        with replacing(path) as partial, partial.open("wb") as file:
            np.savez_compressed(file, meta=np.array(json.dumps(meta)), **arrays)
        return path


_ARRAYS = ("error", "consensus", "iterations", "x", "solution", "trials")


def _pack(run: Run) -> tuple[dict[str, Any], dict[str, Any]]:
    arrays: dict[str, Any] = {name: getattr(run, name) for name in _ARRAYS}
    arrays |= {f"metric_{name}": values for name, values in run.metrics.items()}
    channels: list[dict[str, Any]] = []
    for c, channel in enumerate(run.transcript.channels if run.transcript else ()):
        channels.append(
            {"round": channel.round, "exchange": channel.exchange, "kind": channel.kind}
        )
        for name in ("iterations", "senders", "receivers", "row", "values", "awake"):
            if getattr(channel, name) is not None:
                arrays[f"channel{c}_{name}"] = getattr(channel, name)
    meta = {
        "format": FORMAT,
        "title": run.title,
        "label": run.label,
        "status": run.status,
        "seed": run.seed,
        "traffic": {f.name: getattr(run.traffic, f.name) for f in fields(Traffic)},
        "seconds": run.seconds,
        "config": run.config,
        "channels": channels if run.transcript else None,
    }
    return arrays, meta


def load_run(path: str | Path) -> Run:
    """A run that `Run.save` wrote. Its algorithm, problem and network are None; `config` describes
    them.
    """
    path = Path(path)
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            stored = {name: file[name] for name in file.files}
        meta = json.loads(str(stored.pop("meta")))
    except FileNotFoundError:
        raise InputError(f"there is no run at '{path}'. Save one with run.save(path).") from None
    except (ValueError, KeyError, OSError, EOFError, BadZipFile) as problem:
        raise InputError(
            f"'{path}' is no saved run: {problem}. Save one with run.save(path)."
        ) from None
    if meta.get("format") != FORMAT:
        raise InputError(
            f"this hushgrad reads format {FORMAT}, but '{path}' has format {meta.get('format')}. "
            "Load it with the version that wrote it."
        )
    return Run(
        **{name: stored[name] for name in _ARRAYS},
        **{name: meta[name] for name in ("title", "label", "seed", "seconds", "config")},
        status=tuple(meta["status"]),
        traffic=Traffic(**meta["traffic"]),
        metrics={name[7:]: values for name, values in stored.items() if name.startswith("metric_")},
        transcript=None if meta["channels"] is None else _transcript(stored, meta["channels"]),
    )


def _transcript(stored: Mapping[str, Any], channels: Sequence[Mapping[str, Any]]) -> Transcript:
    return Transcript(
        stored["trials"],
        tuple(
            Channel(**_fields(stored, f"channel{c}_", entry)) for c, entry in enumerate(channels)
        ),
    )


def _fields(stored: Mapping[str, Any], prefix: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    start = len(prefix)
    return dict(entry) | {n[start:]: value for n, value in stored.items() if n.startswith(prefix)}


@dataclass(frozen=True)
class Comparison:
    """Several algorithms on the same problem, network, trials and samples."""

    runs: tuple[Run, ...]

    def __iter__(self) -> Any:
        return iter(self.runs)

    def __getitem__(self, key: int | str) -> Run:
        if isinstance(key, int):
            return self.runs[key]
        for run in self.runs:
            if run.label == key:
                return run
        raise KeyError(
            f"no run is called {key!r}; there are {', '.join(r.label for r in self.runs)}"
        )

    def __len__(self) -> int:
        return len(self.runs)

    def plot(self, path: str | Path | None = None, **options: Any) -> Any:
        """All medians and bands in one picture; written to `path` by its ending."""
        return plot_runs(self.runs, path, **options)

    def rows(self) -> list[dict[str, Any]]:
        """One record per algorithm, as a table shows it."""
        return [summary(run) for run in self.runs]
