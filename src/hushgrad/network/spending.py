"""The spending of a fit: judged by the policies and written into every ledger before each average.

A run is admitted by the numbers that it will probably pool (admission.py). The number of steps of a
fit, and the weight of a row in a sum, follow from pooled sums, on which other sites have an
influence. So an agent counts again before every average, together with the earlier runs of the same
data. programme.py calls `spend`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hushgrad.errors import ExposureError
from hushgrad.network.budgets import add_known, budget_rulings, read_ledger
from hushgrad.network.config.model import AgentConfig
from hushgrad.network.exposure import setting_of
from hushgrad.network.ledgers import (
    begun_run,
    governing,
    holding,
    key_name,
    ledgers_of,
    note_line,
    plain_mu,
    runs_of_data,
)
from hushgrad.network.objective.data_digest import DataDigest
from hushgrad.network.objective.objectives import Objective
from hushgrad.network.policy import Policy
from hushgrad.network.state.ledger import SPENT, LedgerLine, LedgerRun
from hushgrad.theory.exposure import count_revealed
from hushgrad.theory.pooled import Pooled


def spend(
    config: AgentConfig, objective: Objective, stage: int, numbers: int, mu: float | None
) -> None:
    """Refuse an average that a policy forbids, and note it; nothing of it has been sent.

    numbers   pooled by all stages so far, those of this average included
    mu        of the same; None: not known
    """
    told = count_revealed(
        setting_of(config.run, is_quadratic=objective.is_quadratic), objective.n_rows
    )
    share = replace(told, stages=stage, told=numbers).share if isinstance(told, Pooled) else None
    with holding(config):  # two runs of the same data judge one after the other
        for policy in governing(config):
            for broken in _broken(config, policy, share, mu):
                raise ExposureError(
                    f"{config.name} sends nothing of stage {stage + 1}, by the policy "
                    f"'{policy.path}': {broken}"
                )
        named = {"run": config.run.id, "agent": config.name, "key": key_name(config)}
        for ledger in ledgers_of(config):
            mine = begun_run(config, ledger.lines())
            if mine is not None and _has_grown(mine, share, mu):
                spent = {"mu": plain_mu(mu), "share": share}
                note_line(ledger.append(SPENT, {**named, **spent}))


def _broken(
    config: AgentConfig, policy: Policy, share: float | None, mu: float | None
) -> Iterator[str]:
    """The rules that the average breaks."""
    lines = [] if policy.ledger is None else read_ledger(policy)
    mine = begun_run(config, lines)
    earlier = [] if mine is None else _earlier(lines, mine)
    most = policy.max_share_revealed
    if most is not None:
        total = add_known([share, *(run.share for run in earlier)])
        if total is None or total > most:
            found = "an unknown part" if total is None else f"{total:.4g}"
            yield (
                f"max_share_revealed = {most:g}, and the sums would reveal {found} of the entries "
                "of this site's rows. Use fewer columns, or more rows."
            )
    yield from (r.text for r in budget_rulings(policy, mu, earlier) if not r.is_kept)


def _earlier(lines: list[LedgerLine], mine: LedgerRun) -> list[LedgerRun]:
    """The other runs of the same data."""
    same = runs_of_data(lines, DataDigest.of_line(mine.begun.facts))
    return [run for run in same if run.begun.digest != mine.begun.digest]


def _has_grown(mine: LedgerRun, share: float | None, mu: float | None) -> bool:
    """Whether the ledger has less than this; a run without a bound stays one."""
    is_larger = mine.mu is not None and (mu is None or mu > mine.mu)
    return is_larger or (mine.share is not None and (share is None or share > mine.share))
