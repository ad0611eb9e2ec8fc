"""The judgement of a simulated run: hushgrad.theory.exposure, on the agents that matter.

`run` calls `judge_run` before it starts an engine. A simulation has no secrets of its own, so its
seed is no weakness, and a run without masks promises nothing that could be weak. An agent alone
sends nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushgrad.agent.masking import mask_sizes
from hushgrad.agent.stages import Statistic
from hushgrad.algorithms.base import Algorithm, Masked
from hushgrad.errors import PrivacyError
from hushgrad.mixing import Network
from hushgrad.problems import Problem
from hushgrad.problems.determined import largest_share, rows_of
from hushgrad.problems.effective import (
    effective_in_directions,
    effective_lengths,
    least_effective,
)
from hushgrad.theory.exposure import (
    OwnNumbers,
    Setting,
    Weakness,
    check_accepted,
    count_revealed,
    weaknesses,
)
from hushgrad.theory.outgrown import outgrown
from hushgrad.theory.revealed import Revealed

MOST_AGENTS = 1000  # whose gradients and rows are evaluated for the judgement

type Floats = NDArray[np.float64]


class Judged(NamedTuple):
    """The judgement of a run that is not refused."""

    warnings: list[str]  # of weaknesses that are not accepted
    revealed: Revealed | None = None  # what the stages reveal; None without stages
    limited: Revealed | None = None  # the same if every later stage must keep the limit


def judge_run(
    algorithm: Algorithm,
    problem: Problem,
    network: Network,
    *,
    stages: int,
    trial: int,
    x0: Floats,
    accepted: object = (),
) -> Judged:
    """Judge a run before it starts.

    stages    that really run; 0: none
    trial     the trial whose data count
    x0        (agents, d)

    Raises PrivacyError if the sums over honest agents reveal too much.
    """
    names = check_accepted(accepted)
    if not isinstance(algorithm, Masked):
        return Judged([])
    setting = Setting(
        algorithm=algorithm,
        n_agents=network.n_agents,
        dim=problem.dim,
        is_quadratic=problem.is_quadratic,
        stages=stages,
        sizes=None if algorithm.masking is None else mask_sizes(algorithm, network, problem.dim),
    )
    only = None if problem.n_trials is None else trial
    rows = honest_rows(setting, problem, only) if stages else None
    told = count_revealed(setting, rows)
    if setting.masks is None or network.n_agents == 1:
        return Judged([], told)
    largest = _largest_gradient(setting, problem, only, x0)
    found = {
        weakness.name: weakness
        for number in reversed(_weakest_places(setting, network))
        for weakness in weaknesses(
            setting,
            OwnNumbers(
                number=number,
                neighbours=_neighbours(network, number),
                curvature=problem.smoothness(),
                gradient=largest,
                rows=rows,
            ),
        )
        if weakness.name not in names
    }
    if "sums" in found and rows is not None:
        raise PrivacyError(_with_way(found["sums"]))
    is_limited = rows is not None and "sums" not in names
    return Judged(
        [_with_way(weakness) for weakness in found.values()], told, told if is_limited else None
    )


def check_stage(
    limited: Revealed,
    algorithm: Masked,
    problem: Problem,
    trials: NDArray[np.int64],
    starts: Sequence[Floats],
) -> None:
    """Refuse a stage if the sums would then determine too much of a row.

    starts    (trials, d) of all stages up to this one
    """
    loss = problem.row_loss
    if loss is None:
        return  # nobody knows the rows
    assert algorithm.masking is not None
    for t, trial in enumerate(trials.tolist()):
        only = None if problem.n_trials is None else trial
        determined = largest_share(
            loss,
            [rows_of(problem.agent_data(i, only)) for i in range(problem.n_agents)],
            [start[t] for start in starts],
            is_fixed=limited.curvature == "fixed",
            honest=algorithm.masking.honest,
        )
        objection = limited.stage_objection(len(starts) - 1, determined)
        if objection is not None:
            raise PrivacyError(objection[0].upper() + objection[1:])


def outgrown_risks(
    algorithm: Masked,
    problem: Problem,
    network: Network,
    every: Statistic,
    scale: Floats,
    stage: int,
    accepted: frozenset[str],
) -> list[str]:
    """Warnings about statistics of functions that have outgrown their masks at a later stage.

    every    (trials, agents, …) statistics, with the units `scale` (trials,) of masks
    """
    if problem.row_loss is not None or problem.is_quadratic or algorithm.masking is None:
        return []  # bounded at every θ
    setting = Setting(
        algorithm=algorithm,
        n_agents=network.n_agents,
        dim=problem.dim,
        is_quadratic=False,
        stages=stage + 1,
        sizes=mask_sizes(algorithm, network, problem.dim),
    )
    found = {
        weakness.name: weakness
        for t, unit in enumerate(scale.tolist())
        for H, q in zip(every.H[t, :MOST_AGENTS], every.q[t, :MOST_AGENTS], strict=True)
        if np.isfinite(H).all() and np.isfinite(q).all()  # masks refuse the others, and say why
        for weakness in outgrown(setting, H, q, unit, stage)
        if weakness.name not in accepted
    }
    return [_with_way(weakness) for weakness in found.values()]


def _with_way(weakness: Weakness) -> str:
    return f'{weakness.text} To accept this, say accept_exposure=["{weakness.name}"].'


def honest_rows(setting: Setting, problem: Problem, trial: int | None) -> float | None:
    """The effective rows of the smallest honest component, by length, and by directions unless
    each stage is judged row by row; None: data are no rows.
    """
    every = [effective_lengths(problem.agent_data(i, trial)) for i in range(problem.n_agents)]
    known = [weights for weights in every if weights is not None]
    if len(known) < len(every):
        return None
    honest = 1 if setting.masks is None else setting.masks.honest
    rows = least_effective(known, honest)
    if problem.row_loss is not None:  # every stage is judged row by row
        return rows
    some = range(min(problem.n_agents, MOST_AGENTS))
    every = [problem.agent_data(i, trial) for i in some]
    return min(rows, effective_in_directions(every, honest))


def _weakest_places(setting: Setting, network: Network) -> list[int]:
    """An agent that masks with neighbours only, and one with the fewest neighbours."""
    graph, m = network.graph, network.n_agents
    places = [int(np.argmin(graph.in_degree))]
    if setting.masks is not None:
        linked, me = graph.senders * m + graph.receivers, np.arange(m)
        beyond = graph.in_degree == m - 1
        for other in setting.masks.partner_table(m):
            beyond |= ~np.isin(me * m + other, linked)
        places += np.flatnonzero(~beyond)[:1].tolist()
    return places


def _neighbours(network: Network, number: int) -> list[int]:
    graph = network.graph
    return graph.senders[graph.receivers == number].tolist()


def _largest_gradient(
    setting: Setting, problem: Problem, trial: int | None, x0: Floats
) -> float | None:
    """The largest entry of g_i(x⁰) and of q_i = ∇f_i(0), if the judgement depends on it."""
    if not setting.needs_gradient:
        return None
    largest = 0.0
    for i in range(min(problem.n_agents, MOST_AGENTS)):
        gradient = problem.local_gradient(i, trial)
        at = [x0[i]] if not x0[i].any() or not problem.is_quadratic else [x0[i], 0.0 * x0[i]]
        largest = max(largest, *(float(np.abs(gradient(x)).max()) for x in at))
    return largest
