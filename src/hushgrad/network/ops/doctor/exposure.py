"""The verdicts of `hushgrad doctor` about an agent's own exposure: held, accepted or refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from hushgrad.errors import HushgradError
from hushgrad.network.config.model import AgentConfig
from hushgrad.network.exposure import own_numbers, setting_of
from hushgrad.network.forecast import forecast
from hushgrad.network.ledgers import NOTHING_TOLD, told_before
from hushgrad.network.objective.objectives import Objective
from hushgrad.theory.exposure import Held, judge

# the conditions that depend on the agent's own data
_OWN = ("curvature", "gradient", "sums")


@dataclass(frozen=True)
class Verdict:
    """One condition of the judgement; `accepted` is a weakness that the agent's file accepts."""

    name: str
    verdict: Literal["held", "accepted", "refused", "not judged"]
    text: str

    @property
    def is_good(self) -> bool | None:
        return {"held": True, "refused": False}.get(self.verdict)


def verdicts(config: AgentConfig, objective: Objective | None) -> Iterator[Verdict]:
    """The judgement of an agent; without an objective, as far as the file tells."""
    setting = setting_of(config.run, is_quadratic=config.objective.is_quadratic)
    before, unreadable = NOTHING_TOLD, None
    try:
        before = told_before(config)
    except HushgradError as error:
        unreadable = str(error)
    for found in judge(setting, own_numbers(config, setting, objective, before)):
        is_held = isinstance(found, Held)
        if found.name in ("sums", "changes") and unreadable is not None:
            yield Verdict(found.name, "not judged", f"earlier runs are not known: {unreadable}")
        elif objective is None and found.name in _OWN and not is_held:
            yield Verdict(found.name, "not judged", "the objective cannot be evaluated here")
        elif is_held:
            yield Verdict(found.name, "held", found.text)
        else:
            is_accepted = found.name in config.accept_exposure
            yield Verdict(found.name, "accepted" if is_accepted else "refused", found.text)


def stages_line(
    config: AgentConfig, objective: Objective | None
) -> tuple[Literal[True] | None, str] | None:
    """The forecast of the judgement of stages; a refusal is no obstacle, since it is a forecast."""
    if objective is None:
        return None
    try:
        found = forecast(config, objective, told_before(config))
    except HushgradError:  # `verdicts` says so
        return None
    if found is None:
        return None
    return (True if found.refused is None else None), found.text
