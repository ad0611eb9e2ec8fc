"""The rules of a policy that look into its ledger: earlier runs and earlier spending count, too.

The admission of a run, the spending of a fit and the doctor judge by them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

from hushgrad.errors import PolicyError
from hushgrad.network.policy import Policy, Ruling, RunFacts, at_most
from hushgrad.network.state.ledger import LedgerLine, LedgerRun, runs_of
from hushgrad.theory.gaussian_dp import epsilon
from hushgrad.theory.ledger import Ledger

DELTA = 1e-6  # of max_epsilon
AHEAD = timedelta(hours=1)  # a ledger's last line may be so far in the future: clocks differ


def check_start(policy: Policy, lines: list[LedgerLine]) -> None:
    """Refuse a ledger that is another than the policy names."""
    if policy.ledger_start not in (None, lines[0].digest):
        raise PolicyError(
            f"the policy '{policy.path}' counts in the ledger that began with "
            f"{policy.ledger_start}, but '{policy.ledger}' began with {lines[0].digest}. Restore "
            "the ledger."
        )


def read_ledger(policy: Policy) -> list[LedgerLine]:
    """The lines of the ledger that a policy names."""
    ledger = policy.ledger_file
    assert ledger is not None
    if not ledger.exists:
        raise PolicyError(
            f"the policy '{policy.path}' counts runs in '{ledger.path}', which is not there. "
            "Restore it; `hushgrad ledger new` begins another, which the policy has to name."
        )
    lines = ledger.lines()
    check_start(policy, lines)
    return lines


def counted_rulings(
    policy: Policy, run: RunFacts, lines: list[LedgerLine], same: list[LedgerRun]
) -> Iterator[Ruling]:
    """The rules that count runs; `same`: the runs of the same data."""
    now = datetime.now(UTC)
    if lines[-1].time > now + AHEAD:
        last, here = (f"{moment:%Y-%m-%d %H:%M}" for moment in (lines[-1].time, now))
        yield Ruling(
            "clock", False, f"the last line of '{policy.ledger}' is of {last} UTC, and this "
            f"machine's clock says {here}. Set the clock, and ask who had set it.",
        )  # fmt: skip
    if policy.max_runs is not None:
        yield _count("max_runs", policy.max_runs, len(same), "of these data",
                     "Ask IT for a larger number.")  # fmt: skip
    if policy.max_runs_in_period is not None and policy.period_days is not None:
        since = now - timedelta(days=policy.period_days)
        recent = [r for r in runs_of(lines) if r.begun.time > since]
        when = f"within {policy.period_days:g} days"
        way = "Wait, or ask IT."
        if recent:
            free = min(r.begun.time for r in recent) + timedelta(days=policy.period_days)
            way = f"Wait until {free:%Y-%m-%d %H:%M} UTC, or ask IT."
        yield _count("max_runs_in_period", policy.max_runs_in_period, len(recent), when, way)
    if policy.max_share_revealed is not None and same:
        total = None if run.share is None else add_known([run.share, *(r.share for r in same)])
        yield from at_most(
            policy, "max_share_revealed", total,
            f"of the entries of this site's rows, with {len(same)} earlier runs of these data",
            "Use other data, or ask IT.",
        )  # fmt: skip
    yield from budget_rulings(policy, run.mu, same)


def _count(rule: str, limit: int, before: int, which: str, way: str) -> Ruling:
    text = f"{rule} = {limit}, and this would be run {before + 1} {which}"
    return Ruling(rule, before < limit, text if before < limit else f"{text}. {way}")


def add_known(parts: Iterable[float | None]) -> float | None:
    """The sum; None if a part is not known."""
    known = list(parts)
    return None if None in known else math.fsum(part for part in known if part is not None)


def budget_rulings(policy: Policy, mu: float | None, same: list[LedgerRun]) -> Iterator[Ruling]:
    """μ² of all runs of these data and of this one add up."""
    unknown = [r.begun.run for r in same if r.mu is None]
    spent = Ledger()
    for n, earlier in enumerate(same):
        spent = spent.add(f"{n}", earlier.mu or 0.0)
    total = None if mu is None or unknown else spent.add("this", mu).mu
    for rule, limit, value in (
        ("max_mu", policy.max_mu, total),
        ("max_epsilon", policy.max_epsilon, None if total is None else epsilon(DELTA, total)),
    ):
        if limit is None:
            continue
        if value is None:
            whose = f"run {unknown[0]}" if unknown else "this run"
            yield Ruling(
                rule, False, f"{rule} = {limit:g}, but μ of {whose} is not known. Declare a bound "
                "of the rows (row_norm in [run]), or ask IT.",
            )  # fmt: skip
            continue
        text = f"{rule} = {limit:g}, and with this run {value:.4g} is spent on these data"
        is_kept = value <= limit
        yield Ruling(rule, is_kept, text if is_kept else f"{text}. Use other data, or ask IT.")
