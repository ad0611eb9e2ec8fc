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
        return (
            f"a run on these rows alone would be refused at stage {self.refused} of {self.stages}: "
            f"the sums would determine {share}. The rows of others change the path, so the run may "
            "go better or worse. Shorten long rows (clip in [objective]), have more rows, declare "
            'honest_rows, use a larger regularisation, fewer stages or curvature = "fixed", or '
            'accept the exposure: accept_exposure = ["sums"]'
        )


def forecast(
    config: AgentConfig, objective: Objective, before: ToldBefore = NOTHING_TOLD
) -> Forecast | None:
    """The forecast of an agent; None where stages are not judged, or these rows tell nothing.

    Rows that have no fit of their own, such as rows of one label, tell nothing of the path that
    all rows take.

    before    what other runs told about the same rows
    """
    told = count_revealed(setting_of(config.run, is_quadratic=objective.is_quadratic), None)
    if objective.determined is None or "sums" in config.accept_exposure:
        return None
    if told is None or told.is_quadratic or told.numbers > told.most_numbers:
        return None
    starts = _starts(config, objective, told.stages, told.curvature)
    if starts is None:
        return None
    is_fixed, times = told.curvature == "fixed", times_own_rows(config, objective)

    def share(stages: int) -> float:
        assert objective.determined is not None
        return objective.determined(starts[:stages], is_fixed, times, before.chains)

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


def _starts(
    config: AgentConfig, objective: Objective, stages: int, curvature: str
) -> list[Vector] | None:
    """The starts of the stages of a run on these rows alone; None if its steps do not settle."""
    curve, run = objective.curvature(curvature), config.run
    x = np.zeros(run.dim) if run.x0 is None else np.array(run.x0, np.float64)
    before: Vector | None = None
    starts: list[Vector] = []
    sizes: list[float] = []
    for _ in range(stages):
        try:
            step = np.linalg.lstsq(curve(x, before), objective.gradient(x))[0]
        except np.linalg.LinAlgError:
            return None
        starts.append(x)
        before, x = x, x - step
        sizes.append(float(np.linalg.norm(step)))
        if not np.isfinite(x).all():
            return None
    is_settled = curvature == "fixed" or sizes[-1] <= _SETTLED * sizes[0]
    return starts if is_settled else None
