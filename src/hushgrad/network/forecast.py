"""A forecast of the judgement of stages, from this agent's own rows, before anything is sent.

An agent judges every stage at its start (exposure.py), and the start depends on the rows of all
agents. Before the run the agent knows its own rows alone. The forecast takes the steps that a run
on these rows would take, and judges their stages. `hushgrad doctor` prints the forecast, and a
deployed agent logs it if a stage would be refused. Other agents never learn it.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

import numpy as np

from hushgrad.agent.vectors import Vector
from hushgrad.network.config.model import AgentConfig
from hushgrad.network.exposure import setting_of, times_own_rows
from hushgrad.network.ledgers import NOTHING_TOLD, ToldBefore
from hushgrad.network.objective.objectives import Objective
from hushgrad.network.state.journal import BEGUN
from hushgrad.theory.exposure import count_revealed
from hushgrad.theory.revealed import MOST_OF_ROW

log = logging.getLogger("hushgrad.agent")

_SETTLED = 0.1  # of the first step: rows that are separated, or of one label, never get there


class Forecast(NamedTuple):
    """The judgement of a run on one agent's rows alone."""

    stages: int  # of the run
    refused: int | None  # the first stage, counted from 1, that would be refused; None: none would
    share: float  # of a row, that the sums would determine with that stage, or with all stages

    @property
    def text(self) -> str:
        share = f"{100 * self.share:.3g} % of one row, of at most {100 * MOST_OF_ROW:g} %"
        if self.refused is None:
            return f"a run on these rows alone would pass: its sums determine {share}"
        where = (
            f"refused at stage {self.refused} of {self.stages}: the sums would determine {share}"
        )
        told = (
            f"the run would be {where}. Its start is known, so this is certain."
            if self.refused == 1
            else f"a run on these rows alone would be {where}. The rows of others change the path, "
            "so the run may go better or worse."
        )
        return (
            f"{told} Shorten long rows (clip in [objective]), have more rows, declare "
            'honest_rows, use a larger regularisation, fewer stages or curvature = "fixed", or '
            'accept the exposure: accept_exposure = ["sums"]'
        )


def forecast(
    config: AgentConfig, objective: Objective, before: ToldBefore = NOTHING_TOLD
) -> Forecast | None:
    """The forecast of an agent; None where stages are not judged, or these rows tell nothing.

    The first stage begins at a known point. Rows that have no fit of their own, such as rows of one
    label, tell nothing of the path that all rows take from there.

    before    what other runs told about the same rows
    """
    told = count_revealed(setting_of(config.run, is_quadratic=objective.is_quadratic), None)
    if objective.determined is None or "sums" in config.accept_exposure:
        return None
    if told is None or told.is_quadratic or told.numbers > told.most_numbers:
        return None
    starts = _starts(config, objective, told.stages, told.curvature)
    is_fixed, times = told.curvature == "fixed", times_own_rows(config, objective)

    def share(stages: int) -> float:
        assert objective.determined is not None
        return objective.determined(starts[:stages], is_fixed, times, before.chains)

    if (alone := share(1)) > MOST_OF_ROW or told.stages == 1:  # the start of the run is known
        return Forecast(told.stages, 1 if alone > MOST_OF_ROW else None, alone)
    if len(starts) < told.stages:
        return None
    if (last := share(told.stages)) <= MOST_OF_ROW:
        return Forecast(told.stages, None, last)
    shares = ((stage, share(stage)) for stage in range(1, told.stages + 1))
    refused = next(((n, found) for n, found in shares if found > MOST_OF_ROW), (told.stages, last))
    return Forecast(told.stages, *refused)


def warn_of_stages(config: AgentConfig, objective: Objective, before: ToldBefore) -> None:
    """Log the forecast of a new run if a stage would be refused."""
    if (config.state / BEGUN).exists():
        return
    found = forecast(config, objective, before)
    if found is not None and found.refused is not None:
        log.warning("%s", found.text, extra={"event": "exposure"})


def _starts(config: AgentConfig, objective: Objective, stages: int, curvature: str) -> list[Vector]:
    """The starts of the stages of a run on these rows alone; the first only, if its steps do not
    settle.
    """
    curve, run = objective.curvature(curvature), config.run
    starts = [np.zeros(run.dim) if run.x0 is None else np.array(run.x0, np.float64)]
    before: Vector | None = None
    sizes: list[float] = []
    for _ in range(stages):
        x = starts[-1]
        try:
            step = np.linalg.lstsq(curve(x, before), objective.gradient(x))[0]
        except np.linalg.LinAlgError:
            return starts[:1]
        before = x
        starts.append(x - step)
        sizes.append(float(np.linalg.norm(step)))
        if not np.isfinite(starts[-1]).all():
            return starts[:1]
    is_settled = curvature == "fixed" or sizes[-1] <= _SETTLED * sizes[0]
    return starts[:stages] if is_settled else starts[:1]
