"""The schema of files, read from the signatures of builders.

A builder is a function or a class that a table names. The builder's parameters are the keys of the
table, and their annotations are the types of the values. Study files and agents' files use it.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeAliasType, Union, get_args, get_origin, get_type_hints

from hushgrad import masks, splits, stepsizes
from hushgrad.masks import ZeroSum
from hushgrad.schema.places import Keys, Mistakes, shown
from hushgrad.splits import Split
from hushgrad.stepsizes import Deviation, Schedule

type Builder = Callable[..., Any]

# The classes that a table with a `kind` can stand for, and the module with their builders.
PARTS: dict[type, types.ModuleType] = {
    Schedule: stepsizes,
    Deviation: stepsizes,
    Split: splits,
    ZeroSum: masks,
}

_EXAMPLES = {
    Schedule: '{ kind = "constant", value = 0.02 }',
    Deviation: '{ kind = "harmonic", power = 2 }',
    Split: '{ kind = "fresh" }',
    ZeroSum: '{ kind = "zero_sum", linear = 1.0 }',
}
_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}
_LISTS = (Sequence, Collection, Iterable, list, tuple)


@dataclass(frozen=True)
class Parameter:
    """One argument of a builder."""

    annotation: Any
    is_required: bool


def builders(module: types.ModuleType, result: type) -> dict[str, Builder]:
    """The public functions of a module that return a `result`, by name.

    >>> sorted(builders(splits, Split))
    ['fresh', 'identity', 'isotropic', 'private_constant']
    """
    names: Iterable[str] = getattr(module, "__all__", None) or vars(module)
    functions = {name: getattr(module, name) for name in sorted(names) if not name.startswith("_")}
    return {
        name: function
        for name, function in functions.items()
        if inspect.isfunction(function) and get_type_hints(function).get("return") is result
    }


@cache
def parameters(builder: Builder) -> dict[str, Parameter]:
    """The named parameters of a function or a class; each option of a TypedDict is a parameter."""
    hints = get_type_hints(builder)
    taken: dict[str, Parameter] = {}
    for name, parameter in inspect.signature(builder).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            typed = get_args(hints.get(name))
            options = get_type_hints(typed[0]) if typed else {}
            taken |= {option: Parameter(hint, False) for option, hint in options.items()}
        elif parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            is_required = parameter.default is parameter.empty
            taken[name] = Parameter(hints.get(name, Any), is_required)
    return taken


def takes_any(builder: Builder) -> bool:
    """Whether a function takes keys that its signature does not name."""
    hints = get_type_hints(builder)
    return any(
        p.kind is p.VAR_KEYWORD and get_origin(hints.get(name)) is not typing.Unpack
        for name, p in inspect.signature(builder).parameters.items()
    )


def check_call(
    findings: Mistakes,
    builder: Builder,
    arguments: Mapping[str, Any],
    keys: Keys,
    *,
    what: str,
    also: Iterable[str] = (),
    supplied: Collection[str] = (),
) -> None:
    """Collect the mistakes in the call builder(**arguments).

    what      the builder in words, for messages
    also      keys of the surrounding table that are no arguments
    supplied  arguments that the caller adds later
    """
    taken = {k: p for k, p in parameters(builder).items() if k not in supplied}
    for key, value in arguments.items():
        if key in taken:
            check_value(findings, taken[key].annotation, value, (*keys, key))
        elif not takes_any(builder):
            findings.add_unknown((*keys, key), f"a key of {what}", [*taken, *also])
    for key, parameter in taken.items():
        if parameter.is_required and key not in arguments:
            findings.add(keys, f"needs the key {key} ({in_words(parameter.annotation)}): {what}.")


def check_value(findings: Mistakes, annotation: Any, value: Any, keys: Keys) -> None:
    """Collect the mistakes in one value."""
    part = part_of(annotation)
    if part is None:
        if not _fits(annotation, value):
            findings.add(keys, f"= {shown(value)} is not {in_words(annotation)}.")
        return
    if not isinstance(value, dict) or "kind" not in value:
        if _fits_word(annotation, value):
            return
        examples = [f"a table with a kind, such as {_EXAMPLES[part]}", *words_of(annotation)]
        findings.add(keys, f"= {shown(value)} is not {', or '.join(examples)}.")
        return
    check_kind(findings, builders(PARTS[part], part), typing.cast("dict[str, Any]", value), keys)


def check_kind(
    findings: Mistakes, choices: Mapping[str, Builder], table: Mapping[str, Any], keys: Keys
) -> None:
    """Collect the mistakes in a table `{ kind = …, … }`."""
    kind = table["kind"]
    if not isinstance(kind, str) or kind not in choices:
        findings.add_choice((*keys, "kind"), kind, f"a kind of {keys[-1]}", choices)
        return
    rest = {key: value for key, value in table.items() if key != "kind"}
    check_call(findings, choices[kind], rest, keys, what=f'kind = "{kind}"', also=["kind"])


def realise(builder: Builder, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, with an object in place of every table that stands for an object."""
    taken = parameters(builder)
    return {key: _value(taken[key].annotation, value) if key in taken else value
            for key, value in arguments.items()}  # fmt: skip


def _value(annotation: Any, value: Any) -> Any:
    part = part_of(annotation)
    if part is None or _fits_word(annotation, value):
        return value
    builder = builders(PARTS[part], part)[value["kind"]]
    return builder(**realise(builder, {k: v for k, v in value.items() if k != "kind"}))


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    if isinstance(annotation, TypeAliasType):
        return _alternatives(annotation.__value__)
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(a for member in get_args(annotation) for a in _alternatives(member))
    return (annotation,)


def part_of(annotation: Any) -> type | None:
    """The class of PARTS that a table stands for, where a parameter has this annotation."""
    return next((a for a in _alternatives(annotation) if a in PARTS), None)


def words_of(annotation: Any) -> list[str]:
    """The words, as a file writes them, that may stand in place of a table.

    >>> words_of(Schedule | Literal["auto"])
    ['"auto"']
    """
    literals = [a for a in _alternatives(annotation) if get_origin(a) is Literal]
    return [shown(word) for literal in literals for word in get_args(literal)]


def _fits_word(annotation: Any, value: Any) -> bool:
    return isinstance(value, str) and shown(value) in words_of(annotation)


def _fits(annotation: Any, value: Any) -> bool:
    return any(_fits_one(a, value) for a in _alternatives(annotation))


def _fits_one(annotation: Any, value: Any) -> bool:
    if annotation is type(None):
        return False  # TOML has no null: a file leaves the key out
    if annotation in (int, float):
        numbers = (int,) if annotation is int else (int, float)
        return isinstance(value, numbers) and not isinstance(value, bool)
    if annotation in (bool, str):
        return isinstance(value, annotation)
    origin = get_origin(annotation)
    if origin is Literal:
        return value in get_args(annotation)
    if origin in _LISTS:
        return isinstance(value, list) and all(_fits(get_args(annotation)[0], v) for v in value)
    return True  # an array or another type, which the builder itself checks


def in_words(annotation: Any) -> str:
    """A type in words, for messages.

    >>> in_words(int | None)
    'a whole number'
    >>> in_words(Literal["each", "once"])
    'one of "each", "once"'
    """
    words = [_word(a) for a in _alternatives(annotation) if a is not type(None)]
    return " or ".join(dict.fromkeys(words))


def _word(annotation: Any) -> str:
    if annotation in PARTS:
        return f"a table such as {_EXAMPLES[annotation]}"
    if annotation in _WORDS:
        return _WORDS[annotation]
    origin = get_origin(annotation)
    if origin is Literal:
        return f"one of {', '.join(shown(value) for value in get_args(annotation))}"
    if origin in _LISTS:
        return f"a list, each {in_words(get_args(annotation)[0])}"
    return "a list" if annotation is not Any else "a value"
