"""Processes with `--coordinator` meet before JAX's runtime joins them.

That runtime ends a process with a stack trace where another one is missing or has the same number.
Here process 0 listens at the coordinator's address until every other process has said its number,
and then leaves the address to the runtime. Every wait is bounded. job.py calls `meet`.
"""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack, suppress

from hushgrad.errors import InputError

_PAUSE = 0.2  # seconds between two attempts to reach process 0
_LINE = 5.0  # seconds that a connection may take to say its line
_MOST = 400  # bytes of a line
_GO = "go"
_KEYS = "--coordinator and --processes are the same for all processes, and --process differs."


def meet(coordinator: str, n_processes: int, number: int, limit: float) -> None:
    """Return when all processes are there; InputError after `limit` seconds."""
    host, _, port = coordinator.rpartition(":")
    address = host.strip("[]"), int(port)
    end = time.monotonic() + limit
    if number:
        _report(address, f"hushgrad {n_processes} {number}", end, limit)
    else:
        _gather(address, n_processes, end, limit)


def _gather(address: tuple[str, int], n_processes: int, end: float, limit: float) -> None:
    """Hear the number of every other process, and tell all of them how the meeting ended."""
    with ExitStack() as lines:
        try:
            family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
            listener = lines.enter_context(socket.create_server(address, family=family))
        except OSError as error:
            raise InputError(
                f"process 0 cannot listen at {_shown(address)}: {_reason(error)}. --coordinator "
                "is an address of process 0's own machine and a free port there."
            ) from None
        there: dict[int, socket.socket] = {}
        wrong = ""
        while len(there) < n_processes - 1 and not wrong:
            left = end - time.monotonic()
            listener.settimeout(max(0.01, left))
            try:
                if left < 0:
                    raise TimeoutError
                line = lines.enter_context(listener.accept()[0])
            except TimeoutError:
                absent = sorted({*range(1, n_processes)} - {*there})
                wrong = f"process {absent[0]} has not come within {limit:.0f} s. {_KEYS}"
                break
            said = _heard(line, min(end, time.monotonic() + _LINE))
            if said is None:  # not one of us
                line.close()
                continue
            for gone in [p for p, other in there.items() if _has_left(other)]:
                del there[gone]  # that process was ended, and perhaps started again
            wrong = _mistake(*said, n_processes, there)
            there[0 if wrong else said[1]] = line
        for line in there.values():
            with suppress(OSError):
                line.sendall(f"{wrong or _GO}\n".encode())
        if wrong:
            raise InputError(wrong)


def _has_left(line: socket.socket) -> bool:
    """Whether the process at the other side has closed its connection."""
    line.settimeout(0.0)
    try:
        return not line.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _heard(line: socket.socket, end: float) -> tuple[int, int] | None:
    """The count of processes and the number of this one, as the process tells them."""
    with suppress(OSError, ValueError):
        name, n, number = _read(line, end).split()
        return (int(n), int(number)) if name == "hushgrad" else None
    return None


def _mistake(n: int, number: int, n_processes: int, there: dict[int, socket.socket]) -> str:
    if n != n_processes:
        return f"process {number} counts {n} processes, and process 0 counts {n_processes}. {_KEYS}"
    if number in there or number == 0:
        return f"two processes have the number {number}. {_KEYS}"
    return ""


def _report(address: tuple[str, int], line: str, end: float, limit: float) -> None:
    """Say our line to process 0, and wait for the others."""
    told = ""
    while not told and time.monotonic() < end:
        try:
            with socket.create_connection(address, timeout=_LINE) as connection:
                if connection.getsockname() == connection.getpeername():
                    raise ConnectionRefusedError  # by itself, through a port of its own
                connection.sendall(f"{line}\n".encode())
                # process 0 counts its time from its own start
                told = _read(connection, time.monotonic() + limit + _LINE)
        except (socket.gaierror, UnicodeError) as error:
            raise InputError(
                f"--coordinator names no machine: {_shown(address)}: {_reason(error)}."
            ) from None
        except OSError:  # process 0 does not listen yet
            time.sleep(_PAUSE)
    if not told:
        raise InputError(
            f"process 0 has not answered at {_shown(address)} within {limit:.0f} s. {_KEYS}"
        )
    if told != _GO:
        raise InputError(told if "process" in told else f"{_shown(address)} is not process 0.")


def _read(line: socket.socket, end: float) -> str:
    """A line of text, without its end; empty where the other side has closed."""
    came = b""
    while not came.endswith(b"\n") and len(came) < _MOST:
        line.settimeout(max(0.01, end - time.monotonic()))
        part = line.recv(_MOST)
        if not part:
            break
        came += part
    return came.decode(errors="replace").strip()


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error).partition(" (")[0]


def _shown(address: tuple[str, int]) -> str:
    return f"{address[0]}:{address[1]}"
