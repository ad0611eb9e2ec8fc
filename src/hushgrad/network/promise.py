"""The promise of an agent's masks about its rows, from its file alone.

A row has a public bound if the file declares one: `row_norm` bounds ‖x‖ of every row, an intercept
included, and `row_target` bounds |y|. docs/guarantee.md derives the promise. `hushgrad doctor`
(ops/doctor/guarantee.py) shows it, and the agreement of partners notes its μ beside the key.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hushgrad.algorithms.base import Masked
from hushgrad.network.config.model import AgentConfig, RunConfig, power_of_two
from hushgrad.network.objective.objectives import ObjectiveSpec

if TYPE_CHECKING:
    from hushgrad.fitting.plan import Data, Declared
    from hushgrad.masks import Sizes
    from hushgrad.theory import Guarantee, RowBound
    from hushgrad.theory.revealed import Curvature

_WITH_TARGET = ("least_squares", "ridge", "huber")


def missing(config: AgentConfig) -> str | None:
    """The reason why nothing can be promised, with the way out; None if there is a promise."""
    run, kind = config.run, config.objective.kind
    algorithm = run.algorithm
    if not isinstance(algorithm, Masked) or algorithm.masking is None or not run.lengths:
        return 'messages tell more than a masked statistic. Use design = "recommended"'
    if run.seed is not None:
        return "a seed is no secret, so the masks are none. Leave seed out"
    if kind == "fit":
        from hushgrad.fitting.plan import undeclared_by  # an agent without a fit saves the memory

        assert run.model is not None
        return undeclared_by(run.model)
    if kind == "function":
        return "nothing is known about the rows of a function. Use a kind of objective"
    if run.row_norm is None:
        target = " and row_target, above every |y|" if kind in _WITH_TARGET else ""
        return f"declare row_norm in [run], a public bound above every ‖x‖{target}"
    if run.row_target is None and kind in _WITH_TARGET:
        return "declare row_target in [run], a public bound above every |y|"
    return None


def fit_bound(declared: Declared, data: Data) -> RowBound:
    """About the bound on the part of one row in a fit of the most averages, or in all of a plan.

    Pooled means, standard deviations and steps are not known before the fit: those of this site's
    rows take their places, and its first step stands for all.
    """
    from hushgrad import theory
    from hushgrad.fitting.averages import most_averages
    from hushgrad.fitting.bounds import table_part
    from hushgrad.fitting.model import Model
    from hushgrad.fitting.plan import parts_of, programme_of, stages_of
    from hushgrad.fitting.progress import FitProgress
    from hushgrad.fitting.rows import Rows

    found: list[float] = []
    for model, rows in zip(stages_of(declared).values(), parts_of(data), strict=True):
        if not isinstance(model, Model):
            found.append(table_part(model) or 0.0)
            continue
        assert isinstance(rows, Rows)
        progress = FitProgress()
        fit = programme_of(model, rows, progress)
        fit.send(next(fit))
        counts, step = (part or 0.0 for part in progress.row_parts)
        found += [counts, math.sqrt(most_averages(model) - 1) * step]
    return theory.RowBound(linear=math.hypot(*found))


def row_bound(config: AgentConfig) -> RowBound:
    """The public bound on the part of one row."""
    from hushgrad import theory

    run, spec = config.run, config.objective
    assert isinstance(spec, ObjectiveSpec)  # `fit_bound` is that of a fit
    norm, target = run.row_norm or 0.0, run.row_target or 0.0
    if spec.kind == "logistic":
        return theory.logistic_row(norm)
    if spec.kind == "huber":
        return theory.huber_row(norm, target, spec.delta)
    if spec.kind == "average":  # q = −a
        return theory.mean_row(norm)
    if spec.kind == "rendezvous":  # f = ‖θ − p‖²: q = −2p, and H is public
        return theory.mean_row(2 * norm)
    return theory.ridge_row(norm, target)


def sizes_of(config: AgentConfig) -> Sizes:
    """The least sizes of the masks: the unit on which agents agree is 1/λ or larger."""
    run = config.run
    assert isinstance(run.algorithm, Masked)
    scale = power_of_two(run.algorithm.least_unit if run.scale is None else run.scale)
    return run.algorithm.mask_sizes(run.dim, run.eta, scale)


def promise(config: AgentConfig, rows: Data | None = None, *, delta: float = 1e-6) -> Guarantee:
    """The guarantee of a run: against outsiders, and the worst coalition of each size.

    rows    of a fit, at this site
    """
    from hushgrad import theory

    run = config.run
    assert isinstance(run.algorithm, Masked)
    assert run.algorithm.masking is not None
    if rows is None:
        bound, stages = row_bound(config), len(run.lengths)
    else:
        assert run.model is not None
        bound, stages = fit_bound(run.model, rows), 1  # the bound is one of all averages
    return theory.guarantee(
        run.algorithm.masking,
        run.n_agents,
        sizes=sizes_of(config),
        bound=bound,
        stages=stages,
        curvature=_curvature(run),
        agent=config.number,
        delta=delta,
    )


def mu_of(config: AgentConfig, rows: Data | None = None) -> float | None:
    """μ of a run between this agent and one honest partner, all others against; None: no bound.

    rows   of a fit, whose μ is then about that of the most averages; without them a fit has none,
           and notes its μ by itself, average by average (programme.py)
    """
    model = config.run.model
    if missing(config) is not None or (model is not None and rows is None):
        return None
    from hushgrad.theory.promise import unit_mu

    if model is not None and rows is not None:
        bound, stages = fit_bound(model, rows), 1  # the bound is one of all averages
    else:
        bound, stages = row_bound(config), len(config.run.lengths)
    return unit_mu(
        sizes_of(config),
        bound,
        stages=stages,
        curvature=_curvature(config.run),
    )


def _curvature(run: RunConfig) -> Curvature:
    return getattr(run.algorithm, "curvature", "newton")
