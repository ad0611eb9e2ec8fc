"""Sites of unequal sizes for fits, their pooled rows, and the pooled fit by other means.

Breast cancer is divided into 60, 150 and 359 rows, synthetic rows into 200, 800 and 3000.
"""

from functools import cache

import numpy as np
from sklearn.datasets import load_breast_cancer

from hushgrad.fitting import Model, programme, rows_of, table_of
from hushgrad.fitting.lockstep import add, drive
from hushgrad.fitting.rows import needed

LEVELS = ("low", "middle", "high")


def divide(columns, sizes):
    """{site: columns} of consecutive rows."""
    places = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    names = ["north", "middle", "south", *(f"site{n}" for n in range(3, len(sizes)))]
    return {
        name: {column: values[place] for column, values in columns.items()}
        for name, place in zip(names, places, strict=False)
    }


def pooled_columns(sites):
    return {name: np.concatenate([site[name] for site in sites.values()])
            for name in next(iter(sites.values()))}  # fmt: skip


@cache
def cancer(n_columns=30, sizes=(60, 150, 359)):
    data = load_breast_cancer()
    order = np.random.default_rng(5).permutation(len(data.target))
    names = [name.replace(" ", "_") for name in data.feature_names[:n_columns]]
    columns = {name: data.data[order, n] for n, name in enumerate(names)}
    return names, divide({**columns, "benign": data.target[order].astype(float)}, sizes)


@cache
def synthetic(sizes=(200, 800, 3000)):
    """Raw units, sites that differ, a factor, an offset, weights, ties in time."""
    rng, n = np.random.default_rng(11), sum(sizes)
    site = np.repeat(np.arange(len(sizes)), sizes)
    age = 55 + 4 * site + 12 * rng.standard_normal(n)
    dose = 2e-3 * np.exp(0.5 * rng.standard_normal(n))
    year = 2010 + rng.integers(0, 12, n).astype(float)
    stage = rng.choice(LEVELS, n, p=[0.5, 0.3, 0.2])
    eta = -1 + 0.03 * (age - 55) + 200 * (dose - 2e-3) + 0.4 * (stage == "high")
    exposure = rng.uniform(0.5, 4, n)
    time = rng.exponential(np.exp(-0.5 * eta) * 10, n)
    return divide(
        {
            "age": age,
            "dose": dose,
            "year": year,
            "stage": stage,
            "death": (rng.uniform(size=n) < 1 / (1 + np.exp(-eta))).astype(float),
            "visits": rng.poisson(exposure * np.exp(0.6 * eta)).astype(float),
            "log_exposure": np.log(exposure),
            "pressure": 130 + 6 * eta + 9 * rng.standard_t(3, n),
            "weight": rng.uniform(0.3, 2.5, n),
            "time": np.ceil(np.minimum(time, 20.0)),
            "event": (time < 20.0).astype(float),
        },
        sizes,
    )


COLUMNS = {"columns": ("age", "dose", "year", "stage"), "factors": {"stage": LEVELS}}


MODEL = {  # the table [model] of a logistic fit
    "kind": "logistic", "outcome": "death", "columns": ["age", "stage"],
    "factors": {"stage": list(LEVELS)},
}  # fmt: skip


def model(kind, **options):
    given = {"linear": {"outcome": "pressure"}, "ridge": {"outcome": "pressure", "penalty": 40.0},
             "logistic": {"outcome": "death"}, "poisson": {"outcome": "visits"},
             "huber": {"outcome": "pressure", "delta": 12.0},
             "cox": {"outcome": "time", "event": "event"}}[kind]  # fmt: skip
    return Model(kind=kind, **(COLUMNS | given | options))


def programmes(declared, sites):
    return [programme(declared, rows_of(declared, table_of(site, needed(declared), site=name)))
            for name, site in sites.items()]  # fmt: skip


def fit(declared, sites, pool=add):
    return drive(programmes(declared, sites), pool)[0]


def design(declared, sites):
    """X (n, p) of the pooled rows, in raw units, without the library's code."""
    columns = pooled_columns(sites)
    parts = [np.ones(len(columns[declared.outcome]))] if declared.has_intercept else []
    first = 1 if declared.has_intercept or declared.kind == "cox" else 0  # of the first factor
    for name in declared.columns:
        levels = declared.factors.get(name)
        parts += [columns[name]] if levels is None else [columns[name] == v for v in levels[first:]]
        first = first if levels is None else 1
    return np.column_stack(parts).astype(float)


def weighted_least_squares(X, y, w):
    """By QR of scaled columns: (coefficients, inverse of XᵀWX)."""
    size = np.linalg.norm(X, axis=0)
    Q, R = np.linalg.qr(np.sqrt(w)[:, None] * X / size)
    inverse = np.linalg.inv(R) / size[:, None]
    return inverse @ (Q.T @ (np.sqrt(w) * y)), inverse @ inverse.T


def reweighted(kind, X, y, *, offset=0.0, weights=1.0, steps=60):
    """A logistic or Poisson fit by iterated weighted least squares: (b, covariance, mean)."""
    mean = (y + 0.5) / 2 if kind == "logistic" else y + 0.5
    eta = np.log(mean / (1 - mean)) if kind == "logistic" else np.log(mean)
    for _ in range(steps):
        w = mean * (1 - mean) if kind == "logistic" else mean
        b, covariance = weighted_least_squares(X, eta - offset + (y - mean) / w, weights * w)
        eta = X @ b + offset
        mean = 1 / (1 + np.exp(-eta)) if kind == "logistic" else np.exp(eta)
    return b, covariance, mean
