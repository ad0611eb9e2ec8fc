"""`hushgrad certify`: what is proven about a study's runs, and how fast they will be."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushgrad.cli.options import Format, OutputFormat, Quiet, Row, StudyFile, StudyOptions
from hushgrad.cli.terminal import collecting_risks, print_json
from hushgrad.console import console
from hushgrad.errors import InputError

if TYPE_CHECKING:
    from hushgrad.studies.study import Built
    from hushgrad.theory.certificate import RunCertificate
    from hushgrad.theory.proposals import Proposal

EPILOG = """
[bold]Examples[/bold]

hushgrad certify study.toml

hushgrad certify study.toml --tolerance 1e-9 --format json

hushgrad certify study.toml --design --rounds 2000

Each line names the theorem or formula that it rests on.

'proven' appears only where all conditions of a theorem hold.

docs/certificates.md has the proofs and formulas.
"""

_MARKS = {
    "holds": ("✓", "green"),
    "fails": ("✗", "red"),
    "open": ("?", "yellow"),
    "fact": ("·", ""),
}


def certify(
    study: StudyFile,
    output: OutputFormat = Format.TEXT,
    row: Row = None,
    quiet: Quiet = False,
    tolerance: Annotated[
        float,
        typer.Option(
            metavar="ε", help="Count iterations until an error has fallen by this factor."
        ),
    ] = 1e-6,
    design: Annotated[
        bool,
        typer.Option(
            "--design",
            help="Propose stepsize, deviation, split and mixing for PDG-NDS instead, with the "
            "exposure of each proposal.",
        ),
    ] = False,
    rounds: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="With --design: the rounds that you can afford. Default: the study's iterations.",
        ),
    ] = None,
) -> None:
    """Say what is proven about each algorithm of a study, and how fast it will be.

    Nothing runs. The conditions of the theorems are checked, and the spectral radius of the step
    near θ* gives the rate, the largest stable stepsize and the fastest one. A stepsize "auto" is
    resolved as 'hushgrad run' resolves it.
    """
    from hushgrad.theory.certificate import certify as certified

    if rounds is not None and not design:
        raise InputError(
            f"--rounds is about proposals, but --rounds {rounds} comes without --design. Add "
            "--design, or leave --rounds out."
        )
    options = StudyOptions(output=output, row=row, quiet=quiet)
    with collecting_risks(quiet=quiet) as risks:
        built = options.load(study).build()
        found = [
            certified(algorithm, built.problem, built.network, tolerance=tolerance)
            for algorithm in ([] if design else built.algorithms.values())
        ]
    if design:
        _propose(built, output, tolerance, rounds, str(study))
        return
    if output is Format.JSON:
        labels = zip(built.algorithms, found, strict=True)
        certificates = [{"label": label, **one.to_json()} for label, one in labels]
        print_json({"study": str(study), "warnings": risks, "certificates": certificates})
        return
    for label, one in zip(built.algorithms, found, strict=True):
        print_certificate(label, one)


def print_certificate(label: str, certificate: RunCertificate) -> None:
    """A certificate for people: the verdict, then a line for every statement."""
    from rich.text import Text

    out = console()
    out.print(Text.assemble((f"{label}: ", "bold"), certificate.verdict), soft_wrap=True)
    for line in certificate.lines:
        mark, style = _MARKS[line.status]
        said = Text.assemble(
            (f"  {mark} ", style),
            (line.about, "bold"),
            f": {line.text} ",
            (f"[{line.cites}]", "dim"),
        )
        out.print(said, soft_wrap=True)
    out.print()


def _propose(
    built: Built, output: Format, tolerance: float, rounds: int | None, study: str
) -> None:
    from hushgrad.theory.proposals import propose

    wanted = int(built.options["iterations"]) if rounds is None else rounds
    found = propose(built.problem, built.network, tolerance=tolerance, rounds=wanted)
    if output is Format.JSON:
        rows: list[dict[str, Any]] = [one.to_json() for one in found]
        print_json({"study": study, "tolerance": tolerance, "rounds": wanted, "proposals": rows})
        return
    out = console()
    for one in found:
        for text in _proposal_lines(one):
            out.print(text, soft_wrap=True, markup=False, highlight=False)
        out.print()


def _proposal_lines(proposal: Proposal) -> list[str]:
    """A proposal for people, with the tables for a study."""
    from hushgrad.schema.toml import to_toml

    least = "at least " if proposal.is_bound else ""
    fits = "within the rounds" if proposal.fits else "more than the rounds"
    tables = to_toml(proposal.tables).splitlines()
    cost = "no linear rate, so no number of rounds is known"
    if math.isfinite(proposal.iterations):
        cost = f"{least}{math.ceil(proposal.iterations)} rounds ({fits})"
    lines = [f"{proposal.name}: {cost}"]
    lines += [f"    {line}" for line in tables if line]
    lines += [f"  exposed: {text}" for text in proposal.exposed]
    if proposal.algorithm.masking is not None:
        lines.append(
            "  not judged here: what the sums of stages tell about single rows. hg.run counts it "
            "and refuses a run whose sums tell too much."
        )
    return lines
