"""The check of a fit on the rows of one site: its loss per row, its calibration.

Every site computes this for itself, from its own rows and the pooled coefficients, after the fit.
Nothing of it is pooled or sent. A site whose rows the coefficients describe far worse than the
pooled rows either differs from the others, or somebody has pooled false sums.

Rows are ordered by their prediction and divided into tenths. Besides, the outcome is fitted again,
on the rows of the site alone, to a + b η with the linear predictor η of the fit. Calibrated rows
have a = 0 and b = 1; twice the gain of the loss has about a χ² distribution of two degrees of
freedom, whose tail is exp(−x/2). Cox has no a, so one degree of freedom.

The page of the site (page.py) and the terminal show it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hushgrad.fitting import cox, families
from hushgrad.fitting.distributions import quantile
from hushgrad.fitting.families import RowLosses
from hushgrad.fitting.model import Model
from hushgrad.fitting.rows import Rows
from hushgrad.fitting.sums import Vector

GROUPS = 10
LEAST = 10  # rows of a group
DOUBTFUL = 1e-3  # p of calibration below which a page and a terminal say so
_STEPS = 40
_SETTLED = 1e-10  # gᵀH⁻¹g
_FLAT = 1e-6  # of the first curvature

MEASURES = {
    "logistic": "log-loss per row",
    "poisson": "deviance per row",
    "linear": "mean squared residual",
    "ridge": "mean squared residual",
    "huber": "Huber loss per row",
    "cox": "gain of the log-likelihood per event",
}


@dataclass(frozen=True)
class CheckGroup:
    """Rows with similar predictions: what the fit expects of them, and what they have."""

    n_rows: int
    predicted: float  # the mean of a row; Cox: expected events of all
    observed: float
    low: float  # the confidence interval of `observed`
    high: float


@dataclass(frozen=True, kw_only=True)
class SiteCheck:
    """The fit on the rows of one site. It belongs to that site alone."""

    site: str
    measure: str
    n_rows: int
    own: float  # of the measure, on the rows of this site
    pooled: float | None  # on all rows of all sites
    constant: float | None  # on this site's rows, of their own mean alone
    total: str  # "sum" or "mean": what the next two are, of the outcome of this site's rows
    expected: float | None  # Cox has none
    observed: float | None
    slope: float | None  # b; None: the rows of this site do not tell it
    slope_error: float | None
    p_value: float | None  # of a = 0 and b = 1
    groups: tuple[CheckGroup, ...]

    @property
    def is_doubtful(self) -> bool:
        """Whether the rows of this site contradict the fit."""
        return self.p_value is not None and self.p_value < DOUBTFUL

    @property
    def line(self) -> str:
        """One line for a terminal."""
        parts = [f"{self.measure} {self.own:.5g}"]
        if self.pooled is not None:
            parts[0] += f" (all sites {self.pooled:.5g})"
        if self.expected is not None:
            parts.append(f"{self.total} expected {self.expected:.5g}, observed {self.observed:.5g}")
        if self.slope is not None:
            parts.append(f"calibration slope {self.slope:.3g} ± {self.slope_error:.2g}")
        if self.p_value is not None:
            parts.append(f"p {self.p_value:.2g}")
        return f"{self.n_rows} rows of {self.site} alone: {'; '.join(parts)}"

    @property
    def verdict(self) -> str | None:
        """The advice about rows that contradict the fit."""
        if not self.is_doubtful:
            return None
        return (
            f"the fit does not describe the rows of {self.site} (p = {self.p_value:.2g}): this "
            "site differs from the others, or a site has pooled false sums. Compare with the "
            "others before the table is used."
        )

    def to_json(self) -> dict[str, Any]:
        return vars(self) | {"groups": [vars(group) for group in self.groups]}


def site_check(
    model: Model, rows: Rows, estimate: Vector, *, site: str, loss: float, deviance: float | None,
    n_rows: int, gain: float | None = None,
) -> SiteCheck:  # fmt: skip
    """Check a fit on one site's rows; the numbers after `site` are those of all sites.

    loss, deviance, n_rows    of the result
    gain                      Cox: the log-likelihood above that of no columns, per event
    """
    eta = rows.X @ estimate[model.has_intercept :] + rows.offset
    if model.has_intercept:
        eta = eta + estimate[0]
    measure = MEASURES[model.kind]
    if model.kind == "cox":
        return _cox_check(model, rows, eta, site, measure, gain)
    losses = _losses(model)
    w, y, n = rows.weights, rows.y, len(rows.y)
    least = families.saturated(model.kind, y)

    def per_row(at: Vector) -> float:
        total = float((w * (losses(at, y).loss - least)).sum()) / n
        return total if model.kind in ("logistic", "huber") else 2 * total

    mean = _mean(model, eta)
    pooled = loss if model.kind in ("logistic", "huber") else 2 * loss
    if model.kind == "poisson":
        pooled = math.nan if deviance is None else deviance
    slope, error, gained = _again(losses, eta, y, w)
    is_counted = model.kind in ("logistic", "poisson")
    unit = 1.0 if is_counted else float((w * (y - eta) ** 2).sum()) / n
    is_tested = gained is not None and unit > 0 and model.kind != "huber" and model.weights is None
    if error is not None and not is_counted:
        error *= math.sqrt(unit)
    return SiteCheck(
        site=site,
        measure=measure,
        n_rows=n,
        own=per_row(eta),
        pooled=pooled / n_rows,
        constant=_constant(model, rows, per_row),
        total="sum" if is_counted else "mean",
        expected=float((w * mean).sum()) / (1.0 if is_counted else float(w.sum())),
        observed=float((w * y).sum()) / (1.0 if is_counted else float(w.sum())),
        slope=slope,
        slope_error=error,
        p_value=math.exp(-(gained or 0.0) / unit) if is_tested else None,
        groups=tuple(
            _group(model, mean[part], y[part], w[part]) for part in _parts(mean) if len(part)
        ),
    )


def _losses(model: Model) -> Callable[[Vector, Vector], RowLosses]:
    if model.kind == "huber":
        return families.huber(model.delta or 1.0)
    known = {"logistic": families.logistic, "poisson": families.poisson}
    return known.get(model.kind, families.linear)


def _mean(model: Model, eta: Vector) -> Vector:
    if model.kind == "logistic":
        return np.exp(-np.logaddexp(0.0, -eta))
    return np.exp(eta) if model.kind == "poisson" else eta


def _constant(model: Model, rows: Rows, per_row: Callable[[Vector], float]) -> float | None:
    """The measure if every row of this site is predicted by the site's own mean."""
    w, y = rows.weights, rows.y
    mean = float((w * y).sum() / w.sum())
    if model.kind == "logistic":
        if not 0 < mean < 1:
            return 0.0
        return per_row(np.full(len(y), math.log(mean / (1 - mean))))
    if model.kind == "poisson":
        exposure = float((w * np.exp(rows.offset)).sum())
        total = float((w * y).sum())
        return per_row(rows.offset + math.log(total / exposure)) if total else 0.0
    return per_row(np.full(len(y), mean))


def _parts(order: Vector) -> list[Any]:
    """Tenths of the rows by their prediction, fewer if there are few rows."""
    return np.array_split(
        np.argsort(order, kind="stable"), min(GROUPS, max(1, len(order) // LEAST))
    )


def _group(model: Model, mean: Vector, y: Vector, w: Vector) -> CheckGroup:
    total = float(w.sum())
    predicted, observed = float((w * mean).sum()) / total, float((w * y).sum()) / total
    n = total**2 / float((w * w).sum())  # rows of equal weight that tell as much
    if model.kind == "logistic":
        low, high = wilson(observed, n, model.level)
    elif model.kind == "poisson":
        low, high = (bound / n for bound in byar(observed * n, model.level))
    else:
        spread = math.sqrt(float((w * (y - observed) ** 2).sum()) / total)
        reach = quantile(model.level, n - 1) * spread / math.sqrt(n - 1) if n > 1 else math.inf
        low, high = observed - reach, observed + reach
    return CheckGroup(len(y), predicted, observed, low, high)


def wilson(share: float, n: float, level: float) -> tuple[float, float]:
    """Wilson's interval of a share of n rows.

    >>> [round(bound, 4) for bound in wilson(0.3, 50, 0.95)]
    [0.191, 0.4375]
    """
    z = quantile(level, None)
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    reach = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, middle - reach), min(1.0, middle + reach)


def byar(count: float, level: float) -> tuple[float, float]:
    """Byar's interval of the mean of a Poisson count.

    >>> [round(bound, 2) for bound in byar(10, 0.95)]  # the exact one is 4.80 to 18.39
    [4.79, 18.39]
    """
    z = quantile(level, None)

    def cube(n: float, sign: int) -> float:
        return n * (1 - 1 / (9 * n) + sign * z / (3 * math.sqrt(n))) ** 3 if n > 0 else 0.0

    return cube(count, -1), cube(count + 1, 1)


def _again(
    losses: Callable[[Vector, Vector], RowLosses], eta: Vector, y: Vector, w: Vector
) -> tuple[float | None, float | None, float | None]:
    """(b, its standard error, the gain of the loss) of the fit of y to a + b η."""
    Z = np.column_stack([np.ones(len(eta)), eta])

    def at(point: Vector) -> tuple[float, Vector, Vector]:
        rows = losses(Z @ point, y)
        H = (Z * (w * rows.curvature)[:, None]).T @ Z
        return float((w * rows.loss).sum()), Z.T @ (w * rows.slope), H

    return _minimum(at, np.array([0.0, 1.0]))


def _minimum(
    at: Callable[[Vector], tuple[float, Vector, Vector]], start: Vector
) -> tuple[float | None, float | None, float | None]:
    """(last entry, its error, the gain) of Newton's method; Nones if it does not settle."""
    point, (f, g, curvature) = start, at(start)
    first, curved = f, np.diagonal(curvature)
    for _ in range(_STEPS):
        try:
            step = -np.linalg.solve(curvature, g)
        except np.linalg.LinAlgError:
            break
        if not np.isfinite(step).all():
            break
        if -g @ step < _SETTLED * max(1.0, abs(f)):
            if (np.diagonal(curvature) < _FLAT * curved).any():  # the minimum is at infinity
                break
            variance = float(np.linalg.inv(curvature)[-1, -1])
            return float(point[-1]), math.sqrt(max(variance, 0.0)), max(0.0, first - f)
        with np.errstate(over="ignore", invalid="ignore"):
            for _ in range(_STEPS):
                found = at(point + step)
                if found[0] <= f:
                    break
                step = step / 2
            else:
                break
        point, (f, g, curvature) = point + step, found
    return None, None, None


def _cox_check(
    model: Model, rows: Rows, eta: Vector, site: str, measure: str, gain: float | None
) -> SiteCheck:
    """Expected events follow from this site's own baseline hazard (Breslow's)."""
    order = cox.risk(rows.y, rows.event, model.ties)

    def at(point: Vector) -> tuple[float, Vector, Vector]:
        return cox.partial_likelihood(order, eta[:, None], point[0] * eta)

    n_events = float(rows.event.sum())
    slope, error, gained = _minimum(at, np.array([1.0])) if n_events else (None, None, None)
    own = (at(np.array([0.0]))[0] - at(np.array([1.0]))[0]) / max(n_events, 1.0)
    expected = _expected_events(rows, eta)
    return SiteCheck(
        site=site,
        measure=measure,
        n_rows=len(rows.y),
        own=own,
        pooled=gain,
        constant=0.0,
        total="sum",
        expected=None,  # the sum over the rows is that of the events by construction
        observed=None,
        slope=slope,
        slope_error=error,
        p_value=None if gained is None else math.erfc(math.sqrt(gained)),
        groups=tuple(
            CheckGroup(
                len(part), float(expected[part].sum()), float(rows.event[part].sum()),
                *byar(float(rows.event[part].sum()), model.level),
            )
            for part in _parts(eta)
            if len(part)
        ),
    )  # fmt: skip


def _expected_events(rows: Rows, eta: Vector) -> Vector:
    """e^η times the cumulative baseline hazard at each row's time, (n,)."""
    size = np.exp(eta - eta.max())
    times, died = np.unique(rows.y[rows.event > 0.5], return_counts=True)
    order = np.argsort(rows.y, kind="stable")
    later = np.append(np.cumsum(size[order][::-1])[::-1], 0.0)  # Σ e^η from each sorted row on
    at_risk = later[np.searchsorted(rows.y[order], times, side="left")]
    hazard = np.concatenate([[0.0], np.cumsum(died / at_risk)])
    return size * hazard[np.searchsorted(times, rows.y, side="right")]
