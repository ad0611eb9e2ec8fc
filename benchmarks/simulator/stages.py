"""`python -m benchmarks.simulator.stages`: the cost of stages in iterations and time, and refusals.

`iterations` has the iterations to a relative error of 1e-6 on logistic and Huber problems: of a run
on the objectives themselves, of Newton stages, and of numbers of stages with a fixed curvature. A
staged run of n iterations divides them into its stages, so the table has the smallest n, to 5 %,
with which a run ends at 1e-6. All runs have λL = 0.1 (1 − η), the splits and the deviation of the
recommended design.

`times` has processor times at d = 100: of a round, from runs of two lengths, and of everything that
a stage does once (statistics, masks, arrays). Stages of one run share one compiled program;
compilation is not counted.

`refused` counts the Huber fits that end at the start of a stage, because single rows have crossed
delta, although they were admitted at the start of the run.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

import hushgrad as hg
from hushgrad.errors import PrivacyError, RiskWarning

NEAR = 1e-6
NEWTON = (8,)
FIXED = (8, 16, 32, 64)
LONGEST = 400_000  # iterations; a longer run counts as not converged
DELTAS = (0.25, 0.5, 1.0, 2.0)  # the targets' noise has a quartile of 0.38
LENGTH = 10_000  # iterations of these runs
SLACKS = (1.1, 2.0, 4.0)  # effective rows over those that the run needs at its start

S = hg.stepsizes


class Case(NamedTuple):
    name: str
    problem: Any
    network: Any

    @property
    def stepsize(self) -> Any:
        lam = 0.1 * (1 - self.network.eta) / self.problem.smoothness()
        return S.constant(lam, S.geometric(0.5, drawn="once"))


def rows(m: int, d: int, n: int, size: float = 1.0) -> tuple[list[Any], list[Any]]:
    """Random rows and targets of m agents; `size` is how long the true θ is, by entry."""
    rng = np.random.default_rng(0)
    theta = size * rng.normal(size=d)
    X = [rng.normal(size=(n, d)) for _ in range(m)]
    return X, [x @ theta + 0.3 * rng.normal(size=n) for x in X]


def logistic(m: int, d: int, n: int, regularisation: float) -> Any:
    X, y = rows(m, d, n)
    return hg.problems.logistic(X, [np.sign(v) for v in y], regularisation=regularisation)


def tumours(m: int) -> Any:
    """Breast cancer, four standardised columns, ten patients per agent."""
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    X = ((X - X.mean(axis=0)) / X.std(axis=0))[: 10 * m, :4]
    parts = [slice(10 * i, 10 * (i + 1)) for i in range(m)]
    y = np.where(y > 0, 1.0, -1.0)
    return hg.problems.logistic([X[p] for p in parts], [y[p] for p in parts], regularisation=2.0)


def huber(m: int, d: int, n: int, delta: float) -> Any:
    """Linear targets of which every tenth is far off."""
    X, y = rows(m, d, n)
    y = [v + 10.0 * (np.arange(n) % 10 == 0) for v in y]
    return hg.problems.huber(X, y, delta=delta, regularisation=1.0)


def cases() -> Iterator[Case]:
    ring, paper = hg.Network(hg.graphs.ring(6)), hg.Network(hg.graphs.paper())
    yield Case("logistic d=3, penalty 5, ring 6", logistic(6, 3, 40, 5.0), ring)
    yield Case("logistic d=3, penalty 0.5, ring 6", logistic(6, 3, 40, 0.5), ring)
    yield Case("logistic d=10, penalty 5, paper's graph", logistic(5, 10, 40, 5.0), paper)
    yield Case("breast cancer d=4, penalty 2, ring 6", tumours(6), ring)
    yield Case("Huber d=3, delta 1, ring 6", huber(6, 3, 40, 1.0), ring)
    yield Case("Huber d=3, delta 0.2, ring 6", huber(6, 3, 40, 0.2), ring)
    yield Case("Huber d=10, delta 1, paper's graph", huber(5, 10, 40, 1.0), paper)


def direct(case: Case) -> Any:
    """PDG-NDS on the objectives themselves, without masks."""
    return hg.PDGNDS(stepsize=case.stepsize, split=hg.splits.private_constant(own=0.45))


def staged(case: Case, stages: int, curvature: str) -> Any:
    return hg.PDGNDS(
        stepsize=case.stepsize, design="recommended", stages=stages, curvature=curvature
    )


def run(algorithm: Any, case: Case, n: int) -> Any:
    return hg.run(
        algorithm, case.problem, case.network, iterations=n, record_every=n, progress=False,
        accept_exposure=hg.theory.WEAKNESSES,
    )  # fmt: skip


def shortest(algorithm: Any, case: Case) -> float:
    """The fewest iterations, to 5 %, after which a run of that length is at 1e-6."""
    size = np.linalg.norm(case.problem.solution())

    def is_near(n: int) -> bool:
        return run(algorithm, case, n).error[0, -1] <= NEAR * size

    low, high = 0, 1000
    while not is_near(high):
        low, high = high, 2 * high
        if high > LONGEST:
            return np.inf
    while high > 1.05 * low:
        middle = (low + high) // 2
        low, high = (low, middle) if is_near(middle) else (middle, high)
    return high


def iterations(fixed: tuple[int, ...]) -> None:
    """Print the first table."""
    kinds = [(n, "newton") for n in NEWTON] + [(n, "fixed") for n in fixed]
    head = "".join(f"{f'{n} {kind}':>16}" for n, kind in kinds)
    print(f"{'iterations to 1e-6':42}{'direct':>8}{head}")
    for case in cases():
        plain = shortest(direct(case), case)
        print(f"{case.name:42}{plain:8.0f}", end="", flush=True)
        for n, kind in kinds:
            needed = shortest(staged(case, n, kind), case)
            cell = f"{needed:.0f} ({needed / plain:.1f}×)" if np.isfinite(needed) else "–"
            print(f"{cell:>16}", end="", flush=True)
        print()


def timed() -> Iterator[tuple[Case, Any, int]]:
    """Problems of ten agents with 200 rows at d = 100, and the stages of the recommended design."""
    ring = hg.Network(hg.graphs.ring(10))
    X, y = rows(10, 100, 200, 0.1)
    signs = [np.sign(v) for v in y]
    for name, problem, stages in (
        ("ridge", hg.problems.ridge(X, y, regularisation=1.0), 1),
        ("logistic", hg.problems.logistic(X, signs, regularisation=5.0), 8),
        ("Huber", hg.problems.huber(X, y, delta=1.0, regularisation=1.0), 8),
    ):
        case = Case(name, problem, ring)
        yield case, staged(case, stages, "newton"), stages


def times(turns: int) -> None:
    """Print the second table."""
    print("\nms at d = 100     a round, direct   staged   ratio   once per stage")
    short, long = 4000, 12000
    for case, algorithm, stages in timed():
        tried = {"direct": direct(case), "staged": algorithm}
        best = {(name, n): np.inf for name in tried for n in (short, long)}
        for _ in range(turns + 1):  # the first turn compiles
            for name, n in best:
                started = time.process_time()
                run(tried[name], case, n)
                best[name, n] = min(best[name, n], time.process_time() - started)
        a_round = {name: (best[name, long] - best[name, short]) / (long - short) for name in tried}
        once = (best["staged", short] - short * a_round["staged"]) / stages
        print(
            f"{case.name:18}{1e3 * a_round['direct']:15.4f}{1e3 * a_round['staged']:9.4f}"
            f"{a_round['staged'] / a_round['direct']:8.2f}{1e3 * once:17.1f}",
            flush=True,
        )


def long_tailed(seed: int, delta: float, needed: float) -> Any:
    """A Huber problem of five agents, any two of which have `needed` effective rows.

    Rows are clipped, and the noise of targets is Student's t with three degrees of freedom.
    """
    rng = np.random.default_rng(seed)
    d, n = 4, int(needed)
    X = rng.normal(size=(5, n, d))
    X *= np.minimum(1.0, 1.2 * np.sqrt(d) / np.linalg.norm(X, axis=2, keepdims=True))
    effective = (X**2).sum(axis=(1, 2)).min() / (X**2).sum(axis=2).max()  # of one agent
    X = X[:, : int(n * needed / (2 * effective)) + 1]
    y = X @ rng.normal(size=d) + 0.5 * rng.standard_t(3, size=X.shape[:2])
    return hg.problems.huber(list(X), list(y), delta=delta, regularisation=1.0)


def outcome(seed: int, delta: float, slack: float, stages: int, curvature: str) -> tuple[bool, Any]:
    """Whether the run is refused at a stage, and the share of rows within delta at θ*."""
    numbers = hg.theory.numbers_revealed(4, stages, curvature=curvature)
    problem = long_tailed(seed, delta, slack * numbers / (0.1 * 4))
    case = Case("Huber", problem, hg.Network(hg.graphs.paper()))
    data = [problem.agent_data(i) for i in range(5)]
    theta = problem.solution()
    within = np.mean([np.abs(own["X"] @ theta - own["y"]) <= delta for own in data])
    try:
        hg.run(
            staged(case, stages, curvature), problem, case.network, iterations=LENGTH,
            record_every=LENGTH, seed=seed, progress=False,
        )  # fmt: skip
    except PrivacyError as error:
        if "the sums would tell too much" not in str(error):
            raise
        return True, within
    return False, within


def refused(seeds: int) -> None:
    """Print the third table."""
    print(f"\nHuber fits refused at a stage, of {seeds}, for effective rows at the start")
    head = "".join(f"{f'{slack:g}× needed':>14}" for slack in SLACKS)
    print(f"{'delta':>6}{'rows within':>13}{'stages':>12}{head}")
    for delta in DELTAS:
        for stages, curvature in ((3, "newton"), (8, "newton"), (8, "fixed")):
            found = [
                [outcome(seed, delta, slack, stages, curvature) for seed in range(seeds)]
                for slack in SLACKS
            ]
            within = np.mean([share for line in found for _, share in line])
            cells = "".join(f"{sum(ended for ended, _ in line):14d}" for line in found)
            kind = f"{stages} {curvature}"
            print(f"{delta:6g}{100 * within:11.0f} %{kind:>12}{cells}", flush=True)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.simulator.stages", description=__doc__
    )
    tables = ("iterations", "times", "refused")
    parser.add_argument("--only", choices=tables, nargs="+", default=tables)
    parser.add_argument("--fixed", type=int, nargs="+", default=FIXED, help="numbers of stages")
    parser.add_argument("--turns", type=int, default=5, help="runs of which the fastest counts")
    parser.add_argument("--seeds", type=int, default=5, help="problems of each kind")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore", RiskWarning)
    if "iterations" in options.only:
        iterations(tuple(options.fixed))
    if "times" in options.only:
        times(options.turns)
    if "refused" in options.only:
        refused(options.seeds)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
