"""The rows of one site for a fit, from its CSV file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hushgrad.fitting.model import Model
from hushgrad.fitting.rows import Rows, needed, rows_of
from hushgrad.fitting.tables import read_table


@dataclass(frozen=True, kw_only=True)
class FitSpec:
    """The model of a fit and the file of this site's rows; a spec holds no data."""

    model: Model
    file: Path
    site: str  # the name of the agent, for messages
    delimiter: str | None = None  # None: comma, semicolon or tab, as the header tells
    decimal: str = "."

    kind = "fit"

    @property
    def is_quadratic(self) -> bool:
        """Whether the loss is quadratic, whatever the data."""
        return self.model.kind in ("linear", "ridge")

    def read(self) -> Rows:
        """The rows of the file, by the rules of the model."""
        names = needed(self.model)
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
