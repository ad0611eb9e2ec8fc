"""TOML files: their tables, the place of a mistake in them, and errors that name the place.

Studies, agents' files and models are read here.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hushgrad.errors import InputError, StudyError

type Keys = tuple[str | int, ...]  # ("algorithm", 0, "stepsize")

_HEADER = re.compile(r"^\s*\[{1,2}([^\[\]]+)\]{1,2}\s*(?:#.*)?$")
_PART = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")
# Files that people take for each other: the tables of this kind alone, a command that reads it.
_SIGNS: dict[str, tuple[set[str], str]] = {
    "study": ({"network", "problem"}, "run"),
    "agent's file": ({"agent"}, "doctor"),
    "model file": ({"model", "stage"}, "contract"),
}
_KEY = re.compile(rf"^\s*((?:{_PART.pattern})(?:\s*\.\s*(?:{_PART.pattern}))*)\s*=")


@dataclass(frozen=True)
class Source:
    """A file: its name for messages, its text for line numbers, its directory for paths."""

    name: str
    directory: Path
    text: str = field(default="", repr=False)
    row: str = ""  # the row of a sweep, in words
    swept: tuple[str, ...] = ()  # the keys that the sweep sets, which stand in [sweep]
    what: str = "study"  # the kind of file, for messages
    raises: type[InputError] = StudyError

    def read(self, advice: str) -> Source:
        """The source with the text of its file; `advice` is for a file that is not there."""
        try:
            text = Path(self.name).read_text(encoding="utf-8-sig")
        except FileNotFoundError:
            raise self.raises(f"there is no {self.what} at '{self.name}'. {advice}") from None
        except (OSError, UnicodeDecodeError) as error:
            raise self.raises(f"the {self.what} '{self.name}' cannot be read: {error}.") from error
        return replace(self, text=text)

    def tables(self) -> dict[str, Any]:
        try:
            tables = tomllib.loads(self.text)
        except tomllib.TOMLDecodeError as error:
            raise self.raises(f"{self.name}: this is not TOML: {error}.") from error
        self._check_kind(tables)
        return tables

    def _check_kind(self, tables: Mapping[str, Any]) -> None:
        """Refuse a file of another kind in one sentence, not table by table."""
        if self.what not in _SIGNS or _SIGNS[self.what][0] & tables.keys():
            return
        for what, (signs, command) in _SIGNS.items():
            if signs & tables.keys():
                raise self.raises(
                    f"'{self.name}' is {_with_article(what)}, not {_with_article(self.what)}. "
                    f"`hushgrad {command} {self.name}` reads it."
                )

    def place(self, keys: Keys) -> str:
        r"""A place such as `study.toml:7: algorithm[0].name`; without a line if none is found.

        >>> Source("a.toml", Path(), "[run]\nseed = 1").place(("run", "seed"))
        'a.toml:2: run.seed'
        """
        where = dotted(keys)
        looked_up = next((f"sweep.{key}" for key in self.swept if _leads_to(key, where)), where)
        line = _line_of(self.text, looked_up)
        name = self.name if line is None else f"{self.name}:{line}"
        return f"{name}: {f'{self.row}: ' if self.row else ''}{where}"

    def error(self, keys: Keys, message: str) -> InputError:
        return self.raises(f"{self.place(keys)} {message}")

    @contextmanager
    def telling(self, keys: Keys, table: Mapping[str, Any] | None = None) -> Generator[None]:
        """Add the place in the file to the error of a builder.

        If the message names an argument that is a key of the table, the place is that key. The
        keys of nested tables are dotted.
        """
        try:
            yield
        except self.raises:
            raise
        except (InputError, TypeError, OSError) as error:
            place = self.place((*keys, *_named_in(str(error), table or {})))
            raise self.raises(f"{place}: {error}") from error


@dataclass
class Mistakes:
    """The mistakes in a file, collected so that one error shows all of them."""

    source: Source
    found: list[tuple[Keys, str]] = field(default_factory=list[tuple[Keys, str]])

    def add(self, keys: Keys, message: str) -> None:
        self.found.append((keys, message))

    def add_unknown(self, keys: Keys, what: str, allowed: Iterable[str]) -> None:
        """Add a key that is not one of `allowed`."""
        names = sorted(allowed)
        self.add(keys, f"is not {what}.{suggestion(str(keys[-1]), names)} {allowed_names(names)}")

    def add_choice(self, keys: Keys, value: object, what: str, allowed: Iterable[str]) -> None:
        """Add a value that is not one of `allowed`."""
        names = sorted(allowed)
        hint = suggestion(value, names) if isinstance(value, str) else ""
        self.add(keys, f"= {shown(value)} is not {what}.{hint} {allowed_names(names)}")

    def throw(self) -> None:
        """Raise the source's error with all mistakes, if there is one."""
        if self.found:
            raise self.source.raises(
                "\n".join(f"{self.source.place(k)} {m}" for k, m in self.found)
            )


def _with_article(what: str) -> str:
    return f"{'an' if what[0] in 'aeiou' else 'a'} {what}"


def dotted(keys: Keys) -> str:
    """Keys as one string, as in a study's [sweep].

    >>> dotted(("algorithm", 0, "stepsize"))
    'algorithm[0].stepsize'
    """
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)
    return text.removeprefix(".")


def suggestion(wrong: str, names: Iterable[str]) -> str:
    """A question with the name that is most like the wrong one, or nothing.

    >>> suggestion("pdgnd", ["PDGDS", "PDGNDS", "DGD"])
    ' Did you mean "PDGNDS"?'
    """
    by_lower = {name.lower(): name for name in names}
    close = difflib.get_close_matches(wrong.lower(), by_lower, n=1)
    return f' Did you mean "{by_lower[close[0]]}"?' if close else ""


def allowed_names(names: Iterable[str]) -> str:
    return f"Allowed: {', '.join(names) or 'none'}."


def shown(value: object) -> str:
    """A value as the file would write it; a long value is cut."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _named_in(message: str, table: Mapping[str, Any]) -> list[str]:
    """The key, split at its dots, whose value or at least whose name a message repeats."""
    last = {key: key.rpartition(".")[2] for key in table}
    exact = [
        k
        for k, name in last.items()
        if re.search(rf"\b{re.escape(name)}( = | |=){re.escape(repr(table[k]))}", message)
    ]
    loose = [k for k, name in last.items() if re.search(rf"\b{re.escape(name)}\b", message)]
    return [*exact, *loose][0].split(".") if exact or loose else []


def _leads_to(key: str, where: str) -> bool:
    return where == key or where.startswith((f"{key}.", f"{key}["))


def _line_of(text: str, where: str) -> int | None:
    """The line of a key, or of the innermost table around the key that the text shows."""
    best, depth = None, 0
    header: Keys = ()
    count: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if match := _HEADER.match(line):
            names = [_bare(part) for part in _PART.findall(match[1])]
            if line.lstrip().startswith("[["):
                count[names[0]] = count.get(names[0], -1) + 1
            number_in = [count[names[0]]] if names[0] in count else []
            here = header = (names[0], *number_in, *names[1:])
        elif match := _KEY.match(line):
            here = (*header, *(_bare(part) for part in _PART.findall(match[1])))
        else:
            continue
        if len(dotted(here)) > depth and _leads_to(dotted(here), where):
            best, depth = number, len(dotted(here))
    return best


def _bare(part: str) -> str:
    return part.strip("\"'")
