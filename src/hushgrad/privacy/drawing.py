"""Pictures for the page, as SVG: the network, and the map of a rendezvous.

Exposure is told by the filling of a mark, full, half or hollow, and by colour besides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

from hushgrad.privacy.findings import Finding, Findings
from hushgrad.privacy.verdict import Verdict

type Floats = NDArray[np.float64]
type Point = tuple[float, float]

MOST = 300  # agents that a picture can show
_NUMBERED = 60  # agents that still have their numbers in the picture
_WIDTH, _HEIGHT, _MARGIN = 340.0, 260.0, 26.0
_ROUNDS = 200  # of stress majorisation
_UNLIKE = 1e-6  # relative difference of places, far above rounding and below what is seen
CLASSES: Mapping[Verdict, str] = {
    "exposed": "exposed",
    "direction exposed": "direction",
    "not recovered": "unrecovered",
}


def network(audit: Findings, kind: str) -> str:
    """The network, each agent marked by what its worst adversary of a kind gets."""
    at = _fitted(layout(audit.n_agents, audit.links))
    lines = "".join(
        f'<line x1="{at[j][0]:.1f}" y1="{at[j][1]:.1f}" x2="{at[i][0]:.1f}" y2="{at[i][1]:.1f}"/>'
        for j, i in audit.links
    )
    radius = min(13.0, 60.0 / math.sqrt(audit.n_agents))
    marks = "".join(
        _agent(i, at[i], radius, audit.worst(i, kind), numbered=audit.n_agents <= _NUMBERED)
        for i in range(audit.n_agents)
    )
    return _picture(f'<g class="links">{lines}</g>{marks}', f"Network of {audit.n_agents} agents")


def mark(exposure: Verdict, at: Point = (9.0, 9.0), radius: float = 7.0) -> str:
    """Full, half or hollow."""
    (x, y), r = at, radius
    ring = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r:.1f}"/>'
    half = ""
    if exposure == "direction exposed":
        half = (
            f'<path class="half" d="M{x:.1f} {y - r:.1f}A{r:.1f} {r:.1f} 0 0 0 {x:.1f} '
            f'{y + r:.1f}Z"/>'
        )
    return f'<g class="mark {CLASSES[exposure]}">{ring}{half}</g>'


def _agent(i: int, at: Point, radius: float, finding: Finding | None, *, numbered: bool) -> str:
    said = "not attacked" if finding is None else f"{finding.verdict}, {finding.adversary}"
    shape = (
        f'<circle class="untouched" cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="{radius:.1f}"/>'
        if finding is None
        else mark(finding.exposure, at, radius)
    )
    full = finding is not None and finding.exposure == "exposed"
    number = (
        f'<text class="{"on" if full else "off"}" x="{at[0]:.1f}" y="{at[1]:.1f}" '
        f'dy=".35em">{i}</text>'
        if numbered
        else ""
    )
    return f"<g>{shape}{number}<title>agent {i}: {escape(said)}</title></g>"


def recovered_places(audit: Findings, kind: str) -> dict[int, tuple[float, ...]]:
    """The places at which the worst adversary of a kind sees agents, of those that it sees."""
    worst = {i: audit.worst(i, kind) for i in audit.agents}
    return {i: f.place for i, f in worst.items() if f is not None and f.place is not None}


def rendezvous_map(audit: Findings, kind: str) -> str:
    """True positions as rings, recovered ones as crosses."""
    assert audit.places is not None
    found = recovered_places(audit, kind)
    true = [(p[0], p[1]) for p in audit.places]
    at = _fitted(np.array([*true, *((p[0], p[1]) for p in found.values())]), upright=True)
    rings = "".join(
        f'<g><circle class="place" cx="{x:.1f}" cy="{y:.1f}" r="7"/><text class="off beside" '
        f'x="{x + 10:.1f}" y="{y - 8:.1f}">{i}</text><title>agent {i} stands at '
        f"({true[i][0]:.4g}, {true[i][1]:.4g})</title></g>"
        for i, (x, y) in enumerate(at[: len(true)])
    )
    crosses = "".join(
        f'<g class="found"><path d="M{x - 5:.1f} {y - 5:.1f}l10 10m0 -10l-10 10"/><title>agent '
        f"{i} recovered at ({found[i][0]:.4g}, {found[i][1]:.4g})</title></g>"
        for i, (x, y) in zip(found, at[len(true) :], strict=True)
    )
    return _picture(rings + crosses, f"Positions: {len(found)} of {len(true)} recovered")


def _picture(content: str, told: str) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH:.0f} {_HEIGHT:.0f}" role="img" aria-label="{escape(told)}">'
        f"{content}</svg>"
    )


def _fitted(points: Floats, *, upright: bool = False) -> list[Point]:
    """Points moved and scaled alike in x and y so that all are in the picture."""
    low, high = points.min(axis=0), points.max(axis=0)
    room = np.array([_WIDTH, _HEIGHT]) - 2 * _MARGIN
    scale = (room / np.maximum(high - low, 1e-9 + 1e-9 * np.abs(high))).min()
    at = (points - (low + high) / 2) * min(scale, 1e9)
    if upright:
        at[:, 1] *= -1  # the second coordinate grows upwards
    at += np.array([_WIDTH, _HEIGHT]) / 2
    return [(float(x), float(y)) for x, y in at]


def layout(n: int, links: Sequence[tuple[int, int]]) -> Floats:
    """Places (n, 2) whose distances are near the numbers of hops.

    Stress majorisation, Σ_{i<j} (|z_i − z_j| − d_ij)²/d_ij² made smaller in every round, from the
    main axes of the distances and from a circle; the better end is taken.
    """
    d = _hops(n, links)
    angle = 2 * np.pi * np.arange(n) / n
    circle = d.max() / 2 * np.column_stack([np.sin(angle), -np.cos(angle)])
    centred = -0.5 * (d**2 - (d**2).mean(0) - (d**2).mean(1)[:, None] + (d**2).mean())
    # agents count a little by their number: symmetric networks would leave the axes to rounding
    size, axes = np.linalg.eigh(centred + _UNLIKE * d.max() ** 2 * np.diag(np.arange(n) / n))
    first = (np.abs(axes) > 0.4 * np.abs(axes).max(axis=0)).argmax(axis=0)
    axes = axes * np.sign(axes[first, range(n)])
    wide = axes[:, -2:][:, ::-1] * np.sqrt(np.maximum(size[-2:][::-1], 0.0)) if n > 2 else circle
    ends = [_majorised(start, d) for start in (circle, wide + 1e-3 * circle)]
    on_circle, on_axes = (_stress(z, d) for z in ends)
    return ends[0] if on_circle <= (1 + _UNLIKE) * on_axes + _UNLIKE else ends[1]


def _majorised(z: Floats, d: Floats) -> Floats:
    n = len(z)
    weight = 1.0 / np.where(d > 0, d, np.inf) ** 2
    laplacian = np.diag(weight.sum(1)) - weight
    inverse = np.linalg.inv(laplacian + 1.0 / n) - 1.0 / n  # all moved alike is no difference
    for _ in range(_ROUNDS):
        apart = np.linalg.norm(z[:, None] - z[None], axis=2)
        pull = weight * d / np.maximum(apart, 1e-9)
        np.fill_diagonal(pull, 0.0)
        z = inverse @ ((np.diag(pull.sum(1)) - pull) @ z)
    return z if n > 1 else np.zeros((1, 2))


def _stress(z: Floats, d: Floats) -> float:
    apart = np.linalg.norm(z[:, None] - z[None], axis=2)
    return float((((apart - d) / np.where(d > 0, d, np.inf)) ** 2).sum())


def _hops(n: int, links: Sequence[tuple[int, int]]) -> Floats:
    """Hops between agents, links taken both ways; unreachable ones are put n apart."""
    near = np.zeros((n, n), bool)
    for j, i in links:
        near[i, j] = near[j, i] = True
    hops = np.where(np.eye(n, dtype=bool), 0.0, np.where(near, 1.0, np.inf))
    reached, length = near | np.eye(n, dtype=bool), 1
    while np.isinf(hops).any() and length < n:
        length += 1
        further = (reached.astype(float) @ near) > 0
        hops[further & np.isinf(hops)] = length
        reached |= further
    return np.where(np.isinf(hops), float(n), hops)
