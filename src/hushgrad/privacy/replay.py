"""One agent's part of a finished run, computed again from its trace and the seeded draws.

The views of curious agents (knowledge.py), the truth and the witness use it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrad.agent.local import Local, local_agents
from hushgrad.agent.masking import agent_masks, mask_sizes
from hushgrad.agent.single import SingleAgent
from hushgrad.agent.stages import is_about_start, within_stage
from hushgrad.algorithms.base import Masked, Private, Stepping
from hushgrad.draws import pair_keys, pair_words, trial_keys
from hushgrad.errors import PrivacyError
from hushgrad.exchange import Columns
from hushgrad.masks import Mask
from hushgrad.simulate.result import Run

type Floats = NDArray[np.float64]


class Replay(SingleAgent):
    """One agent in all iterations at once: they take the place of the trials, (1, d, n)."""

    def __init__(self, local: Local, n: int):
        super().__init__(local, ahead=n)
        self.n = n


def stepsizes(agent: Replay, algorithm: Any) -> Floats:
    """λ^k (n,), NaN for an algorithm without a schedule."""
    lam: Any = algorithm.lam(agent) if isinstance(algorithm, Stepping) else np.nan
    return np.broadcast_to(np.asarray(lam, np.float64).ravel(), agent.n).copy()


def weights(agent: Replay, algorithm: Any) -> dict[int, Floats] | None:
    """{receiver: b^k (n,)}, itself included, of a split by weights; None for other splits."""
    if not isinstance(algorithm, Private):
        return None
    B = algorithm.B(agent, algorithm.links)
    if not isinstance(B, Columns):
        return None
    raw = {agent.local.number: B.own[0, 0]} | {
        i: B.out[slot, 0] for slot, i in enumerate(agent.local.receivers[algorithm.links])
    }
    scale = 1.0 if B.scale is None else B.scale[0, 0]
    return {i: np.broadcast_to(b * scale, agent.n).copy() for i, b in raw.items()}


def replays(run: Run, row: int, agents: Iterable[int]) -> dict[int, Replay]:
    """Some agents of one trial of a recorded run."""
    algorithm = within_stage(run.algorithm) if run.config["stages"] else run.algorithm
    trial = int(run.trials[row])
    locals_ = local_agents(
        algorithm, run.problem, run.network, seed=run.seed, trial=trial, stage=run.stage
    )
    n = trace_of(run, row).shape[0] - 1
    return {i: Replay(locals_[i], n) for i in agents}


def trace_of(run: Run, row: int) -> Floats:
    """x^0 … x^n (n + 1, agents, d) of one trial, or an error if the run did not keep it."""
    if run.transcript is None or run.trace is None or run.problem is None:
        lack = "was loaded from a file" if run.problem is None else "kept no transcript"
        raise PrivacyError(
            "views and truth are made of a run of this process that kept its messages, but "
            f"{run!r} {lack}. Run it again with hg.run(…, transcript=True)."
        )
    if not 0 <= row < len(run.trace):
        raise PrivacyError(
            f"this run has trials 0 to {len(run.trace) - 1}, counted in its own order, but trial "
            f"{row!r} is asked for."
        )
    return run.trace[row]


def masks(run: Run, row: int) -> list[Mask] | None:
    """The mask of each agent's objective, if it was masked."""
    found = agent_masks(
        run.algorithm,
        run.network,
        run.problem.dim,
        seed=run.seed,
        trial=int(run.trials[row]),
        stage=run.stage,
        scale=_scale(run, row),
    )
    return None if found is None else [_about_zero(run, row, i, m) for i, m in enumerate(found)]


def _about_zero(run: Run, row: int, i: int, mask: Mask) -> Mask:
    """The mask of q_i; some stages mask the gradient at their start instead (`is_about_start`)."""
    problem = run.config.get("whole", run).problem
    if mask.Q is None or not run.config["stages"]:
        return mask
    if not is_about_start(run.algorithm, is_quadratic=problem.is_quadratic):
        return mask
    return Mask(mask.c - mask.Q @ trace_of(run, row)[0, i], mask.Q)


def _scale(run: Run, row: int) -> float | None:
    return None if run.mask_scale is None else float(run.mask_scale[row])


def shared_masks(run: Run, row: int, i: int) -> dict[int, Mask]:
    """{partner: the part of the partner's mask that comes from the key which it shares with i}."""
    algorithm, network = run.algorithm, run.network
    if not isinstance(algorithm, Masked) or algorithm.masking is None:
        return {}
    sizes = mask_sizes(algorithm, network, run.problem.dim, _scale(run, row))
    trial, found = [int(run.trials[row])], dict[int, Mask]()
    is_fixed = (
        run.stage > 0 and getattr(algorithm, "curvature", None) == "fixed"
    )  # Q of the first stage stays
    for partner in algorithm.masking.partners(i, network.n_agents):
        parts: list[Mask] = []
        for stage in (run.stage, 0) if is_fixed else (run.stage,):
            key = trial_keys(run.seed, trial, stage)
            pair = pair_keys(key, [min(i, partner)], [max(i, partner)])
            share = sizes.share(pair_words(pair, sizes.n_words))[:, 0, 0]
            parts.append(Mask(*sizes.parts(share if partner < i else -share)))
        found[partner] = _about_zero(run, row, partner, Mask(parts[0].c, parts[-1].Q))
    return found


def gradients(run: Run, row: int, i: int, thetas: Any) -> Floats:
    """∇f_i at thetas (n, d), the problem's own, without masks."""
    trial = None if run.problem.n_trials is None else int(run.trials[row])
    return run.problem.local_gradients(i, trial)(thetas)
