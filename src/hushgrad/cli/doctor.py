"""`hushgrad doctor`: is everything ready for an agent's run?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hushgrad.cli.options import Format, OutputFormat
from hushgrad.cli.terminal import print_json
from hushgrad.console import FAILED, console

if TYPE_CHECKING:
    from hushgrad.network.ops.doctor.examination import Check

EPILOG = """
[bold]Example[/bold]

hushgrad doctor agent.toml

Exit code 1 means that the agent is not ready: a line with ✗ says why.
"""
_MARKS = {True: ("✓", "bold green"), False: ("✗", "bold red"), None: ("–", "bold yellow")}


def doctor(
    file: Annotated[Path, typer.Argument(metavar="AGENT", help="The agent's file, a TOML file.")],
    timeout: Annotated[
        float, typer.Option(min=0.1, metavar="S", help="Seconds for a neighbour to answer.")
    ] = 10.0,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Check what an agent needs, before a run or during it, without disturbing anyone.

    The doctor checks keys, certificates, names and dates, owners and modes of files, the data and
    the objective (one row, one class, constant columns, huge numbers), the agent's own exposure
    (held, accepted in its file, or refused), the state directory and the ports. It asks every
    neighbour with an address whether it answers, is the agent that it should be, has the same run,
    and has the same time.
    """
    from hushgrad.network.config.file import load_config
    from hushgrad.network.ops.doctor.examination import examine

    config = load_config(file)
    found: list[Check] = []
    for finding in examine(config, timeout=timeout):
        found.append(finding)
        if output is Format.TEXT:
            _print(finding)
    is_good = all(finding.is_good is not False for finding in found)
    if output is Format.JSON:
        checks = [
            {"check": finding.check, "ok": finding.is_good, "text": finding.text}
            | ({} if finding.data is None else {"data": dict(finding.data)})
            for finding in found
        ]
        exposure = {
            finding.check.removeprefix("exposure "): finding.verdict
            for finding in found
            if finding.verdict is not None
        }
        document = {"agent": config.name, "run": config.run.id, "ok": is_good}
        print_json(document | {"checks": checks, "exposure": exposure})
    if not is_good:
        raise typer.Exit(FAILED)


def _print(finding: Check) -> None:
    """One line, as soon as it is known: neighbours may take a while."""
    from rich.text import Text

    mark = _MARKS[finding.is_good]
    line = Text.assemble(mark, f" {finding.check:<18} ", finding.text)
    console().print(line, soft_wrap=True)
