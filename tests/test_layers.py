"""Imports point one way, heavy ones stay where they are used."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import hushgrad

ROOT = Path(hushgrad.__file__).parent

# a module may import from its own layer and from those before it
LAYERS = [
    {"errors", "files"},
    {"exchange", "draws", "console"},
    {"graphs", "mixing", "stepsizes", "splits", "masks", "problems", "citations"},
    {"algorithms"},
    {"schema", "agent"},
    {"simulate", "report"},
    {"privacy", "network"},
    {"paper", "studies"},
    {"cli", "__main__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def imports(path):
    """(module, is at the top) of everything a file imports."""
    tree = ast.parse(path.read_text())
    top = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) in top
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [a.name for a in node.names] if node.module == "hushgrad" else [None]
            for name in names:
                yield f"hushgrad.{name}" if name else node.module, id(node) in top


def room(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


FILES = [p for p in sorted(ROOT.rglob("*.py")) if p != ROOT / "__init__.py"]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_one_way(path):
    here = LEVEL[room(path)]
    for module, _ in imports(path):
        if module.startswith("hushgrad."):
            target = module.split(".")[1]
            assert target.startswith("__") or LEVEL[target] <= here, f"{path} imports {module}"


@pytest.mark.parametrize("path", sorted((ROOT / "algorithms").glob("*.py")), ids=lambda p: p.name)
def test_an_algorithm_imports_neither_numpy_nor_jax(path):
    assert not {m.split(".")[0] for m, _ in imports(path)} & {"numpy", "jax", "scipy"}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_heavy_libraries_are_imported_at_the_top_only_by_the_engine(path):
    engine = {
        ROOT / "simulate" / "stacked" / name
        for name in (
            "agents.py",
            "constants.py",
            "driver.py",
            "native.py",
            "products.py",
            "program.py",
            "sums.py",
        )
    }
    heavy = {"matplotlib", "networkx", "scipy", "sklearn"} | (set() if path in engine else {"jax"})
    assert not {m.split(".")[0] for m, at_top in imports(path) if at_top} & heavy


def loaded_after(code):
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(done.stdout.split())


def test_importing_hushgrad_loads_no_heavy_library():
    heavy = {"jax", "matplotlib", "networkx", "scipy", "sklearn", "rich", "typer"}
    assert not loaded_after("import hushgrad") & heavy


def test_agents_alone_run_on_a_numpy_objective_without_jax():
    code = """
import hushgrad as hg
run = hg.run(hg.PDGDS(), hg.problems.rendezvous(n_agents=4), hg.Network(hg.graphs.ring(4)),
             iterations=5, engine="agents")
"""
    assert "jax" not in loaded_after(code)
