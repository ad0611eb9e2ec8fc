"""The status with which a deployed agent ends, if an error ends it. deployed.py uses it."""

from __future__ import annotations

import numpy as np

from hushgrad.agent.vectors import Vector
from hushgrad.errors import (
    DiameterError,
    DivergedError,
    ExposureError,
    JumpError,
    MaskError,
    PeerEndedError,
    PeerLostError,
    ProblemError,
    ReplayError,
    StageError,
    StaleCopyError,
)
from hushgrad.network.ops.result import Status

FAR = 1e100  # an iterate with a larger entry counts as diverged
_REFUSALS = (
    StaleCopyError, ReplayError, MaskError, DiameterError, StageError, JumpError, ExposureError,
)  # fmt: skip


def status_of(error: Exception, x: Vector) -> Status:
    """The status of an agent that was at x when an error ended it."""
    if isinstance(error, PeerLostError):
        return Status.PEER_LOST
    if isinstance(error, PeerEndedError):
        return Status.PEER_ENDED
    if isinstance(error, _REFUSALS):
        return Status.REFUSED
    # gradients at a distant iterate overflow before the iterate does
    is_lost = isinstance(error, ProblemError) and not np.abs(x).max() < FAR
    return Status.DIVERGED if is_lost or isinstance(error, DivergedError) else Status.FAILED
