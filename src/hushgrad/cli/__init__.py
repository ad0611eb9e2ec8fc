"""The command `hushgrad`: one typer app, one file per command.

Commands import what is heavy inside their functions, so that `hushgrad --help` answers at once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated

import typer

from hushgrad.cli.options import expanded
from hushgrad.cli.terminal import handled

# Each is a function of the same name in the module of that name, in the order of --help; or, where
# the module has COMMANDS of its own, a group of them. Those whose module is not there are left out.
COMMANDS = (
    "demo", "new", "run", "gather", "compare", "audit", "cite", "bench", "contract", "rehearse",
    "key", "agent", "fit", "status", "doctor", "ledger", "dossier", "sbom",
)  # fmt: skip

# Typer keeps line ends in these, so a paragraph is a line.
_HELP = (
    "Agents on a network solve min Σ fᵢ(θ) together and keep their data to themselves.\n\n"
    "A study is a TOML file that names a network, a problem and algorithms: 'hushgrad new' writes "
    "one, 'hushgrad run' runs it."
)
_EPILOG = (
    "Exit codes: 0 done, 1 failed, 2 bad input, 130 interrupted. With --format json a command "
    "writes one JSON document to stdout, and everything else to stderr."
)

app = typer.Typer(
    help=_HELP,
    epilog=_EPILOG,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from hushgrad import __version__

        typer.echo(f"hushgrad {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    del version  # its callback has answered


def _flowing(command: Callable[..., None]) -> str:
    """A docstring whose paragraphs are lines, for a terminal of any width to break."""
    paragraphs = (inspect.getdoc(command) or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split("\n")) for paragraph in paragraphs)


def _add(to: typer.Typer, name: str, command: Callable[..., None], epilog: str | None) -> None:
    to.command(name, help=_flowing(command), epilog=epilog)(handled(expanded(command)))


for _name in COMMANDS:
    if find_spec(f"hushgrad.cli.{_name}") is not None:
        _module = import_module(f"hushgrad.cli.{_name}")
        _epilog = getattr(_module, "EPILOG", None)
        if hasattr(_module, "COMMANDS"):
            _group = typer.Typer(help=_module.HELP, epilog=_epilog, no_args_is_help=True)
            for _part in _module.COMMANDS:
                _add(_group, _part, getattr(_module, _part), None)
            app.add_typer(_group, name=_name)
        else:
            _add(app, _name, getattr(_module, _name), _epilog)


def main() -> None:
    """The entry point of the command `hushgrad`."""
    app(prog_name="hushgrad")
