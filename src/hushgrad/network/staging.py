"""The objective of a deployed agent as its steps see it: masked stage by stage, or masked once.

`hushgrad.agent.stages` says what a stage is. The deployed agent (deployed.py) enters a stage here;
state/stages.py keeps the stages that have begun.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hushgrad.agent.local import Local
from hushgrad.agent.stages import (
    LEADER,
    Statistic,
    check_dim,
    covering,
    from_start,
    is_about_start,
    statistic,
    vector_statistic,
    within_stage,
)
from hushgrad.algorithms.base import Algorithm, Masked, Private, stepsize_risks
from hushgrad.errors import (
    AgentError,
    AlgorithmError,
    ConfigError,
    DivergedError,
    FitError,
    StateError,
)
from hushgrad.network.agreement import Agreement, agree
from hushgrad.network.auto import chosen, power, provisional, told, with_stepsize
from hushgrad.network.config.model import AgentConfig, RunConfig, power_of_two
from hushgrad.network.exposure import check_size, check_stage, setting_of
from hushgrad.network.introduction import draws_of, introduce, linked_with, local_agent, own_weight
from hushgrad.network.keys.masking import mask_grids, mask_of, masked_statistic
from hushgrad.network.keys.pairing import Pairing
from hushgrad.network.ledgers import holding, note_stage, told_before
from hushgrad.network.objective.objectives import Objective
from hushgrad.network.protocol.announcements import encode_links
from hushgrad.network.protocol.mask_tokens import OWN, Entry
from hushgrad.network.rounds import Rounds
from hushgrad.network.state.journal import StateDirectory
from hushgrad.network.state.stages import Begun, read_stages, write_stage
from hushgrad.network.transport.hub import Hub
from hushgrad.theory.exposure import count_revealed

if TYPE_CHECKING:
    from hushgrad.fitting.plan_result import Fitted

log = logging.getLogger("hushgrad.agent")

STEPSIZE = "stepsize of 64 parts"  # in links.json: the e of 2^(−e/64)

type Vector = NDArray[np.float64]
type Compute = Callable[..., Awaitable[Any]]  # calls a function in a thread


def check_stages(run: RunConfig, objective: Objective) -> None:
    """Refuse an objective that a run in stages cannot use."""
    if not run.lengths or not isinstance(run.algorithm, Private):
        return
    objective.curvature(run.algorithm.curvature)
    check_dim(run.dim)


class Stages:
    """The stages of one agent; a run without stages is one stage, with the gradient itself."""

    def __init__(self, config: AgentConfig, objective: Objective):
        self.config, self._objective = config, objective
        self.lengths = config.run.lengths
        self.begins = (0, *accumulate(self.lengths[:-1]))
        self.begun = read_stages(config.state) if self.lengths else {}
        self.agreement = Agreement()

    @property
    def result(self) -> Fitted | None:
        """The result of a fit that has ended with one."""
        return None

    @property
    def error(self) -> FitError | None:
        """The reason for which a fit has ended without a result."""
        return None

    @property
    def part(self) -> str:
        """The stage of a plan, in words."""
        return ""

    @property
    def confirmed(self) -> list[Entry]:
        """The tokens with which a fit has ended."""
        return []

    def recall(self, state: StateDirectory) -> None:
        """Read more than the stages from the state directory; a fit reads its pooled sums."""

    def close(self) -> None:
        """Let go of the files that `recall` opened."""

    @property
    def algorithm(self) -> Algorithm:
        """The algorithm of a stage, whose statistic has its mask already."""
        algorithm = self.config.run.algorithm
        return within_stage(algorithm) if self.lengths else algorithm  # type: ignore[arg-type]  # Masked

    def tells(self, hub: Hub, links: Any) -> int:
        """The number that this agent announces for the common stepsize."""
        return told(self.config, self._objective, own_weight(self.config, hub, links))

    def provisional(self) -> AgentConfig:
        """The configuration with a stepsize that is no smaller than the common one."""
        return provisional(self.config, self._objective)

    def statistic(self, stage: int, start: Vector) -> Statistic:
        """The statistic of this agent's objective before the agents agree on a unit."""
        return self._statistic(stage, start, about_start=False)

    def _statistic(self, stage: int, start: Vector, *, about_start: bool) -> Statistic:
        algorithm = self.config.run.algorithm
        if not isinstance(algorithm, Private):
            return vector_statistic(self._objective.gradient, self.config.run.dim)
        curve = self._objective.curvature(algorithm.curvature)
        before = self._before(stage)
        return statistic(self._objective.gradient, curve, start, before, about_start=about_start)

    def _masked(self, stage: int, start: Vector, own: Statistic | None) -> Statistic:
        """The masked statistic of this agent's objective: a sum of rounded rows where it can be.

        `own` is the statistic of a function of the user, if it has been evaluated before.
        """
        algorithm, agreement = self.config.run.algorithm, self.agreement
        assert isinstance(algorithm, Masked)
        about_start = is_about_start(algorithm, is_quadratic=self._objective.is_quadratic)
        grids, by_rows = mask_grids(self.config.run, agreement.scale), self._objective.rows
        before = self._before(stage)
        if by_rows is None or grids is None or not isinstance(algorithm, Private):
            if own is None or about_start:
                own = self._statistic(stage, start, about_start=about_start)
            if stage and agreement.scale is not None and isinstance(algorithm, Private):
                check_size(self.config, self._objective, own, agreement.scale, stage)
        else:
            own = Statistic(*by_rows(start, before, grids, algorithm.curvature == "fixed"))
        starts = () if before is None else (before, start)
        masked = masked_statistic(
            self.config, agreement.shares, own, stage, agreement.scale, starts
        )
        return from_start(masked, start) if about_start else masked

    def _earlier(self, stage: int) -> Vector:
        """The starts (stage, d) of all stages before; averages, which have no starts, have none."""
        if not stage or not isinstance(self.config.run.algorithm, Private):
            return np.empty((0, self.config.run.dim))
        last = self.begun[stage - 1]
        return np.concatenate([last.earlier, last.start[None]])

    def _before(self, stage: int) -> Vector | None:
        """The start of the stage before."""
        return self.begun[stage - 1].start if stage else None

    def exponent(self, own: Statistic, start: Vector) -> int:
        """The e of the power of two 2^e that covers q_i, the gradient at the start, the least unit
        of the algorithm, and what q_i may become in later stages.

        A declared scale covers them all. Then the scale alone gives e, which tells nothing of them.
        """
        algorithm = self.config.run.algorithm
        assert isinstance(algorithm, Masked)
        every = Statistic(own.H[None], own.q[None])
        least, reach = algorithm.least_unit, self._objective.reach
        if reach is not None and algorithm.masks_curvature:
            least = max(least, reach(is_fixed=getattr(algorithm, "curvature", None) == "fixed"))
        scale = float(covering(every, start[None], least))
        given = _declared(self.config.run)
        if given is not None and scale > given:
            raise _too_small(self.config.run, scale, "this agent")
        return math.frexp(given or scale)[1] - 1

    def make(self, stage: int, start: Vector, own: Statistic | None = None) -> Begun:
        """The stage, masked and kept in the state directory; makes it unless it has begun."""
        if stage not in self.begun:
            config = self.config
            if self.agreement.lacks_key:
                raise _no_key(config)
            self._check(stage, start)
            try:
                masked = self._masked(stage, start, own)
            except AlgorithmError as error:
                raise AgentError(f"the masks of stage {stage}: {error}") from error
            begun = Begun(stage, start, masked, self._earlier(stage))
            write_stage(config.state, begun)
            self.begun[stage] = begun
            self.begun.pop(stage - 2, None)
            log.info(
                "stage %d of %s, iterations %d to %d", stage + 1, self._most,
                self.begins[stage], self.begins[stage] + self.lengths[stage],
                extra={"event": "stage"},
            )  # fmt: skip
        return self.begun[stage]

    @property
    def _most(self) -> str:
        """The number of stages in words."""
        return str(len(self.lengths))

    def _check(self, stage: int, start: Vector) -> None:
        """Refuse to enter a stage that would tell too much, and note what the stage tells."""
        config, objective = self.config, self._objective
        setting = setting_of(config.run, is_quadratic=objective.is_quadratic)
        told = count_revealed(setting, None)
        if told is None or told.is_quadratic:  # one stage of a quadratic tells what all tell
            return
        starts = [*self._earlier(stage), start]
        upto = [replace(told, stages=n).numbers if n else 0 for n in (stage, stage + 1)]
        is_fixed = told.curvature == "fixed"
        with holding(config):  # two runs at once cannot both pass
            check_stage(config, objective, starts, told_before(config))
            note_stage(config, stage, start, upto[1] - upto[0], is_fixed=is_fixed)

    async def enter(self, hub: Hub, rounds: Rounds, compute: Compute) -> bool:
        """Enter the stage that is due, at the estimate of the leader.

        False: the estimate is not here yet, but something else may have happened.
        """
        stage = rounds.due
        assert stage is not None
        start = self.begun[stage].start if stage in self.begun else hub.starts.of(stage)
        if start is None and self.config.number == LEADER:
            start = rounds.machine.x.copy()
            if not np.isfinite(start).all():
                raise DivergedError(
                    f"iteration {rounds.machine.k}: the estimate with which stage {stage} ended "
                    "is not finite. Choose a smaller stepsize."
                )
        if start is None:
            with hub.watching.awaiting(lambda: [f"the start of stage {stage + 1} of agent 0"]):
                await hub.change()
            return False
        await compute(self.make, stage, start)
        if self.config.number == LEADER:  # now the start can change no more
            hub.broadcast(hub.starts.add(stage, start))
        await compute(rounds.enter, start)
        return True

    def gradient(self, stage: int) -> Callable[[Any], Any]:
        """The gradient that the step machine of a stage asks for."""
        if self.lengths:
            return self.begun[stage].statistic.gradient if stage in self.begun else _past
        if self.agreement.lacks_key:
            return self._without_key
        mask = mask_of(self.config, self.agreement.shares)
        return self._objective.gradient if mask is None else mask.over(self._objective.gradient)

    def _without_key(self, _: object) -> object:
        raise _no_key(self.config)


async def prepare_stages(
    stages: Stages,
    state: StateDirectory,
    hub: Hub,
    pairing: Pairing | None,
    x0: Vector,
    is_over: Callable[[], bool],
    compute: Compute,
) -> Callable[[int], Local] | None:
    """Agree with the other agents; returns this agent's part of the network, by stage.

    `compute` calls a function in a thread. None: `is_over` became true before.
    """
    config = stages.config
    for risk in stepsize_risks(config.run.algorithm):
        log.warning("%s", risk, extra={"event": "stepsize"})
    await compute(stages.recall, state)
    hub.confirmations.learn(stages.confirmed, OWN)
    known = links = state.links
    if links is None:
        hub.start()
        links = await introduce(config, hub, is_over)
        if links is None:
            return None
    tells, bits, choose = links.get(STEPSIZE, 0), b"", None
    if config.run.is_auto and STEPSIZE not in links:
        tells = await compute(stages.tells, hub, links)
        if config.run.tells_links:
            bits = encode_links(linked_with(config), config.run.n_agents)
        choose = partial(compute, chosen, config.run)
        stages.config = await compute(stages.provisional)  # for the unit that it announces
    elif config.run.is_auto:
        stages.config = with_stepsize(config, tells)
    own, exponent = None, 0
    if stages.lengths and not stages.begun:
        own = await compute(stages.statistic, 0, x0)
        exponent = stages.exponent(own, x0)
    scale = links.get("scale", _declared(config.run))
    agreement = await agree(
        config, pairing, state, hub, is_over,
        scale=scale, exponent=exponent, stepsize=tells, links=bits, choose=choose,
    )  # fmt: skip
    if agreement is None:
        return None
    if config.run.is_auto:
        stages.config = config = with_stepsize(config, agreement.stepsize)
        agreement = replace(agreement, scale=_covering_unit(config.run, agreement.scale))
        log.info("stepsize %g", power(agreement.stepsize), extra={"event": "stepsize"})
    stages.agreement = agreement
    local = local_agent(config, hub, links, stages.gradient(0), draws_of(config, state.secret))
    if known is None:  # local_agent has accepted the links
        auto = {STEPSIZE: agreement.stepsize} if config.run.is_auto else {}
        state.store_links({**links, "scale": agreement.scale, **auto})
    if own is not None:
        await compute(stages.make, 0, x0, own)
    for stage, begun in stages.begun.items():
        if stage and hub.starts.most:
            hub.starts.add(stage, begun.start)

    def local_of(stage: int) -> Local:
        draws = draws_of(config, state.secret, stage)
        return replace(local, gradient=stages.gradient(stage), draws=draws)

    return local_of


def _covering_unit(run: RunConfig, scale: float | None) -> float | None:
    """The unit of masks on which all agreed before they knew λ, made to cover 1/λ."""
    algorithm = run.algorithm
    if scale is None or not run.lengths or not isinstance(algorithm, Private):
        return scale
    least = power_of_two(float(algorithm.least_unit))
    if run.scale is not None and least > scale:
        raise _too_small(run, least, "the agents agreed on a stepsize that")
    return max(scale, least)


def _too_small(run: RunConfig, least: float, who: str) -> ConfigError:
    what = "1/λ" if isinstance(run.algorithm, Private) else "scale in [algorithm]"
    return ConfigError(
        "scale in [run] is the unit of masks and covers the gradients of all agents at the start "
        f"and {what}, but scale = {run.scale:g} and {who} needs {least:g}. Declare a larger scale "
        "in every file, or leave it out: then the agents agree."
    )


def _declared(run: RunConfig) -> float | None:
    """The unit of the masks of stages, if the run declares one."""
    return None if run.scale is None or not run.lengths else power_of_two(run.scale)


def _past(_: object) -> object:
    raise StateError(
        "the journal needs the statistic of a stage that is no longer in the state directory. "
        "Restore the newest state, or start a new run with a new id and directory."
    )


def _no_key(config: AgentConfig) -> StateError:
    return StateError(
        f"'{config.state / 'mask-key'}' is missing, and without it the agent cannot mask its "
        "gradients. Restore it, or start a new run with a new id and directory."
    )
