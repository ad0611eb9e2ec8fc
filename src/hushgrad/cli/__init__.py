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
from rich.markup import escape

from hushgrad.cli.options import expanded
from hushgrad.cli.terminal import handled

# The panels of --help, each with its commands in order; Typer shows groups (key, ledger) after
# them. A command is a function of the same name in the module of that name; or, where the module
# has COMMANDS of its own, a group of them. A command whose module is not there is left out.
PANELS = {
    "Studies": "new run compare tune certify audit gather cite demo bench",
    "Agents": "key agent status doctor ledger sbom",
    "Fits": "contract rehearse dossier fit",
}

# Typer keeps line ends in these texts, so a paragraph is a line.
_HELP = (
    "Agents on a network solve min Σ fᵢ(θ) together and keep their data to themselves.\n\n"
    "A study is a TOML file that names a network, a problem and algorithms: 'hushgrad new' writes "
    "one, 'hushgrad run' runs it. An agent is one participant of a real network: 'hushgrad new "
    "--agent' writes its file, 'hushgrad agent' runs it."
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


def _flowing(text: str) -> str:
    """A text whose paragraphs are lines, for a terminal of any width to break."""
    return "\n\n".join(paragraph.replace("\n", " ") for paragraph in text.split("\n\n"))


def _add(
    to: typer.Typer, name: str, command: Callable[..., None], epilog: str = "", panel: str = ""
) -> None:
    about = _flowing(escape(inspect.getdoc(command) or ""))
    to.command(name, help=about, epilog=_flowing(epilog), rich_help_panel=panel or None)(
        handled(expanded(command))
    )


def _add_module(name: str, panel: str) -> None:
    module = import_module(f"hushgrad.cli.{name}")
    epilog = getattr(module, "EPILOG", "")
    if not hasattr(module, "COMMANDS"):
        _add(app, name, getattr(module, name), epilog, panel)
        return
    group = typer.Typer(help=module.HELP, epilog=_flowing(epilog), no_args_is_help=True)
    for part in module.COMMANDS:
        _add(group, part, getattr(module, part))
    app.add_typer(group, name=name, rich_help_panel=panel)


for _panel, _names in PANELS.items():
    for _name in _names.split():
        if find_spec(f"hushgrad.cli.{_name}") is not None:
            _add_module(_name, _panel)


def main() -> None:
    """The entry point of the command `hushgrad`."""
    app(prog_name="hushgrad")
