"""The dossier of an agent: what a data-protection officer signs, from this site's position.

`hushgrad dossier` makes it. The document is plain values, for JSON; `dossier_page` is the same as
one page of HTML. Nothing is sent, and no neighbour is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from html import escape
from typing import Any

from hushgrad.errors import HushgradError
from hushgrad.files.page import html_page, html_table, stylesheet
from hushgrad.fitting.contracts import contract, contract_text
from hushgrad.fitting.plan import stages_of
from hushgrad.network.admission import contract_of
from hushgrad.network.config.model import AgentConfig
from hushgrad.network.exposure import setting_of
from hushgrad.network.ledgers import governing
from hushgrad.network.objective.objectives import Objective, load_objective
from hushgrad.network.ops.doctor.exposure import verdicts
from hushgrad.network.ops.doctor.guarantee import guarantees
from hushgrad.network.ops.doctor.policy import policy_rulings
from hushgrad.network.ops.fit_page import participants
from hushgrad.network.protocol.hello import public_parts
from hushgrad.network.state.ledger import LedgerFile, ledger_of, runs_of, stamp
from hushgrad.theory.exposure import count_revealed


def dossier_of(config: AgentConfig) -> dict[str, Any]:
    """Everything that this site can tell about the run of its file."""
    from hushgrad import __version__

    objective, problem = _objective(config)
    return {
        "site": config.name,
        "number": config.number,
        "run": config.run.id,
        "date": stamp(datetime.now(UTC)),
        "version": __version__,
        "purpose": None if objective is None else objective.describe,
        "problem": problem,
        "participants": [vars(one) for one in participants(config)],
        "n_participants": config.run.n_agents,
        "leaves": [{"to": to, "what": what} for to, what in _leaves(config)],
        "contract": contract_of(config),
        "declared": dict(public_parts(config.run))
        if config.run.model is None
        else contract(config.run.model),
        "exposure": [vars(found) for found in verdicts(config, objective)],
        "guarantee": [
            {"text": told.text, "data": told.data}
            for told in guarantees(config, objective)
            if told.check == "guarantee"
        ],
        "policies": [str(policy.path) for policy in governing(config)],
        "rulings": [vars(ruling) for ruling in policy_rulings(config, objective)],
        "ledgers": [_ledger(ledger) for ledger in _ledgers(config)],
        "audit": None,
    }


def _objective(config: AgentConfig) -> tuple[Objective | None, str | None]:
    try:
        return load_objective(config.objective, config.run.dim), None
    except HushgradError as error:
        return None, str(error)


def _leaves(config: AgentConfig) -> list[tuple[str, str]]:
    """The lines about who learns what, before the run; the page of a fit has them afterwards."""
    run = config.run
    told = count_revealed(setting_of(run, is_quadratic=config.objective.is_quadratic), None)
    linked = ", ".join(n.name for n in config.neighbours)
    many = f"all {run.n_agents} sites"
    expected = "" if told is None else f"about {told.numbers} numbers in all, "
    if run.model is not None:
        is_plan = len(stages_of(run.model)) > 1
        result = "the tables of every stage" if is_plan else "the table of coefficients"
        vectors = "one masked vector for each average"
    else:
        result, vectors = "θ, the result", "messages of every round"
        vectors += ", made of masked statistics of the data" if run.lengths else ""
    found = [
        (many, f"sums over the rows of all sites, {expected}and {result}"),
        (f"linked sites ({linked})",
         f"{vectors}; besides, certificates, the settings of the run, times and lengths"),
        ("all other sites together, if they collude",
         "the sums of this site: the pooled ones less their own"),
        ("others on the network", "that encrypted messages pass, when, and how long they are"),
        ("nobody", "a row of this site itself; what sums tell about rows is judged below (sums)"),
    ]  # fmt: skip
    if told is None and run.model is None:
        found[0] = (many, result)
        found[-1] = ("nobody", "a file of this site; what messages tell is judged below")
    return found


def _ledgers(config: AgentConfig) -> list[LedgerFile]:
    named = [p.ledger_file for p in governing(config) if p.ledger_file is not None]
    found = {ledger.path.resolve(): ledger for ledger in [ledger_of(config.key), *named]}
    return [ledger for ledger in found.values() if ledger.exists]


def _ledger(ledger: LedgerFile) -> dict[str, Any]:
    try:
        lines = ledger.lines()
    except HushgradError as error:
        return {"path": str(ledger.path), "problem": str(error)}
    runs = runs_of(lines)
    return {
        "path": str(ledger.path), "lines": len(lines), "runs": len(runs),
        "done": sum(run.status == "done" for run in runs), "head": lines[-1].digest,
    }  # fmt: skip


# ---- the page


def dossier_page(dossier: Mapping[str, Any], config: AgentConfig) -> str:
    """The dossier as one page of HTML."""
    heading = f"Dossier of {dossier['site']}: run {dossier['run']}"
    body = [
        f"<h1>{escape(heading)}</h1>",
        f'<p class="soft">{escape(_what(dossier))}</p>',
        *(f'<p class="doubt">{escape(text)}</p>' for text in _problems(dossier)),
        "<h2>What leaves this site, and to whom</h2>",
        _table(("to", "what"), [(one["to"], one["what"]) for one in dossier["leaves"]]),
        "<h2>Who takes part</h2>",
        _table(
            ("site", "role", "fingerprint"),
            [(p["name"], p["role"], p["fingerprint"] or "no certificate here")
             for p in dossier["participants"]],
        ),
        "<h2>Judgement of exposure</h2>",
        "<p>Made on this site's own data. A refused condition stops the run before anything is "
        "sent.</p>",
        _table(
            ("condition", "verdict", "why"),
            [(e["name"], e["verdict"], e["text"]) for e in dossier["exposure"]],
        ),
        "<h2>Guarantee of the masks</h2>",
        _table(("", ""), [("told", told["text"]) for told in dossier["guarantee"]]),
        "<h2>Policy of this site</h2>",
        *_policy(dossier),
        "<h2>Ledger</h2>",
        *_ledger_part(dossier),
        "<h2>Audit of the programme on drawn rows</h2>",
        *_audit_part(dossier["audit"]),
        "<h2>Signature</h2>",
        _table(("", "name", "date", "signature"), [("data protection", "", "", ""),
                                                   ("IT", "", "", "")], kind="sign"),
        "<h2>What all sites declare alike</h2>",
        f"<p>Digest <code>{escape(dossier['contract'])}</code></p>",
        f"<pre><code>{escape(contract_text(dossier['declared']))}</code></pre>",
        f"<footer><p>Made on {escape(dossier['date'])} by hushgrad {escape(dossier['version'])} "
        f"from the file of agent {config.number}.</p></footer>",
    ]  # fmt: skip
    return html_page(heading, body, stylesheet("hushgrad.fitting", "page.css"))


def _table(heads: Any, rows: Any, kind: str = "facts") -> str:
    return html_table(heads, rows, kind=kind)


def _what(dossier: Mapping[str, Any]) -> str:
    purpose = dossier["purpose"] or "the data could not be read"
    return f"{purpose}; {dossier['n_participants']} sites, this is number {dossier['number']}"


def _problems(dossier: Mapping[str, Any]) -> list[str]:
    """The reasons against a signature."""
    found = [dossier["problem"]] if dossier["problem"] else []
    found += [f"exposure: {e['text']}" for e in dossier["exposure"] if e["verdict"] == "refused"]
    found += [f"policy: {r['text']}" for r in dossier["rulings"] if not r["is_kept"]]
    return found + [one["problem"] for one in dossier["ledgers"] if "problem" in one]


def _policy(dossier: Mapping[str, Any]) -> list[str]:
    if not dossier["rulings"]:
        return ["<p>There is none: neither /etc/hushgrad/policy.toml nor one in the agent's file."]
    rows = [(r["rule"], "kept" if r["is_kept"] else "broken", r["text"])
            for r in dossier["rulings"]]  # fmt: skip
    return [
        f"<p>{escape(', '.join(dossier['policies']))}</p>",
        _table(("rule", "verdict", "value and limit"), rows),
    ]


def _ledger_part(dossier: Mapping[str, Any]) -> list[str]:
    if not dossier["ledgers"]:
        return ["<p>No run of this key has begun yet.</p>"]
    rows = [
        (one["path"], one.get("problem")
         or f"{one['runs']} runs, {one['done']} of them done; the last of {one['lines']} lines has "
         f"the digest {one['head']}")
        for one in dossier["ledgers"]
    ]  # fmt: skip
    return [_table(("file", "state"), rows)]


def _audit_part(found: Mapping[str, Any] | None) -> list[str]:
    if found is None:
        return ["<p>Not made.</p>"]
    if "problem" in found:
        return [f"<p>Not made: {escape(found['problem'])}</p>"]
    rows = [
        (one["adversary"], "recovered" if one["is_exposed"] else "not recovered",
         "no estimate" if one["nearest"] is None else f"{one['nearest']:.2g}")
        for one in found["findings"]
    ]  # fmt: skip
    return [
        f"<p>A fit of the same model on {escape(str(found['rows']))} drawn rows in the simulator, "
        f"{found['averages']} averages. Adversaries know everything but this site's rows and the "
        "secrets of honest sites. An attack that fails is no proof.</p>",
        _table(
            ("adversary", "vector of this site", "relative error of the nearest estimate"), rows
        ),
    ]
