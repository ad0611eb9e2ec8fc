"""The contract: one canonical document of everything that all sites must declare alike.

Its digest names it. Sites compare digests, and `first_difference` says which field differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from hushgrad.errors import ModelError
from hushgrad.files.digest import commitment
from hushgrad.files.strict_json import strict_json
from hushgrad.fitting.model import Model

PROGRAMME = 1  # the version of the stages: sites with different stages cannot pool


def contract(model: Model) -> dict[str, Any]:
    """The document of a model: every field, in the order of declaration, and the stages' version.

    Numbers are written as floats, sequences as lists. Mappings are sorted by column, because their
    order means nothing; the order of columns and of levels does.
    """
    document = {field.name: _canonical(getattr(model, field.name)) for field in fields(model)}
    return {"programme": PROGRAMME, **document}


def _canonical(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _canonical(value[key]) for key in sorted(value)}
    if isinstance(value, (list, tuple)):
        return [_canonical(part) for part in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def contract_text(document: Mapping[str, Any]) -> str:
    """The document as JSON, one text for equal documents."""
    return strict_json(document)


def contract_digest(document: Mapping[str, Any]) -> str:
    """64 hexadecimal digits; documents that differ have different ones."""
    return commitment(contract_text(document).encode())


def first_difference(ours: Any, theirs: Any, field: str = "") -> tuple[str, Any, Any] | None:
    """(field, our value, their value) of the first field that differs; None: there is none.

    >>> first_difference({"penalty": 1.0, "columns": ["a"]}, {"penalty": 1.0, "columns": ["b"]})
    ('columns[0]', 'a', 'b')
    """
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        for key in dict.fromkeys([*ours, *theirs]):
            inner = f"{field}.{key}".removeprefix(".")
            if found := first_difference(ours.get(key), theirs.get(key), inner):
                return found
        return None
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = enumerate(zip(ours, theirs, strict=True))
        return next(
            (d for n, (a, b) in pairs if (d := first_difference(a, b, f"{field}[{n}]"))), None
        )
    return None if ours == theirs and type(ours) is type(theirs) else (field, ours, theirs)


def check_contracts(documents: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse the first site whose contract differs from the first site's, and name the field."""
    names = list(documents)
    for name in names[1:]:
        found = first_difference(documents[names[0]], documents[name])
        if found:
            field, ours, theirs = found
            raise ModelError(
                f"all sites declare one model, but {field} is {ours!r} at site {names[0]} and "
                f"{theirs!r} at site {name}. Let the sites agree, and change one of the files."
            )
