"""`hushgrad audit`: what each adversary learns in a study's runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushgrad.cli.options import Format, StudyFile, StudyOptions
from hushgrad.cli.terminal import collecting_risks, print_json
from hushgrad.console import console, note
from hushgrad.errors import DivergedError, InputError

if TYPE_CHECKING:
    from hushgrad.algorithms.base import Algorithm
    from hushgrad.privacy.adversaries import Adversary
    from hushgrad.privacy.audit import Usual
    from hushgrad.privacy.result import Audit
    from hushgrad.studies import Study
    from hushgrad.studies.study import Built

EPILOG = """
[bold]Examples[/bold]

hushgrad audit study.toml

hushgrad audit study.toml --adversary neighbours --agent 0 --out results

hushgrad audit study.toml --adversary 2,3 --format json

hushgrad audit study.toml --compare --out results

hushgrad audit study.toml --repeats 10

Exit code 0 says that the audit was done, not that nothing was found.
"""


def audit(
    study: StudyFile,
    options: StudyOptions,
    adversary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WHO",
            help="eavesdropper, neighbour (each alone), neighbours (all of an agent's together), "
            "or agents that collude, as 2,3. May be repeated. Default: the first three.",
        ),
    ] = None,
    agent: Annotated[
        list[int] | None,
        typer.Option(min=0, metavar="N", help="Attack this agent only. May be repeated."),
    ] = None,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare", help="Put the designs of PDG-DS and PDG-NDS side by side instead."
        ),
    ] = False,
    repeats: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="Run each algorithm with N seeds, one after the other, and attack the N runs "
            "together.",
        ),
    ] = 1,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="DIR", help="Write the page and the JSON into this directory."
        ),
    ] = None,
) -> None:
    """Attack every algorithm of a study and say who learns what.

    The first trial of each algorithm is run with all its messages kept. Every attack of the lab
    that an adversary can try is tried, and its estimates are held against the truth and against
    the best guess without messages. --out writes a page to look at.
    """
    who = None if adversary is None else _adversaries(adversary)
    name = options.name(study)
    with collecting_risks(quiet=options.quiet) as risks:
        chosen = _single(options.load(study), study).with_run(
            iterations=options.iterations, trials=1, seed=options.seed
        )
        audits = list(
            _audits(chosen, who, agent, compare=compare, repeats=repeats, quiet=options.quiet)
        )
    files = [] if out is None else _write(audits, out, name)
    if options.output is Format.JSON:
        print_json(
            {
                "study": str(study),
                "row": options.row,
                "warnings": risks,
                "audits": [a.record() for a in audits],
                "files": [str(path) for path in files],
            }
        )
        return
    _print(audits, name, with_agents=not compare)
    if files and not options.quiet:
        note(f"wrote {', '.join(map(str, files))}")


def _adversaries(texts: Sequence[str]) -> list[Adversary | Usual]:
    from hushgrad.privacy.adversaries import Curious
    from hushgrad.privacy.audit import USUAL

    found: list[Adversary | Usual] = []
    for text in texts:
        try:
            found.append(text if text in USUAL else Curious(frozenset(map(int, text.split(",")))))
        except ValueError:
            raise InputError(
                f"--adversary is {', '.join(USUAL)} or agents' numbers as 2,3, but it is {text!r}."
            ) from None
    return found


def _single(study: Study, path: Path) -> Study:
    if study.is_swept:
        raise InputError(
            f"an audit takes one setting, but {path} is a sweep of {len(study.sweep())} rows. "
            "Pick one with --row."
        )
    return study


def _audits(
    study: Study,
    who: Sequence[Adversary | Usual] | None,
    agents: Sequence[int] | None,
    *,
    compare: bool,
    repeats: int,
    quiet: bool,
) -> Iterator[Audit]:
    """One audit for each algorithm, or design, that stays finite."""
    from hushgrad.privacy.audit import audit as audit_run
    from hushgrad.privacy.repeated import audit_repeated
    from hushgrad.simulate.run import run

    built = study.build()
    progress = False if quiet else None
    options: dict[str, Any] = built.options | {"transcript": True, "progress": progress}
    diverged: list[str] = []
    algorithms = _designs(built, study.name) if compare else built.algorithms
    for label, algorithm in algorithms.items():
        seeds = [options.get("seed", 0) + n for n in range(repeats)]
        runs = [
            run(algorithm, built.problem, built.network, label=label, **options | {"seed": seed})
            for seed in seeds
        ]
        try:
            if repeats > 1:
                yield audit_repeated(runs, who, agents=agents, progress=progress)
            else:
                yield audit_run(
                    runs[0], who, agents=agents, coalitions=not compare, progress=progress
                )
        except DivergedError as error:
            diverged.append(str(error))
            if not quiet:
                note(str(error))
    if len(diverged) == len(algorithms):
        raise DivergedError(f"nothing is left to audit. {diverged[0]}")


def _designs(built: Built, name: str) -> dict[str, Algorithm]:
    from hushgrad.algorithms.base import Private
    from hushgrad.privacy.designs import designs

    private = [a for a in built.algorithms.values() if isinstance(a, Private)]
    if not private:
        raise InputError(
            f"--compare puts the designs of PDGDS and PDGNDS side by side, but {name} has neither. "
            "Add one of them to the study."
        )
    methods = {(a.title, getattr(a, "form", None)): a for a in private}
    return {
        design if len(methods) == 1 else f"{algorithm.title} {design}": variant
        for algorithm in methods.values()
        for design, variant in designs(algorithm).items()
    }


def _write(audits: Sequence[Audit], out: Path, name: str) -> list[Path]:
    from hushgrad.files.atomic import write_file
    from hushgrad.files.strict_json import strict_json
    from hushgrad.privacy.page import write_page

    page = write_page(audits, out / f"{name}-audit.html", heading=f"Privacy audit: {name}")
    records = strict_json([a.record() for a in audits])
    return [page, write_file(out / f"{name}-audit.json", records)]


def _print(audits: Sequence[Audit], title: str, *, with_agents: bool) -> None:
    from hushgrad.privacy.tables import HEADINGS, KINDS, counts, rows

    kinds = list(dict.fromkeys(kind for a in audits for kind in a.kinds))
    heads = ["method", *(KINDS.get(kind, kind) for kind in kinds), "error", "to 1e-6"]
    lines = [
        [
            a.label,
            *(counts(a, kind) for kind in kinds),
            f"{a.accuracy:.0e}",
            str(a.iterations_to_1e_6 or "–"),
        ]
        for a in audits
    ]
    out = console()
    out.print(_table(title, heads, lines, out.width))
    for a in audits if with_agents else ():
        out.print(_table(a.label, HEADINGS, rows(a), out.width))
        smallest = [[str(c.agent), str(c)] for c in a.coalitions]
        if smallest:
            heads = ["agent", "smallest coalition that exposes it"]
            out.print(_table("", heads, smallest, out.width))


def _table(title: str, heads: Sequence[str], lines: Sequence[Sequence[str]], width: int) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text  # labels are the user's, not markup

    columns = zip(heads, *lines, strict=True)
    is_tight = sum(3 + max(map(len, column)) for column in columns) > width
    table = Table(
        title=Text(title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False,
        padding=(0, 1 - is_tight, 0, 1 - is_tight),
    )  # fmt: skip
    for n, head in enumerate(heads):
        table.add_column(Text(head), style="bold" if n == 0 else None, overflow="fold")
    for line in lines:
        table.add_row(*(Text(_broken(cell) if is_tight else cell) for cell in line))
    return table


def _broken(cell: str) -> str:
    """The cell in two lines, where its words allow that."""
    cell = cell.replace(" (no attack", "\n(no attack")
    for a, b in ((" (guess", "\n(guess"), (" exposed, ", " exposed,\n"), ("agents ", "agents\n")):
        cell = cell.replace(a, b)
    return re.sub(r" (\(\d+ attacks?) tried\)", r"\n\1 tried)", cell)
