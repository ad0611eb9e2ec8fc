"""Functions that a file names: `"file.py:name"` beside it, or `"module:name"`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from hushgrad.schema.places import Keys, Source, allowed_names, shown, suggestion

_loaded: dict[tuple[Path, int], ModuleType] = {}  # by file and time of change


def is_reference(text: object) -> bool:
    """Whether a string has the form of a reference."""
    return isinstance(text, str) and all(text.rpartition(":")[::2])


def load(source: Source, keys: Keys, text: str) -> Any:
    """The object that a reference names. Its file is run: trust a study as far as its code."""
    where, _, name = text.rpartition(":")
    with _importing_from(source.directory):
        try:
            module = _load_file(source, keys, text) if where.endswith(".py") else _import(where)
        except ModuleNotFoundError as error:
            raise source.error(
                keys,
                f"= {shown(text)} cannot be loaded: {error}. A file beside the {source.what} is "
                f'written "file.py:{name}".',
            ) from error
        except source.raises:
            raise
        except (Exception, SystemExit) as error:  # the user's code may raise anything
            said = f"{type(error).__name__}: {error}"
            raise source.error(keys, f"= {shown(text)} cannot be loaded: {said}.") from error
    if not callable(getattr(module, name, None)):
        names = sorted(n for n, v in vars(module).items() if callable(v) and n[0] != "_")
        raise source.error(
            keys,
            f"= {shown(text)} names no function of {where}.{suggestion(name, names)} "
            f"{allowed_names(names)}",
        )
    return getattr(module, name)


def reference_to(function: Callable[..., Any]) -> str | None:
    """The reference by which another process finds a function, or None if it has no place of its
    own: a lambda, or one made inside another.

    >>> reference_to(is_reference)
    'hushgrad.schema.references:is_reference'
    """
    name = getattr(function, "__qualname__", "")
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    if module is None or getattr(module, name, None) is not function:
        return None
    is_file = any(module is loaded for loaded in _loaded.values()) and module.__file__
    return f"{Path(module.__file__ or '').resolve() if is_file else module.__name__}:{name}"


def _import(name: str) -> ModuleType:
    return importlib.import_module(name)


def _load_file(source: Source, keys: Keys, text: str) -> ModuleType:
    file = (source.directory / text.rpartition(":")[0]).resolve()
    if not file.is_file():
        raise source.error(
            keys,
            f"= {shown(text)} names a file that is not there: {file}. Paths start at the "
            f"directory of the {source.what}.",
        )
    version = (file, file.stat().st_mtime_ns)
    if version not in _loaded:
        name = f"_hushgrad_user_{len(_loaded)}_{file.stem}"
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None  # of a .py file, like its loader
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        _loaded[version] = module
    return _loaded[version]


@contextmanager
def _importing_from(directory: Path) -> Generator[None]:
    """Let the user's code import what lies beside it."""
    sys.path.insert(0, str(directory.resolve()))
    try:
        yield
    finally:
        sys.path.remove(str(directory.resolve()))
