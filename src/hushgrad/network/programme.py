"""A fit on deployed agents: every stage of the run is one average of the fit's programme.

The programme (hushgrad.fitting) yields this site's vector. The vector is the statistic of a stage:
it is masked, kept in the state directory and averaged. n · average, rounded to whole numbers, is
the pooled sum, the same bits at every agent. So every agent computes the next vector by itself, and
no agent leads.

The shares of masks depend on all pooled sums so far, and on what the vector is. If an agent was
made to see another sum, its masks do not cancel: no sum of statistics is told, and the next average
is no whole number. A neighbour of all agents that waits for their messages can still complete every
average, and show two agents different sums to the end. So when the programme has returned, mask
partners exchange tokens of everything that they saw (protocol/confirmations.py). An agent that does
not get the right token from every partner ends with `refused` and has no table.

The pooled sums are kept in the state directory, one section each (`sums`). A restarted agent drives
its programme over them, with the same rows as before.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import math
from time import monotonic

import numpy as np

from hushgrad.agent.stages import Statistic
from hushgrad.algorithms.base import Masked
from hushgrad.errors import FitError, ReplayError, StageError, StateError
from hushgrad.files.atomic import replace_file
from hushgrad.files.digest import commitment
from hushgrad.fitting.contracts import contract, contract_digest
from hushgrad.fitting.plan import Data, parts_of, programme_of, undeclared_by
from hushgrad.fitting.plan_result import Fitted, checked, masked
from hushgrad.fitting.progress import FitProgress
from hushgrad.fitting.sums import SIZE, settled
from hushgrad.network.config.model import AgentConfig
from hushgrad.network.exposure import check_average
from hushgrad.network.keys.masking import confirmation_tokens, masked_statistic
from hushgrad.network.objective.objectives import Objective
from hushgrad.network.ops.result import Status
from hushgrad.network.protocol import frames as wire
from hushgrad.network.protocol.confirmations import Way
from hushgrad.network.protocol.frames import FrameKind
from hushgrad.network.protocol.mask_tokens import Entry, decode_entries, encode_entries
from hushgrad.network.rounds import Rounds
from hushgrad.network.spending import spend
from hushgrad.network.staging import Compute, Stages, Vector
from hushgrad.network.state.journal import PART, Slot, StateDirectory
from hushgrad.network.state.sections import Section
from hushgrad.network.transport.hub import Hub

_LOOK = 0.5  # seconds: so often an agent that has ended looks whether the others go on
SUMS = "sums"  # in the state directory: what the fit began with, then the pooled sums so far


class Programme(Stages):
    """The averages of one agent's fit."""

    def __init__(self, config: AgentConfig, objective: Objective):
        super().__init__(config, objective)
        model, rows = config.run.model, objective.fit_rows
        assert model is not None
        assert rows is not None
        self._contract = contract_digest(contract(model))
        self._rows = rows
        self._progress = FitProgress()
        self._fit = programme_of(model, rows, self._progress)
        self._is_bounded = undeclared_by(model) is None  # in every stage of a plan
        self._told_part = ""  # in the state directory
        self._sums: list[Vector] = []  # pooled, of the stages that are over
        self._own: Vector | None = None  # the present vector of this site, not padded
        self._file: Slot | None = None
        self._outcome: Fitted | FitError | None = None  # once the programme has returned
        self._is_checked = False  # on the rows of this site
        self._confirmed: list[Entry] | None = None  # and all partners have confirmed it
        self._right: dict[Way, bytes] = {}  # the tokens of partners that confirm it
        self._asked = 0.0  # when this agent began to wait for them

    @property
    def has_ended(self) -> bool:
        return self._confirmed is not None

    @property
    def confirmed(self) -> list[Entry]:
        return self._confirmed or []

    @property
    def result(self) -> Fitted | None:
        """The result, once the run has ended with one."""
        found = self._outcome if self.has_ended else None
        if found is None or isinstance(found, FitError):
            return None
        if not self._is_checked:
            found = masked(checked(found, {self.config.name: self._rows}), self._masks)
            self._outcome, self._is_checked = found, True
        return found

    @property
    def error(self) -> FitError | None:
        """The reason for which the run has ended without a result."""
        found = self._outcome if self.has_ended else None
        return found if isinstance(found, FitError) else None

    @property
    def part(self) -> str:
        """The stage of a plan, in words; nothing of a single fit."""
        at = self._progress
        return f"{at.stage} of {at.stages} ({at.name})" if at.name else ""

    def recall(self, state: StateDirectory) -> None:
        """Drive the programme over the pooled sums of the state directory."""
        self._file = state.open(SUMS)
        sections = self._file.read()
        began = {"contract": self._contract, "rows": _digest(self._rows, state.secret)}
        if not sections:
            if self.begun:
                raise _damaged(self.config)
            self._file.write(Section(0, 0, facts=began), afresh=True)
        for what, way_out in (("contract", "the model"), ("rows", "the file of rows")):
            if sections and sections[0].facts.get(what) != began[what]:
                raise ReplayError(
                    f"the fit began with other {what}, and this agent has sent sums of them. Put "
                    f"{way_out} back as it was, or start a new run with a new id and directory."
                )
        self._advance(None)
        for section in sections[1:]:
            if section.facts.get("is_confirmed"):
                self._confirmed = decode_entries(section.blob)
                break
            pooled = np.array(section.arrays["sum"])
            self._sums.append(pooled)
            self._advance(pooled)
        if max(self.begun, default=0) > len(self._sums):
            raise _damaged(self.config)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _advance(self, pooled: Vector | None) -> None:
        """Send a pooled sum to the programme, or start the programme."""
        own = self._own
        try:
            length = 0 if own is None else len(own)
            self._own = self._fit.send(None if pooled is None else pooled[:length])  # type: ignore[arg-type]  # None starts a generator
        except StopIteration as end:
            self._own, self._outcome = None, end.value
        except FitError as error:
            self._own, self._outcome = None, error
        if self.part != self._told_part:  # for `hushgrad status`
            self._told_part = self.part
            text = self.part.encode()
            replace_file(self.config.state / PART, lambda file: file.write(text))

    # ---- one stage

    def statistic(self, stage: int, start: Vector) -> Statistic:
        """q = −a of this site's vector a, with zeros behind it."""
        own, dim = self._own, self.config.run.dim
        assert own is not None
        assert stage == len(self._sums)
        if len(own) > dim:
            raise StageError(f"a vector of the fit has {len(own)} numbers, but dim = {dim}.")
        q = np.zeros(dim)
        q[: len(own)] = -own
        return Statistic(np.empty((0, 0)), q)

    def exponent(self, own: Statistic, start: Vector) -> int:
        """log₂ of the public size of entries."""
        return int(np.log2(SIZE))

    def _masked(self, stage: int, start: Vector, own: Statistic | None) -> Statistic:
        statistic = self.statistic(stage, start)
        agreement = self.agreement
        mu = None if agreement.shares is None else self.mu
        spend(self.config, self._objective, stage, self._progress.numbers, mu)
        return masked_statistic(
            self.config, agreement.shares, statistic, stage, agreement.scale,
            [*self._sums, self._length()],
        )  # fmt: skip

    def _length(self) -> Vector:
        """The length of this stage's vector: were an agent at another place of its programme, the
        zeros behind the vectors of the others would leave a part of its vector alone in the sum.
        """
        assert self._own is not None
        return np.array([len(self._own)], np.float64)

    @property
    def _most(self) -> str:
        return f"at most {len(self.lengths)}"

    def _check(self, stage: int, start: Vector) -> None:
        assert self._own is not None
        if not stage:  # the run was judged before it began
            return
        largest = float(np.abs(self._own).max())
        check_average(self.config, self._objective, stage, self._progress, largest)

    @property
    def _masks(self) -> float:
        """The standard deviation of a share."""
        algorithm = self.config.run.algorithm
        assert isinstance(algorithm, Masked)
        return algorithm.mask_sizes(self.config.run.dim, None, self.agreement.scale).linear

    @property
    def mu(self) -> float | None:
        """μ of all vectors so far, the present one included; None: no bound is declared."""
        if not self._is_bounded:
            return None
        parts = self._progress.row_parts
        known = [part for part in parts if part is not None]
        return math.hypot(*known) / self._masks if len(known) == len(parts) else None

    # ---- between two stages

    async def enter(self, hub: Hub, rounds: Rounds, compute: Compute) -> bool:
        """Pool the stage that is over, and enter the next one or end the run."""
        stage = rounds.due
        assert stage is not None
        await compute(self.pool, stage - 1, rounds.machine.x.copy())
        try:
            is_over = await self._is_confirmed(hub, compute)
        except StageError as error:
            hub.fail(error)  # all neighbours are told
            raise
        if self._outcome is not None and not is_over:
            return False
        if is_over:
            await compute(rounds.end, Status.FAILED if self.result is None else Status.DONE)
            return True
        if stage == len(self.lengths):
            raise StageError(
                f"a fit ends within {len(self.lengths)} averages, but this one goes on. Report the "
                "model and the version of hushgrad."
            )
        start = np.zeros(self.config.run.dim)
        await compute(self.make, stage, start)
        await compute(rounds.enter, start)
        return True

    async def _is_confirmed(self, hub: Hub, compute: Compute) -> bool:
        """Whether the programme has returned, and all partners confirm what this agent saw.

        False: something may have come since. StageError: a partner has seen something else.
        """
        known = hub.confirmations
        if self._outcome is None:
            return False
        if not self._asked:
            own, self._right = confirmation_tokens(self.config, self.agreement.shares, self._seen())
            self._asked = monotonic()
            hub.broadcast(wire.encode(FrameKind.CONFIRM, encode_entries(known.add(own))))
        refuted = known.refuted(self._right)
        if refuted is not None:
            (partner, _), told = refuted
            raise StageError(
                f"{self._name(partner)} does not confirm the sums of this agent, so there is no "
                f"table: its token, told by {told}, is that of other sums. {_OTHER_SUMS}"
            )
        if missing := known.missing():
            self._check_all_end(hub)
            await self._wait(hub, missing)
            return False
        if self._confirmed is None:
            entries, file = known.entries(), self._file
            assert file is not None
            facts = {"is_confirmed": True}
            section = Section(len(self._sums), 0, blob=encode_entries(entries), facts=facts)
            await compute(lambda: file.write(section, afresh=False))
            self._confirmed = entries
        return True

    def _check_all_end(self, hub: Hub) -> None:
        """Refuse to wait for a neighbour whose fit goes on: it has sent a message since."""
        for peer in hub.session.peers.values():
            if peer.last[0] > hub.session.round:
                raise StageError(
                    f"the fit has ended here after {len(self._sums)} averages, but {peer.name} "
                    f"goes on, so there is no table: the two have seen other sums, or {peer.name} "
                    f"computes otherwise. Here it ended with: {_end(self._outcome)}. Compare the "
                    "versions of hushgrad, and run the fit again with a new id."
                )

    async def _wait(self, hub: Hub, missing: list[Way]) -> None:
        """Wait for the next event, and no longer than `max_wait` for all confirmations."""
        rest = self._asked + self.config.max_wait - monotonic()
        try:
            async with asyncio.timeout(min(rest, _LOOK)):
                await hub.change()
        except TimeoutError:
            if rest > _LOOK:
                return
            names = sorted({self._name(i) for i, _ in missing})
            raise StageError(
                f"no confirmation came within max_wait = {self.config.max_wait:g} s from "
                f"{', '.join(names)}, so there is no table: the agent may be lost, or an agent "
                "between does not pass it on. Ask the sites, and run the fit again with a new id."
            ) from None

    def _seen(self) -> str:
        """A digest of all pooled sums and of the coefficients.

        Standard errors and p-values are functions of them, whose last digits may differ between
        machines.
        """
        found = self._outcome
        end = b"none"
        if found is not None and not isinstance(found, FitError):
            end = b"table" + found.estimate.tobytes()
        return commitment(b"".join([self._contract.encode(), *map(bytes, self._sums), end]))

    def _name(self, number: int) -> str:
        names = {partner.number: partner.name for partner in self.config.partners}
        return names.get(number, f"agent {number}")

    def pool(self, stage: int, average: Vector) -> None:
        """Keep the pooled sum of a stage, and send it to the programme."""
        try:
            pooled = settled(self.config.run.n_agents * average, self.config.run.dim)
        except FitError as error:
            raise StageError(
                f"stage {stage + 1}: {error} Either eta in [run] is smaller than η of the network, "
                "or an agent went on with other sums than this one, or in another way. Then start "
                "a new run."
            ) from error
        if stage < len(self._sums):  # a restarted agent had kept it before
            if pooled.tobytes() != self._sums[stage].tobytes():
                raise ReplayError(
                    f"the average of stage {stage + 1} differs from the one in the state "
                    "directory. Restore the newest state, or start a new run with a new id."
                )
            return
        assert self._file is not None
        self._file.write(Section(stage, 0, {"sum": pooled}), afresh=False)
        self._sums.append(pooled)
        self._advance(pooled)


def _end(outcome: Fitted | FitError | None) -> str:
    return str(outcome).rstrip(".") if isinstance(outcome, FitError) else "a table"


_OTHER_SUMS = (
    "An agent has sent false numbers, or relays a false token. Ask the sites which numbers they "
    "saw, and run the fit again with a new id."
)


def _digest(data: Data, secret: bytes) -> str:
    """A digest of the rows that tells nothing without the secret."""
    digest = hmac.new(secret, b"rows of a fit", hashlib.sha256)
    for part in (part for rows in parts_of(data) for part in rows.parts):
        digest.update(repr(part.shape).encode())
        digest.update(np.ascontiguousarray(part, "<f8").tobytes())
    return digest.hexdigest()


def _damaged(config: AgentConfig) -> StateError:
    return StateError(
        f"'{config.state / SUMS}' lacks pooled sums of stages that are over. Restore the newest "
        "state, or start a new run with a new id and directory."
    )
