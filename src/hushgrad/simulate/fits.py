"""`hg.fit`: a regression on the pooled rows of many sites, by masked averages on a network.

All sites run their programmes (hushgrad.fitting) in lockstep in this process. Every average is one
run of `hg.Consensus` with masks of its own, and every site goes on with its own result of it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hushgrad.algorithms.consensus import MASKS, Consensus
from hushgrad.errors import InputError, ModelError, PrivacyError, ProblemError, RiskWarning
from hushgrad.fitting.averages import rounds_of_average
from hushgrad.fitting.contracts import check_contracts, contract
from hushgrad.fitting.lockstep import add, drive
from hushgrad.fitting.model import Model
from hushgrad.fitting.plan import (
    Data,
    Declared,
    FitPlan,
    columns_of,
    data_of,
    parts_of,
    programme_of,
    small_cell_of,
)
from hushgrad.fitting.plan_result import Fitted, checked, masked
from hushgrad.fitting.progress import FitProgress
from hushgrad.fitting.rows import Rows
from hushgrad.fitting.sums import SIZE, Vector
from hushgrad.fitting.tables import SiteTable, read_table, table_of
from hushgrad.masks import ZeroSum
from hushgrad.mixing import Network
from hushgrad.problems import average
from hushgrad.problems.effective import effective_in_columns
from hushgrad.simulate.run import run
from hushgrad.theory.revealed import MOST_OF_ROW, MOST_SHARE

type Columns = Mapping[str, Any]  # name → array or list, (rows,)


def fit(
    model: Declared | Mapping[str, Declared],
    sites: Mapping[str, Columns | SiteTable | str | Path],
    *,
    network: Network | None = None,
    masks: ZeroSum | None = None,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
    accept_exposure: Iterable[str] = (),
) -> Fitted:
    """Fit a model to the rows of all sites together, or run the stages of a plan.

    model      one model or plan, or {site: model} if each site declares its own: models that
               differ are refused, and the error names the field
    sites      {name: columns}. Columns are a mapping from names to arrays, the path of a CSV file,
               or a `SiteTable`. The order of the sites is their order on the network
    network    who is linked with whom; averages are then masked and counted in rounds. None: the
               sums are added in one place, with the same result, bit for bit
    masks      of the averages, by default of 10⁴ times the public size of the entries
    seed       of the masks
    progress   a function that is told each average
    accept_exposure
               names of weaknesses (`hg.theory.WEAKNESSES`) of which a fit on a network does not
               warn, such as "sums": the pooled numbers are not far fewer than the rows' entries
    """
    models = _models(model, sites)
    if network is not None and network.n_agents != len(sites):
        raise InputError(
            f"a network has one agent for each site, but it has {network.n_agents} agents and "
            f"there are {len(sites)} sites. Build the network with n_agents = {len(sites)}."
        )
    check_contracts({name: contract(declared) for name, declared in models.items()})
    data = {name: _rows(models[name], name, site) for name, site in sites.items()}
    told = {name: FitProgress() for name in data}
    fits = [programme_of(models[name], rows, told[name]) for name, rows in data.items()]
    if network is None:
        return checked(drive(fits, add)[0], data)
    accepted = tuple(accept_exposure)
    _check_cells(models, data, accepted)
    averages = _Averages(network, masks or MASKS, seed, progress, accepted)
    found = masked(drive(fits, averages.pool)[0], SIZE * averages.masks.linear or None)
    result = replace(found, rounds=averages.rounds)
    if "sums" not in accepted and (found := _exposure(result, data, told)):
        warnings.warn(found, RiskWarning, stacklevel=2)
    return checked(result, data)


def _check_cells(
    models: Mapping[str, Declared], data: Mapping[str, Data], accepted: Sequence[str]
) -> None:
    """Refuse pooled tables to which a site adds a few rows, as its agent does."""
    for name, rows in data.items():
        found = small_cell_of(models[name], rows)
        if found is not None and "cells" not in accepted:
            raise PrivacyError(
                f"site {name} adds too few rows to a cell of a pooled table: {found}. Join levels, "
                'widen edges, leave the table out, or accept it: accept_exposure=["cells"].'
            )


def _exposure(
    result: Fitted, data: Mapping[str, Data], told: Mapping[str, FitProgress]
) -> str | None:
    """The objection of agents to the sums, with the rows of all sites as honest ones."""
    accept = 'To accept this, say accept_exposure=["sums"].'
    if result.is_quadratic:
        found = _single(data)
        return None if found is None else f"{found} {accept}"
    if result.share_pooled > MOST_SHARE:
        return (
            f"pooled numbers are far fewer than the entries of the rows, at most {MOST_SHARE:.0%}, "
            f"but this fit pooled {result.numbers_pooled}, {result.share_pooled:.0%} of them: rows "
            f"can be fitted to the sums. Have more rows or fewer columns. {accept}"
        )
    n_rows = {name: max(part.n_rows for part in parts_of(rows)) for name, rows in data.items()}
    for name, progress in told.items():
        share = progress.largest_share(sum(n_rows.values()) / n_rows[name])
        if share is not None and share > MOST_OF_ROW:
            return (
                f"the sums of a fit determine at most {MOST_OF_ROW:.0%} of every row, but these "
                f"determine {share:.1%} of a row of {name}: its agent would refuse the fit. Have "
                f"more rows, join rare values, clip long rows, or use a penalty. {accept}"
            )
    return None


def _single(data: Mapping[str, Data]) -> str | None:
    """The objection to a linear fit whose sums tell one row that differs from all others."""
    every = [part for rows in data.values() for part in parts_of(rows) if isinstance(part, Rows)]
    if not every or len({rows.X.shape[1] for rows in every}) > 1:
        return None
    X, y = (np.concatenate([getattr(rows, name) for rows in every]) for name in ("X", "y"))
    if effective_in_columns(X, y) == np.inf:
        return None
    return (
        "the sums of a linear fit tell a row that has a direction of the columns for itself, such "
        "as a value that no other row has, and these rows have one: an agent that knows no other "
        "rows refuses such a fit. Join rare values, or have more rows."
    )


def _models(model: Any, sites: Any) -> dict[str, Declared]:
    if not isinstance(sites, Mapping) or not sites:
        raise InputError(f"sites are a mapping from names to columns, but got {sites!r}.")
    found: dict[str, Any] = (
        dict(model) if isinstance(model, Mapping) else dict.fromkeys(sites, model)
    )
    if found.keys() != sites.keys():
        raise InputError(
            f"models and sites have the same names, but models are of {list(found)} and sites are "
            f"{list(sites)}."
        )
    for name, declared in found.items():
        if not isinstance(declared, (Model, FitPlan)):
            raise ModelError(
                f"site {name}: a model is a hg.Model(…) or a hg.FitPlan(…), but got {declared!r}."
            )
    return found


def _rows(model: Declared, name: str, site: Columns | SiteTable | str | Path) -> Data:
    names = columns_of(model)
    if isinstance(site, SiteTable):
        missing = [column for column in names if column not in site.columns]
        if missing:
            raise ProblemError(f"site {name}: the table has no column {missing[0]!r}. Read it too.")
        return data_of(model, site)
    if isinstance(site, (str, Path)):
        return data_of(model, read_table(site, names, site=name))
    return data_of(model, table_of(site, names, site=name))


class _Averages:
    """Pools by masked consensus on a network, and counts the rounds."""

    def __init__(
        self,
        network: Network,
        masks: ZeroSum,
        seed: int,
        progress: Callable[[str], None] | None,
        accepted: tuple[str, ...],
    ):
        self.network = network
        self.masks = masks
        self.seed = seed
        self.progress = progress
        self.accepted = accepted
        self.rounds = 0
        self.count = 0
        kind = "chebyshev" if network.is_symmetric else "none"
        self.algorithm = Consensus(acceleration=kind, masks=masks, scale=SIZE).on(network)
        self.each = rounds_of_average(self.algorithm, network.n_agents, network.eta)

    def pool(self, vectors: Sequence[Vector]) -> Sequence[Vector]:
        """Each site's own result of the sum of all vectors."""
        m = self.network.n_agents
        if m == 1:
            return vectors
        with warnings.catch_warnings():
            if self.count:
                warnings.simplefilter("ignore", RiskWarning)  # the first average has told them
            done = run(
                self.algorithm, average(np.array(vectors)), self.network, iterations=self.each,
                seed=self.seed, trials=[self.count], engine="agents", progress=False,
                accept_exposure=self.accepted,
            )  # fmt: skip
        self.rounds += self.each * done.rounds_per_iteration
        self.count += 1
        if self.progress is not None:
            self.progress(f"average {self.count}: {vectors[0].size} numbers, {self.each} rounds")
        return list(m * done.x[0])
