"""Lazy names of a package: the package loads a name's module when the name is first used.

Every package with heavy modules takes its `__getattr__` and `__dir__` from here. Importing such a
package is then cheap, and an agent's process loads only the modules that the agent needs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_exports(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and the `__dir__` of a package.

    `homes` maps a module, written from the package on, to the names that the package takes from
    the module, separated by spaces. The names under "" are themselves modules of the package.
    """
    home_of = {name: home for home, names in homes.items() for name in names.split()}

    def load(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = home_of[name]
        module = import_module(f"{package}.{home or name}")
        value = getattr(module, name) if home else module
        setattr(sys.modules[package], name, value)  # Python calls `load` once per name
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home_of})

    return load, names
