"""Imports point one way, heavy ones stay where they are used, an agent starts no other program."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hushgrad.network import mint, write_config
from support.house import (
    SOURCE,
    files,
    inner_imports,
    layers,
    outer_imports,
    reachable,
    room,
    rooms,
)
from support.waiting import free_port

PLACES = {
    name: (level, cell)
    for level, cells in enumerate(layers())
    for cell, names in enumerate(cells)
    for name in names
}
MODULES = [module for module in files() if module != "hushgrad"]
ENGINE = "hushgrad.simulate.stacked."

IO = {"asyncio", "socket", "ssl", "selectors", "http", "urllib", "multiprocessing"}


def inside(*packages):
    return [m for m in MODULES for package in packages if f"{m}.".startswith(f"{package}.")]


def importers(modules, forbidden, **which):
    """The modules that import a forbidden library, each with the libraries."""
    found = {module: sorted(outer_imports(module, **which) & forbidden) for module in modules}
    return {module: names for module, names in found.items() if names}


def test_every_module_has_a_layer():
    assert rooms() == PLACES.keys()


def test_imports_point_to_the_same_or_a_lower_layer():
    wrong = []
    for module in MODULES:
        level, cell = PLACES[room(module)]
        for target in inner_imports(module):
            its_level, its_cell = PLACES[room(target)]
            if its_level > level:
                wrong.append(f"{module} imports {target}, which is above it")
            elif its_level == level and its_cell != cell:
                wrong.append(f"{module} imports {target} beside it")
    assert wrong == []


def test_no_module_imports_itself_through_others():
    """Imports inside functions count; imports for type checkers alone do not, nothing is loaded."""
    back = [
        f"{module} imports {target}, which imports it"
        for module in MODULES
        for target in sorted(inner_imports(module, for_types=False) & files().keys())
        if module in reachable(target)
    ]
    assert back == []


def test_only_a_whole_network_on_one_machine_needs_the_simulator():
    alone = set(inside("hushgrad.network")) - set(inside("hushgrad.network.local"))
    assert alone
    for module in sorted(alone):
        assert not {room(m) for m in inner_imports(module)} & {"simulate", "report"}, module


def test_one_agent_computes_without_jax_and_without_io():
    forbidden = IO | {"jax", "jaxlib", "subprocess", "ctypes"}
    assert importers(inside("hushgrad.agent"), forbidden) == {}


def test_a_fit_needs_numpy_alone_and_no_network():
    heavy = {"jax", "jaxlib", "scipy", "sklearn", "pandas"}
    assert importers(inside("hushgrad.fitting"), IO | heavy | {"subprocess", "ctypes"}) == {}


def test_no_module_of_an_agents_process_can_start_a_program_or_load_a_library():
    """All modules that the command of an agent can load count, through whatever other modules."""
    modules = {*reachable("hushgrad.network.ops.command"), *inside("hushgrad.network")}
    modules -= set(inside("hushgrad.network.local"))
    assert {
        "hushgrad.agent.machine",
        "hushgrad.fitting.newton",
        "hushgrad.theory.exposure",
    } <= modules
    assert importers(modules, {"subprocess", "multiprocessing", "ctypes", "cffi"}) == {}


def test_an_algorithm_imports_neither_numpy_nor_jax():
    assert importers(inside("hushgrad.algorithms"), {"numpy", "jax", "scipy"}) == {}


def test_heavy_libraries_are_imported_at_the_top_only_by_the_engine():
    heavy = {"jax", "matplotlib", "networkx", "scipy", "sklearn"}
    found = importers(MODULES, heavy, at_top=True)
    assert {m: names for m, names in found.items() if not m.startswith(ENGINE)} == {}
    assert {name for names in found.values() for name in names} == {"jax"}


def loaded_after(code):
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "package",
    [
        "",
        ".algorithms",
        ".fitting",
        ".network",
        ".privacy",
        ".problems",
        ".simulate",
        ".studies",
        ".theory",
    ],
)
def test_importing_a_public_package_loads_no_heavy_library(package):
    heavy = {"jax", "matplotlib", "networkx", "scipy", "sklearn", "rich", "typer"}
    assert not loaded_after(f"import hushgrad{package}") & heavy


def test_a_script_that_makes_keys_loads_no_agent():
    assert "hushgrad.network.deployed" not in loaded_after("from hushgrad.network import mint")


def test_agents_alone_run_on_a_numpy_objective_without_jax():
    code = """
import hushgrad as hg
run = hg.run(hg.PDGDS(), hg.problems.rendezvous(n_agents=4), hg.Network(hg.graphs.ring(4)),
             iterations=5, engine="agents")
"""
    assert "jax" not in loaded_after(code)


# ---- an agent's process

DIM = 20_000  # long enough for every way of computing that an agent may choose
OBJECTIVE = f"""
import numpy as np
START = np.linspace(0, {{number}} + 1, {DIM})
def gradient(theta):
    return theta - START
"""
WATCHED = """
import json, sys
seen = []
STARTS = ("subprocess.", "os.exec", "os.posix_spawn", "os.spawn", "os.system", "os.fork", "pty.")
def watch(event, arguments):
    if event.startswith(STARTS) or (event == "ctypes.dlopen" and arguments[0] is not None):
        seen.append(f"{event} {arguments}")
sys.addaudithook(watch)
sys.argv = ["hushgrad", "agent", "agent.toml", "--quiet"]
from hushgrad.__main__ import main
try:
    main()
finally:
    with open("seen.json", "w") as file:
        json.dump({"events": seen, "modules": sorted(sys.modules)}, file)
"""


def write_pair(directory, algorithm):
    """Two agents of one run, each in a directory of its own."""
    homes, port = [directory / "north", directory / "south"], free_port()
    for home in homes:
        mint(home, home.name)
    for number, (home, other) in enumerate(zip(homes, reversed(homes), strict=True)):
        (home / "objective.py").write_text(OBJECTIVE.format(number=number))
        listens = {"listen": f"127.0.0.1:{port}"} if number == 0 else {}
        known = {"name": other.name, "number": 1 - number} | {
            "certificate": str(other / f"{other.name}.crt")
        }
        dialled = {"address": f"127.0.0.1:{port}"} if number else {}
        tables = {
            "agent": {
                "name": home.name,
                "number": number,
                "max_wait": 60,
                "accept_exposure": ["design", "dimension", "partners", "degree"],
                **listens,
            },
            "objective": {"function": "objective.py:gradient"},
            "neighbour": [known | dialled],
            "partner": [known],
            "run": {"id": "watched", "n_agents": 2, "dim": DIM, "iterations": 12, "eta": 0.0},
            "algorithm": {
                "name": algorithm,
                "design": "paper",  # stages need d × d numbers
                "masks": {"kind": "zero_sum"},
                "stepsize": {"kind": "constant", "value": 0.2},
            },
        }
        write_config(home / "agent.toml", tables)
    return homes


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """What two agents' processes did, from their start to their end."""
    directory = tmp_path_factory.mktemp("pair")
    homes = write_pair(directory, "PDGNDS")
    empty = os.environ | {"XDG_CACHE_HOME": str(directory / "cache")}  # nothing is ready for use
    agents = [
        subprocess.Popen(
            [sys.executable, "-c", WATCHED], cwd=home, env=empty, stderr=subprocess.PIPE
        )
        for home in homes
    ]
    for agent in agents:
        _, said = agent.communicate(timeout=120)
        assert agent.returncode == 0, said.decode()
    return [json.loads((home / "seen.json").read_text()) for home in homes]


def test_an_agents_process_starts_no_other_program_and_loads_no_library_of_ours(watched):
    assert [agent["events"] for agent in watched] == [[], []]


def test_an_agents_process_loads_no_simulator_no_jax_and_no_ctypes_code_of_ours(watched):
    heavy = {"jax", "jaxlib", "matplotlib", "networkx", "scipy", "sklearn", "typer"}
    for agent in watched:
        loaded = set(agent["modules"])
        assert not loaded & heavy
        ours = {m for m in loaded if m.split(".")[0] == "hushgrad"} & files().keys() - {"hushgrad"}
        assert "hushgrad.network.deployed" in ours
        unused = {"simulate", "report", "privacy", "studies", "cli", "fitting"}  # it has no [fit]
        assert not {room(m) for m in ours} & unused
        assert not {m for m in ours if "ctypes" in outer_imports(m)}


def test_the_watch_sees_a_program_that_is_started(tmp_path):
    code = WATCHED.replace("main()\nfinally", "import os; os.system('true')\nfinally")
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert "os.system" in json.loads(Path(tmp_path / "seen.json").read_text())["events"][0]


def classes():
    """(module, node) of every class of the source."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                yield path.relative_to(SOURCE), node


def test_a_class_name_names_one_thing():
    places = {}
    for path, node in classes():
        places.setdefault(node.name, []).append(str(path))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_file_and_no_class_outgrows_a_reader():
    long = {p.name: n for p in SOURCE.rglob("*.py")
            if (n := len(p.read_text(encoding="utf-8").splitlines())) > 400}  # fmt: skip
    assert long == {}
    many = {node.name: n for _, node in classes() if (n := len(methods(node))) > 25}
    assert many == {}


EXCUSE = re.compile(r"# (?:noqa|type: ignore|pyright: ignore)(.*)")
EXCUSED = re.compile(r"(?:: [A-Z]+\d+(?:, [A-Z]+\d+)*|\[[\w, -]+\])  (?:# )?\w.*")


def test_every_ignore_has_a_code_and_a_reason():
    root = SOURCE.parents[1]
    folders = [root / name for name in ("src", "tests", "examples", "benchmarks")]
    unexcused = [
        f"{path.relative_to(root)}: {line.strip()}"
        for folder in folders
        for path in folder.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if (found := EXCUSE.search(line)) and not EXCUSED.fullmatch(found[1])
    ]
    assert unexcused == []


def methods(node):
    """The methods of a class; a property is an attribute."""
    found = [n for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [n for n in found if not any("property" in ast.unparse(d) for d in n.decorator_list)]
