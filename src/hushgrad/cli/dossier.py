"""`hushgrad dossier`: one page about a run, for the person who answers for the data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushgrad.cli.options import Format, OutputFormat
from hushgrad.cli.terminal import print_json
from hushgrad.console import note
from hushgrad.errors import HushgradError, MissingExtra, optional
from hushgrad.files.atomic import write_file

if TYPE_CHECKING:
    from hushgrad.network.config.model import AgentConfig

EPILOG = """
[bold]Examples[/bold]

hushgrad dossier agent.toml

hushgrad dossier agent.toml --out run-7.html --rows 2000
"""
_ROWS = 1000


def dossier(
    file: Annotated[Path, typer.Argument(metavar="AGENT", help="The agent's file, a TOML file.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where the page is written.")] = Path(
        "dossier.html"
    ),
    rows: Annotated[
        int, typer.Option(min=10, metavar="N", help="Drawn rows of each site, for the audit.")
    ] = _ROWS,
    audit: Annotated[
        bool, typer.Option("--audit/--no-audit", help="Attack the programme on drawn rows.")
    ] = True,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Write what leaves this site, to whom, and under which guarantee: a page to sign.

    The page is made from this site's file, its data, its policy and its ledger, before the run.
    Nothing is sent. The audit runs the programme of a fit in the simulator, on rows that are drawn.
    """
    from hushgrad.network.config.file import load_config
    from hushgrad.network.ops.dossier import dossier_of, dossier_page

    config = load_config(file)
    document = dossier_of(config)
    if audit:
        document["audit"] = _audit(config, rows)
        if "problem" in document["audit"]:
            note(f"the audit was not made: {document['audit']['problem']}")
    write_file(out, dossier_page(document, config))
    if output is Format.JSON:
        print_json(document | {"written": str(out)})
    else:
        note(f"wrote {out}.")


def _audit(config: AgentConfig, rows: int) -> dict[str, Any]:
    """The findings of attacks on the programme; or the reason why there is no audit."""
    run = config.run
    if run.model is None:
        return {"problem": "only a fit has a programme. Audit a study with: hushgrad audit"}
    try:
        for package in ("scipy", "jax"):
            optional(package, "sim")
        from hushgrad.privacy.programme_audit import audit_programme

        every = [rows] * run.n_agents
        found = audit_programme(run.model, every, eta=run.eta or 0.0, agent=config.number)
    except (MissingExtra, HushgradError) as error:
        return {"problem": str(error)}
    return {
        "rows": sum(every),
        "averages": found[0].averages,
        "findings": [one.to_json() for one in found],
    }
