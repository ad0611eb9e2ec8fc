"""docs/studies.md says what the code takes, and its examples load."""

import re
from pathlib import Path

import pytest

from hushgrad import masks, splits, stepsizes
from hushgrad.masks import ZeroSum
from hushgrad.report.export import FORMATS
from hushgrad.schema.algorithms import algorithm_classes
from hushgrad.schema.builders import builders, parameters
from hushgrad.simulate.run import run
from hushgrad.splits import Split
from hushgrad.stepsizes import Deviation, Schedule
from hushgrad.studies import parse_study
from hushgrad.studies.check import NOT_IN_RUN, graph_builders, problem_builders

DOCS = (Path(__file__).parents[2] / "docs" / "studies.md").read_text(encoding="utf-8")
FUNCTIONS = {
    **graph_builders(),
    **problem_builders(),
    **algorithm_classes(),
    **builders(splits, Split),
    **builders(masks, ZeroSum),
    **builders(stepsizes, Schedule),
    **builders(stepsizes, Deviation),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_builder_and_each_of_its_keys_is_documented(name):
    code = " ".join(re.findall(r"`([^`\n]+)`", DOCS))
    for word in (name, *parameters(FUNCTIONS[name])):
        assert re.search(rf"\b{re.escape(word)}\b", code), word


def test_every_option_of_run_and_every_format_is_documented():
    for word in (*(parameters(run).keys() - set(NOT_IN_RUN)), "metrics", *FORMATS):
        assert f"`{word}`" in DOCS


def test_the_examples_load():
    study, sweep = re.findall(r"```toml\n(.*?)```", DOCS, re.DOTALL)
    assert list(parse_study(study).build().algorithms) == ["PDG-NDS", "EXTRA"]
    assert len(parse_study(study + sweep).sweep()) == 12
