"""The rows of one site for a fit, from its CSV file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hushgrad.fitting.drawn_rows import draw_columns
from hushgrad.fitting.model import Model
from hushgrad.fitting.rows import Rows, needed, rows_of
from hushgrad.fitting.tables import read_table, table_of


@dataclass(frozen=True, kw_only=True)
class FitSpec:
    """The model of a fit and the file of this site's rows; a spec holds no data.

    A rehearsal has no file: its rows are drawn from the model, by the number of the agent.
    """

    model: Model
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
        """Where the rows come from, in words."""
        return "drawn rows" if self.file is None else self.file.name

    @property
    def is_quadratic(self) -> bool:
        """Whether the loss is quadratic, whatever the data."""
        return self.model.kind in ("linear", "ridge")

    def read(self) -> Rows:
        """The rows of the file, by the rules of the model."""
        names = needed(self.model)
        if self.file is None:
            drawn = draw_columns(self.model, self.draw_rows or 1, self.number)
            return rows_of(self.model, table_of(drawn, names, site=self.site))
        table = read_table(
            self.file, names, site=self.site, delimiter=self.delimiter, decimal=self.decimal
        )
        return rows_of(self.model, table)


def effective_rows(rows: Rows) -> float:
    """Σ w / max w of w = weight · ‖z‖², with columns standardised by this site's own numbers.

    `hushgrad.problems.effective` says what effective rows are. The pooled means and standard
    deviations are not known before the fit begins.
    """
    spread = rows.X.std(axis=0)
    Z = (rows.X - rows.X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    weights = rows.weights * (1.0 + (Z**2).sum(axis=1))
    return float(weights.sum() / weights.max())
