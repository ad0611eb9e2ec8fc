"""docs/architecture.md shows the house as it is: its layers, its packages, its walks."""

import re

import pytest

from support.house import PAGE, SOURCE, files, inner_imports, layers, reachable, room, rooms

TEXT = PAGE.read_text(encoding="utf-8")
NAMED_FILES = re.findall(r"`([\w/]+\.py)`", TEXT)
WALKS = re.split(r"^## Walk \d: ", TEXT, flags=re.MULTILINE)[1:]


def module_of(path):
    return "hushgrad." + path.removesuffix(".py").replace("/", ".")


def test_the_picture_has_every_module_and_package_in_one_layer():
    named = [name for cells in layers() for names in cells for name in names]
    assert sorted(named) == sorted(rooms())


def test_the_picture_is_drawn_straight():
    picture = re.search(r"^```\n(┌.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)[1].splitlines()
    assert len({len(line) for line in picture}) == 1


def test_every_layer_is_needed_by_one_above_it():
    levels = [{name for names in cells for name in names} for cells in layers()]
    for level, names in enumerate(levels[:-1]):
        above = set().union(*levels[level + 1 :])
        used = {room(t) for m in files() if m != "hushgrad" and room(m) in above
                for t in inner_imports(m)}  # fmt: skip
        assert names & used, names


def test_the_table_has_every_package():
    packages = {str(p.parent.relative_to(SOURCE)) for p in SOURCE.rglob("__init__.py")} - {"."}
    assert set(re.findall(r"^\| `([\w/]+)/` \|", TEXT, re.MULTILINE)) == packages


def test_every_package_and_module_that_the_page_names_exists():
    for path in NAMED_FILES:
        home = SOURCE.parents[1] if path.startswith("tests/") else SOURCE
        assert (home / path).is_file(), path
    for path in re.findall(r"`([\w/]+)/`", TEXT):
        assert (SOURCE / path / "__init__.py").is_file(), path


def test_the_folders_of_tests_mirror_the_packages():
    """Beside them stand the tests of the benchmarks and the helpers."""
    tests = SOURCE.parents[1] / "tests"
    folders = {str(p.parent.relative_to(tests)) for p in tests.rglob("*.py")} - {"."}
    packages = {str(p.parent.relative_to(SOURCE)) for p in SOURCE.rglob("*.py")}
    others = {f for f in folders if f.split("/")[0] in ("support", "benchmarks")}
    assert folders - others <= packages


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.splitlines()[0])
def test_a_walk_leads_along_imports(walk):
    """Some module of the walk imports all others of it, directly or through modules between."""
    modules = [module_of(path) for path in re.findall(r"`([\w/]+\.py)`", walk)]
    assert len(modules) > 5
    everything = {m: reachable(m) | {m} for m in modules}
    assert any(set(modules) <= reached for reached in everything.values())
