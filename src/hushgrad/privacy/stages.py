"""The stages of a recorded run, each as a run of its own: the lab attacks one after the other.

Within a stage an agent's objective is the quadratic model that it made at the start of the stage.
So every attack on quadratic objectives is an attack on a stage, and H_i and q_i of the stage are
the truth by which it is judged.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from hushgrad.simulate.result import Run
from hushgrad.simulate.staged import model_problem, statistics
from hushgrad.simulate.transcript import Transcript


def stage_ranges(run: Run) -> tuple[range, ...]:
    """The iterations of each stage; one range for a run without stages."""
    lengths = run.config["stages"] or [int(run.iterations[-1])]
    return tuple(range(a, b) for a, b in pairwise([0, *accumulate(lengths)]))


def stage_runs(run: Run, row: int) -> tuple[Run, ...]:
    """The stages of one trial of a run that kept its transcript."""
    assert run.transcript is not None
    assert run.trace is not None
    trials = run.trials[row : row + 1]
    found: list[Run] = []
    before: Any = None
    for s, where in enumerate(stage_ranges(run)):
        trace = run.trace[row : row + 1, where.start : where.stop + 1]
        start = trace[:, 0]  # θ_s; x⁰ may differ from agent to agent if there is one stage only
        every = statistics(run.problem, run.algorithm, trials, start, before)
        solution = np.linalg.lstsq(every.H[0].sum(axis=0), -every.q[0].sum(axis=0))[0]
        found.append(
            replace(
                run,
                trials=trials,
                x=trace[:, -1],
                x0=start,
                solution=solution,
                trace=trace,
                stage=s,
                mask_scale=None if run.mask_scale is None else run.mask_scale[row : row + 1],
                problem=model_problem(run.problem.name, every, solution[None], trials),
                transcript=Transcript(trials, _channels(run.transcript, row, where)),
                status=(run.status[row],),
                config={
                    **run.config,
                    "stages": [len(where)],
                    "begin": where.start,
                    "before": before,
                    "whole": run,
                },
            )
        )
        before = start
    return tuple(found)


def _channels(transcript: Transcript, row: int, where: range) -> tuple[Any, ...]:
    return tuple(
        replace(
            channel,
            iterations=channel.iterations - where.start,
            values=channel.values[row : row + 1],
            awake=None if channel.awake is None else channel.awake[row : row + 1],
        )
        for channel in transcript.channels
        if len(channel.iterations) and channel.iterations[0] in where
    )
