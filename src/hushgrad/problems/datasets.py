"""scikit-learn's bundled data, divided among agents: evenly, or so that they disagree.

The builders of regressions take them by `dataset=`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Literal, NamedTuple, TypedDict, get_args

import numpy as np
from numpy.typing import NDArray

from hushgrad.errors import ProblemError, optional
from hushgrad.problems.checks import check_count, check_seed

type Vector = NDArray[np.float64]
Split = Literal["even", "label_skew"]

# The classes that count as 1; none for a regression target.
NAMES: dict[str, tuple[int, ...] | None] = {
    "diabetes": None,
    "breast_cancer": (1,),
    "digits": (0, 2, 4, 6, 8),
}


class AgentData(NamedTuple):
    """Every agent's rows and targets: ``ridge(*data)``."""

    X: list[Vector]  # m of (n_i, d)
    y: list[Vector]  # m of (n_i,)


class DatasetOptions(TypedDict, total=False):
    """The arguments of `dataset` beside its name, as the regression problems take them."""

    n_agents: int
    split: Split
    seed: int
    standardise: bool
    skew: float
    sizes: Sequence[float] | None
    positive: Collection[int] | None


def dataset(
    name: str,
    n_agents: int = 5,
    *,
    split: Split = "even",
    seed: int = 0,
    standardise: bool = True,
    skew: float = 0.5,
    sizes: Sequence[float] | None = None,
    positive: Collection[int] | None = None,
) -> AgentData:
    """Rows of diabetes (442, 10 columns), breast_cancer (569, 30) or digits (1797, 64), each once.

    split         "even": rows dealt at random. "label_skew": of every agent's rows the part `skew`
                  is its run of the rows sorted by label or target, the rest is dealt at random;
                  skew 0 is "even", at 1 the first agents have the lowest targets only
    sizes         one positive number for each agent, relative to each other; default equal sizes
    standardise   columns (and a regression target) to mean 0 and deviation 1, over the pooled rows;
                  a constant column becomes 0. A federation would have to agree on these two numbers
    positive      the classes labelled 1, the others being 0; default benign tumours, even digits

    >>> [len(y) for y in dataset("diabetes", 4, sizes=[1, 1, 1, 5]).y]
    [55, 55, 56, 276]
    """
    columns, y = _load(name, positive)
    X = _standard(columns) if standardise else columns
    if standardise and NAMES[name] is None:
        y = _standard(y)
    counts = _counts(len(y), check_count("n_agents", n_agents), sizes)
    if split not in get_args(Split):
        raise ProblemError(
            f'A dataset is split "even" or "label_skew", but split = {split!r}. Use one of these.'
        )
    if not isinstance(skew, (int, float)) or not 0 <= skew <= 1:
        raise ProblemError(f"skew lies between 0 and 1, but it is {skew!r}. Use 0 for even splits.")
    rng = np.random.default_rng(check_seed(seed))
    parts = _deal(rng.permutation(len(y)), y, counts, skew if split == "label_skew" else 0.0)
    return AgentData([X[part] for part in parts], [y[part] for part in parts])


def _load(name: str, positive: Collection[int] | None) -> tuple[Vector, Vector]:
    if name not in NAMES:
        raise ProblemError(
            f"Bundled datasets are {', '.join(sorted(NAMES))}, but {name!r} was asked for. Use one "
            "of these, or pass X and y."
        )
    loaded: Any = getattr(optional("sklearn.datasets", "sim"), f"load_{name}")()
    X, y = loaded.data.astype(np.float64), loaded.target
    default = NAMES[name]
    if default is None:
        if positive is not None:
            raise ProblemError(
                f"positive= names classes, but {name} has a number as target ({positive!r} was "
                "given). Leave it out."
            )
        return X, y.astype(np.float64)
    classes = default if positive is None else tuple(positive)
    present = set(np.unique(y).tolist())
    if not classes or not set(classes) < present:
        raise ProblemError(
            f"positive= names some, not all, of the classes {sorted(present)} of {name}, but it is "
            f"{positive!r}. Leave it out for {default}."
        )
    return X, np.isin(y, classes).astype(np.float64)


def _standard(values: Vector) -> Vector:
    deviation = values.std(axis=0)
    return (values - values.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)


def _counts(rows: int, n_agents: int, sizes: Sequence[float] | None) -> NDArray[np.int64]:
    """The number of rows of each agent: proportional to sizes, adding up to `rows`."""
    shares = np.ones(n_agents) if sizes is None else np.asarray(sizes, np.float64)
    if shares.shape != (n_agents,) or not (np.isfinite(shares) & (shares > 0)).all():
        raise ProblemError(
            f"sizes has one positive number for each of the {n_agents} agents, but it is "
            f"{sizes!r}. Leave it out for equal sizes."
        )
    counts = np.diff(np.rint(np.cumsum(shares) / shares.sum() * rows).astype(np.int64), prepend=0)
    if (counts < 1).any():
        raise ProblemError(
            f"Every agent gets at least one of the {rows} rows, but agent {int(counts.argmin())} "
            f"of {n_agents} would get none. Use fewer agents, or a larger size for it."
        )
    return counts


def _deal(
    order: NDArray[np.int64], y: Vector, counts: NDArray[np.int64], skew: float
) -> list[NDArray[np.int64]]:
    """Row numbers for each agent: a run of the sorted rows, then rows in the random `order`."""
    ends = np.cumsum(counts)
    sorted_ends = np.rint(skew * ends).astype(np.int64)
    in_runs, at_random = order[: sorted_ends[-1]], order[sorted_ends[-1] :]
    in_runs = in_runs[np.argsort(y[in_runs], kind="stable")]  # ties stay in random order
    runs = np.split(in_runs, sorted_ends[:-1])
    rest = np.split(at_random, (ends - sorted_ends)[:-1])
    return [np.concatenate(pair) for pair in zip(runs, rest, strict=True)]
