"""The deniability witness of Theorems 2 and 4, for `hg.witness`.

**Witness.** Messages of agent i contain λ_i^k g_i^k and never g_i^k. So with ĝ_i^k = e^{ζ_k} g_i^k
and λ̂_i^k = e^{−ζ_k} λ_i^k agent i sends, for the same draws and the same received messages, the
same messages: for any finite number of iterations and any ζ_k. `witness` constructs ĝ and λ̂, runs
the agent's own code with both, and compares every message. A factor that is a power of two changes
no bit; others round.

Changing λ in finitely many iterations changes no limit and no tail of a sum, so the conditions of
Theorem 1 or 3 hold for λ̂ if they hold for λ. (Kept up for ever, a factor that only agent i uses
would break Σ |λ_i − λ_j| < ∞.)

**The honest companion.** Everybody knows how stepsizes are drawn, λ = base(n) (1 − ϱ a_n) with ϱ
uniform in (0, 1]. The alternative needs ϱ̂_k = (1 − e^{−ζ_k}(1 − ϱ_k a_n)) / a_n instead. As long as
all ϱ̂_k ∈ (0, 1] it is as likely as the truth, the density being constant; otherwise it is
impossible. For one ζ that leaves

    max_k log(1 − ϱ_k a_n)  <  ζ  ≤  min_k log((1 − ϱ_k a_n) / (1 − a_n))

This interval is about 1/k² wide for the paper's schedule. If ϱ is drawn once, one ϱ̂ must explain
all iterations. If nothing deviates, no ϱ̂ can, and ζ = 0 alone remains.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushgrad.agent.local import Local
from hushgrad.agent.machine import StepMachine
from hushgrad.agent.masking import mask_grids, masked_statistics
from hushgrad.agent.rounds import Payload
from hushgrad.agent.stages import Statistic, from_start, is_about_start, within_stage
from hushgrad.algorithms.base import Private
from hushgrad.algorithms.pdg_ds import PDGDS
from hushgrad.algorithms.pdg_nds import PDGNDS
from hushgrad.draws import Stream
from hushgrad.errors import PrivacyError
from hushgrad.privacy.replay import Replay, replays, stepsizes, trace_of
from hushgrad.simulate.result import Run
from hushgrad.simulate.staged import statistics
from hushgrad.stepsizes import Bursts, Deviation, Harmonic, NoDeviation, Schedule

type Floats = NDArray[np.float64]
type Mail = dict[int, Floats]  # {the other end: message (d,)} of one iteration

MOST = 500.0  # |ζ|: beyond, e^ζ g may leave the floating-point numbers
_LN2 = math.log(2.0)
_EXACT = 1e-14  # relative distance from n ln 2 up to which ζ means 2^n
_THEOREM_1 = {  # each condition, and how the schedule calls its failure
    "Σ λ = ∞": "Σ λ < ∞",
    "Σ λ² < ∞": "Σ λ² = ∞",
    "Σ |λ_i − λ_j| < ∞": "Σ |λ_i − λ_j| = ∞",
}
_TOLERANCE = 1e-13  # relative difference of messages that rounding explains


@dataclass(frozen=True, eq=False, kw_only=True)
class Witness:
    """Other gradients and stepsizes of one agent that lead to the same messages."""

    agent: int
    zeta: Floats  # (n,)
    gradients: Floats  # (n, d) e^ζ times what the agent stepped with, its mask included
    stepsizes: Floats  # (n,) e^−ζ times its own
    n_messages: int  # that were compared
    identical: bool  # bit for bit with the agent's own code run on the truth
    replay_difference: float  # relative, from the same
    difference: float  # relative, from the recorded messages, whatever engine wrote them
    conditions: Mapping[str, bool]  # of Theorem 1 or 3, each whether it holds for both
    admissible: tuple[float, float]  # the ζ that the schedule's distribution allows
    first_impossible_k: int | None  # where this ζ leaves that distribution
    log_likelihood_ratio: float  # of the alternative's draws against the true ones

    @property
    def is_deniable(self) -> bool:
        """Whether nobody can tell from the messages: the same, from stepsizes that may be drawn."""
        return self.difference <= _TOLERANCE and self.first_impossible_k is None

    def summary(self) -> str:
        """The result in plain words."""
        low, high = (f"{z:.4g}" for z in (self.zeta.min(), self.zeta.max()))
        by = f"e^{low}" if low == high else f"e^{low} to e^{high}"
        same = (
            "the same to the bit"
            if self.identical
            else f"the same to {max(self.replay_difference, self.difference):.1e}"
        )
        lines = [
            f"Agent {self.agent}, {len(self.zeta)} iterations, gradients times {by}, stepsizes "
            "divided by it:",
            f"  {self.n_messages} messages, {same} ({self.difference:.1e} from the record).",
            *(
                f"  {name}: {'holds' if holds else 'fails'}, as for the true stepsizes."
                for name, holds in self.conditions.items()
            ),
        ]
        if self.first_impossible_k is None:
            lines.append("  Its draws are as likely as the true ones.")
        else:
            lines.append(
                f"  But at k = {self.first_impossible_k} its stepsize is one that the schedule "
                "never gives: who knows the schedule does not believe it."
            )
        lines.append(
            f"  The schedule leaves ζ from {self.admissible[0]:.3g} to {self.admissible[1]:.3g}."
        )
        return "\n".join(lines)

    __str__ = summary


def witness(run: Run, agent: int, zeta: ArrayLike, *, trial: int = 0) -> Witness:
    """Other gradients e^ζ g and stepsizes e^−ζ λ of an agent, replayed against its messages.

    run      of PDG-DS or PDG-NDS, with transcript=True
    zeta     a number, or one per iteration; n ln 2 stands for exactly 2^n
    trial    counts the run's trials
    """
    trace = trace_of(run, trial)
    algorithm = run.algorithm
    if not isinstance(algorithm, PDGDS | PDGNDS):
        raise PrivacyError(
            f"Theorems 2 and 4 are about PDG-DS and PDG-NDS, but this run is of {run.title}."
        )
    if not 0 <= agent < trace.shape[1]:
        raise PrivacyError(f"agents are numbered 0 to {trace.shape[1] - 1}, but agent = {agent!r}.")
    zetas = _checked(zeta, len(trace) - 1)
    own = replays(run, trial, [agent])[agent]
    local = own.local
    if run.config["stages"]:
        local = replace(local, gradient=_staged_gradient(run, trial, agent))
        algorithm = within_stage(algorithm)
    sent, received = _mail(run, trial, agent)
    up, down = _factors(zetas)
    truth = _replay(algorithm, local, trace[0, agent], received, 0 * up + 1, 0 * up + 1)
    other = _replay(algorithm, local, trace[0, agent], received, up, down)
    low, high, impossible = _support(algorithm.schedule, own, zetas)
    return Witness(
        agent=agent,
        zeta=zetas,
        gradients=other.gradients,
        stepsizes=down * stepsizes(own, algorithm),
        n_messages=sum(len(mail) for mail in other.sent),
        identical=_is_identical(truth.sent, other.sent),
        replay_difference=_difference(truth.sent, other.sent),
        difference=_difference(sent, other.sent),
        conditions=_conditions(algorithm),
        admissible=(low, high),
        first_impossible_k=impossible,
        log_likelihood_ratio=0.0 if impossible is None else -math.inf,
    )


def _staged_gradient(run: Run, trial: int, agent: int) -> Callable[[Floats], Floats]:
    """The gradient with which an agent computes in a run of one stage."""
    if len(run.config["stages"]) > 1:
        raise PrivacyError(
            "a witness replays the gradients of one objective, but this run has "
            f"{len(run.config['stages'])} stages with an objective each. Use stages=1."
        )
    assert run.mask_scale is not None
    row = slice(trial, trial + 1)
    start = trace_of(run, trial)[:1]
    grids = mask_grids(run.algorithm, run.network, run.problem.dim, run.mask_scale[row])
    about_start = is_about_start(run.algorithm, is_quadratic=run.problem.is_quadratic)
    every = statistics(
        run.problem, run.algorithm, run.trials[row], start, None,
        grids=grids, about_start=about_start,
    )  # fmt: skip
    masked = masked_statistics(
        run.algorithm,
        run.network,
        every,
        run.mask_scale[row],
        seed=run.seed,
        trials=run.trials[row],
        stage=0,
    )
    masked = from_start(masked, start) if about_start else masked
    return Statistic(masked.H[0, agent], masked.q[0, agent]).gradient


def _checked(zeta: ArrayLike, n: int) -> Floats:
    zetas = np.asarray(zeta, np.float64)
    if zetas.shape not in ((), (n,)):
        raise PrivacyError(
            f"ζ is a number or one for each of the {n} iterations, but it has shape {zetas.shape}."
        )
    if not (np.abs(zetas) <= MOST).all():
        raise PrivacyError(
            f"ζ lies within ±{MOST:g}, where e^ζ g is a floating-point number, but it reaches "
            f"{zetas.flat[np.abs(zetas).argmax()]}."
        )
    return np.broadcast_to(zetas, n).copy()


def _factors(zetas: Floats) -> tuple[Floats, Floats]:
    """e^ζ and e^−ζ, powers of two exactly."""
    twos = np.round(zetas / _LN2)
    exact = np.abs(zetas - twos * _LN2) <= _EXACT * np.abs(zetas)
    whole = twos.astype(np.int64)
    return (
        np.where(exact, np.ldexp(1.0, whole), np.exp(zetas)),
        np.where(exact, np.ldexp(1.0, -whole), np.exp(-zetas)),
    )


def _mail(run: Run, trial: int, agent: int) -> tuple[list[Mail], list[Mail]]:
    """The messages that an agent sent, by receiver, and got, by sender, in each iteration."""
    n = len(trace_of(run, trial)) - 1
    sent: list[Mail] = [{} for _ in range(n)]
    received: list[Mail] = [{} for _ in range(n)]
    assert run.transcript is not None  # trace_of has checked it
    for channel in run.transcript.channels:
        for link, (j, i) in enumerate(
            zip(channel.senders.tolist(), channel.receivers.tolist(), strict=True)
        ):
            if agent not in (j, i):
                continue
            box, other = (sent, i) if j == agent else (received, j)
            values = np.asarray(channel.values[trial][:, channel.row[link]])
            for n_th, k in enumerate(channel.iterations.tolist()):
                if channel.awake is None or channel.awake[trial, n_th, link]:
                    box[k][other] = values[n_th]
    return sent, received


@dataclass(frozen=True)
class _Replayed:
    gradients: Floats  # (n, d)
    sent: list[Mail]


def _replay(
    algorithm: Private, local: Local, x0: Floats, received: list[Mail], up: Floats, down: Floats
) -> _Replayed:
    """The agent's own code on what it received, with gradients times `up`, stepsizes `down`."""
    gradients: list[Floats] = []

    def gradient(x: Floats) -> Floats:  # called once in each iteration
        gradients.append(up[len(gradients)] * local.gradient(x))
        return gradients[-1]

    schedule = _Scaled(inner=algorithm.schedule, factors=down)
    machine = StepMachine(
        replace(algorithm, stepsize=schedule), replace(local, gradient=gradient), x0
    )
    machine.begin()
    sent: list[Mail] = []
    for k, box in enumerate(received):
        sent.append({i: _vector(payload) for i, payload in machine.outbox.payloads.items()})
        if k + 1 < len(received):
            machine.advance(machine.receive({j: (message,) for j, message in box.items()}))
            machine.go_on()
    return _Replayed(np.array(gradients), sent)


def _vector(payload: Payload) -> Floats:
    (message,) = payload  # PDG sends one vector per link
    assert message is not None
    return message


@dataclass(frozen=True, kw_only=True, eq=False)
class _Scaled(Schedule):
    """A schedule times one factor per iteration."""

    inner: Schedule
    factors: Floats  # (n,)

    def base(self, n: Any) -> Any:
        return self.inner.base(n)

    def deviating(self, default: Deviation) -> _Scaled:
        return self  # the inner one does already

    def __call__(self, agent: Any) -> Any:
        # an agent computes the stepsizes of many iterations at once, also of some that never come
        at = np.minimum(agent.k, len(self.factors) - 1).astype(np.int64)
        return self.factors[at] * self.inner(agent)


def _is_identical(one: list[Mail], other: list[Mail]) -> bool:
    return all(
        a.keys() == b.keys() and all(a[i].tobytes() == b[i].tobytes() for i in a)
        for a, b in zip(one, other, strict=True)
    )


def _difference(one: list[Mail], other: list[Mail]) -> float:
    """The largest relative difference of two messages; infinite if others were sent."""
    worst = 0.0
    for a, b in zip(one, other, strict=True):
        if a.keys() != b.keys():
            return math.inf
        for i, message in a.items():
            off, size = np.abs(b[i] - message).max(), np.abs(message).max()
            worst = max(worst, float(off / size) if off else 0.0)
    return worst


def _conditions(algorithm: Private) -> dict[str, bool]:
    schedule = algorithm.schedule
    if isinstance(algorithm, PDGDS):
        failed = schedule.theorem_1()
        return {name: failure not in failed for name, failure in _THEOREM_1.items()}
    spread = schedule.deviation or NoDeviation()
    fades = 2 * spread.power > 1 if isinstance(spread, Harmonic) else spread.is_summable_with(0)
    return {
        "Σ λ = ∞": schedule.decay <= 1,
        "Σ (λ^{k+1} − λ^k)² < ∞": fades,
        "Σ (λ_i − λ_j)² / λ < ∞": fades,
    }


def _support(schedule: Schedule, own: Replay, zetas: Floats) -> tuple[float, float, int | None]:
    """The ζ that leave every ϱ̂ in (0, 1], from the actual draws, and where these ζ do not."""
    deviation = schedule.deviation or NoDeviation()
    n = np.arange(1.0, len(zetas) + 1)
    once = deviation.drawn == "once"
    rho = np.broadcast_to(own.uniform(Stream.STEPSIZE, once=once).ravel(), len(n))
    a = np.asarray(deviation.spread(n))
    fixed = (a == 0) if not once else (a == 0) | (n > 1)  # one ϱ̂ explains one iteration, not two
    with np.errstate(divide="ignore", invalid="ignore"):
        drawn = np.log1p(-rho * a)
        low = np.where(fixed, 0.0, drawn)
        high = np.where(fixed, 0.0, drawn - np.log1p(-a))
    high = np.where(np.isnan(high), np.inf, high)  # λ = 0: any factor leaves it so
    allowed = (zetas == 0) | ((low < zetas) & (zetas <= high))
    if isinstance(deviation, Bursts):  # at secret times: a few changes pass
        allowed |= np.cumsum(zetas != 0) <= deviation.count
    out = np.flatnonzero(~allowed)
    return float(low.max()), float(high.min()), int(out[0]) if len(out) else None
