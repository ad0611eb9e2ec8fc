"""`hushgrad new`: an example study to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hushgrad.cli.terminal import Format, OutputFormat, note, print_json
from hushgrad.errors import InputError

EPILOG = """
[bold]Example[/bold]

hushgrad new study.toml

hushgrad run study.toml
"""

EXAMPLE = """\
# A study for `hushgrad run`. Every key is explained in docs/studies.md.

[network]
graph = "ring"             # ring, path, star, complete, grid, erdos_renyi, small_world, …
n_agents = 5
mixing = "metropolis"      # the weights that agents give each other

[problem]
kind = "estimation"        # or rendezvous, ridge, logistic, huber; or function = "problem.py:build"
s = 3                      # measurements of each agent
d = 2                      # dimension of θ
seed = 0

# One or several; the keys are those of the class in Python.
[[algorithm]]
name = "PDGNDS"            # private, exact, with a stepsize that need not diminish
stepsize = { kind = "constant", value = 0.02, deviation = { kind = "harmonic", power = 2 } }
split = { kind = "fresh" }

[[algorithm]]
name = "EXTRA"             # exact, not private: the yardstick
stepsize = { kind = "constant", value = 0.02 }

[run]
iterations = 2000
trials = 20
seed = 1

# Every combination of these values, one row each; `hushgrad run study.toml --row 3` runs one.
# [sweep]
# "algorithm.stepsize.value" = [0.01, 0.02, 0.04]
# "network.graph" = ["ring", "complete"]

# Where `hushgrad run` writes, and what; --out and --formats overrule it.
# [output]
# directory = "results"
# formats = ["pdf", "csv"]
"""


def new(
    path: Annotated[Path, typer.Argument(metavar="[PATH]", help="Where to write it.")] = Path(
        "study.toml"
    ),
    output: OutputFormat = Format.TEXT,
) -> None:
    """Write an example study with comments, to change and run."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(EXAMPLE)
    except FileExistsError:
        raise InputError(
            f"'{path}' is there already and stays as it is. Choose another name."
        ) from None
    except OSError as error:
        raise InputError(f"'{path}' cannot be written: {error.strerror}.") from error
    if output is Format.JSON:
        print_json({"written": str(path)})
    else:
        note(f"wrote {path}. Run it with: hushgrad run {path}")
