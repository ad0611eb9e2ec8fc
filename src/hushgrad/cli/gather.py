"""`hushgrad gather`: the parts of a sweep's table as one table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hushgrad.cli.options import Format, OutputFormat, Quiet, StudyFile

EPILOG = """
[bold]Examples[/bold]

hushgrad run sweep.toml --rows 0-9 --out results

hushgrad run sweep.toml --rows 10-19 --out results

hushgrad gather sweep.toml results

Exit codes: 0 every row is there, 1 rows are missing (they are named, and the table has the others),
2 bad input.
"""


def gather(
    study: StudyFile,
    directory: Annotated[
        Path | None,
        typer.Argument(
            metavar="DIR", help="Where the parts are. Default: the directory that 'run' writes to."
        ),
    ] = None,
    output: OutputFormat = Format.TEXT,
    quiet: Quiet = False,
) -> None:
    """Join the tables that 'hushgrad run --rows' and '--row' wrote into one sweep.csv.

    Every part is compared with the study: its rows must have the study's settings, and a row that
    two parts have must have the same numbers.
    """
    from hushgrad.cli.terminal import print_json
    from hushgrad.console import FAILED, note
    from hushgrad.errors import InputError
    from hushgrad.studies import load_study
    from hushgrad.studies.gathering import gather as join

    loaded = load_study(study)
    given = loaded.tables.get("output", {}).get("directory", f"{loaded.name}-results")
    where = directory or loaded.source.directory / given
    found = join(loaded, where)
    if not found.parts:
        raise InputError(
            f"'{where}' has no parts of a sweep (sweep-….csv). Name the directory that was --out "
            "of 'hushgrad run --rows'."
        )
    path = found.table.write_csv(where / "sweep.csv")
    n_rows = len({record["row"] for record in found.table})
    if output is Format.JSON:
        print_json(
            {
                "study": str(study),
                "table": str(path),
                "parts": [str(part) for part in found.parts],
                "rows": n_rows,
                "missing": found.missing,
                "results": list(found.table),
            }
        )
    elif not quiet:
        note(f"{n_rows} rows of {len(found.parts)} parts are in {path}.")
    if found.missing:
        note(f"no part has the rows {', '.join(map(str, found.missing))}. Run them with --rows.")
        raise typer.Exit(FAILED)
