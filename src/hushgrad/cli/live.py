"""A live table of agents on a terminal, for `hushgrad run` and `hushgrad rehearse`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hushgrad.console import console

if TYPE_CHECKING:
    from hushgrad.network.local.processes import AgentRow

MOST_ROWS = 20  # so that a table fits a screen; of more agents, those that are furthest behind


@contextmanager
def live_table(*, quiet: bool) -> Generator[Callable[[Sequence[AgentRow]], None] | None]:
    """A function that shows the agents' rows; None where nobody looks."""
    screen = console(stderr=True)
    if quiet or not screen.is_terminal:
        yield None
        return
    from rich.live import Live

    with Live(console=screen, transient=True, redirect_stdout=False) as live:
        yield lambda rows: live.update(table(rows))


def table(rows: Sequence[AgentRow]) -> Any:
    """Agent, iteration, round, rate, peers, for whom it waits."""
    from rich import box
    from rich.table import Table

    shown = Table(box=box.SIMPLE_HEAD)
    for heading in ("agent", "iteration", "round", "rounds/s", "peers", "starts"):
        shown.add_column(heading, justify="left" if heading == "agent" else "right")
    shown.add_column("waiting for")
    slowest = sorted(rows, key=lambda row: row.report.round)[:MOST_ROWS]
    for row in rows if len(rows) <= MOST_ROWS else slowest:
        report = row.report
        shown.add_row(
            row.name,
            str(report.iteration),
            str(max(report.round, 0)),
            f"{row.rate:.0f}",
            f"{report.connected}/{row.peers}",
            str(row.starts),
            ", ".join(report.waiting_for),
        )
    if len(rows) > MOST_ROWS:
        shown.caption = f"the {MOST_ROWS} of {len(rows)} agents that are furthest behind"
    return shown
