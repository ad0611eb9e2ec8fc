"""The rows of one site for a fit, from its CSV file.

The configuration makes a `FitSpec` of the table [fit]; objectives.py loads its rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hushgrad.fitting.drawn_rows import draw_columns
from hushgrad.fitting.model import Model
from hushgrad.fitting.plan import Data, Declared, columns_of, data_of, fits_of, parts_of
from hushgrad.fitting.pooled_sums import TableRows
from hushgrad.fitting.rows import Rows
from hushgrad.fitting.tables import delimiter_of, read_table, table_of
from hushgrad.fitting.told import told_by
from hushgrad.problems.effective import effective_in_columns


@dataclass(frozen=True, kw_only=True)
class FitSpec:
    """The model of a fit and the file of this site's rows; a spec holds no data.

    A rehearsal has no file: its rows are drawn from the model, by the number of the agent.
    """

    model: Declared
    site: str  # the name of the agent, for messages
    file: Path | None = None
    draw_rows: int | None = None
    number: int = 0
    delimiter: str | None = None  # None: comma, semicolon or tab, as the header tells
    decimal: str = "."

    kind = "fit"

    @property
    def is_drawn(self) -> bool:
        """Whether the rows are nobody's."""
        return self.file is None

    @property
    def place(self) -> str:
        """The origin of the rows, in words."""
        return "drawn rows" if self.file is None else self.file.name

    @property
    def is_quadratic(self) -> bool:
        """Whether the loss is quadratic, whatever the data."""
        return told_by(self.model).is_quadratic

    @property
    def describe(self) -> str:
        """The kind of the fit, in words."""
        return f"{self.model.kind} fit" if isinstance(self.model, Model) else "plan"

    @property
    def size(self) -> str:
        """The size of the fit, in words."""
        if isinstance(self.model, Model):
            return f"{len(self.model.names)} coefficients"
        return f"{len(self.model.stages)} stages"

    @property
    def row_rules(self) -> dict[str, Any]:
        """The rules that treat single rows differently."""
        deltas = sorted({fit.delta for fit in fits_of(self.model) if fit.delta is not None})
        return {"delta": deltas} if deltas else {}

    @property
    def between(self) -> str | None:
        """The delimiter of the file."""
        if self.file is None:
            return None
        return self.delimiter or delimiter_of(self.file, columns_of(self.model))

    def read(self) -> Data:
        """The rows of the file, by the rules of the model."""
        names = columns_of(self.model)
        if self.file is None:
            drawn = draw_columns(self.model, self.draw_rows or 1, self.number)
            return data_of(self.model, table_of(drawn, names, site=self.site))
        table = read_table(
            self.file, names, site=self.site, delimiter=self.delimiter, decimal=self.decimal
        )
        return data_of(self.model, table)


def least_rows(data: Data) -> Rows | TableRows:
    """The rows of the stage that has the fewest, a fit if there is one."""
    parts = parts_of(data)
    return min(parts, key=lambda rows: (isinstance(rows, TableRows), rows.n_rows))


def effective_rows(rows: Rows | TableRows, *, is_quadratic: bool) -> float:
    """Σ w / max w of w = weight · ‖z‖², with columns standardised by this site's own numbers.

    `hushgrad.problems.effective` says what effective rows are. The pooled means and standard
    deviations are not known before the fit begins.
    """
    if isinstance(rows, TableRows):
        return float(rows.n_rows)
    spread = rows.X.std(axis=0)
    Z = (rows.X - rows.X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    weights = rows.weights * (1.0 + (Z**2).sum(axis=1))
    by_length = float(weights.sum() / weights.max())
    if not is_quadratic:  # every average is judged row by row
        return by_length
    some = rows.weights > 0
    return min(by_length, effective_in_columns(rows.X[some], rows.y[some]))
