"""Simulated runs whose messages are watched for jumps as a deployed agent watches them."""

import numpy as np

import hushgrad as hg
from hushgrad.agent.stages import n_stages, stage_lengths
from hushgrad.network.protocol.jumps import JumpWatch


class Watched:
    """Stands in for `tamper` of a run: one JumpWatch for each link, which changes no message.

    `inner` tampers first, as an active agent does.
    """

    def __init__(self, begins, inner=None):
        self.begins, self.inner = begins, inner
        self.watches = {}
        self.jumps = []  # (k, sender, receiver, Jump)

    def __call__(self, k, sender, receiver, payload):
        if self.inner is not None:
            payload = self.inner(k, sender, receiver, payload)
        watch = self.watches.setdefault((sender, receiver), JumpWatch())
        stage = int(np.searchsorted(self.begins, k, side="right"))
        found = watch.look({sender: payload}, stage=stage, k=k)
        self.jumps += [(k, sender, receiver, jump) for jump in found]
        return payload


def watched_run(algorithm, problem, network, *, iterations, inner=None, **options):
    """A run of agents alone, and what their watches saw."""
    stages = n_stages(algorithm, is_quadratic=problem.is_quadratic)
    lengths = stage_lengths(iterations, stages, algorithm.curvature) if stages > 1 else []
    watched = Watched(np.cumsum(lengths), inner)
    run = hg.run(
        algorithm, problem, network, iterations=iterations, engine="agents", progress=False,
        tamper=watched, **options,
    )  # fmt: skip
    return run, watched.jumps
