"""`hushgrad new`: an example study, or an agent's file, to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hushgrad.cli.options import Format, OutputFormat
from hushgrad.cli.terminal import print_json
from hushgrad.console import note
from hushgrad.errors import InputError
from hushgrad.files.atomic import create_file

EPILOG = """
[bold]Example[/bold]

hushgrad new study.toml

hushgrad run study.toml

hushgrad new --agent agent.toml

hushgrad doctor agent.toml

hushgrad new --fit
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

AGENT_EXAMPLE = """\
# One agent for `hushgrad agent`. Every key is explained in docs/agents.md; paths start here.

# ---- this agent
[agent]
name = "north"             # `hushgrad key new north` makes north.key and north.crt
number = 0                 # 0 … n_agents − 1, another for everyone
listen = "0.0.0.0:7440"    # leave it out where no port can be opened; then every neighbour has one
state = "state"            # journal and secret; never copy it, never restore it from a backup
durability = "power"       # "process": faster, survives a crash of the program, not a power cut
max_wait = 300.0           # seconds without a neighbour before the run is left, to be resumed
# max_jumps = 0            # end the run when a neighbour's messages jump; left out: log and count
# accept_exposure = ["sums"]   # weaknesses that the doctor names and that this agent accepts
# metrics = "127.0.0.1:9464"

# What it minimises; the data stays in this file.
[objective]
kind = "logistic"          # least_squares, ridge, logistic, rendezvous; or function = "f.py:grad"
file = "patients.csv"      # .csv, .parquet or .npz
target = "outcome"         # 0/1 or -1/+1
columns = ["age", "dose"]  # the same quantities in the same order at everyone
intercept = true
regularisation = 1.0       # of the whole problem, the same at everyone
# The same constants at everyone, or the agents solve different problems.
standardise = { mean = [60.0, 5.0], scale = [15.0, 2.0] }
# clip = 2.5               # shorten longer rows, so that no row stands out; the same at everyone

# ---- whom it talks to; `hushgrad key trust south.crt` puts a certificate into trusted/
[[neighbour]]
name = "south"
number = 1
address = "south.example.org:7440"   # of each link one side has the other's address and dials it

[[neighbour]]
name = "west"
number = 2                 # no address: it dials this agent

# Agents with whom this one shares secret masks of the objective; each lists the other.
[[partner]]
name = "south"
number = 1

[[partner]]
name = "west"
number = 2

# ---- what everyone agrees on: these two tables are the same at all agents
[run]
id = "trial-2026"          # a new name for every run
n_agents = 3
dim = 3                    # entries of θ: columns and intercept
iterations = 20000         # at most
tolerance = 1e-9           # stop together when everyone is this still
mixing = "metropolis"
eta = 0.0                  # of the network, here a triangle; the masks of curvature need it
honest_rows = 1500         # rows that any two honest agents have together, at least
largest = 1e6              # no number in a message is larger; ample where columns are standardised

[algorithm]
name = "PDGNDS"            # private and exact; agents take design = "recommended"
stepsize = "auto"          # agents agree on one: they tell their links, and a power of two above
                           # their curvature; or { kind = "constant", value = 0.001 },
                           # at most 0.1 (1 − eta) / L
"""

FIT_EXAMPLE = """\
# One site of a fit. Check it with: hushgrad doctor agent.toml; run it with: hushgrad fit agent.toml
[agent]
name = "north"             # as in its certificate: hushgrad key new north
number = 0                 # every site has another
listen = "0.0.0.0:7440"    # where others dial; leave it out if this site dials all others

[fit]
model = "model.toml"       # the same at every site
file = "patients.csv"      # this site's rows; columns are found by name

# ---- the other sites; hushgrad key trust south.crt prints these lines
[[neighbour]]
name = "south"
number = 1
address = "south.example.org:7440"

[[neighbour]]
name = "west"              # without address: it dials this site
number = 2

# ---- with whom it shares masks: up to five sites, everyone
[[partner]]
name = "south"
number = 1

[[partner]]
name = "west"
number = 2

# ---- the same at every site
[run]
id = "deaths-1"            # a new one for every run
n_agents = 3               # all linked, so an average takes one round; otherwise give eta
honest_rows = 2000         # any two sites together have at least so many rows
"""

MODEL_EXAMPLE = """\
# The model, the same at every site: `hushgrad contract model.toml` prints the document to sign.
[model]
kind = "logistic"          # or linear, ridge, poisson, huber, cox
outcome = "died"
positive = "yes"           # the codes in the files; without them 1 and 0
negative = "no"
columns = ["age", "stage"]
missing = "drop"           # rows with a gap are left out, and counted; or "refuse"

[model.factors]
stage = ["I", "II", "III"] # the first level is the reference

[model.ranges]
age = [18, 100]            # a value outside is refused; ranges give the guarantee of the masks

[model.units]
age = "years"
"""


def new(
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="PATH",
            help="Where to write the file. Default: study.toml, or agent.toml.",
            show_default=False,
        ),
    ] = None,
    agent: Annotated[
        bool, typer.Option("--agent", help="The file of one networked agent instead of a study.")
    ] = False,
    fit: Annotated[
        bool, typer.Option("--fit", help="The file of one site of a fit, and its model.toml.")
    ] = False,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Write an example with comments, to change and run: a study, or an agent's file."""
    path = path or Path("agent.toml" if agent or fit else "study.toml")
    model = path.with_name("model.toml")
    is_agreed = model.exists()  # the sites may have settled it before
    _write(path, FIT_EXAMPLE if fit else AGENT_EXAMPLE if agent else EXAMPLE)
    if fit and not is_agreed:
        _write(model, MODEL_EXAMPLE)
    if output is Format.JSON:
        print_json({"written": str(path)})
    elif fit:
        both = f"{path}; '{model}' was there" if is_agreed else f"{path} and {model}"
        note(f"wrote {both}. Change them, then check them with: hushgrad doctor {path}")
    elif agent:
        note(f"wrote {path}. Change it, then check it with: hushgrad doctor {path}")
    else:
        note(f"wrote {path}. Run it with: hushgrad run {path}")


def _write(path: Path, text: str) -> None:
    try:
        create_file(path, text.encode())
    except FileExistsError:
        raise InputError(
            f"'{path}' is there already and stays as it is. Choose another name."
        ) from None
    except OSError as error:
        raise InputError(f"'{path}' cannot be written: {error.strerror}.") from error
