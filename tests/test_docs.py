"""The Python in README.md and docs/ runs, and prints what the pages say it prints."""

import inspect
import itertools
import re
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

import hushgrad as hg

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$\n?", re.MULTILINE | re.DOTALL)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# Fragments around a study file of the reader's own, tested in tests/studies.
NOT_RUN = {"studies.md"}


class Block(NamedTuple):
    line: int
    source: str
    output: str | None  # the text block right after it, if there is one


def blocks(page):
    text = page.read_text(encoding="utf-8")
    found = list(FENCE.finditer(text))
    for n, match in enumerate(found):
        if match[1] != "python":
            continue
        after = found[n + 1] if n + 1 < len(found) else None
        is_output = after and after[1] == "text" and not text[match.end() : after.start()].strip()
        yield Block(text[: match.start(2)].count("\n"), match[2], after[2] if is_output else None)


def pages_with_python():
    return [page for page in PAGES if page.name not in NOT_RUN and any(blocks(page))]


@pytest.mark.parametrize("page", pages_with_python(), ids=lambda page: page.stem)
def test_python_on_the_page_runs_and_prints_what_it_says(page, tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib").use("agg")
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": f"page_{page.stem}"}
    for block in blocks(page):
        source = "\n" * block.line + block.source  # so that a traceback names the line of the page
        exec(compile(source, page, "exec"), namespace)
        printed = capsys.readouterr().out
        assert block.output is None or printed == block.output, f"{page.name}:{block.line}"
        assert block.output is not None or not printed, f"{page.name}:{block.line} prints"


def test_text_blocks_are_outputs():
    for page in PAGES:
        texts = sum(
            match[1] == "text" for match in FENCE.finditer(page.read_text(encoding="utf-8"))
        )
        assert texts == sum(block.output is not None for block in blocks(page)), page.name


def test_the_api_page_names_everything_public():
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    for name in hg.__all__:
        assert f"hg.{name}" in text, name
    for module, names in {
        hg.graphs: [n for n in hg.graphs.__all__ if n[0].islower()],
        hg.problems: [n for n in hg.problems.__all__ if n[0].islower()],
        hg.stepsizes: ["constant", "diminishing", "harmonic", "geometric", "bursts", "none"],
        hg.splits: ["fresh", "private_constant", "isotropic", "identity"],
        hg.masks: ["zero_sum"],
    }.items():
        for name in names:
            assert callable(getattr(module, name))
            assert f"`{name}" in text, name
    for argument in (
        *inspect.signature(hg.run).parameters,
        *inspect.signature(hg.Problem).parameters,
    ):
        assert argument in text, argument


def test_the_pages_name_every_algorithm_and_its_needs():
    for page in ("README.md", "docs/algorithms.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        for kind in hg.algorithms.ALL:
            assert f"| `{kind.__name__}` |" in text


def test_relative_links_lead_somewhere():
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]:
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_dependency_has_a_reason():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [project["dependencies"], *project["optional-dependencies"].values()]
    text = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    for requirement in itertools.chain(*named):
        package = re.match(r"[\w-]+", requirement)[0]
        assert package == "hushgrad" or f"| {package} |" in text, package


def test_tests_that_the_pages_point_to_exist():
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        for name in re.findall(r"`(test_\w+)`", page.read_text(encoding="utf-8")):
            assert f"def {name}(" in tests, f"{page.name}: {name}"


def test_the_citation_file_and_the_package_agree_on_the_version():
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"^version: (.+)$", text, re.MULTILINE)[1] == hg.__version__
    assert "cff-version: 1.2.0" in text
