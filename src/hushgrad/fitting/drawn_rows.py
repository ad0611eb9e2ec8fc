"""Rows that are drawn from a model's declaration: levels, ranges, codes. They are nobody's.

A rehearsal runs on them (network/local/rehearsal.py), and the audit of a dossier. All sites draw
their outcomes with the same coefficients, which a model's contract decides.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hushgrad.fitting.contracts import contract, contract_digest
from hushgrad.fitting.model import Model
from hushgrad.fitting.sums import Vector

_EFFECT = 0.4  # of a standard deviation of a column, on the scale of the linear predictor


def draw_columns(model: Model, n_rows: int, site: int) -> dict[str, Any]:
    """Columns (n_rows,) for every name of a model; sites have other rows."""
    seed = int(contract_digest(contract(model))[:15], 16)
    effects, rng = np.random.default_rng(seed), np.random.default_rng([seed, site + 1])
    columns: dict[str, Any] = {}
    eta = np.zeros(n_rows)
    for name in model.columns:
        if name in model.factors:
            levels = list(model.factors[name])
            places = rng.integers(0, len(levels), n_rows)
            columns[name] = np.array(levels)[places]
            eta += effects.normal(0.0, _EFFECT, len(levels))[places]
        else:
            columns[name] = _within(model, name, rng.standard_normal(n_rows))
            eta += effects.normal(0.0, _EFFECT) * _standard(columns[name])
    if model.offset is not None:
        columns[model.offset] = _within(model, model.offset, 0.3 * rng.standard_normal(n_rows))
        eta += columns[model.offset]
    if model.weights is not None:
        columns[model.weights] = _within(model, model.weights, rng.uniform(0.5, 2.0, n_rows))
    return columns | _outcome(model, eta, rng)


def _outcome(model: Model, eta: Vector, rng: np.random.Generator) -> dict[str, Any]:
    n = len(eta)
    if model.kind == "logistic":
        return {model.outcome: _codes(model, rng.uniform(size=n) < 1 / (1 + np.exp(1 - eta)))}
    if model.kind == "poisson":
        counts = rng.poisson(np.exp(np.minimum(eta, 5.0))).astype(float)
        low, high = model.ranges.get(model.outcome, (0.0, np.inf))
        return {model.outcome: np.clip(counts, np.ceil(low), np.floor(high))}
    if model.kind == "cox":
        times = rng.exponential(np.exp(-eta))
        low, high = model.ranges.get(model.outcome, (0.0, 3.0))
        scaled = low + (high - low) * times / 3.0
        is_event = scaled < high
        assert model.event is not None
        return {model.outcome: np.minimum(scaled, high), model.event: _codes(model, is_event)}
    return {model.outcome: _within(model, model.outcome, eta + rng.standard_normal(n))}


def _within(model: Model, name: str, values: Vector) -> Vector:
    """Standard values moved into the declared range: its ends are three deviations away."""
    if name not in model.ranges:
        return values
    low, high = model.ranges[name]
    return np.clip((low + high) / 2 + values * (high - low) / 6, low, high)


def _standard(values: Vector) -> Vector:
    spread = float(values.std())
    return (values - values.mean()) / spread if spread > 0 else 0 * values


def _codes(model: Model, is_positive: Any) -> Any:
    if model.positive is None or model.negative is None:
        return is_positive.astype(float)
    return np.where(is_positive, model.positive, model.negative)
