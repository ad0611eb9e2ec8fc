"""Imports point one way, heavy ones stay where they are used, an agent starts no other program."""

import ast
import json
import os
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

every_module = pytest.mark.parametrize("module", MODULES)


def inside(package):
    return [m for m in MODULES if m == package or m.startswith(f"{package}.")]


def test_every_module_has_a_layer():
    assert rooms() == PLACES.keys()


@every_module
def test_imports_point_to_the_same_or_a_lower_layer(module):
    level, cell = PLACES[room(module)]
    for target in inner_imports(module):
        its_level, its_cell = PLACES[room(target)]
        assert its_level <= level, f"{module} imports {target}, which is above it"
        assert its_level < level or its_cell == cell, f"{module} imports {target} beside it"


@every_module
def test_no_module_imports_itself_through_others(module):
    """Imports inside functions count; imports for type checkers alone do not, nothing is loaded."""
    targets = inner_imports(module, for_types=False) & files().keys()
    back = sorted(target for target in targets if module in reachable(target))
    assert not back, f"{module} imports {back}, which import it"


@pytest.mark.parametrize("module", inside("hushgrad.network"))
def test_only_a_whole_network_on_one_machine_needs_the_simulator(module):
    if module not in inside("hushgrad.network.local"):
        assert not {room(m) for m in inner_imports(module)} & {"simulate", "report"}


@pytest.mark.parametrize("module", inside("hushgrad.agent"))
def test_one_agent_computes_without_jax_and_without_io(module):
    io = {"asyncio", "socket", "ssl", "selectors", "http", "urllib", "multiprocessing"}
    assert not outer_imports(module) & (io | {"jax", "jaxlib", "subprocess", "ctypes"})


@pytest.mark.parametrize("module", inside("hushgrad.fitting"))
def test_a_fit_needs_numpy_alone_and_no_network(module):
    io = {"asyncio", "socket", "ssl", "selectors", "http", "urllib", "multiprocessing"}
    heavy = {"jax", "jaxlib", "scipy", "sklearn", "pandas"}
    assert not outer_imports(module) & (io | heavy | {"subprocess", "ctypes"})


@pytest.mark.parametrize("module", [*inside("hushgrad.network"), *inside("hushgrad.files")])
def test_no_module_of_an_agents_process_can_start_a_program_or_load_a_library(module):
    if module not in inside("hushgrad.network.local"):
        assert not outer_imports(module) & {"subprocess", "multiprocessing", "ctypes", "cffi"}


@pytest.mark.parametrize("module", inside("hushgrad.algorithms"))
def test_an_algorithm_imports_neither_numpy_nor_jax(module):
    assert not outer_imports(module) & {"numpy", "jax", "scipy"}


@every_module
def test_heavy_libraries_are_imported_at_the_top_only_by_the_engine(module):
    heavy = {"jax", "matplotlib", "networkx", "scipy", "sklearn"}
    allowed = {"jax"} if module.startswith(ENGINE) else set()
    assert not outer_imports(module, at_top=True) & (heavy - allowed)


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


def methods(node):
    """The methods of a class; a property is an attribute."""
    found = [n for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [n for n in found if not any("property" in ast.unparse(d) for d in n.decorator_list)]
