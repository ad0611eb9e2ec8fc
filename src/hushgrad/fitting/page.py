"""A fit as one page of HTML that can be filed: it needs no network and no script, and prints well.

A deployed agent writes the page of its site beside its result; in the simulator `FitResult.page`
does. The page marks what is about the rows of the site alone: those parts stay with the site.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from hushgrad.files.page import html_page, html_table, stylesheet
from hushgrad.fitting.contracts import contract, contract_text
from hushgrad.fitting.figures import Effect, calibration, forest
from hushgrad.fitting.site_check import SiteCheck

if TYPE_CHECKING:
    from hushgrad.fitting.result import FitResult

RATIOS = {"logistic": "odds ratio", "poisson": "rate ratio", "cox": "hazard ratio"}
_STEPS = {
    "counts and moments": "rows, dropped rows, events, Σx and Σx² of every column",
    "first step": "loss, gradient and Hessian at the start",
    "step": "loss, gradient and Hessian",
    "halved step": "loss, gradient and Hessian, at half the step",
    "sandwich": "the middle of the sandwich",
    "levels": "the levels of factors, and how many sites have each",
    "product": "the product of the Hessian and a vector",
    "folds": "loss, gradient and Hessian of every fold, and its weights",
    "step of all folds": "loss, gradient and Hessian of every fold and penalty",
    "losses of all folds": "the loss of every fold and penalty, and the weights of the folds",
    "choice of the penalty": "votes for every penalty",
}


@dataclass(frozen=True, kw_only=True)
class Participant:
    """A site that took part."""

    name: str
    role: str
    fingerprint: str | None = None  # of its certificate


@dataclass(frozen=True, kw_only=True)
class Record:
    """When, where and with whom a fit was run."""

    participants: tuple[Participant, ...]
    site: str | None = None  # whose page this is
    run: str | None = None
    began: str | None = None
    ended: str | None = None
    rounds: int | None = None
    seconds: float | None = None
    more: Mapping[str, str] | None = None  # further facts by name
    contract: str | None = None  # the document of a plan, of which the fit is a stage


def fit_page(result: FitResult, record: Record, checks: Mapping[str, SiteCheck]) -> str:
    """The text of the page; `checks` are those of the sites whose rows this machine has."""
    heading = f"{result.model.kind.capitalize()} fit of {result.model.outcome}"
    body = [
        f"<h1>{escape(heading)}</h1>",
        f'<p class="soft">{escape(_subtitle(result, record))}</p>',
        *(f'<p class="doubt">{escape(c.verdict)}</p>' for c in checks.values() if c.verdict),
        "<h2>Coefficients</h2>",
        _coefficients(result),
        f'<p class="soft">{escape(_notes(result))}</p>',
        *_forest(result),
        *(part for check in checks.values() for part in _local(result, check)),
        "<h2>How the fit went</h2>",
        _stages(result),
        '<p class="soft">gᵀH⁻¹g is about the squared distance from the minimum, in standard errors.'
        "</p>",
        "<h2>Who took part</h2>",
        html_table(
            ("site", "role", "fingerprint of the certificate"),
            [(p.name, p.role, p.fingerprint or "simulated: none") for p in record.participants],
            kind="facts",
        ),
        "<h2>What was revealed to whom</h2>",
        html_table(("to", "what"), revealed(result), kind="facts"),
        "<h2>Record</h2>",
        html_table(("", ""), _facts(result, record), kind="facts"),
        "<h3>Contract</h3>",
        f"<pre><code>{escape(record.contract or contract_text(contract(result.model)))}</code>"
        "</pre>",
    ]
    return html_page(heading, body, stylesheet("hushgrad.fitting", "page.css"))


def _subtitle(result: FitResult, record: Record) -> str:
    dropped = f" ({result.n_dropped} dropped)" if result.n_dropped else ""
    events = "" if result.n_events is None else f", {result.n_events} events"
    run = "" if record.run is None else f"; run {record.run}"
    whose = "" if record.site is None else f"; the page of {record.site}"
    return f"{result.n_sites} sites, {result.n_rows} rows{dropped}{events}{run}{whose}"


def shown(value: float | None, digits: int = 5) -> str:
    return "–" if value is None else f"{value:.{digits}g}"


def _unit(result: FitResult, name: str) -> str:
    """The unit of a coefficient: of the outcome, or of its logarithm, per unit of its column."""
    model = result.model
    top = {"logistic": "log odds", "poisson": "log rate", "cox": "log hazard"}.get(
        model.kind, model.units.get(model.outcome, "")
    )
    column = name.partition("[")[0]
    if name == "intercept":
        return top
    if column in model.factors and name in _levels(result, column):
        return f"{top} against {_reference(result, column)}".strip()
    unit = model.units.get(name)
    return f"{top or 'change'} / {unit}" if unit else top


def _coefficients(result: FitResult) -> str:
    ratio, level = RATIOS.get(result.model.kind), f"{100 * result.model.level:g} %"
    has_errors = result.standard_error is not None
    heads = ["", "estimate"]
    if has_errors:
        heads += ["std. error", result.distribution, "p", f"{level} interval"]
    if ratio:
        heads += [ratio] + [f"{level} interval"] * has_errors
    rows: list[list[str]] = []
    for n, name in enumerate(result.names):
        unit = f"<small>{escape(_unit(result, name))}</small>"
        cells = [f"{escape(name)}{unit}", shown(float(result.estimate[n]))]
        low, high = (None if c is None else float(c[n]) for c in (result.low, result.high))
        if has_errors:
            columns = (result.standard_error, result.statistic)
            cells += [shown(float(c[n])) for c in columns if c is not None]
            p = 0.0 if result.p_value is None else float(result.p_value[n])
            cells += [f"{p:.2e}" if p < 1e-4 else shown(p, 3), _interval(low, high)]
        if ratio:
            is_one = name == "intercept"
            cells.append("" if is_one else shown(_exp(float(result.estimate[n]))))
            if has_errors:
                cells.append("" if is_one else _interval(_exp(low), _exp(high)))
        rows.append(cells)
    return html_table(heads, rows, kind="numbers", raw=True)


def _exp(value: float | None) -> float | None:
    return None if value is None else math.exp(min(value, 700.0))


def _interval(low: float | None, high: float | None) -> str:
    return "–" if low is None else f"{shown(low, 4)} to {shown(high, 4)}"


def _reference(result: FitResult, column: str) -> str:
    return next(iter(result.levels.get(column) or result.model.factors[column]))


def _levels(result: FitResult, column: str) -> list[str]:
    """The names of a factor's coefficients; a product of columns has another."""
    levels = result.levels.get(column) or result.model.factors[column]
    return [f"{column}[{level}]" for level in levels]


def _notes(result: FitResult) -> str:
    lines = result.table(alone=False).splitlines()
    return "".join(f"{line}. " for line in lines[2 + len(result.names) :]).strip()


def _forest(result: FitResult) -> Iterable[str]:
    effects: list[Effect] = []
    for n, name in enumerate(result.names):
        if name == "intercept":
            continue
        size, label = _spread(result, n, name)
        ends = (None if c is None else size * float(c[n]) for c in (result.low, result.high))
        effects.append(Effect(label, size * float(result.estimate[n]), *ends))
    ratio = RATIOS.get(result.model.kind)
    unit = result.model.units.get(result.model.outcome)
    axis = ratio or f"change of {result.model.outcome}{f' in {unit}' if unit else ''}"
    yield (
        f"<figure>{forest(effects, is_ratio=ratio is not None, axis=axis)}"
        "<figcaption>Numbers: the effect of one pooled standard deviation, which the label tells. "
        "Factors: against the reference level.</figcaption></figure>"
    )


def _spread(result: FitResult, n: int, name: str) -> tuple[float, str]:
    """The step of a column whose effect the forest plot shows, and the label that tells it."""
    column = name.partition("[")[0]
    is_level = column in result.model.factors and name in _levels(result, column)
    if is_level or result.spread is None:
        return 1.0, name
    unit = result.model.units.get(name, "")
    spread = float(result.spread[n])
    return spread, f"{name}, per {spread:.3g}{f' {unit}' if unit else ''}"


def _local(result: FitResult, check: SiteCheck) -> Iterable[str]:
    """The fit on the rows of one site."""
    kind = result.model.kind
    only = '<span class="only">local: not for others</span>'
    yield f'<div class="local"><h2>The rows of {escape(check.site)} {only}</h2>'
    yield (
        f"<p>How the fit describes the {check.n_rows} rows of {escape(check.site)}, computed at "
        "this site after the fit. False sums of another site that move the coefficients far show "
        "here.</p>"
    )
    rows = [(check.measure, shown(check.own), shown(check.pooled), shown(check.constant))]
    heads = ("", f"rows of {check.site}", "rows of all sites", f"{check.site}'s mean alone")
    yield html_table(heads, rows, kind="numbers")
    slope = "–" if check.slope is None else f"{check.slope:.3g} ± {shown(check.slope_error, 2)}"
    facts = [("calibration slope (1: as it should be)", slope)]
    if check.expected is not None:
        what = f"{check.total} of {result.model.outcome}"
        facts.append((what, f"expected {check.expected:.5g}, observed {check.observed:.5g}"))
    if check.p_value is not None:
        facts.append(("p of calibration", shown(check.p_value, 2)))
    yield html_table(("", ""), facts, kind="facts")
    drawn = [g for g in check.groups if math.isfinite(g.predicted) and math.isfinite(g.observed)]
    if len(drawn) > 1:
        across, up = {
            "logistic": ("predicted risk", f"observed share of {result.model.outcome}"),
            "poisson": ("predicted count", "observed count"),
            "cox": ("expected events", "observed events"),
        }.get(kind, ("predicted", "observed"))
        picture = calibration(drawn, across=across, up=up)
        level = f"{100 * result.model.level:g} %"
        groups = html_table(
            ("rows", across, up, f"{level} interval"),
            [(g.n_rows, shown(g.predicted, 4), shown(g.observed, 4), _interval(g.low, g.high))
             for g in check.groups],
            kind="numbers",
        )  # fmt: skip
        yield (
            f'<div class="pictures"><figure>{picture}<figcaption>Rows in '
            f"the order of their prediction, in {len(check.groups)} groups; {level} intervals."
            f"</figcaption></figure>{groups}</div>"
        )
    yield "</div>"


def _stages(result: FitResult) -> str:
    rows = [
        (f"{n}. {s.name}", _STEPS.get(s.name, ""), s.n_numbers, shown(s.loss, 8),
         shown(s.decrement, 3))
        for n, s in enumerate(result.stages, 1)
    ]  # fmt: skip
    heads = ("average", "pooled over all sites", "numbers", "pooled loss", "gᵀH⁻¹g")
    return html_table(heads, rows, kind="numbers")


def revealed(result: FitResult) -> list[tuple[str, str]]:
    """The lines about who learns what from a fit, for the page and for the dossier."""
    share = f"{100 * result.share_pooled:.2g} % of the entries of all rows"
    by_site = (
        " The scores of the sites enter squared, by site: with three sites each can compute those "
        "of the two others, up to which is whose."
        if result.model.standard_errors == "site"
        else ""
    )
    return [
        ("every site that took part",
         f"{result.numbers_pooled} pooled numbers, sums over the rows of all sites, {share}: those "
         f"of the averages above, and this table.{by_site}"),
        ("the sites linked with this one",
         "one masked vector for each average: the sums of this site plus masks of 10⁴ times their "
         "size that cancel over all sites. Besides, the time and the length of messages."),
        ("all other sites together, if they collude",
         "the sums of this site: the pooled sums less their own. Its rows are then hidden among "
         "each other alone."),
        ("others on the network", "that encrypted messages pass, when, and how long they are"),
        ("nobody", "a row of this site; and the parts of this page that are marked local"),
    ]  # fmt: skip


def _facts(result: FitResult, record: Record) -> list[tuple[str, str]]:
    from hushgrad import __version__

    found = {
        "run": record.run,
        "contract digest": result.contract,
        "began": record.began,
        "ended": record.ended,
        "rounds": None if record.rounds is None else str(record.rounds),
        "seconds": None if record.seconds is None else f"{record.seconds:.1f}",
        **(record.more or {}),
        "made by": f"hushgrad {__version__}, Python {platform.python_version()}, NumPy "
        f"{np.__version__}",
        "page of": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
    }
    return [(name, value) for name, value in found.items() if value is not None]
