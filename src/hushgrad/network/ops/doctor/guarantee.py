"""The guarantee of an agent's masks in `hushgrad doctor`: of this run, and of all runs of its key.

docs/guarantee.md derives the numbers. They hold for rows within the bound that the file declares,
so the doctor also compares the agent's own rows with the bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from hushgrad.errors import HushgradError
from hushgrad.fitting.averages import most_averages
from hushgrad.network.config.model import AgentConfig
from hushgrad.network.objective.objectives import Objective
from hushgrad.network.promise import missing, promise
from hushgrad.network.state.ledger import mus
from hushgrad.theory.ledger import Ledger

DELTA = 1e-6
_ROUNDING = 1e-12  # a norm that lies on the bound itself


class Told(NamedTuple):
    """One line of the doctor, and its numbers."""

    check: str
    is_good: bool | None
    text: str
    data: dict[str, Any] | None = None


def guarantees(config: AgentConfig, objective: Objective | None) -> Iterator[Told]:
    """The promise against outsiders and against the worst coalition of each size; the ledger."""
    if (reason := missing(config)) is not None:
        yield Told("guarantee", None, f"none: {reason}")
    elif (outside := _outside(config, objective)) is not None:
        yield Told("guarantee", False, outside)
    else:
        yield from _promised(config, objective)
    yield from _ledger(config)


def _outside(config: AgentConfig, objective: Objective | None) -> str | None:
    """The complaint about a row that is outside of the declared bound."""
    if objective is None or objective.largest_row is None:
        return None
    norm, target = objective.largest_row
    run = config.run
    for name, found, bound in (
        ("row_norm", norm, run.row_norm), ("row_target", target, run.row_target),
    ):  # fmt: skip
        if bound is not None and found > bound * (1 + _ROUNDING):
            return (
                f"{name} in [run] bounds every row, but {name} = {bound:g} and a row of this agent "
                f"has {found:.4g}. Clip the rows, or declare a larger bound in every file"
            )
    return None


def _promised(config: AgentConfig, objective: Objective | None) -> Iterator[Told]:
    rows, about = None, ""
    if config.run.model is not None:
        rows = None if objective is None else objective.fit_rows
        if rows is None:
            yield Told("guarantee", None, "not judged: the rows of this agent cannot be read")
            return
        most = most_averages(config.run.model)
        about = f" (about, in at most {most} averages; the table tells what was spent)"
    try:
        found = promise(config, rows, delta=DELTA)
    except HushgradError as error:
        yield Told("guarantee", None, f"none: {error}")
        return
    for exposure in found.exposures:
        size = len(exposure.coalition)
        who = (
            f"the worst coalition of {size}, {{{', '.join(map(str, exposure.coalition))}}}"
            if size
            else "an outsider"
        )
        numbers = _numbers(exposure.mu, exposure.epsilon, exposure.advantage)
        hidden = f"hidden among {exposure.hidden_among} agents"
        if math.isinf(exposure.mu):
            numbers = "nothing is hidden" if exposure.is_alone else "a part of a row has no mask"
            hidden = "have an honest partner" if exposure.is_alone else "set eta in [run]"
        yield Told(
            "guarantee",
            True if math.isfinite(exposure.mu) else None,
            f"against {who}: {numbers}; {hidden}{about}",
            {
                "coalition": list(exposure.coalition),
                "mu": _finite(exposure.mu),
                "epsilon": _finite(exposure.epsilon),
                "delta": DELTA,
                "advantage": exposure.advantage,
                "is_exact": exposure.is_exact,
            },
        )
        if math.isinf(exposure.mu) and not exposure.is_alone:
            return


def _ledger(config: AgentConfig) -> Iterator[Told]:
    """All runs of the key, as their μ compose; a run without a bound is only counted."""
    try:
        known = mus(config.key)
    except HushgradError as error:
        yield Told("ledger", False, str(error))
        return
    if not known:
        return
    ledger = Ledger()
    for run, mu in known.items():
        ledger = ledger if mu is None else ledger.add(run, mu)
    n, without = len(ledger.runs), len(known) - len(ledger.runs)
    rest = f"; {without} without a declared bound are not counted" if without else ""
    if not n:
        yield Told("ledger", None, f"{len(known)} runs of this key, none with a declared bound")
        return
    epsilon = ledger.epsilon(DELTA)
    yield Told(
        "ledger",
        True,
        f"{n} runs of this key, if all but one partner collude: "
        f"{_numbers(ledger.mu, epsilon, ledger.advantage)}{rest}",
        {
            "runs": n, "without_bound": without, "mu": _finite(ledger.mu),
            "epsilon": _finite(epsilon), "delta": DELTA, "advantage": ledger.advantage,
        },
    )  # fmt: skip


def _numbers(mu: float, epsilon: float, advantage: float) -> str:
    return f"μ = {mu:.3g}, ε = {epsilon:.3g} at δ = {DELTA:g}, advantage {advantage:.2g}"


def _finite(value: float) -> float | None:
    return None if math.isinf(value) else value
