"""The facts about the stages of a fit or a plan that policies judge, from this site's own rows.

`admission.py` takes it into the facts of a run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hushgrad.network.policy import TABLES, StageFacts

if TYPE_CHECKING:
    from hushgrad.fitting.model import Model
    from hushgrad.fitting.plan import Data, Declared
    from hushgrad.fitting.rows import Rows

_COUNTED = ("logistic", "cox", "poisson")  # kinds whose outcomes are counted


def stage_facts(declared: Declared, data: Data | None) -> tuple[StageFacts, ...]:
    """The facts of every stage; a single fit has no name. `data`: None, if it cannot be read."""
    from hushgrad.fitting.model import Model  # an agent without a fit saves the memory
    from hushgrad.fitting.plan import parts_of, stages_of
    from hushgrad.fitting.rows import Rows

    stages = stages_of(declared)
    every = [None] * len(stages) if data is None else parts_of(data)
    found: list[StageFacts] = []
    for (name, stage), rows in zip(stages.items(), every, strict=True):
        n_rows = None if rows is None else rows.n_rows
        if isinstance(stage, Model):
            kind, n_parameters = stage.kind, len(stage.names)
            events = _events(stage, rows) if isinstance(rows, Rows) else None
        else:
            kind, n_parameters, events = TABLES, stage.n_cells + 2 * len(stage.means), None
        found.append(
            StageFacts(
                name=name,
                kind=kind,
                n_parameters=n_parameters,
                n_rows=n_rows,
                n_events=events,
                has_events=kind in _COUNTED,
            )
        )
    return tuple(found)


def _events(model: Model, rows: Rows) -> int:
    """The events of this site; of a logistic outcome the rarer one."""
    if model.kind == "logistic":
        positive = int(rows.y.sum())
        return min(positive, rows.n_rows - positive)
    return int(rows.y.sum()) if model.kind == "poisson" else int(rows.event.sum())
