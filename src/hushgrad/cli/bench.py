"""`hushgrad bench`: how fast the simulator is on this machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from hushgrad.cli.options import Format, OutDirectory, OutputFormat
from hushgrad.errors import InputError

EPILOG = """
[bold]Examples[/bold]

hushgrad bench --quick

hushgrad bench --workloads a,c --format json

hushgrad bench --workloads a,c --isa avx2

Exit code 1 means that the simulator and the C kernel disagree.
"""


def bench(
    quick: Annotated[
        bool, typer.Option("--quick", help="Take a minute: one core, no million agents, no peers.")
    ] = False,
    workloads: Annotated[
        str | None, typer.Option(metavar="LIST", help="Some of a,b,c,d,e,f. Default: all.")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(metavar="N", help="How many interleaved rounds: 7 or more.")
    ] = None,
    two_cores: Annotated[bool | None, typer.Option(help="Measure two cores as well.")] = None,
    peers: Annotated[
        bool | None, typer.Option(help="Measure other libraries on the same DGD.")
    ] = None,
    scaling: Annotated[
        bool, typer.Option("--scaling", help="Measure time and memory as sizes grow.")
    ] = False,
    isa: Annotated[
        str | None,
        typer.Option(metavar="avx2", help="Cap XLA and the C kernel to this instruction set."),
    ] = None,
    add: Annotated[
        bool, typer.Option("--add", help="Add to this machine's workloads in OUT/bench.json.")
    ] = False,
    out: OutDirectory = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Measure the simulator against a C kernel, its peers, and growing sizes.

    The benchmark is part of the source tree, not of the installed package: run it from a clone.
    """
    options = ["--format", output.value]
    flags = (("--quick", quick), ("--scaling", scaling), ("--add", add))
    options += [name for name, on in flags if on]
    for name, value in (("--workloads", workloads), ("--rounds", rounds), ("--isa", isa)):
        options += [] if value is None else [name, str(value)]
    if out is not None:
        options += ["--out", str(out.resolve())]
    for name, wanted in (("two-cores", two_cores), ("peers", peers)):
        options += [] if wanted is None else [f"--{name}" if wanted else f"--no-{name}"]
    done = subprocess.run([sys.executable, "-m", "benchmarks", *options], cwd=_tree(), check=False)
    raise typer.Exit(done.returncode)


def _tree() -> Path:
    """The source tree: here, or where an editable install points to."""
    for tree in (Path.cwd(), Path(__file__).parents[3]):
        if (tree / "benchmarks" / "simulator" / "kernel.c").exists():
            return tree
    raise InputError(
        "the benchmark is run from a clone of hushgrad, but neither this directory nor the "
        "installed package has benchmarks/. Clone the repository, then: make bench."
    )
