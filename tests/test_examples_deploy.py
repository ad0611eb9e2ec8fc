"""The example deployments run as processes over TLS and print what their guides claim."""

import re
import tomllib
from pathlib import Path

import pytest

from hushgrad.network import parse_config
from support import scripts
from support.scripts import numbers

DEPLOY = Path(__file__).parents[1] / "examples" / "deploy"


def output(name, tmp_path):
    return scripts.output(DEPLOY / name / "run.py", tmp_path, TMPDIR=str(tmp_path))


def shape(text):
    """A text without its numbers, which secret draws change."""
    return re.sub(r"[\d.]+(e-?\d+)?", "#", text)


def shown(name):
    """What the guide of a deployment says that its command prints."""
    text = (DEPLOY / name / "README.md").read_text(encoding="utf-8")
    return re.search(r"run\.py\n(.*?)```", text, re.DOTALL)[1]


def test_sensors_that_see_one_direction_each_find_the_estimate_from_all_readings(tmp_path):
    text = output("sensors", tmp_path)
    assert numbers("determine # of 2 directions", text) == [1] * 5
    assert max(numbers("], # from all readings", text)) < 1e-9
    assert text.count("converged after") == 5
    assert len(set(numbers("after # iterations", text))) == 1
    assert shape(text.splitlines()[0]) == shape(shown("sensors").splitlines()[0])


def test_robots_meet_at_the_mean_of_starts_that_they_do_not_tell(tmp_path):
    text = output("rendezvous", tmp_path)
    assert text.count("is at (4.3") == 4
    assert max(numbers(", # m from the best point", text)) <= 0.01  # where a robot rests
    assert min(numbers("after # m,", text)) > 1
    assert shape(text) == shape(shown("rendezvous"))


def test_hospitals_that_pool_nothing_get_scikit_learns_pooled_coefficients(tmp_path):
    text = output("hospitals", tmp_path)
    assert numbers(" # rows,", text) == [310, 180, 79]
    assert max(numbers("iterations, # from the pooled fit", text)) < 1e-6
    assert text.count("converged after") == 3
    assert min(numbers("alone: # off", text)) > 0.5
    assert numbers("scales of its own: # off", text)[0] > 0.1
    assert numbers("not standardised: L = #", text)[0] > 100 * numbers("instead of #", text)[0]
    assert shape(text) == shape(shown("hospitals"))
    for line in text.splitlines()[3:]:
        assert line in shown("hospitals")


@pytest.mark.parametrize("name", ["north", "south", "west"])
def test_a_hospitals_file_is_one_and_differs_only_where_it_may(name):
    def tables(name):
        return tomllib.loads((DEPLOY / "hospitals" / name / "agent.toml").read_text("utf-8"))

    here, first = tables(name), tables("north")
    parse_config(here)
    for table in ("run", "algorithm", "objective"):
        assert here[table] == first[table]
