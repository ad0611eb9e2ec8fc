"""Audits as one page of HTML that needs nothing else; `Audit.page` and `hushgrad audit --out` use
it.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Sequence
from html import escape
from inspect import getdoc
from pathlib import Path

import numpy as np

from hushgrad.files.atomic import replacing
from hushgrad.files.page import html_page, stylesheet
from hushgrad.privacy import drawing
from hushgrad.privacy.attacks import ALL
from hushgrad.privacy.findings import Finding, Findings
from hushgrad.privacy.promised import DELTA, Promised
from hushgrad.privacy.tables import KINDS, counts, title, told
from hushgrad.privacy.verdict import Verdict

_ERROR, _SPEED = "relative error at the end", "iterations to 1e-6"
_COALITION = "smallest coalition that exposes it"
_VERDICTS: dict[Verdict, str] = {
    "exposed": "A gradient, the curvature, the whole objective or the number of rows of the agent "
    "was recovered with a relative error of at most 10 %, and at least twice as well as by "
    "guessing; or a test tells with an advantage of at least 50 % whether the agent has a given "
    "row.",
    "direction exposed": "The direction of a gradient was recovered within 18°, more exactly than "
    "chance explains. Its size was not.",
    "not recovered": "No attack that was tried came that near. That is no proof: it says how many "
    "were tried, and a cleverer attack may exist. Where none of them gives an estimate, the page "
    "says that no attack applies.",
}
_ASSUMED = (
    "Every adversary knows the network, the weights, the algorithm and the distributions of secret "
    "stepsizes, splits and masks; never the draws themselves.",
    "An eavesdropper hears every message in clear. Encrypted and authenticated links leave no "
    "eavesdropper.",
    "Curious agents follow the protocol. They know their own data, draws and keys, and what they "
    "sent and received; together they pool it.",
    "Errors are measured against the truth, which no attack is given. The guess beside each error "
    "is the best one without any message.",
    "What θ* itself reveals, and agents that deviate from the protocol, are not examined.",
)


def write_page(
    audits: Sequence[Findings], path: str | Path, *, heading: str = "Privacy audit"
) -> Path:
    """Write audits, compared where there are several, to a page."""
    path = Path(path)
    with replacing(path) as partial:
        partial.write_text(page(audits, heading=heading), encoding="utf-8")
    return path


def page(audits: Sequence[Findings], *, heading: str = "Privacy audit") -> str:
    """The page's text."""
    body = [
        _heading(audits[0], heading),
        _matrix(audits),
        *(_section(audit) for audit in audits),
        _explained(audits),
        _footer(audits[0]),
    ]
    return html_page(heading, body, stylesheet("hushgrad.privacy", "page.css"))


def _heading(audit: Findings, heading: str) -> str:
    legend = "".join(f"<li>{_icon(verdict)}<b>{verdict}</b></li>" for verdict in _VERDICTS)
    return (
        f"<h1>{escape(heading)}</h1>\n"
        f'<p class="soft">{escape(audit.problem)}, {audit.n_agents} agents, d = {audit.dim}, '
        f"{audit.iterations} iterations; seed {audit.seed}, trial {audit.trial}.</p>\n"
        f'<ul class="legend">{legend}</ul>'
    )


def _matrix(audits: Sequence[Findings]) -> str:
    """Methods against kinds of adversaries."""
    kinds = list(dict.fromkeys(kind for audit in audits for kind in audit.kinds))
    heads = "".join(f"<th scope=col>{escape(KINDS.get(kind, kind))}</th>" for kind in kinds)
    lines = "".join(
        f"<tr><th scope=row>{escape(audit.label)}</th>"
        + "".join(_tally(audit, kind) for kind in kinds)
        + f'<td data-head="{_ERROR}"><span>{audit.accuracy:.0e}</span></td>'
        f'<td data-head="{_SPEED}"><span>{audit.iterations_to_1e_6 or "–"}</span></td></tr>'
        for audit in audits
    )
    return (
        "<h2>Methods and adversaries</h2>\n"
        "<p>How many agents are exposed to the worst adversary of each kind.</p>\n"
        f'<table class="cards"><thead><tr><th scope=col>method</th>{heads}<th scope=col>{_ERROR}'
        f"</th><th scope=col>{_SPEED}</th></tr></thead><tbody>{lines}</tbody></table>"
    )


def _tally(audit: Findings, kind: str) -> str:
    head = escape(KINDS.get(kind, kind))
    if kind not in audit.kinds:
        return f'<td data-head="{head}">–</td>'
    worst: Verdict = next(v for v in _VERDICTS if audit.count(kind, v))
    return (
        f'<td class="{drawing.CLASSES[worst]}" data-head="{head}"><span>{_icon(worst)}'
        f"{_unbroken(counts(audit, kind))}</span></td>"
    )


def _section(audit: Findings) -> str:
    return "\n".join(
        [
            f"<h2>{escape(audit.label)}</h2>",
            *_pictures(audit),
            _agents(audit),
            *_promised(audit),
            _all_findings(audit),
        ]
    )


def _pictures(audit: Findings) -> Iterable[str]:
    if audit.n_agents <= drawing.MOST:
        yield _figures([(_told(audit, k), drawing.network(audit, k)) for k in audit.kinds])
    if audit.places is not None:
        yield "<h3>Where the agents stand: true (ring) and recovered (cross)</h3>"
        yield _figures([(_placed(audit, k), drawing.rendezvous_map(audit, k)) for k in audit.kinds])


def _told(audit: Findings, kind: str) -> str:
    return f"<b>{escape(KINDS.get(kind, kind))}</b>: {_unbroken(counts(audit, kind))}"


def _placed(audit: Findings, kind: str) -> str:
    found = len(drawing.recovered_places(audit, kind))
    return f"<b>{escape(KINDS.get(kind, kind))}</b>: {found} of {len(audit.agents)} recovered"


def _unbroken(text: str) -> str:
    """A line may end before a bracket or a number and not inside."""
    return re.sub(r"\([^()]*\)|\S+e-\d+", r"<span class=whole>\g<0></span>", escape(text))


def _figures(pictures: Iterable[tuple[str, str]]) -> str:
    figures = "".join(
        f"<figure>{svg}<figcaption>{told}</figcaption></figure>" for told, svg in pictures
    )
    return f'<div class="pictures">{figures}</div>'


def _agents(audit: Findings) -> str:
    heads = "".join(f"<th scope=col>{escape(KINDS.get(kind, kind))}</th>" for kind in audit.kinds)
    smallest = f"<th scope=col>{_COALITION}</th>" if audit.coalitions else ""
    lines = "".join(
        f"<tr><th scope=row>agent {agent}</th>"
        + "".join(_cell(audit.worst(agent, kind), kind) for kind in audit.kinds)
        + (
            f'<td data-head="{_COALITION}"><span>{c}</span></td>'
            if (c := audit.coalition(agent))
            else ""
        )
        + "</tr>"
        for agent in audit.agents
    )
    return (
        "<h3>Agent by agent</h3>\n"
        f'<table class="cards"><thead><tr><th scope=col>agent</th>{heads}{smallest}</tr></thead>'
        f"<tbody>{lines}</tbody></table>"
    )


def _cell(finding: Finding | None, kind: str) -> str:
    head = escape(KINDS.get(kind, kind))
    if finding is None:
        return f'<td data-head="{head}">–</td>'
    said = f"<b>{_unbroken(finding.verdict)}</b>"
    if finding.best is not None:
        who = "" if finding.adversary == kind else f"{escape(finding.adversary)}, "
        said += f"<small>{who}{_unbroken(told(finding.best))}</small>"
    return (
        f'<td class="{drawing.CLASSES[finding.exposure]}" data-head="{head}"><span>'
        f"{_icon(finding.exposure)}{said}</span></td>"
    )


def _all_findings(audit: Findings) -> str:
    lines = "".join(
        f"<tr><th scope=row>agent {f.agent}</th><td>{escape(f.adversary)}</td>"
        f"<td>{escape(f.verdict)}</td><td>{_list(f.tried)}</td><td>{_reasons(f)}</td></tr>"
        for f in audit.findings
    )
    return (
        f"<details><summary>All {len(audit.findings)} findings: what was tried, and what could not "
        'be</summary><div class="wide"><table><thead><tr><th scope=col>agent</th><th scope=col>'
        "adversary</th><th scope=col>verdict</th><th scope=col>tried</th><th scope=col>could not "
        f"be tried</th></tr></thead><tbody>{lines}</tbody></table></div></details>"
    )


def _promised(audit: Findings) -> Iterable[str]:
    """The guarantee of the masks, next to what attacks found."""
    if audit.promised is None:
        return
    heads = ("against", "agent", "hidden among", "μ", f"ε at δ = {DELTA:g}", "advantage")
    lines = "".join(
        f"<tr><th scope=row>{escape(line.adversary)}</th>"
        + "".join(
            f'<td data-head="{head}"><span>{cell}</span></td>'
            for head, cell in zip(heads[1:], _numbers(line), strict=True)
        )
        + "</tr>"
        for line in audit.promised.lines
    )
    yield (
        "<h3>What the masks promise</h3>\n"
        "<p>No test tells better than this whether a row is this agent's or another honest "
        f"agent's, in all {audit.promised.stages} stages together, for the agent that fares worst. "
        f"In place of a public bound stands {escape(audit.promised.bound)}. The sums over honest "
        "agents and θ* are not covered.</p>\n"
        '<table class="cards"><thead><tr>'
        + "".join(f"<th scope=col>{head}</th>" for head in heads)
        + f"</tr></thead><tbody>{lines}</tbody></table>"
    )


def _numbers(line: Promised) -> tuple[str, ...]:
    mu, epsilon = (("∞" if v is None else f"{v:.3g}") for v in (line.mu, line.epsilon))
    among = "nothing is hidden" if line.hidden_among == 1 else f"{line.hidden_among} agents"
    return str(line.agent), among, mu, epsilon, f"{line.advantage:.2g}"


def _list(attacks: Iterable[str]) -> str:
    return escape(", ".join(title(name) for name in attacks)) or "–"


def _reasons(finding: Finding) -> str:
    failed = {name: f"failed, {error}" for name, error in finding.failed.items()}
    failed |= {name: f"{what} not judged: no truth" for name, what in finding.unjudged.items()}
    told: dict[str, list[str]] = {}
    for name, reason in (failed | dict(finding.refused)).items():
        told.setdefault(reason, []).append(title(name))
    return "".join(
        f"<small>{escape(', '.join(names))}: {escape(reason)}</small>"
        for reason, names in told.items()
    )


def _explained(audits: Sequence[Findings]) -> str:
    verdicts = "".join(f"<dt>{_icon(v)}{v}</dt><dd>{text}</dd>" for v, text in _VERDICTS.items())
    tried = {name for audit in audits for f in audit.findings for name in f.tried}
    attacks = "".join(
        f"<dt>{escape(a.title)}</dt><dd>{escape(_about(type(a)))}</dd>"
        for a in ALL
        if a.name in tried
    )
    assumed = "".join(f"<li>{escape(line)}</li>" for line in _ASSUMED)
    return (
        f"<h2>What the words mean</h2><dl>{verdicts}</dl>"
        f"<h2>Attacks that were tried</h2><dl>{attacks}</dl>"
        f"<h2>What was assumed</h2><ul>{assumed}</ul>"
    )


def _about(attack: type) -> str:
    return " ".join((getdoc(attack) or "").partition("\n\n")[0].split())


def _footer(audit: Findings) -> str:
    return (
        f"<footer><p>Made on {audit.date} by hushgrad {audit.version}, Python "
        f"{platform.python_version()}, NumPy {np.__version__}.</p></footer>"
    )


def _icon(verdict: Verdict) -> str:
    return f'<svg viewBox="0 0 18 18" aria-hidden="true">{drawing.mark(verdict)}</svg>'
