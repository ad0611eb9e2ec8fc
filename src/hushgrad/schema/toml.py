"""Tables as TOML text, for the files that hushgrad writes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import date, time
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def to_toml(tables: Mapping[str, Any], heading: str = "") -> str:
    """The TOML text of tables and lists of tables. Tables inside them are written inline.

    >>> print(to_toml({"run": {"seed": 1}, "algorithm": [{"name": "DGD"}]}), end="")
    [run]
    seed = 1
    <BLANKLINE>
    [[algorithm]]
    name = "DGD"
    """
    blocks = ["\n".join(f"# {line}" for line in heading.splitlines())] if heading else []
    for name, content in tables.items():
        if isinstance(content, list):
            blocks += [_block(f"[[{_key(name)}]]", table) for table in content]
        else:
            blocks.append(_block(f"[{_key(name)}]", content))
    return "\n\n".join(blocks) + "\n"


def _block(header: str, table: Mapping[str, Any]) -> str:
    return "\n".join([header, *(f"{_key(k)} = {_value(v)}" for k, v in table.items())])


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _string(key)


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return _string(value)
        case date() | time():
            return value.isoformat()
        case list() | tuple():
            return f"[{', '.join(_value(v) for v in value)}]"
        case Mapping():
            inside = ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items())
            return f"{{ {inside} }}" if inside else "{}"
        case _:
            raise TypeError(f"TOML has no {type(value).__name__}: {value!r}")
