"""Messages of commands: results on stdout, everything else on stderr."""

from __future__ import annotations

import os
import sys
from typing import Any

from hushgrad.errors import DivergedError

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130
WIDE = 200  # columns in a pipe, where nothing has to fit a screen


def console(*, stderr: bool = False) -> Any:
    """A rich console on today's stdout or stderr; plain text in a pipe."""
    from rich.console import Console

    plain = Console(stderr=stderr, highlight=False)
    return plain if plain.is_terminal else Console(stderr=stderr, highlight=False, width=WIDE)


def say(kind: str, message: str, style: str) -> None:
    """One message on stderr: `error: …`."""
    # a message may quote what others sent, but it cannot move the cursor
    shown = "".join(c if c.isprintable() or c == "\n" else "�" for c in message)
    if not sys.stderr.isatty() and "FORCE_COLOR" not in os.environ:
        print(f"{kind}: {shown}", file=sys.stderr)  # rich takes some megabytes
        return
    from rich.text import Text

    console(stderr=True).print(Text.assemble((f"{kind}: ", style), shown), soft_wrap=True)


def note(message: str) -> None:
    say("note", message, "bold cyan")


def told(error: BaseException) -> int:
    """Say what ended a command; gives its exit code."""
    if isinstance(error, KeyboardInterrupt):
        say("interrupted", "stopped before the end.", "bold yellow")
        return INTERRUPTED
    say("error", str(error), "bold red")
    return FAILED if isinstance(error, DivergedError) else BAD_INPUT


def shown_vector(theta: list[float | None], most: int = 8) -> str:
    """The first entries of θ."""
    entries = ["?" if value is None else f"{value:.6g}" for value in theta[:most]]
    more = f", … ({len(theta)} entries)" if len(theta) > most else ""
    return f"[{', '.join(entries)}{more}]"
