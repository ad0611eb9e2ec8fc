"""The page of a deployed fit (hushgrad.fitting.page): with the facts that its agent knows.

`hushgrad fit` writes it beside the result. It holds checks of the site's own rows, so it is the
site's alone; the parts about the rows are marked.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from hushgrad.errors import HushgradError
from hushgrad.files.atomic import replace_file
from hushgrad.fitting.page import Participant, Record, fit_page
from hushgrad.fitting.plan_result import Fitted
from hushgrad.fitting.result import FitResult
from hushgrad.network.config.model import AgentConfig
from hushgrad.network.keys.identity import load_certificate
from hushgrad.network.ledgers import governing, key_name
from hushgrad.network.ops.result import AgentResult
from hushgrad.network.state.ledger import ledger_of, runs_of, stamp

PAGE = "page.html"


def write_fit_pages(config: AgentConfig, result: AgentResult, fitted: Fitted) -> list[Path]:
    """Write the page of a fit that has ended, or of each fit of a plan; only its owner may read."""
    record = _record(config, result)
    if isinstance(fitted, FitResult):
        pages = {PAGE: fit_page(fitted, record, fitted.checks)}
    else:
        pages = fitted.pages(record)
    for name, text in pages.items():
        path = config.result.with_name(name)
        replace_file(path, lambda file, text=text: file.write(text.encode()), mode=0o600)
    return [config.result.with_name(name) for name in pages]


def participants(config: AgentConfig) -> tuple[Participant, ...]:
    """This agent and all others of its file, with the fingerprints that it trusts."""
    linked = {n.name for n in config.neighbours}
    partners = {p.name for p in config.partners}
    found = [Participant(name=config.name, role="this site", fingerprint=key_name(config))]
    others = {one.name: one.certificate for one in (*config.neighbours, *config.partners)}
    for name, certificate in others.items():
        roles = [("linked", name in linked), ("shares masks", name in partners)]
        role = ", ".join(text for text, holds in roles if holds)
        found.append(Participant(name=name, role=role, fingerprint=_fingerprint(certificate, name)))
    return tuple(found)


def _fingerprint(certificate: Path, name: str) -> str | None:
    try:
        return load_certificate(certificate, name=name).fingerprint
    except HushgradError:  # a file that was moved away after the run
        return None


def _record(config: AgentConfig, result: AgentResult) -> Record:
    began, more = None, dict[str, str]()
    ledger = ledger_of(config.key)
    try:  # the fit is over: a ledger or a policy that was spoilt meanwhile does not undo it
        if ledger.exists:
            lines = ledger.lines()
            own = [r for r in runs_of(lines) if r.begun.run == config.run.id]
            began = stamp(own[-1].begun.time) if own else None
            more["ledger"] = f"{ledger.path.name}, {len(lines)} lines, head {lines[-1].digest}"
        more["policy"] = ", ".join(str(p.path) for p in governing(config)) or "none"
    except HushgradError as error:
        more["not told"] = str(error)
    more["accepted weaknesses"] = ", ".join(sorted(config.accept_exposure)) or "none"
    return Record(
        participants=participants(config),
        site=config.name,
        run=config.run.id,
        began=began,
        ended=stamp(datetime.now(UTC)),
        rounds=result.rounds,
        seconds=result.seconds,
        more=more,
    )
