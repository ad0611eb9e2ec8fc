"""`hushgrad run` as a job of several processes, which divide the agents of a study."""

import json
import random
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from typer.testing import CliRunner

import hushgrad as hg
from hushgrad.cli import app
from support import jobs

STUDY = """
[network]
graph = "grid"
rows = 4
columns = 3
[problem]
kind = "estimation"
s = 3
d = 2
seed = 0
[[algorithm]]
name = "{name}"
stepsize = {{ kind = "constant", value = 0.05 }}
[run]
iterations = {iterations}
trials = 2
seed = 1
"""


@pytest.fixture
def study(tmp_path):
    """A function that writes a study file."""
    (tmp_path / "cache").mkdir(mode=0o700)

    def write(name="AsynDGM", iterations=100):
        path = tmp_path / f"{name}.toml"
        path.write_text(STUDY.format(name=name, iterations=iterations))
        return path

    return write


def saved(directory):
    return {path.name: hg.load_run(path) for path in directory.glob("*.npz")}


def check_same(found, expected):
    assert set(found) == set(expected) != set()
    for name, run in found.items():
        assert np.abs(run.x - expected[name].x).max() < 1e-12
        assert np.abs(run.error - expected[name].error).max() < 1e-12
        assert run.status == expected[name].status


def test_two_processes_give_the_result_of_one_and_the_first_alone_tells_it(study, tmp_path):
    path, cache = study(), tmp_path / "cache"
    with jobs.started(path, 2, "--save", str(tmp_path / "two"), cache=cache) as processes:
        (first, told, _), (second, nothing, _) = jobs.ended(processes)
    assert (first, second, nothing) == (0, 0, "")
    result = json.loads(told)["results"][0]
    problem = hg.problems.estimation(12, 3, 2, seed=0)
    algorithm = hg.AsynDGM(stepsize=hg.stepsizes.constant(0.05))
    run = hg.run(
        algorithm, problem, hg.Network(hg.graphs.grid(4, 3)), iterations=100, trials=2, seed=1
    )
    assert result["median_error"] == pytest.approx(run.median_error[-1], abs=1e-12)
    check_same(saved(tmp_path / "two"), {"AsynDGM.npz": run})


def test_a_job_is_refused_before_it_starts(study):
    for options, message in {
        ("--coordinator", "127.0.0.1:1"): "needs --processes N and --process I",
        ("--coordinator", "here", "--processes", "2", "--process", "0"): "HOST:PORT",
        ("--coordinator", "h:70000", "--processes", "2", "--process", "0"): "HOST:PORT",
        ("--coordinator", "h:1", "--processes", "2", "--process", "2"): "the numbers 0 to 1",
        ("--distributed", "--engine", "agents"): "stacked engine alone",
        ("--distributed", "--rows", "0"): "Pick one row",
        ("--processes", "2", "--process", "0"): "are for --coordinator, which is not given",
    }.items():
        done = CliRunner().invoke(app, ["run", str(study()), *options])
        assert done.exit_code == 2
        assert message in done.stderr


def test_processes_with_different_studies_are_refused(study, tmp_path):
    path, other = study(), tmp_path / "other.toml"
    other.write_text(path.read_text().replace("seed = 0", "seed = 1"))
    with jobs.started(path, 2, cache=tmp_path / "cache", studies=[path, other]) as processes:
        (first, told, message), (second, _, _) = jobs.ended(processes)
    assert (first, second, told) == (2, 2, "")
    assert "process 1 has another study than process 0" in message


UNDIRECTED = """PDGDS PDGNDS PDGNDS:form="square" DGD EXTRA DIGing AugDGM AsynDGM AB PushPull ADDOPT
PDGNDS:form="square":split={kind="isotropic"}"""


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("graph", ["grid", "directed"])
def test_every_algorithm_on_two_processes_gives_the_result_of_one(study, tmp_path, devices, graph):
    path, cache = study(iterations=200), tmp_path / "cache"
    text = path.read_text().replace("value = 0.05", "value = 0.002")  # none diverges
    if graph == "directed":
        old = 'graph = "grid"\nrows = 4\ncolumns = 3'
        text = text.replace(old, 'graph = "random_directed"\nn_agents = 12\ndegree = 2')
    head, rest = text.split("[[algorithm]]")
    table, end = rest.split("[run]")
    names = UNDIRECTED.split() if graph == "grid" else ["AB", "PushPull", "ADDOPT"]
    tables = [
        table.replace('"AsynDGM"', "\n".join([f'"{name}"', *options]))
        for name, *options in (each.split(":") for each in names)
    ]
    path.write_text(head + "".join(f"[[algorithm]]{each}" for each in tables) + "[run]" + end)
    options = ("--save", str(tmp_path / "two"))
    with jobs.started(path, 2, *options, cache=cache, devices=devices) as processes:
        done = jobs.ended(processes)
    assert [code for code, _, _ in done] == [0, 0], done
    jobs.alone(path, "--save", str(tmp_path / "one"), cache=cache)
    assert len(saved(tmp_path / "one")) == len(names)
    check_same(saved(tmp_path / "two"), saved(tmp_path / "one"))


def states(cache):
    return list(cache.glob("hushgrad/unfinished/*/*.state/block-0.npz"))


def interrupt(processes, cache, how):
    """Wait for a state on disk and a while, then end the last process in its own way."""
    end = time.monotonic() + jobs.LIMIT
    while not states(cache):
        assert time.monotonic() < end, "no state was kept"
        assert all(p.poll() is None for p in processes)
        time.sleep(0.1)
    time.sleep(random.uniform(0.0, 1.5))
    processes[-1].send_signal(how)
    return time.monotonic()


@pytest.mark.slow
def test_a_killed_process_ends_the_job_and_its_state_continues_on_one_two_or_four(study, tmp_path):
    path, cache = study("DIGing", 60_000), tmp_path / "cache"
    keeping = ("--checkpoint-every", "0.01")
    with jobs.started(path, 2, *keeping, cache=cache) as processes:
        begun = interrupt(processes, cache, signal.SIGKILL)
        (first, told, message), _ = jobs.ended(processes, 30)
        assert time.monotonic() - begun < 30
    assert (first, told) == (7, "")
    errors = [line for line in message.splitlines() if line.startswith("error")]
    assert errors == ["error: process 1 ended before the others. Its own messages say why."]
    kept = int(np.load(states(cache)[0])["k"])
    assert 0 < kept < 60_000
    jobs.alone(path, "--save", str(tmp_path / "whole"), cache=_copy(cache, tmp_path / "c0", False))
    expected = saved(tmp_path / "whole")
    for n in (1, 2, 4):
        own = _copy(cache, tmp_path / f"c{n}", True)
        options = ("--resume", "--save", str(tmp_path / f"again{n}"))
        if n == 1:
            jobs.alone(path, *options, cache=own)
        else:
            with jobs.started(path, n, *options, cache=own) as processes:
                done = jobs.ended(processes)
                assert [code for code, _, _ in done] == [0] * n, done
        check_same(saved(tmp_path / f"again{n}"), expected)


def _copy(cache, target, with_state):
    if with_state:
        shutil.copytree(cache, target)
    else:
        target.mkdir(mode=0o700)
    return target


@pytest.mark.slow
def test_a_frozen_process_ends_the_job_within_30_seconds(study, tmp_path):
    path, cache = study("DIGing", 10_000_000), tmp_path / "cache"
    with jobs.started(path, 2, "--checkpoint-every", "0.01", cache=cache) as processes:
        begun = interrupt(processes, cache, signal.SIGSTOP)
        code = processes[0].wait(40)
        assert time.monotonic() - begun < 30
        processes[1].kill()
        assert code == 7
        assert "process 1 has been silent" in processes[0].communicate()[1]


@pytest.mark.slow
def test_the_death_of_process_0_ends_the_others_within_30_seconds(study, tmp_path):
    """JAX's own runtime ends them, too, sometimes before they can say which process it was."""
    path, cache = study("DIGing", 10_000_000), tmp_path / "cache"
    with jobs.started(path, 2, "--checkpoint-every", "0.01", cache=cache) as processes:
        begun = interrupt(processes[::-1], cache, signal.SIGKILL)
        assert processes[1].wait(40) in (7, -signal.SIGABRT)
        assert time.monotonic() - begun < 30


@pytest.mark.slow
def test_ctrl_c_keeps_the_state_of_a_job(study, tmp_path):
    path, cache = study("DIGing", 10_000_000), tmp_path / "cache"
    with jobs.started(path, 2, "--checkpoint-every", "0.01", cache=cache) as processes:
        interrupt(processes[::-1], cache, signal.SIGINT)
        (first, _, message), (second, _, _) = jobs.ended(processes, 60)
    assert first == 130
    assert second != 0
    assert "--resume continues" in message
    assert states(cache)


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="there is no mpirun")
def test_mpirun_starts_a_job(study, tmp_path):
    told = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=True)
    if "(Open MPI) 4." not in told.stdout:
        pytest.importorskip("mpi4py", reason="JAX asks mpi4py where mpirun is not Open MPI 4")
    path, cache = study(), tmp_path / "cache"
    done = subprocess.run(
        ["mpirun", "-n", "2", sys.executable, "-m", "hushgrad", "run", str(path), "--distributed",
         "--format", "json"],
        capture_output=True, text=True, timeout=jobs.LIMIT, check=False,
        env=jobs.environment(cache) | {
            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    expected = json.loads(jobs.alone(path, cache=cache))["results"][0]["median_error"]
    found = json.loads(done.stdout)["results"][0]["median_error"]
    assert found == pytest.approx(expected, abs=1e-12)
