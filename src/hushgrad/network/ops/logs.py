"""The log of an agent on stderr: lines for people, or JSON lines for machines.

`hushgrad agent` (command.py) starts it. A record has an event (a fixed word), a message, and fields
such as peer and round.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from math import inf
from typing import Any, TextIO

from hushgrad.network.config.model import LogConfig

PAUSE = 1.0  # seconds between two lines of the same event, peer and reason

# The attributes of every record; the others come from `extra=`.
_USUAL = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "event"}


def start_logging(config: LogConfig, stream: TextIO | None = None) -> logging.Handler:
    """Show the records of the loggers below `hushgrad`; returns the handler for `stop_logging`."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.addFilter(Sparing())
    handler.setFormatter(JsonLines() if config.format == "json" else TextLines())
    logger = logging.getLogger("hushgrad")
    logger.addHandler(handler)
    logger.setLevel(config.level.upper())
    logger.propagate = False
    return handler


def stop_logging(handler: logging.Handler) -> None:
    """Undo `start_logging`."""
    logger = logging.getLogger("hushgrad")
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)
    logger.propagate = True
    handler.close()


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in vars(record).items() if key not in _USUAL}


def iso_time(seconds: float, *, timespec: str = "seconds") -> str:
    """A time since the epoch in ISO 8601, in UTC.

    >>> iso_time(0)
    '1970-01-01T00:00:00Z'
    """
    said = datetime.fromtimestamp(seconds, UTC).isoformat(timespec=timespec)
    return said.removesuffix("+00:00") + "Z"


def _time(record: logging.LogRecord) -> str:
    return iso_time(record.created, timespec="milliseconds")


class Sparing(logging.Filter):
    """Lets through one line a second of each event, peer and reason.

    Otherwise an attacker who makes an agent log could fill the disk that the journal needs. The
    next line of the same kind says how many lines were left out.
    """

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[
            tuple[Any, ...], tuple[float, int]
        ] = {}  # kind → time of the last line, lines left out since

    def filter(self, record: logging.LogRecord) -> bool:
        event = getattr(record, "event", None)
        if event is None:
            return True
        kind = event, getattr(record, "peer", None), getattr(record, "reason", None)
        when, left_out = self._last.get(kind, (-inf, 0))
        if record.created - when < PAUSE:
            self._last[kind] = when, left_out + 1
            return False
        self._last[kind] = record.created, 0
        if left_out:
            record.left_out = left_out
        return True


class JsonLines(logging.Formatter):
    """One JSON object per record."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "event": getattr(record, "event", record.name),
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class TextLines(logging.Formatter):
    """`2026-11-18T12:04:31.250Z warning  bob stays away  peer=bob round=17`"""

    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{key}={value}" for key, value in _fields(record).items())
        line = f"{_time(record)} {record.levelname.lower():<8} {record.getMessage()}"
        line = _printable(f"{line}  {fields}" if fields else line)
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _printable(text: str) -> str:
    """The text without control characters: text from a peer must not move the cursor."""
    return "".join(c if c.isprintable() else "�" for c in text)
