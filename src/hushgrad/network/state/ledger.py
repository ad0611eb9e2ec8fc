"""The ledger: one line for every run of an agent and for every change of its status.

A line is a JSON object on one line. It holds the digest of the line before (`before`), so a line
that is changed, moved or taken out breaks the chain, and a seal, an HMAC under the ledger's secret.
The file FILE.secret keeps the secret; the first line commits to it. FILE.head keeps the digest of
the last line, so a ledger that has lost its end is noticed. Whoever may write all three files can
begin them anew: so the digest of the head is logged, printed on pages, and compared by
`hushgrad ledger verify --head`, and a policy names the first line.

Data are told by keyed digests (objective/data_digest.py) under the same secret.

Writers hold FILE.lock from their check to their line, so two runs cannot both take the
last place that a policy leaves. The admission of a run (admission.py), `hushgrad ledger`, the
doctor and the dossier use it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hushgrad.errors import LedgerError, StateError
from hushgrad.files.atomic import replace_file, sync_directory
from hushgrad.files.locks import locked
from hushgrad.network.keys.identity import check_mode

OPENED, BEGUN, RESUMED, SPENT = "opened", "begun", "resumed", "spent"
TOLD = "told"  # the sums of a stage, which is about to begin
NOTHING = "0" * 64  # before the first line
SECRET = 32  # bytes
_BESIDE = ("secret", "head")  # files
_PATIENCE = 30.0  # seconds for another process to write its line


@dataclass(frozen=True)
class LedgerLine:
    """One line; `facts` are the keys besides those of the chain."""

    number: int
    time: datetime
    status: str
    facts: Mapping[str, Any]
    before: str
    digest: str

    @property
    def run(self) -> str | None:
        return self.facts.get("run")

    def to_json(self) -> dict[str, Any]:
        """For people and programs; without the sketch of the data and θ, which are long."""
        shown = {k: value for k, value in self.facts.items() if k not in ("sketch", "start")}
        return {
            "line": self.number, "time": stamp(self.time), "status": self.status, **shown,
            "digest": self.digest,
        }  # fmt: skip


def stamp(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


class LedgerFile:
    """The ledger at a path."""

    def __init__(self, path: Path):
        self.path = path

    @property
    def exists(self) -> bool:
        return self.path.exists()

    @property
    def has_secret(self) -> bool:
        """Whether seals can be checked here; an auditor has a copy without the secret."""
        return self._beside("secret").exists()

    def _beside(self, what: str) -> Path:
        return self.path.with_name(f"{self.path.name}.{what}")

    def create(self, now: datetime | None = None) -> LedgerLine:
        """Begin a ledger; refuses to replace one, or what is left of one.

        The caller holds the lock. The ledger itself comes last: a program that was killed before
        leaves a head that knows no line but the first, and the next program begins anew.
        """
        parts = [self.path] if self._is_unfinished() else [self.path, *map(self._beside, _BESIDE)]
        for part in parts:
            if part.exists():
                raise LedgerError(
                    f"'{part}' is there already: a ledger is begun once. Restore what is missing "
                    "of it, or choose another place."
                )
        secret = secrets.token_bytes(SECRET)
        facts = {"secret": hashlib.sha256(secret).hexdigest()}
        text, line = _sealed(secret, 0, now or datetime.now(UTC), OPENED, facts, NOTHING)
        try:
            self.path.parent.stat()  # a directory that is missing is not made
            self._set_head(line)
            replace_file(self._beside("secret"), lambda file: file.write(secret), mode=0o600)
            replace_file(self.path, lambda file: file.write(text), mode=0o600)
            sync_directory(self.path.parent)
        except OSError as error:
            raise _unwritable(self.path, error) from error
        return line

    def _is_unfinished(self) -> bool:
        """Whether a program was killed while it began this ledger."""
        try:
            return self._beside("head").read_text().startswith("0 ") and not self.exists
        except OSError:
            return False

    @property
    def secret(self) -> bytes:
        """The secret that keys the seals and the digests of data."""
        file = self._beside("secret")
        try:
            check_mode(file)
            return file.read_bytes()
        except OSError as error:
            raise LedgerError(
                f"'{file}' cannot be read: {error.strerror}. Without it the ledger cannot tell "
                "whether data were used before. Restore it."
            ) from error

    @contextmanager
    def locked(self) -> Generator[None]:
        """Hold the ledger against other writers."""
        try:
            with locked(self._beside("lock"), _PATIENCE) as lock:
                if lock is None:
                    raise StateError(
                        f"another process has held '{self.path}' for {_PATIENCE:.0f} s. End it."
                    )
                yield
        except OSError as error:
            raise _unwritable(self.path, error) from error

    def lines(self, *, is_sealed: bool = True) -> list[LedgerLine]:
        """All lines, with chain, seals and head checked; LedgerError names what is broken.

        `is_sealed` = False checks the chain alone, without the secret.
        """
        try:
            check_mode(self.path)
            content = self.path.read_bytes()
        except OSError as error:
            raise LedgerError(f"'{self.path}' cannot be read: {error.strerror}.") from error
        whole, _, _ = content.rpartition(b"\n")  # a torn line was never acted upon
        secret = self.secret if is_sealed else None
        found: list[LedgerLine] = []
        for n, text in enumerate(whole.split(b"\n") if whole else []):
            found.append(self._read(n, text, found[-1].digest if found else NOTHING, secret))
        if not found:
            raise LedgerError(f"'{self.path}' has no first line. Restore it.")
        if secret and found[0].facts.get("secret") != hashlib.sha256(secret).hexdigest():
            raise LedgerError(f"'{self._beside('secret')}' is not the secret of '{self.path}'.")
        self._check_head(found)
        return found

    def _read(self, n: int, text: bytes, before: str, secret: bytes | None) -> LedgerLine:
        def broken(why: str) -> LedgerError:
            return LedgerError(
                f"'{self.path}' line {n + 1}: {why}. The ledger was changed by another program: "
                "restore it, and ask who changed it."
            )

        try:
            facts: dict[str, Any] = json.loads(text)
            number, seal, told = facts.pop("n"), facts.pop("seal"), facts.pop("before")
            status, moment = facts.pop("status"), facts.pop("time")
            when = datetime.fromisoformat(moment)
        except (ValueError, LookupError, TypeError, AttributeError):
            raise broken("this is no line of a ledger") from None
        if number != n:
            raise broken(f"its number is {number}, but it stands at {n}")
        if told != before:
            raise broken("it does not follow the line before")
        if secret is not None:
            expected, _ = _sealed(secret, n, when, status, facts, before)
            if not hmac.compare_digest(expected.rstrip(b"\n"), text):
                raise broken(f"its seal {seal[:8]}… does not belong to it")
        return LedgerLine(n, when, status, facts, before, _digest(text))

    def _check_head(self, found: list[LedgerLine]) -> None:
        file = self._beside("head")
        try:
            number, _, digest = file.read_text().strip().partition(" ")
            known = int(number)
        except (OSError, ValueError):
            raise LedgerError(
                f"'{file}' cannot be read: it tells how long the ledger was. Restore it."
            ) from None
        if known >= len(found) or found[known].digest != digest:
            raise LedgerError(
                f"'{self.path}' has {len(found)} lines, but it had line {known + 1} with the "
                f"digest {digest[:16]}… before: its end is lost. Restore the newest copy."
            )

    def append(self, status: str, facts: Mapping[str, Any]) -> LedgerLine:
        """Add a line and wait for the disk; the caller holds the lock."""
        found = self.lines()
        last = found[-1]
        now = max(datetime.now(UTC).replace(microsecond=0), last.time)  # time never runs back
        text, line = _sealed(self.secret, last.number + 1, now, status, facts, last.digest)
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND)
            try:
                self._cut_torn(descriptor)
                os.write(descriptor, text)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            self._set_head(line)
        except OSError as error:
            raise _unwritable(self.path, error) from error
        return line

    def _cut_torn(self, descriptor: int) -> None:
        """Remove half a line at the end, from a program that was killed while it wrote."""
        content = self.path.read_bytes()
        if not content.endswith(b"\n"):
            os.ftruncate(descriptor, content.rfind(b"\n") + 1)

    def _set_head(self, line: LedgerLine) -> None:
        text = f"{line.number} {line.digest}\n".encode()
        replace_file(self._beside("head"), lambda file: file.write(text), mode=0o600)
        sync_directory(self.path.parent)


def _sealed(
    secret: bytes, number: int, moment: datetime, status: str, facts: Mapping[str, Any], before: str
) -> tuple[bytes, LedgerLine]:
    """The text of a line, and the line."""
    line = {"n": number, "time": stamp(moment), "status": status, **facts, "before": before}
    body = json.dumps(line, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    seal = hmac.new(secret, body.encode(), hashlib.sha256).hexdigest()
    text = f'{body[:-1]},"seal":"{seal}"}}'.encode()
    return text + b"\n", LedgerLine(number, moment, status, dict(facts), before, _digest(text))


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def _unwritable(path: Path, error: OSError) -> StateError:
    return StateError(
        f"the ledger '{path}' cannot be written: {error.strerror}. It keeps the runs of this "
        "agent: make its directory writable."
    )


# ---- the runs of a ledger


@dataclass(frozen=True)
class LedgerRun:
    """One run: the line with which it began, its last status, and its last μ and share.

    mu      of its masks; None: no bound of rows was declared, inf: the masks hide nothing
    share   the numbers that its sums reveal, of the entries of the rows; None: not known
    """

    begun: LedgerLine
    status: str
    ended: datetime
    mu: float | None
    share: float | None = None


def runs_of(lines: list[LedgerLine]) -> list[LedgerRun]:
    """The runs that have begun, in their order; a fit tells what it spends before every average."""
    found: dict[tuple[str | None, str], LedgerRun] = {}
    for line in lines:
        name = (line.run, line.facts.get("key", ""))
        told = line.facts.get("mu")
        mu = None if told is None else float(told)
        before = found.get(name)
        if line.status == BEGUN:
            share = line.facts.get("share")
            found[name] = LedgerRun(line, line.status, line.time, mu, share)
        elif before is not None and line.status == SPENT:
            share = line.facts.get("share", before.share)
            found[name] = replace(before, ended=line.time, mu=mu, share=share)
        elif before is not None and line.status == TOLD:
            found[name] = replace(before, ended=line.time)
        elif before is not None:
            found[name] = replace(before, status=line.status, ended=line.time)
    return list(found.values())


def ledger_of(key: Path) -> LedgerFile:
    """The ledger beside a key."""
    return LedgerFile(key.with_suffix(".ledger"))


def mus(key: Path) -> dict[str, float | None]:
    """μ of every run of a key by its id; None: no bound of rows was declared."""
    ledger = ledger_of(key)
    if not ledger.exists:
        return {}
    return {run.begun.run or "": run.mu for run in runs_of(ledger.lines())}
