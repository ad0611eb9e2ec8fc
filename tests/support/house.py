"""The layers of docs/architecture.md and the import graph of src/hushgrad.

The picture on the page is the one list of layers: tests/test_layers.py holds the code to it,
tests/test_architecture.py holds the page to the code.
"""

import ast
import re
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import hushgrad

SOURCE = Path(hushgrad.__file__).parent
PAGE = SOURCE.parents[1] / "docs" / "architecture.md"
RULE = re.compile(r"[┌├└]")


class Import(NamedTuple):
    module: str  # "numpy", or "hushgrad.files.digest"
    is_at_top: bool  # at the top of the file, so it is loaded with the importing module
    is_for_types: bool  # under `if TYPE_CHECKING`, so it is never loaded


@cache
def layers():
    """The layers, lowest first: each a list of cells, each cell a list of modules and packages.

    A layer of the picture is the band between two rules. The first line of each of its cells
    names the modules, the lines below say what they are for.
    """
    picture = re.search(r"^```\n(┌.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)[1]
    lines = picture.splitlines()
    firsts = [below for above, below in pairwise(lines) if RULE.match(above)]
    return [[cell.split() for cell in line.strip("│").split("│")] for line in reversed(firsts)]


@cache
def files():
    """The file of every module, by the module's dotted name; a package's file is its __init__."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def rooms():
    """Every module and every package directly under hushgrad."""
    return {module.split(".")[1] for module in files() if module != "hushgrad"}


def room(module):
    return module.split(".")[1]


@cache
def tree(module):
    return ast.parse(files()[module].read_text(encoding="utf-8"))


def is_for_types(node):
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


@cache
def doors(module):
    """The modules of the names that a package loads lazily: its imports for type checkers."""
    if files()[module].name != "__init__.py":
        return {}
    lines = [line for node in tree(module).body if is_for_types(node) for line in node.body]
    return {alias.name: line.module for line in lines for alias in line.names}


def home(module, name):
    """The module that `from module import name` loads; None for a plain name of hushgrad itself."""
    if f"{module}.{name}" in files():
        return f"{module}.{name}"
    if module in files() and name in doors(module):
        return home(doors(module)[name], name)
    return None if module == "hushgrad" else module


@cache
def imports(module):
    """All imports of a module, also inside functions; without the doors of a package."""
    found = set()
    for node in tree(module).body:
        if is_for_types(node) and doors(module):
            continue
        for part in ast.walk(node):
            names = []
            if isinstance(part, ast.Import):
                names = [alias.name for alias in part.names]
            elif isinstance(part, ast.ImportFrom) and part.module:
                names = [home(part.module, alias.name) for alias in part.names]
            found |= {Import(name, part is node, is_for_types(node)) for name in names if name}
    return found


def inner_imports(module, *, for_types=True):
    """The modules of hushgrad that a module imports, with or without imports for types only."""
    ours = [i for i in imports(module) if i.module.split(".")[0] == "hushgrad"]
    return {i.module for i in ours if for_types or not i.is_for_types}


def outer_imports(module, *, at_top=False):
    """The libraries that a module imports, by their first name."""
    names = {i.module.split(".")[0] for i in imports(module) if i.is_at_top or not at_top}
    return names - {"hushgrad"}


@cache
def reachable(module):
    """All modules that a module loads, at once or later, directly or through others."""
    seen, left = set(), [module]
    while left:
        for found in inner_imports(left.pop(), for_types=False) & files().keys() - seen:
            seen.add(found)
            left.append(found)
    return seen
