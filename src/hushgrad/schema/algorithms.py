"""Algorithms from tables `{ name = "PDGNDS", … }`, whose keys are the constructor's parameters.

Study files and agents' files use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from hushgrad import algorithms
from hushgrad.algorithms.base import Algorithm
from hushgrad.schema.builders import check_call, check_value, realise
from hushgrad.schema.places import Keys, Mistakes, Source, allowed_names, shown
from hushgrad.schema.references import is_reference, load

type Table = Mapping[str, Any]


def algorithm_classes() -> dict[str, type[Algorithm]]:
    return {cls.__name__: cls for cls in algorithms.ALL}


def without(table: Table, *keys: str) -> dict[str, Any]:
    return {key: value for key, value in table.items() if key not in keys}


def check_algorithm(
    findings: Mistakes, table: Table, keys: Keys, cls: type[Algorithm] | None = None
) -> None:
    """Collect the mistakes in an algorithm's table; `cls` is the user's own class, once loaded."""
    if "label" in table:
        check_value(findings, str, table["label"], (*keys, "label"))
    if "name" not in table:
        findings.add(keys, f"needs the key name. {allowed_names(sorted(algorithm_classes()))}")
        return
    name = table["name"]
    if cls is None and is_reference(name):
        return
    cls = cls or algorithm_classes().get(name if isinstance(name, str) else "")
    if cls is None:
        findings.add_choice((*keys, "name"), name, "an algorithm", algorithm_classes())
        return
    rest = without(table, "name", "label")
    check_call(findings, cls, rest, keys, what=cls.__name__, also=["name", "label"])


def algorithm_class(source: Source, table: Table, keys: Keys) -> type[Algorithm]:
    """The class that an algorithm's table names, ours or the user's."""
    name = table["name"]
    if not is_reference(name):
        return algorithm_classes()[name]
    cls = load(source, (*keys, "name"), name)
    if not (isinstance(cls, type) and issubclass(cls, Algorithm)):
        raise source.error(
            (*keys, "name"), f"= {shown(name)} is not a class derived from hg.Algorithm."
        )
    return cls


def build_algorithm(source: Source, table: Table, keys: Keys) -> Algorithm:
    """The algorithm of a checked table."""
    cls = algorithm_class(source, table, keys)
    if is_reference(table["name"]):
        findings = Mistakes(source)
        check_algorithm(findings, table, keys, cls)
        findings.throw()
    arguments = without(table, "name", "label")
    with source.telling(keys, _flat(arguments)):
        return cls(**realise(cls, arguments))


def _flat(table: Table) -> dict[str, Any]:
    """Dotted keys of nested tables, the innermost first."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            inner = _flat(without(cast("Table", value), "kind"))
            flat |= {f"{key}.{name}": v for name, v in inner.items()}
    return flat | dict(table)
