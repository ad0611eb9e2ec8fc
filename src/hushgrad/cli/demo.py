"""`hushgrad demo`: the paper's experiments and which of its claims hold, in under a minute."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer


class Format(StrEnum):
    """How results are printed."""

    TEXT = "text"
    JSON = "json"


def demo(
    out: Annotated[
        Path, typer.Option("--out", help="Directory for pictures and summary.json.")
    ] = Path("out"),
    trials: Annotated[
        int, typer.Option("--trials", min=1, help="Random problems per figure.")
    ] = 100,
    output: Annotated[
        Format, typer.Option("--format", help="A table for people, or one JSON document.")
    ] = Format.TEXT,
) -> None:
    """Repeat the paper's Fig. 2 and Fig. 3, draw them, and check what the paper claims of them."""
    from hushgrad.paper import demo as run_demo

    with _bar() as progress:
        content = run_demo(out, trials=trials, progress=progress)
    if output is Format.JSON:
        sys.stdout.write((out / "summary.json").read_text(encoding="utf-8"))
    else:
        _show(content, out)


@contextmanager
def _bar() -> Generator[Callable[[int, int], None] | bool]:
    """One bar for all the runs on a terminal, none in a pipe."""
    if not sys.stderr.isatty():
        yield False
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        task = bar.add_task("running the paper's experiments", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _show(content: dict[str, Any], out: Path) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    ran = content["environment"]
    table = Table(
        box=box.SIMPLE_HEAD,
        title=f"The paper's claims on {ran['trials']} random problems ({ran['seconds']:.0f} s)",
        title_justify="left",
        title_style="bold",
    )
    table.add_column("Claim", ratio=4)
    table.add_column("Holds", justify="center")
    table.add_column("Measured here", ratio=5)
    for claim, found in content["claims"].items():
        holds = Text("yes", style="green") if found["holds"] else Text("no", style="bold red")
        table.add_row(Text(claim), holds, Text(found["measured"]), end_section=True)
    console.print(table)
    console.print(
        Text(
            "Errors are max_i ‖x_i − θ*‖: how far the worst agent is from the exact answer. "
            "Medians are over the trials; fewer trials make the counts coarser."
        )
    )
    console.print()
    files = Table.grid(padding=(0, 2))
    for file, what in _FILES.items():
        files.add_row(Text(f"  {out / file}", style="cyan"), Text(what))
    console.print("Written:")
    console.print(files)


_FILES = {
    "fig2.svg, .png": "stepsizes that diminish: PDG-DS against DGD",
    "fig3.svg, .png": "constant stepsizes: PDG-NDS against gradient tracking",
    "extras.svg, .png": "why PDG-NDS stalls with the paper's stepsizes, and the cure",
    "summary.json": "all medians, every claim with its criterion, versions",
}
