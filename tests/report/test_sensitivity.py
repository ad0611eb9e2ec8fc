"""The picture of a tuning: no mark is cut, and crosses of several methods can be told apart."""

import numpy as np
import pytest

from hushgrad.report.sensitivity import plot_sensitivity

X = [0.01, 0.1, 1.0]


@pytest.mark.parametrize("decades", [0.1, 1, 14])
def test_every_mark_is_inside_and_crosses_of_methods_are_apart(decades):
    low = 10.0**-decades
    lines = [
        ("one", X, [1.0, low, np.inf], [False, False, True]),
        ("other", X, [1.0, np.inf, np.inf], [False, True, True]),
    ]
    figure = plot_sensitivity(lines, xlabel="stepsize", measure="error", target=1e-6)
    (axes,) = figure.axes
    figure.canvas.draw()
    left, right = axes.bbox.x0, axes.bbox.x1
    bottom, top = axes.bbox.y0, axes.bbox.y1
    crosses = []
    for line in axes.get_lines():
        shown = line.get_transform().transform(line.get_xydata())
        shown = shown[np.isfinite(shown).all(axis=1)]
        half = line.get_markersize() / 2 * figure.dpi / 72
        assert (shown[:, 0] > left + half).all()
        assert (shown[:, 0] < right - half).all()
        assert (shown[:, 1] > bottom + half).all()
        assert (shown[:, 1] < top - half).all()
        if line.get_marker() == "x":
            crosses.append(shown[0, 1])
            size = 2 * half
        else:
            highest = shown[:, 1].max()
    assert crosses[0] - crosses[1] > size
    assert crosses[1] > highest
