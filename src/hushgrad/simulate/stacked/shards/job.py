"""A job: several processes, perhaps on several machines, that run one study together.

JAX's runtime joins them; Slurm and MPI start them. The first process listens, the others connect to
it, and every process says every two seconds that it lives. A process whose connection closes, or
that is silent for long, is named by the first process, and all end with exit code `PEER_ENDED`:
without this an exchange would wait for a dead process. `hushgrad run --distributed` uses it.
"""

from __future__ import annotations

import os
import secrets
import selectors
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from hushgrad.console import BAD_INPUT, FAILED, say, told
from hushgrad.errors import HushgradError, InputError
from hushgrad.files.digest import digest
from hushgrad.simulate.stacked.shards.meeting import meet

PEER_ENDED = 7  # the exit code of agents whose peer ended, too
JOINING = 120  # seconds until all processes are there
BEAT = 2.0  # seconds between signs of life
SILENT = 20.0  # seconds without one, after which a process counts as dead
GRACE = 25.0  # seconds that a failed exchange waits for the name of the process that broke it

_ALIVE, _BYE, _END = b".", b"b", b"e"  # signs of life, of an end, of the end of all


@dataclass(frozen=True)
class Job:
    """This process among all."""

    number: int
    n_processes: int

    @property
    def is_first(self) -> bool:
        return self.number == 0

    def wait(self, name: str) -> None:
        """Go on when all processes are here."""
        multihost_utils.sync_global_devices(name)

    def check_same(self, text: str) -> None:
        """Refuse processes that run different things: their rows would mix without an error."""
        own = np.frombuffer(digest(text.encode()), np.uint8)
        every = np.asarray(multihost_utils.process_allgather(own)).reshape(-1, len(own))
        others = np.flatnonzero((every != every[0]).any(1))
        if len(others):
            raise InputError(
                f"all processes run one study, but process {others[0]} has another study than "
                "process 0, other options or another version of hushgrad. Copy the study's file "
                "and hushgrad to every machine, and give the same options."
            )


@contextmanager
def joined(
    coordinator: str | None = None, n_processes: int | None = None, number: int | None = None
) -> Generator[Job]:
    """Join the other processes; without arguments, as the environment of Slurm or MPI says."""
    _keep_stdout()
    _wake_without_interrupting()
    job = _join(coordinator, n_processes, number)
    watch = _watch(job)
    try:
        yield job
    except BaseException as error:
        if _is_broken_exchange(error):
            time.sleep(GRACE)  # the watch ends this process as soon as it knows the name
        watch.leave(str(error) or type(error).__name__)
        _leave_runtime(error, job)
        raise
    watch.leave("")
    jax.distributed.shutdown()


def _is_broken_exchange(error: BaseException) -> bool:
    """Whether XLA says that an exchange between processes failed."""
    return type(error).__name__ in ("JaxRuntimeError", "XlaRuntimeError", "ValueError") and any(
        word in str(error) for word in ("Gloo", "NCCL", "coordination", "peer", "DEADLINE")
    )


def _leave_runtime(error: BaseException, job: Job) -> None:
    """End without the runtime's last meeting, to which a failed process does not come."""
    code = getattr(error, "exit_code", None)  # of a command that has told its error
    if code is None and not isinstance(error, (HushgradError, KeyboardInterrupt)):
        traceback.print_exception(error)
        code = FAILED
    elif code is None:  # the first process tells an error of all, and of one that it hears of
        code = told(error) if job.is_first else BAD_INPUT
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _keep_stdout() -> None:
    """Results alone go to stdout: the transport prints its connections there, below Python."""
    with suppress(OSError, AttributeError):  # no real stdout, as in tests
        sys.stdout.flush()
        real = os.dup(sys.stdout.fileno())
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        sys.stdout = os.fdopen(real, "w", encoding=sys.stdout.encoding)


def _wake_without_interrupting() -> None:
    """Let no thread of this process that wakes interrupt another one, as Linux does by default.

    Gloo's thread wakes when rows arrive. Where it interrupts the computing thread, on the only core
    of a process, while that thread holds the lock of the connection, gloo's thread asks for the
    lock again and again until its time slice of some milliseconds ends. Without such an
    interruption an exchange takes less than 0.1 ms.
    """
    with suppress(OSError, AttributeError):  # other systems know no such policy
        if os.sched_getscheduler(0) == os.SCHED_OTHER:
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _join(coordinator: str | None, n_processes: int | None, number: int | None) -> Job:
    given: dict[str, Any] = {}
    if coordinator is not None and n_processes is not None and number is not None:
        meet(coordinator, n_processes, number, JOINING)
        given = {
            "coordinator_address": coordinator,
            "coordinator_bind_address": coordinator,
            "num_processes": n_processes,
            "process_id": number,
            "cluster_detection_method": "deactivate",
        }
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    try:
        jax.distributed.initialize(
            **given, initialization_timeout=JOINING, shutdown_timeout_seconds=30
        )
    except Exception as error:  # of many kinds, for want of an environment or of a partner
        raise InputError(
            "processes join by the environment of srun or mpirun (Open MPI 5 needs mpi4py), or by "
            f"--coordinator, --processes and --process, but: {str(error).splitlines()[0]}"
        ) from error
    return Job(jax.process_index(), jax.process_count())


# ---- the watch


def _watch(job: Job) -> _Watch:
    """Start to watch: the first process tells the others where it listens."""
    listener = _listen() if job.is_first else None
    text = "" if listener is None else _address(listener)
    padded = np.frombuffer(text.encode().ljust(128), np.uint8)
    said = np.asarray(multihost_utils.broadcast_one_to_all(padded)).astype(np.uint8)
    host, port, token = said.tobytes().decode().split()
    if listener is not None:
        return _FirstWatch(listener, job.n_processes, token.encode())
    return _PeerWatch((host, int(port)), job.number, token.encode())


def _listen() -> socket.socket:
    from jax._src import distributed  # the address is in no public place

    address = distributed.global_state.coordinator_address or "127.0.0.1:0"
    return socket.create_server((address.rsplit(":", 1)[0].strip("[]"), 0), backlog=1024)


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"{host} {port} {secrets.token_hex(8)}"


def _end(message: str) -> None:
    if message:
        say("error", message, "bold red")
    sys.stderr.flush()
    os._exit(PEER_ENDED)


class _Watch:
    """A thread that ends this process when another is gone."""

    def __init__(self) -> None:
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        raise NotImplementedError

    def leave(self, why: str) -> None:
        """This process ends: by itself (""), or with an error that the first one may tell."""
        raise NotImplementedError


class _PeerWatch(_Watch):
    """The watch of any process but the first."""

    def __init__(self, address: tuple[str, int], number: int, token: bytes):
        self._line = socket.create_connection(address, timeout=JOINING)
        self._line.sendall(token + number.to_bytes(4, "big"))
        super().__init__()

    def _run(self) -> None:
        heard = time.monotonic()
        self._line.settimeout(BEAT)
        while not self._leaving.is_set():
            with suppress(OSError):
                self._line.sendall(_ALIVE)
            try:
                came = self._line.recv(64)
            except TimeoutError:
                came = None
            except OSError:
                came = b""
            if self._leaving.is_set():
                return
            if came:
                heard = time.monotonic()
                if _BYE in came:
                    return
                if _END in came:  # the first process has told who is gone
                    _end("")
                time.sleep(BEAT / 2)
            elif came == b"":
                _end("process 0 ended before the others. Its own messages say why.")
            elif time.monotonic() - heard > SILENT:
                _end(f"process 0 has been silent for {SILENT:.0f} s.")

    def leave(self, why: str) -> None:
        self._leaving.set()
        with suppress(OSError):
            self._line.sendall(_BYE + why.encode()[:4000])
            self._line.shutdown(socket.SHUT_WR)


class _FirstWatch(_Watch):
    """The watch of the first process, which hears all others."""

    def __init__(self, listener: socket.socket, n_processes: int, token: bytes):
        self._listener, self._token = listener, token
        self._waiting = set(range(1, n_processes))  # for their first sign
        self._heard: dict[int, float] = {}
        self._lines: dict[int, socket.socket] = {}
        super().__init__()

    def _run(self) -> None:
        with selectors.DefaultSelector() as ready:
            ready.register(self._listener, selectors.EVENT_READ)
            begun = said = time.monotonic()
            while not self._leaving.is_set():
                for key, _ in ready.select(BEAT / 4):
                    if key.data is None:
                        self._admit(ready)
                    else:
                        self._hear(key.data, lambda line=key.fileobj: ready.unregister(line))
                now = time.monotonic()
                if now - said > BEAT:
                    said = now
                    self._tell(_ALIVE)
                late = [n for n, at in self._heard.items() if now - at > SILENT]
                if now - begun > JOINING:
                    late += sorted(self._waiting)
                if late and not self._leaving.is_set():
                    self._end_all(f"process {late[0]} has been silent for {SILENT:.0f} s.")

    def _admit(self, ready: selectors.BaseSelector) -> None:
        line, _ = self._listener.accept()
        line.settimeout(BEAT)
        with suppress(OSError):
            hello = line.recv(len(self._token) + 4, socket.MSG_WAITALL)
            number = int.from_bytes(hello[-4:], "big")
            if hello[:-4] == self._token and number in self._waiting:
                self._waiting.remove(number)
                self._lines[number], self._heard[number] = line, time.monotonic()
                ready.register(line, selectors.EVENT_READ, number)
                return
        line.close()

    def _hear(self, number: int, forget: Callable[[], object]) -> None:
        try:
            came = self._lines[number].recv(4096)
        except OSError:
            came = b""
        self._heard[number] = time.monotonic()
        if _BYE in came:
            forget()
            del self._heard[number]
            why = came[came.index(_BYE) + 1 :].decode(errors="replace")
            if why and not self._leaving.wait(BEAT):  # an error that all have ends this one, too
                self._end_all(f"process {number} failed: {why}")
        elif not came:
            self._end_all(f"process {number} ended before the others. Its own messages say why.")

    def _tell(self, sign: bytes) -> None:
        for line in self._lines.values():
            with suppress(OSError):
                line.sendall(sign)

    def _end_all(self, message: str) -> None:
        self._tell(_END)
        _end(message)

    def leave(self, why: str) -> None:
        self._leaving.set()
        self._thread.join(BEAT)
        self._tell(_END if why else _BYE)
