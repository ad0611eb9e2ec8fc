"""`hushgrad status`: where an agent stands."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushgrad.cli.options import Format, OutputFormat
from hushgrad.cli.terminal import print_json
from hushgrad.console import console, shown_vector
from hushgrad.errors import InputError
from hushgrad.files.strict_json import parse_json

if TYPE_CHECKING:
    from hushgrad.network.config.model import Address, AgentConfig

EPILOG = """
[bold]Examples[/bold]

hushgrad status agent.toml

hushgrad status state --format json
"""


def status(
    place: Annotated[
        Path, typer.Argument(metavar="AGENT|DIR", help="An agent's file, or its state directory.")
    ],
    output: OutputFormat = Format.TEXT,
) -> None:
    """Show where an agent stands: its run, iteration and round, and its result if there is one.

    The command reads the state directory, whether the agent runs or not. It names the neighbours
    for whom the agent has been waiting for ten seconds or more. If the agent runs and serves
    metrics, it also names the connected neighbours.
    """
    from hushgrad.network.ops.result import read_result
    from hushgrad.network.state.position import read_position
    from hushgrad.network.state.waiting import read_waiting

    config = None if place.is_dir() else _config(place)
    position = read_position(place if config is None else config.state)
    if position is None and config is None:
        raise InputError(f"'{place}' is no state directory: no agent was ever started there.")
    document: dict[str, Any] = {"agent": config.name, "run": config.run.id} if config else {}
    document |= {"started": position is not None}
    if position is not None:
        document |= asdict(position) | {"summary": position.summary}
        waiting = read_waiting(place if config is None else config.state)
        if position.is_running and waiting is not None:
            document["waiting"] = asdict(waiting)
        if position.is_running and config is not None and config.metrics is not None:
            document["live"] = _ask(config.metrics)
    result = read_result(place / "result" if config is None else config.result)
    n_starts = position.starts if position is not None and position.is_running else 0
    if result is not None and result.incarnation >= n_starts:  # not that of a start before
        document["result"] = result.document() | {"summary": result.summary}
    if output is Format.JSON:
        print_json(document)
    else:
        _print(document)


def _config(path: Path) -> AgentConfig:
    from hushgrad.network.config.file import load_config

    return load_config(path)


def _ask(address: Address) -> dict[str, Any] | None:
    """The answer of the running agent itself, or None."""
    import urllib.error
    import urllib.request

    host, port = address
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        with urllib.request.urlopen(f"http://{place}/readyz", timeout=2) as answer:
            return parse_json(answer.read())
    except urllib.error.HTTPError as error:  # 503: not all neighbours are connected
        with error:
            return parse_json(error.read())
    except (OSError, ValueError):
        return None


def _print(document: dict[str, Any]) -> None:
    from rich.text import Text

    rows = {
        "agent": document["agent"],
        "run": document["run"],
        "status": document.get("summary", "never started"),
    }
    if document["started"]:
        rows["starts"] = str(document["starts"])
    if (waiting := document.get("waiting")) is not None:
        rows["waiting for"] = f"{', '.join(waiting['names'])} since {waiting['since']}"
    if (live := document.get("live")) is not None:
        rows["connected"] = ", ".join(live["connected"]) or "to nobody"
        if live["disconnected"]:
            rows["not connected"] = ", ".join(live["disconnected"])
        if live["waiting_for"] and "waiting for" not in rows:
            rows["waiting for"] = ", ".join(live["waiting_for"])
        if live["jumps"]:
            rows["jumps"] = ", ".join(f"{n} of {name}" for name, n in live["jumps"].items())
    if (result := document.get("result")) is not None:
        rows["result"] = f"{result['summary'].rstrip('.')}, {result['iterations']} iterations"
        if (fitted := result.get("fit")) is None:
            rows["θ"] = shown_vector(result["theta"])
        else:
            rows["result"] = f"{result['summary'].rstrip('.')}, {fitted['n_averages']} averages"
            width = max(map(len, fitted["names"]))
            rows["coefficients"] = f"\n{'':14}".join(
                f"{name:{width}} {value:.6g}"
                for name, value in zip(fitted["names"], fitted["estimate"], strict=True)
            )
    for label, value in rows.items():
        console().print(Text.assemble((f"{label:<14}", "bold"), value), soft_wrap=True)
