"""Rows that are drawn from the declaration of a model or a plan, and belong to nobody.

A rehearsal runs on them (network/local/rehearsal.py), and the audit of a dossier. All sites draw
their outcomes with the same coefficients, which a model's contract decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from hushgrad.errors import ModelError
from hushgrad.fitting.contracts import contract, contract_digest
from hushgrad.fitting.model import Model
from hushgrad.fitting.plan import Declared, fits_of, stages_of
from hushgrad.fitting.pooled_tables import PooledTables
from hushgrad.fitting.sums import Vector

_EFFECT = 0.4  # of a standard deviation of a column, on the scale of the linear predictor


type Ranges = Mapping[str, Sequence[float]]


def draw_columns(declared: Declared, n_rows: int, site: int) -> dict[str, Any]:
    """Columns (n_rows,) for every name of a model or a plan; sites have other rows.

    The fits of a plan are drawn in their order: what one has drawn the next ones find.
    """
    seed = int(contract_digest(contract(declared))[:15], 16)
    draws = _Draws(np.random.default_rng(seed), np.random.default_rng([seed, site + 1]), n_rows)
    ranges, found = _ranges(declared), dict[str, Any]()
    for model in fits_of(declared):
        _draw_fit(model, ranges, draws, found)
    for tables in stages_of(declared).values():
        if isinstance(tables, PooledTables):
            _draw_tables(tables, ranges, draws, found)
    return found


class _Draws(NamedTuple):
    effects: np.random.Generator  # the same at every site
    rows: np.random.Generator
    n_rows: int


def _ranges(declared: Declared) -> dict[str, Sequence[float]]:
    """The values within the ranges of all stages and the edges of all histograms."""
    found: dict[str, Sequence[float]] = {}
    for stage in stages_of(declared).values():
        edges = stage.histograms if isinstance(stage, PooledTables) else {}
        every = [*stage.ranges.items(), *((name, (e[0], e[-1])) for name, e in edges.items())]
        for name, (low, high) in every:
            known = found.get(name, (low, high))
            found[name] = (max(low, known[0]), min(high, known[1]))
            if found[name][0] > found[name][1]:
                raise ModelError(f"plan: no value of {name!r} is within the ranges of all stages.")
    return found


def _draw_tables(
    tables: PooledTables, ranges: Ranges, draws: _Draws, found: dict[str, Any]
) -> None:
    for name in tables.columns:
        if name not in found and name in tables.factors:
            levels = np.array(tables.factors[name])
            found[name] = levels[draws.rows.integers(0, len(levels), draws.n_rows)]
        elif name not in found:
            found[name] = _within(ranges, name, draws.rows.standard_normal(draws.n_rows))


def _draw_fit(model: Model, ranges: Ranges, draws: _Draws, found: dict[str, Any]) -> None:
    effects, rng, n_rows = draws
    eta = np.zeros(n_rows)
    parts = [part for block in model.blocks for part in block.numeric]
    logarithms = {part.column for part in parts if part.function}
    for name in model.columns:
        if name in model.factors:
            levels = list(model.factors[name])
            if name in model.open_factors:
                levels = list(dict.fromkeys([model.references.get(name, "A"), "B", "C"]))
                levels = levels[: model.most_levels]
            if name not in found:
                found[name] = np.array(levels)[rng.integers(0, len(levels), n_rows)]
            for level, effect in zip(
                levels, effects.normal(0.0, _EFFECT, len(levels)), strict=True
            ):
                eta += effect * (found[name] == level)
        else:
            if name not in found:
                found[name] = _within(ranges, name, rng.standard_normal(n_rows))
                if name not in ranges and name in logarithms:
                    found[name] = np.exp(found[name] / 2)
            eta += effects.normal(0.0, _EFFECT) * _standard(found[name].astype(np.float64))
    if model.offset is not None:
        if model.offset not in found:
            found[model.offset] = _within(ranges, model.offset, 0.3 * rng.standard_normal(n_rows))
        eta += found[model.offset]
    if model.weights is not None and model.weights not in found:
        found[model.weights] = _within(ranges, model.weights, rng.uniform(0.5, 2.0, n_rows))
    for name, values in _outcome(model, ranges, eta, rng).items():
        found.setdefault(name, values)


def _outcome(model: Model, ranges: Ranges, eta: Vector, rng: np.random.Generator) -> dict[str, Any]:
    n = len(eta)
    if model.kind == "logistic":
        return {model.outcome: _codes(model, rng.uniform(size=n) < 1 / (1 + np.exp(1 - eta)))}
    if model.kind == "poisson":
        counts = rng.poisson(np.exp(np.minimum(eta, 5.0))).astype(float)
        low, high = ranges.get(model.outcome, (0.0, np.inf))
        return {model.outcome: np.clip(counts, np.ceil(low), np.floor(high))}
    if model.kind == "cox":
        times = rng.exponential(np.exp(-eta))
        low, high = ranges.get(model.outcome, (0.0, 3.0))
        scaled = low + (high - low) * times / 3.0
        is_event = scaled < high
        assert model.event is not None
        return {model.outcome: np.minimum(scaled, high), model.event: _codes(model, is_event)}
    return {model.outcome: _within(ranges, model.outcome, eta + rng.standard_normal(n))}


def _within(ranges: Ranges, name: str, values: Vector) -> Vector:
    """Standard values moved into the declared range: its ends are three deviations away."""
    if name not in ranges:
        return values
    low, high = ranges[name]
    return np.clip((low + high) / 2 + values * (high - low) / 6, low, high)


def _standard(values: Vector) -> Vector:
    spread = float(values.std())
    return (values - values.mean()) / spread if spread > 0 else 0 * values


def _codes(model: Model, is_positive: Any) -> Any:
    if model.positive is None or model.negative is None:
        return is_positive.astype(float)
    return np.where(is_positive, model.positive, model.negative)
