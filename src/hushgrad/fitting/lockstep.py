"""Several sites of one fit in one process: their generators in lockstep.

`hg.fit` and the audit of a programme drive their sites with it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

import numpy as np

from hushgrad.errors import FitError
from hushgrad.fitting.plan_result import Fitted
from hushgrad.fitting.sums import Vector

type Fit = Generator[Vector, Vector, Fitted]
type Pool = Callable[[Sequence[Vector]], Sequence[Vector]]  # one vector per site, in and out


def add(vectors: Sequence[Vector]) -> Sequence[Vector]:
    """Pool by plain addition: every site receives the sum."""
    total = np.sum(vectors, axis=0)
    return [total] * len(vectors)


def drive(fits: Sequence[Fit], pool: Pool = add) -> list[Fitted]:
    """Run the programmes of all sites to their end and give their results."""
    sums = [next(fit) for fit in fits]
    results: list[Fitted] = []
    while not results:
        if len({len(vector) for vector in sums}) > 1:
            raise FitError(
                "sites pool vectors of one length, but the lengths are "
                f"{[len(vector) for vector in sums]}. Compare the contracts of the sites."
            )
        sums, results = _advance(fits, pool(sums))
    return results


def _advance(fits: Sequence[Fit], pooled: Sequence[Vector]) -> tuple[list[Vector], list[Fitted]]:
    """The next sums of all sites, or the results of all."""
    sums: list[Vector] = []
    results: list[Fitted] = []
    for fit, received in zip(fits, pooled, strict=True):
        try:
            sums.append(fit.send(received))
        except StopIteration as end:
            results.append(end.value)
    if sums and results:
        raise FitError(
            f"all sites end a fit together, but {len(results)} of {len(fits)} ended before the "
            "others. Run the fit again, and report this."
        )
    return sums, results
