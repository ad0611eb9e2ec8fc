"""A deployed agent judges its own exposure, before its first message.

The judgement is `hushgrad.theory.exposure`, with the numbers of the agent's own objective at the
start. They stay in this process: nothing here is sent. The deployed agent (deployed.py) refuses to
start on a weakness that its file does not accept by name, and `hushgrad doctor`
(ops/doctor/exposure.py) shows the whole judgement.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hushgrad.agent.stages import Statistic
from hushgrad.agent.vectors import Vector
from hushgrad.algorithms.base import Masked, Private
from hushgrad.errors import ExposureError, PrivacyError
from hushgrad.masks import MOST_QUADRATIC
from hushgrad.network.config.model import AgentConfig, RunConfig
from hushgrad.network.ledgers import NOTHING_TOLD, ToldBefore
from hushgrad.network.objective.objectives import Objective
from hushgrad.network.state.journal import BEGUN
from hushgrad.problems.effective import FEWEST_IN_CELL
from hushgrad.theory.exposure import OwnNumbers, Setting, count_revealed, weaknesses
from hushgrad.theory.outgrown import outgrown
from hushgrad.theory.pooled import Pooled
from hushgrad.theory.revealed import MOST_OF_ROW

if TYPE_CHECKING:
    from hushgrad.fitting.plan import Declared
    from hushgrad.fitting.progress import FitProgress

log = logging.getLogger("hushgrad.agent")

MASKS_OVER_ENTRY = 16.0  # of a fit; honest entries are 10⁴ times smaller, and rarely 100 times


def check_exposure(
    config: AgentConfig,
    objective: Objective,
    *,
    is_quadratic: bool,
    before: ToldBefore = NOTHING_TOLD,
) -> None:
    """Refuse to begin a run with a weakness that the agent's file does not accept.

    A run that has begun goes on: it was judged before.
    """
    if (config.state / BEGUN).exists():
        return
    setting = setting_of(config.run, is_quadratic=is_quadratic)
    found = weaknesses(setting, own_numbers(config, setting, objective, before))
    refused = [weakness for weakness in found if weakness.name not in config.accept_exposure]
    if refused:
        names = [*sorted(config.accept_exposure), *(weakness.name for weakness in refused)]
        lines = (
            f"{config.name} does not start, because others could learn more about its data than "
            "the masks promise. Nothing was sent.",
            *(f"  {weakness.name}: {weakness.text}" for weakness in refused),
            "Correct the settings, or accept the weaknesses by name in [agent]: "
            f"accept_exposure = {json.dumps(names)}.",
        )
        raise PrivacyError("\n".join(lines))
    if found:
        names = ", ".join(weakness.name for weakness in found)
        log.warning("accepted exposure: %s", names, extra={"event": "exposure"})


def check_stage(
    config: AgentConfig, objective: Objective, starts: Sequence[Vector], before: ToldBefore
) -> None:
    """Refuse to enter a stage with which the sums would determine too much of one of the rows.

    Starts of stages come from agent 0, and any participant can steer them. An objective that does
    not know its rows cannot be judged. Rows of other honest agents hide this agent's as its own do.

    starts    (d,) of all stages up to this one
    before    what other runs told about the same rows
    """
    if objective.determined is None or "sums" in config.accept_exposure:
        return
    told = count_revealed(setting_of(config.run, is_quadratic=objective.is_quadratic), None)
    if told is None:
        return
    is_fixed = told.curvature == "fixed"
    determined = objective.determined(
        starts, is_fixed, times_own_rows(config, objective), before.chains
    )
    objection = told.stage_objection(len(starts) - 1, determined)
    if objection:
        raise ExposureError(f"{config.name} sends nothing of this stage: {objection}")
    log.info(
        "with stage %d of %d the sums determine at most %.3g %% of a row, of %g %% allowed",
        len(starts), told.stages, 100 * determined, 100 * MOST_OF_ROW,
        extra={"event": "sums"},
    )  # fmt: skip


def check_size(
    config: AgentConfig, objective: Objective, own: Statistic, unit: float, stage: int
) -> None:
    """Refuse to enter a stage at whose start the statistic of a function has outgrown its masks."""
    setting = setting_of(config.run, is_quadratic=objective.is_quadratic)
    for found in outgrown(setting, own.H, own.q, unit, stage):
        if found.name not in config.accept_exposure:
            raise ExposureError(
                f"{config.name} sends nothing of this stage: {found.text} Or accept the exposure: "
                f'accept_exposure = ["{found.name}"].'
            )


def check_average(
    config: AgentConfig,
    objective: Objective,
    stage: int,
    progress: FitProgress,
    largest: float = 0.0,
) -> None:
    """Refuse an average of a fit that would tell too much about the rows.

    A fit takes as many Newton steps as it needs, and any participant can steer them with false
    sums: to more steps, to points at which few rows are effective or the sums are huge, and to
    points whose sums differ by single rows.

    progress    of the programme, which has made the vector and not sent it
    largest     entry of the site's vector
    """
    setting = setting_of(config.run, is_quadratic=objective.is_quadratic)
    size = 0.0 if setting.sizes is None else setting.sizes.linear
    if MASKS_OVER_ENTRY * largest > size and "gradient" not in config.accept_exposure:
        raise ExposureError(
            f"{config.name} sends nothing of stage {stage + 1}: masks must be {MASKS_OVER_ENTRY:g} "
            f"times as large as the vector, but an entry of this site is {largest:.2g} and masks "
            f"have {size:.2g}. A participant may have steered the fit, or a row stands out. Look "
            "for outliers."
        )
    if "sums" in config.accept_exposure:
        return
    rows = progress.told
    effective = objective.effective_lengths if rows is None else rows.effective
    told = count_revealed(setting, _honest_rows(config, setting, objective, effective))
    if not isinstance(told, Pooled):
        return
    told = replace(told, stages=stage + 1, told=progress.numbers)
    objection = told.objection()
    if objection is None and rows is not None:
        objection = told.average_objection(rows.largest_share(times_own_rows(config, objective)))
    if objection:
        raise ExposureError(f"{config.name} sends nothing of stage {stage + 1}: {objection}")


def setting_of(run: RunConfig, *, is_quadratic: bool) -> Setting:
    """The public facts of the run."""
    algorithm, sizes = run.algorithm, None
    if isinstance(algorithm, Masked) and algorithm.masking is not None:
        sizes = algorithm.mask_sizes(run.dim, run.eta)
    return Setting(
        algorithm=algorithm,
        n_agents=run.n_agents,
        dim=run.dim,
        is_quadratic=is_quadratic,
        stages=len(run.lengths),
        sizes=sizes,
        is_seeded=run.seed is not None,
        **({} if run.model is None else _of_fit(run.model)),
    )


def _of_fit(declared: Declared) -> dict[str, Any]:
    """The numbers that a fit is expected to tell."""
    from hushgrad.fitting.told import told_by

    told = told_by(declared)
    return {
        "coefficients": told.width,
        "averages": told.averages,
        "numbers": told.numbers,
    }


def own_numbers(
    config: AgentConfig,
    setting: Setting,
    objective: Objective | None,
    before: ToldBefore = NOTHING_TOLD,
) -> OwnNumbers:
    """This agent's numbers; without an objective, those that the file tells.

    before    what the sums of other runs told about the same rows
    """
    curvature = gradient = None
    by_length = None if objective is None else objective.effective_lengths
    if objective is not None and setting.masks is not None:
        curvature, gradient = _sizes(config.run, setting, objective)
    rows = _honest_rows(config, setting, objective, by_length)
    determined, told = None, count_revealed(setting, rows)
    if isinstance(told, Pooled) and told.objection() is None and objective is not None:
        determined = _expected_share(config, objective)
    return OwnNumbers(
        number=config.number,
        neighbours=[neighbour.number for neighbour in config.neighbours],
        curvature=curvature,
        gradient=gradient,
        rows=rows,
        determined=determined,
        told=before.numbers,
        changed=before.changed,
        is_judged=_is_judged(config, objective),
        small_cell=None if objective is None else objective.small_cell,
    )


def _is_judged(config: AgentConfig, objective: Objective | None) -> bool:
    """Whether every stage is judged row by row, or need not be."""
    is_staged = bool(config.run.lengths) and config.run.model is None
    if objective is None or not is_staged or not isinstance(config.run.algorithm, Private):
        return True
    return objective.is_quadratic or objective.determined is not None


def _expected_share(config: AgentConfig, objective: Objective) -> float | None:
    """The share of a row that a fit like that of this site's rows determines, if it is judged."""
    model, rows = config.run.model, objective.fit_rows
    if model is None or rows is None or "sums" in config.accept_exposure:
        return None
    from hushgrad.fitting.plan import expected_share

    return expected_share(model, rows, times_own_rows(config, objective))


def times_own_rows(config: AgentConfig, objective: Objective) -> float:
    """The declared honest rows over the rows of this agent."""
    return max(1.0, (config.run.honest_rows or 0) / max(1, objective.n_rows or 1))


def _honest_rows(
    config: AgentConfig, setting: Setting, objective: Objective | None, effective: float | None
) -> float | None:
    """The effective rows of the smallest honest component, as far as this agent can tell.

    They are its own, or the declared rows if these are more: the same part of them as of its own
    rows counts as effective. One row of its own that stands out says little about the others, so
    fewer than five such rows do not count.
    """
    declared = None if setting.masks is None else config.run.honest_rows
    if objective is None or objective.n_rows is None or effective is None:
        return declared
    part = effective / objective.n_rows if objective.n_rows else 0.0
    others = (declared or 0) * part
    return max(effective, others if others >= FEWEST_IN_CELL else 0.0)


def _sizes(
    run: RunConfig, setting: Setting, objective: Objective
) -> tuple[float | None, float | None]:
    """A bound of ‖H_i‖, and the largest entry of g_i and q_i, at the start.

    Evaluates the objective only where the judgement depends on it.
    """
    start = np.zeros(run.dim) if run.x0 is None else np.array(run.x0, np.float64)
    curves = [curve for curve in (objective.newton, objective.majorised) if curve is not None]
    curves = curves if run.dim <= MOST_QUADRATIC else []
    every = [curve(start, None) for curve in curves]
    norm = max((float(np.linalg.norm(H, 2)) for H in every), default=None)
    if not setting.needs_gradient:
        return norm, None
    g = objective.gradient(start)
    both = [g, g - every[0] @ start] if every else [g]  # g_i and q_i
    return norm, max(float(np.abs(vector).max()) for vector in both)
