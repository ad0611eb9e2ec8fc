"""The starts of stages: by STAGE frames all agents take the same θ, to the last bit.

In a run in stages (hushgrad.agent.stages) every stage begins at the estimate with which agent 0,
the leader, ended the stage before. The leader gives the vector to its neighbours, and each agent
passes it on to its other neighbours once. On a new connection an agent tells every start that it
knows, the earlier ones first. So starts arrive in the order of the stages.

Nobody but the leader can tell a false start from the true one. But the true one comes to every
agent, too: two different starts of one stage end the run, and the error names the neighbours that
told them, so operators can ask back along the links to the origin.

The hub (transport/hub.py) sends and receives the frames. The deployed agent takes the starts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hushgrad.agent.stages import LEADER
from hushgrad.agent.vectors import FINITE, is_within
from hushgrad.errors import StageError, WireError
from hushgrad.network.protocol.frames import Frame, FrameKind, encode

type Vector = NDArray[np.float64]

OWN = "this agent itself"
_FLOAT = np.dtype("<f8")


class Starts:
    """The starts of stages that one agent knows."""

    def __init__(
        self,
        number: int,
        dim: int,
        n_stages: int,
        *,
        are_told: bool = True,
        largest: float = FINITE,
    ):
        """`are_told`: agent 0 tells the starts. Otherwise every agent computes them by itself.

        `largest`: no number of a start is larger.
        """
        self._largest = largest
        self.number, self._dim, self._n_stages = number, dim, n_stages if are_told else 0
        self._known: dict[int, tuple[Vector, str]] = {}  # by stage, with the neighbour that told it
        self.most = max(self._n_stages - 1, 0)  # stages whose start travels

    def of(self, stage: int) -> Vector | None:
        """The start of a stage, if it is here."""
        return self._known[stage][0] if stage in self._known else None

    def add(self, stage: int, start: Vector) -> bytes:
        """Take a start that this agent made or has computed with; returns its frame."""
        held = self._known.get(stage)
        if held is None:
            self._known[stage] = start, OWN
        elif held[0].tobytes() != start.tobytes():
            raise _conflict(stage, held[1], OWN)
        return _encode(stage, start)

    def frames(self) -> list[bytes]:
        """All that a neighbour should know, in the order of the stages."""
        return [_encode(stage, self._known[stage][0]) for stage in sorted(self._known)]

    def learn(self, frame: Frame, source: str) -> bytes | None:
        """Take what a neighbour tells; returns the frame to pass on, if it is new.

        WireError: the neighbour broke a rule. StageError: no agent can go on.
        """
        stage, start = frame.round, np.frombuffer(frame.body, _FLOAT)
        last = max(self._known, default=None)
        is_next = stage == 1 if last is None else stage <= last + 1
        if not 1 <= stage < self._n_stages or not is_next:
            raise WireError(f"{source} told the start of stage {stage}, which is not due", "order")
        if len(start) != self._dim:
            raise WireError(
                f"the start of stage {stage} has {self._dim} numbers, but {source} told "
                f"{len(start)}",
                "dimension",
            )
        if not is_within(start, self._largest):
            raise WireError(
                f"the start of stage {stage}, told by {source}, has numbers above "
                f"{self._largest:.3g}, or some that are not finite",
                "too large" if np.isfinite(start).all() else "not finite",
            )
        held = self._known.get(stage)
        if held is not None:
            if held[0].tobytes() != start.tobytes():
                raise _conflict(stage, held[1], source)
            return None
        if last is not None and stage < last:  # this agent is past it, and has let go of it
            return None
        if self.number == LEADER:
            raise WireError(
                f"{source} told the start of stage {stage}, which agent 0 alone decides: this "
                "agent has not done so",
                "order",
            )
        self._known[stage] = start.copy(), source
        return _encode(stage, start)


def _encode(stage: int, start: Vector) -> bytes:
    return encode(FrameKind.STAGE, np.ascontiguousarray(start, _FLOAT).tobytes(), round_=stage)


def _conflict(stage: int, one: str, other: str) -> StageError:
    return StageError(
        f"all agents begin stage {stage} at one θ, but there are two: one was told by {one}, "
        f"another by {other}. An agent has told a false start: ask from whom it came, agent by "
        "agent, as far as agent 0. Then start a new run with a new id."
    )
