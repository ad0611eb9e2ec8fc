"""Pictures of a fit as SVG, written by hand: an agent's machine has no plotting library.

The page of a fit (page.py) shows them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from hushgrad.fitting.site_check import CheckGroup

WIDTH = 720
_ROW = 28  # pixels of a coefficient
_LETTER = 7.4  # pixels of a letter, about
_MOST_LABEL = 300
_RATIOS = (1, 2, 5)  # ticks of a logarithmic axis, times powers of ten


@dataclass(frozen=True)
class Effect:
    """One line of a forest plot, on the axis that is drawn (of ratios: their logarithms)."""

    label: str
    estimate: float
    low: float | None
    high: float | None


def forest(effects: Sequence[Effect], *, is_ratio: bool, axis: str) -> str:
    """Estimates with their intervals, one line each, around the line of no effect."""
    left = min(_MOST_LABEL, 20 + _LETTER * max(len(effect.label) for effect in effects))
    right, bottom = WIDTH - 20, 12 + _ROW * len(effects)
    bounds = [
        value
        for effect in effects
        for value in (effect.estimate, effect.low, effect.high)
        if value is not None
    ]
    low, high = min(0.0, *bounds), max(0.0, *bounds)
    room = 0.05 * (high - low or 1.0)
    low, high = low - room, high + room
    ticks = _ratio_ticks(low, high) if is_ratio else _ticks(low, high)

    def x(value: float) -> float:
        return left + (value - low) / (high - low) * (right - left)

    parts = [
        f'<line class="tick" x1="{x(at):.1f}" x2="{x(at):.1f}" y1="8" y2="{bottom}"/>'
        f'<text x="{x(at):.1f}" y="{bottom + 18}">{escape(text)}</text>'
        for at, text in ticks
    ]
    parts.append(f'<line class="none" x1="{x(0):.1f}" x2="{x(0):.1f}" y1="8" y2="{bottom}"/>')
    for n, effect in enumerate(effects):
        y = 12 + _ROW * (n + 0.5)
        parts.append(
            f'<text class="name" x="{left - 12:.1f}" y="{y + 4:.1f}">'
            f"{escape(_short(effect.label, left))}</text>"
        )
        if effect.low is not None and effect.high is not None:
            parts.append(
                f'<line class="reach" x1="{x(effect.low):.1f}" x2="{x(effect.high):.1f}" '
                f'y1="{y:.1f}" y2="{y:.1f}"/>'
            )
        parts.append(
            f'<rect class="point" x="{x(effect.estimate) - 5:.1f}" y="{y - 5:.1f}" '
            'width="10" height="10"/>'
        )
    parts.append(f'<text x="{(left + right) / 2:.1f}" y="{bottom + 40}">{escape(axis)}</text>')
    return _svg(WIDTH, bottom + 50, parts, "Forest plot of the coefficients")


def calibration(groups: Sequence[CheckGroup], *, across: str, up: str) -> str:
    """Observed against predicted, with intervals; calibrated rows lie on the diagonal."""
    width, height, left, bottom = 460, 400, 66, 340
    right, top = width - 16, 14
    values = [v for g in groups for v in (g.predicted, g.observed, g.low, g.high)]
    finite = [v for v in values if math.isfinite(v)]
    low, high = min(finite), max(finite)
    if low >= 0 and low < 0.5 * high:
        low = 0.0
    room = 0.04 * (high - low or 1.0)
    low, high = (low if low == 0 else low - room), high + room

    def x(value: float) -> float:
        return left + (value - low) / (high - low) * (right - left)

    def y(value: float) -> float:
        return bottom - (min(max(value, low), high) - low) / (high - low) * (bottom - top)

    parts: list[str] = []
    for at, text in _ticks(low, high):
        parts.append(
            f'<line class="tick" x1="{x(at):.1f}" x2="{x(at):.1f}" y1="{top}" y2="{bottom}"/>'
            f'<line class="tick" x1="{left}" x2="{right}" y1="{y(at):.1f}" y2="{y(at):.1f}"/>'
            f'<text x="{x(at):.1f}" y="{bottom + 18}">{text}</text>'
            f'<text class="name" x="{left - 8}" y="{y(at) + 4:.1f}">{text}</text>'
        )
    parts.append(
        f'<line class="none" x1="{x(low):.1f}" y1="{y(low):.1f}" x2="{x(high):.1f}" '
        f'y2="{y(high):.1f}"/>'
    )
    for group in groups:
        at = x(group.predicted)
        parts.append(
            f'<line class="reach" x1="{at:.1f}" x2="{at:.1f}" y1="{y(group.low):.1f}" '
            f'y2="{y(group.high):.1f}"/>'
            f'<circle class="point" cx="{at:.1f}" cy="{y(group.observed):.1f}" r="4.5"/>'
        )
    parts.append(f'<text x="{(left + right) / 2:.1f}" y="{bottom + 42}">{escape(across)}</text>')
    parts.append(
        f'<text transform="translate(16 {(top + bottom) / 2:.1f}) rotate(-90)">{escape(up)}</text>'
    )
    return _svg(width, height, parts, "Calibration of this site's rows")


def _svg(width: float, height: float, parts: Sequence[str], title: str) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">'
        f"{''.join(parts)}</svg>"
    )


def _short(label: str, left: float) -> str:
    most = int((left - 16) / _LETTER)
    return label if len(label) <= most else f"{label[: most - 1]}…"


def _ticks(low: float, high: float) -> list[tuple[float, str]]:
    """About five round numbers between two."""
    step = 10.0 ** math.floor(math.log10((high - low) / 4))
    step *= next(m for m in (1, 2, 5, 10) if (high - low) / (m * step) <= 6)
    first = math.ceil(low / step - 1e-9)
    count = math.floor(high / step + 1e-9) - first + 1
    return [((first + n) * step, f"{(first + n) * step:.6g}") for n in range(count)]


def _ratio_ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Ratios such as 0.5, 1 and 2 at their logarithms; of a wide axis, powers of ten alone."""
    place: Callable[[float], float] = math.log
    every = [
        m * 10.0**power
        for power in range(math.floor(low / math.log(10)) - 1, math.ceil(high / math.log(10)) + 1)
        for m in _RATIOS
    ]
    found = [(place(ratio), f"{ratio:g}") for ratio in every if low <= place(ratio) <= high]
    if len(found) < 3:  # a narrow axis: round differences from 1
        return [
            (place(1 + at), f"{1 + at:.6g}")
            for at, _ in _ticks(math.expm1(low), math.expm1(high))
            if 1 + at > 0
        ]
    if len(found) > 9:
        found = [(at, text) for at, text in found if text.strip("0.").startswith("1")]
        found = found[:: math.ceil(len(found) / 9)]
    return found
