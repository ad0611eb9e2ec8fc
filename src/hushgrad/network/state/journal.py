"""The state directory of an agent, with its journal: a round is in it before any message is sent.

The deployed agent (deployed.py) opens the directory, and rounds.py writes the journal.

    run.json    the run and the agent that the directory belongs to
    secret      32 random bytes (0600), made with the directory
    mask-key    64 random bytes (0600), made with the directory and deleted when the run has ended:
                a nonce and a private key, for the masks of this run (keys/pairing.py)
    starts      how often an agent has opened the directory: the incarnation
    links.json  the facts that the neighbours have told about their links (introduction.py)
    stage-0, -1 in a run in stages: the last two stages that have begun (stages.py)
    begun       an empty file, written after round 0 is in the journal and before it is sent
    lock        locked by the one process that may write
    slot-0, -1  the journal: the steps fill one slot, then the other, and so on by turns

A slot is a sequence of sections, one for each round. A section holds the sums of the last round,
the gradients evaluated since, the digests of the messages that go out, and the digests of the
messages that were consumed. The first section of a slot holds the state at the start of its step
instead of sums; at k = 0, and at the start of a stage, it holds x there. A slot is overwritten only
when the other slot holds all that a restart needs. A state is stored by field name and shape.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import time
from pathlib import Path
from typing import Any, Literal

from hushgrad.errors import StateError
from hushgrad.files.atomic import replace_file, sync_directory
from hushgrad.files.strict_json import parse_json
from hushgrad.network.keys.identity import check_mode
from hushgrad.network.state.sections import NOTHING, Section, encode_section, read_sections

FORMAT = 12
LABEL = "run.json"
BEGUN = "begun"
STEPS = 8  # steps in a slot: the state, its largest part, is written only once for all
SECRET = 32  # bytes
MASK_KEY = 64  # bytes
_PIECES = 512  # more pieces are joined before they are written; the system takes 1024

type Facts = dict[str, Any]  # values that JSON can hold


class StateDirectory:
    """The state directory of one agent in one run, locked by this process."""

    def __init__(
        self,
        path: Path,
        *,
        run: str,
        agent: str,
        durability: Literal["process", "power"] = "power",
    ):
        self.path, self._run = path, run
        self._sync = durability == "power"
        self._slots: list[Slot] = []
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            if self._sync:
                sync_directory(path.parent)
            self._lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StateError(f"the state directory '{path}' cannot be used: {error}.") from error
        if not _lock_alone(self._lock):
            os.close(self._lock)
            raise StateError(
                f"the state directory '{path}' is in use: another process runs this agent. "
                "Two processes would send two messages for one round. End the other process first."
            )
        try:
            self._adopt({"format": FORMAT, "run": run, "agent": agent})
            self.incarnation = self._count_start()
            self.secret = self._read_secret()
            self._begun = path / BEGUN
            for n in (0, 1):
                self._slots.append(self.open(f"slot-{n}"))
            self._slot = self._slots[1]  # the newer slot
        except BaseException:
            self.close()
            raise

    def _adopt(self, belongs: Facts) -> None:
        """Set up a new directory, or check that an old one belongs to this agent and run."""
        label = self.path / LABEL
        if not label.exists():
            if (self.path / "slot-0").exists():
                raise StateError(
                    f"'{self.path}' holds a journal, but no run.json that names its agent. Restore "
                    "run.json."
                )
            _write(self.path / "secret", secrets.token_bytes(SECRET), mode=0o600)
            _write(self.path / "mask-key", secrets.token_bytes(MASK_KEY), mode=0o600)
            _write(label, json.dumps(belongs, indent=2).encode() + b"\n")
        found = _read_json(label)
        if found != belongs:
            raise StateError(
                f"the state directory '{self.path}' belongs to agent {found.get('agent')!r} in run "
                f"{found.get('run')!r} (format {found.get('format')}), not to agent "
                f"{belongs['agent']!r} in run {self._run!r} (format {FORMAT}). A state is never "
                "used for another run: choose another directory."
            )

    def _count_start(self) -> int:
        file = self.path / "starts"
        number = _read_json(file) + 1 if file.exists() else 1
        _write(file, b"%d\n" % number)
        return number

    def _read_secret(self) -> bytes:
        file = self.path / "secret"
        if not file.exists():
            raise StateError(
                f"'{file}' is missing, and without it the agent cannot repeat the draws of this "
                "run. Restore it."
            )
        check_mode(file)
        secret = file.read_bytes()
        if len(secret) != SECRET:
            raise StateError(f"'{file}' has {len(secret)} bytes instead of {SECRET}. Restore it.")
        return secret

    @property
    def mask_key(self) -> bytes | None:
        """The nonce and the private key of this run; None if the run has ended."""
        file = self.path / "mask-key"
        if not file.exists():
            return None
        check_mode(file)
        content = file.read_bytes()
        if len(content) != MASK_KEY:
            raise StateError(
                f"'{file}' has {len(content)} bytes instead of {MASK_KEY}. Restore it."
            )
        return content

    def forget_mask_key(self) -> None:
        """Delete the private key of this run: nobody can compute its masks again."""
        (self.path / "mask-key").unlink(missing_ok=True)
        if self._sync:
            sync_directory(self.path)

    @property
    def links(self) -> Facts | None:
        """The facts of `store_links`, if there are any."""
        file = self.path / "links.json"
        return _read_json(file) if file.exists() else None

    def store_links(self, links: Facts) -> None:
        """Keep the facts that the neighbours have told about their links."""
        _write(self.path / "links.json", json.dumps(links).encode())

    def open(self, name: str) -> Slot:
        """A file of sections in this directory."""
        return Slot(self.path / name, sync=self._sync)

    # ---- journal

    def read(self) -> list[list[Section]]:
        """The whole sections of each slot, the older slot first; an empty slot is left out."""
        found = [(sections, slot) for slot in self._slots if (sections := slot.read())]
        found.sort(key=lambda pair: pair[0][0].round)
        if found:
            self._slot = found[-1][1]
        elif self._begun.exists():
            raise StateError(
                f"the journal in '{self.path}' cannot be read, but its run had begun. To begin "
                "again, the agent would send other messages for rounds that neighbours hold. "
                "Restore the newest state, or start a new run with a new id and directory."
            )
        return [sections for sections, _ in found]

    def begin(self, section: Section) -> None:
        """Overwrite the older slot with the first section of a new one."""
        one, other = self._slots
        slot = other if self._slot is one else one
        slot.write(section, afresh=True)
        self._slot = slot
        if section.round == 0:
            _write(self._begun, b"")

    def append(self, section: Section) -> None:
        """Write one more section into the newer slot."""
        self._slot.write(section, afresh=False)

    def close(self) -> None:
        for slot in self._slots:
            slot.close()
        os.close(self._lock)


def _lock_alone(lock: int) -> bool:
    """Take the lock, if no other process runs the agent; a reader holds it only for an instant."""
    for pause in (0.0, 0.01, 0.05):
        time.sleep(pause)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        return True
    return False


class Slot:
    """One file of sections, such as the journal has two.

    Sections overwrite old ones in place. So most writes need no new blocks, and a sync need not
    change the size of the file.
    """

    def __init__(self, path: Path, *, sync: bool):
        """`sync`: every section waits for the disk."""
        self._path, self._sync = path, sync
        try:
            if self._sync:
                path.touch(0o600)
                sync_directory(path.parent)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StateError(f"the journal '{path}' cannot be opened: {error}.") from error
        self._end, self._checksum = 0, NOTHING

    def read(self) -> list[Section]:
        """The whole sections; the next section follows them."""
        size = os.fstat(self._file).st_size
        sections, self._end, self._checksum = read_sections(self._read, size)
        return sections

    def _read(self, place: int, count: int) -> bytes:
        content = os.pread(self._file, count, place)
        while len(content) < count:  # the system gives 2 GB at most
            more = os.pread(self._file, count - len(content), place + len(content))
            if not more:
                break
            content += more
        return content

    def write(self, section: Section, *, afresh: bool) -> None:
        place, checksum = (0, NOTHING) if afresh else (self._end, self._checksum)
        pieces, length, checksum = encode_section(section, checksum)
        try:
            self._write_all(pieces, place, place + length)
            if self._sync:
                os.fdatasync(self._file)
        except OSError as error:
            raise StateError(
                f"the journal '{self._path}' cannot be written: {error.strerror}. Nothing of this "
                "round was sent, and the state is kept. Make room, then start the agent again."
            ) from error
        self._end, self._checksum = place + length, checksum

    def _write_all(self, pieces: list[Any], place: int, end: int) -> None:
        """Write bytes and arrays from a place to an end."""
        if len(pieces) > _PIECES:
            pieces = [b"".join(pieces)]
        place += os.pwritev(self._file, pieces, place)
        if place < end:  # the system takes 2 GB at a time, or the disk fills up
            rest = memoryview(b"".join(pieces))[place - end :]
            while rest:
                count = os.pwrite(self._file, rest, place)
                place, rest = place + count, rest[count:]

    def close(self) -> None:
        os.close(self._file)


def _read_json(path: Path) -> Any:
    try:
        return parse_json(path.read_text())
    except ValueError as error:
        raise StateError(
            f"'{path}' is damaged: {error}. Restore the newest state, or start a new run with a "
            "new id and directory."
        ) from error


def _write(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    try:
        replace_file(path, lambda file: file.write(content), mode=mode)
    except OSError as error:
        raise StateError(f"'{path}' cannot be written: {error.strerror}.") from error
