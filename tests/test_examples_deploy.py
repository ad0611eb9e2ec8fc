"""The example deployments run as processes over TLS and print what their guides claim."""

import re
import runpy
import tomllib
from pathlib import Path

import pytest

from hushgrad.network import load_config, parse_config
from hushgrad.network.objective.objectives import load_objective
from hushgrad.network.ops.doctor.exposure import verdicts
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


@pytest.mark.slow  # five processes; the doctor examines their files below
def test_sensors_that_see_one_direction_each_find_the_estimate_from_all_readings(tmp_path):
    text = output("sensors", tmp_path)
    assert numbers("determine # of 2 directions", text) == [1] * 5
    assert max(numbers("], # from all readings", text)) < 1e-9
    assert text.count("converged after") == 5
    assert len(set(numbers("after # iterations", text))) == 1
    assert shape(text.splitlines()[0]) == shape(shown("sensors").splitlines()[0])


@pytest.mark.slow  # four processes; the doctor examines their files below
def test_robots_meet_at_the_mean_of_starts_that_they_do_not_tell(tmp_path):
    text = output("rendezvous", tmp_path)
    assert text.count("is at (4.3") == 4
    assert max(numbers(", # m from the best point", text)) <= 0.01  # where a robot rests
    assert min(numbers("after # m,", text)) > 1
    assert shape(text) == shape(shown("rendezvous"))


@pytest.mark.slow  # a minute of three processes; the doctor examines their files below
def test_hospitals_that_pool_nothing_get_scikit_learns_pooled_coefficients(tmp_path):
    text = output("tumours", tmp_path)
    assert numbers(" # rows,", text) == [240, 190, 139]
    assert max(numbers("iterations, # from the pooled fit", text)) < 1e-6
    assert text.count("converged after") == 3
    assert min(numbers("alone: # off", text)) > 0.3
    assert numbers("scales of its own: # off", text)[0] > 0.02
    assert numbers("not standardised: L = #", text)[0] > 100 * numbers("instead of #", text)[0]
    assert shape(text) == shape(shown("tumours"))
    for line in text.splitlines()[3:]:
        assert line in shown("tumours")


def test_hospitals_fit_the_table_of_all_rows_from_their_own_files(tmp_path):
    text = output("hospitals", tmp_path)
    assert numbers("rounds, # from the pooled fit", text) == pytest.approx([0] * 3, abs=1e-9)
    assert "all three have the same numbers, bit for bit" in text
    assert "each has its page" in text
    for line in text.splitlines():
        assert "from the pooled fit" in line or line in shown("hospitals")


@pytest.mark.parametrize("name", ["north", "south", "west"])
def test_a_hospitals_file_is_one_and_differs_only_where_it_may(name):
    def tables(name):
        return tomllib.loads((DEPLOY / "tumours" / name / "agent.toml").read_text("utf-8"))

    here, first = tables(name), tables("north")
    parse_config(here)
    for table in ("run", "algorithm", "objective"):
        assert here[table] == first[table]


# ---- the doctor's judgement of every agent


def code(path):
    """The functions of an example, which is not run."""
    return runpy.run_path(str(DEPLOY / path))


def tumours(home):
    code("tumours/make_data.py")["write"](home)
    for name in ("north", "south", "west"):
        text = (DEPLOY / "tumours" / name / "agent.toml").read_text("utf-8")
        (home / name / "agent.toml").write_text(text, "utf-8")
        yield load_config(home / name / "agent.toml")


def hospitals(home):
    code("hospitals/make_data.py")["write"](home)
    files = ("north/policy.toml", "north/agent.toml", "south/agent.toml", "west/agent.toml")
    for file in ("model.toml", *files):
        (home / file).write_text((DEPLOY / "hospitals" / file).read_text("utf-8"), "utf-8")
    for name in ("north", "south", "west"):
        yield load_config(home / name / "agent.toml")


def sensors(home):
    made = code("sensors/make_agents.py")
    made["write_measurements"](home)
    for i, name in enumerate(made["NAMES"]):
        (home / name / "agent.toml").write_text(made["agent_file"](i), "utf-8")
        yield load_config(home / name / "agent.toml")


def robots(home):
    fleet = tomllib.loads((DEPLOY / "rendezvous" / "fleet.toml").read_text("utf-8"))
    for name, start in code("rendezvous/run.py")["STARTS"].items():
        yield code("rendezvous/robot.py")["agent_of"](name, start, fleet).config


@pytest.mark.parametrize(
    ("make", "count"), [(tumours, 3), (hospitals, 3), (sensors, 5), (robots, 4)]
)
def test_every_agent_of_the_examples_holds_every_condition_of_the_judgement(make, count, tmp_path):
    judged = [
        list(verdicts(config, load_objective(config.objective, config.run.dim)))
        for config in make(tmp_path)
    ]
    assert len(judged) == count
    assert {(v.name, v.verdict) for agent in judged for v in agent if v.verdict != "held"} == set()
