"""`hushgrad rehearse`: a whole fit on this machine, with drawn rows, before anyone is asked."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushgrad.cli.live import live_table
from hushgrad.cli.options import Format, OutputFormat, Quiet
from hushgrad.cli.terminal import print_json
from hushgrad.errors import InputError

if TYPE_CHECKING:
    from hushgrad.network.local.rehearsal import Rehearsed

EPILOG = """
[bold]Examples[/bold]

hushgrad rehearse model.toml

hushgrad rehearse agent.toml --rows 700 --rows 1600 --rows 2400 --latency 50ms
"""


def rehearse(
    file: Annotated[
        Path, typer.Argument(metavar="MODEL|AGENT", help="A model's file, or an agent's file.")
    ],
    sites: Annotated[
        int | None, typer.Option(min=2, metavar="N", help="Sites of a model. Default: 3.")
    ] = None,
    rows: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Rows of each site: once for all, or once for each. Default: 10000.",
        ),
    ] = None,
    latency: Annotated[
        str, typer.Option(metavar="TIME", help="A round trip between two sites, such as 50ms.")
    ] = "0ms",
    accept_exposure: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Let all sites accept a weakness by its name, such as sums. May be repeated.",
        ),
    ] = None,
    output: OutputFormat = Format.TEXT,
    quiet: Quiet = False,
) -> None:
    """Rehearse a fit: all sites as agents on this machine, with rows drawn from the contract.

    Columns, levels, ranges, codes and the number of sites are those of the files; the rows are
    drawn, and no site's file of rows is read. The command shows the table that such a fit prints,
    its rounds, bytes and seconds on links of this latency, and the numbers that it reveals. A fit
    that its sites would refuse is refused here too.
    """
    from hushgrad.network.local.rehearsal import plan_of
    from hushgrad.network.local.rehearsal import rehearse as run

    seconds = _seconds(latency)
    plan = plan_of(file, sites=sites, rows=rows or [], accept_exposure=accept_exposure or [])
    with tempfile.TemporaryDirectory() as directory, live_table(quiet=quiet) as watch:
        done = run(plan, Path(directory), latency=seconds, watch=watch)
    if output is Format.JSON:
        print_json(_document(done))
    else:
        _print(done)


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s)", text.strip())
    if found is None:
        raise InputError(f'--latency is a time such as "50ms" or "0.2s", but got {text!r}.')
    return float(found[1]) * (1e-3 if found[2] == "ms" else 1.0)


def _document(done: Rehearsed) -> dict[str, Any]:
    return {
        "sites": [
            {"name": name, "rows": rows, "status": str(result.status), "rounds": result.rounds,
             "seconds": result.seconds, "bytes": count}
            for name, rows, result, count in zip(
                done.plan.names, done.plan.rows, done.results, done.n_bytes, strict=True
            )
        ],
        "latency": done.latency,
        "seconds": done.seconds,
        "fit": done.fit,
    }  # fmt: skip


def _print(done: Rehearsed) -> None:
    from hushgrad.fitting.model import Model
    from hushgrad.fitting.plan_result import PlanResult
    from hushgrad.fitting.result import FitResult

    model = done.plan.model
    fit = (
        FitResult.from_json(model, done.fit)
        if isinstance(model, Model)
        else PlanResult.from_json(model, done.fit)
    )
    rows = ", ".join(f"{name} {n}" for name, n in zip(done.plan.names, done.plan.rows, strict=True))
    trip = f"round trips of {1e3 * done.latency:g} ms"
    typer.echo(
        f"rehearsed with drawn rows ({rows}); the numbers mean nothing\n\n"
        f"{fit.table()}\n"
        f"{done.results[0].rounds} rounds, {done.seconds:.1f} s with {trip}, "
        f"{max(done.n_bytes) / 1e3:.0f} kB to and from a site\n"
        f"revealed to every site: {fit.numbers_pooled} pooled numbers, "
        f"{100 * fit.share_pooled:.2g} % of the entries of all rows\n"
        f"revealed to linked sites: {fit.n_averages} masked vectors of each site"
    )
