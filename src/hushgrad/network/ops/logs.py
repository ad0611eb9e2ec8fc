"""What an agent says while it runs: lines for people, or JSON lines for machines, on stderr.

A record has an event (a fixed word), a message, and fields of its own such as peer and round.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from math import inf
from typing import Any, TextIO

from hushgrad.network.config.model import LogConfig

PAUSE = 1.0  # seconds between two lines of one kind

# What every record has; the rest was given with `extra=`.
_USUAL = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "event"}


def start_logging(config: LogConfig, stream: TextIO | None = None) -> logging.Handler:
    """Let the loggers below `hushgrad` speak; returns what `stop_logging` takes."""
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


def _time(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


class Sparing(logging.Filter):
    """Of lines that say the same of the same peer, one a second: whoever can make an agent speak
    must not fill the disk that its journal needs. The next line says how many were left out.
    """

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[tuple[Any, ...], tuple[float, int]] = {}  # when, and how many since

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
            "time": _time(record).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": getattr(record, "event", record.name),
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class TextLines(logging.Formatter):
    """`12:04:31.250 warning  bob stays away  peer=bob round=17`"""

    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{key}={value}" for key, value in _fields(record).items())
        time = _time(record).strftime("%H:%M:%S.%f")[:-3]
        line = f"{time} {record.levelname.lower():<8} {record.getMessage()}"
        line = _printable(f"{line}  {fields}" if fields else line)
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _printable(text: str) -> str:
    """What others sent may be in a message, but it cannot move the cursor."""
    return "".join(c if c.isprintable() else "�" for c in text)
