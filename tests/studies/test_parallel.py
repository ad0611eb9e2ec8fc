"""Rows of a sweep that run side by side have the numbers of rows that run one after the other."""

import csv
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

import hushgrad as hg
from hushgrad.errors import InputError, RiskWarning, StudyError
from hushgrad.studies import load_study, parse_study
from hushgrad.studies.sweep import numbers
from support.studies import study_text
from support.waiting import wait_for

TEXT = study_text({"PDGNDS": 0.1, "EXTRA": 0.1}, iterations=6, engine="agents")
SWEEP = '[sweep]\n"run.seed" = [1, 2, 3]\n"algorithm.stepsize.value" = [0.05, 0.1]\n'


class _AtOnce:
    """An executor without workers, so that a test sees what a worker would do."""

    def submit(self, function, *arguments):
        future = Future()
        future.set_result(function(*arguments))
        return future


def _without_seconds(table):
    return [{key: value for key, value in row.items() if key != "seconds"} for row in table]


@pytest.fixture(scope="module")
def serial():
    return _without_seconds(hg.sweep(parse_study(TEXT + SWEEP)))


def test_processes_give_the_table_of_one_process(tmp_path, serial):
    (tmp_path / "sweep.toml").write_text(TEXT + SWEEP)
    got = hg.sweep(tmp_path / "sweep.toml", jobs=2)
    assert _without_seconds(got) == serial


def test_rows_come_in_their_order_whichever_ends_first(serial):
    class Backwards(ThreadPoolExecutor):
        def submit(self, function, row, keep):
            def late(*arguments):
                time.sleep(0.02 * (5 - row.row))
                return function(*arguments)

            return super().submit(late, row, keep)

    seen, ticks = [], []
    with Backwards(6) as executor:
        parse_study(TEXT + SWEEP).run_sweep(
            lambda done, total: ticks.append((done, total)),
            lambda row, runs: seen.append((row.row, [run.label for run in runs])),
            executor=executor,
        )
    assert seen == [(n, ["PDG-NDS", "EXTRA"]) for n in range(6)]
    assert ticks[-1] == (6 * 2 * 6, 6 * 2 * 6)
    assert ticks == sorted(ticks)


def test_chosen_rows_have_the_numbers_of_the_whole_sweep(serial):
    got = hg.sweep(parse_study(TEXT + SWEEP), rows=[1, 4], executor=_AtOnce())
    assert _without_seconds(got) == [row for row in serial if row["row"] in (1, 4)]


def test_the_warnings_of_a_worker_are_given_here():
    text = study_text({"DGD": 0.1}, iterations=2, engine="agents")
    study = parse_study(text + '[sweep]\n"run.seed" = [1, 2]\n')
    with pytest.warns(RiskWarning) as alone:
        study.sweep()[0].study.run(False)
    with pytest.warns(RiskWarning) as here:
        hg.sweep(study, executor=_AtOnce())
    assert [str(w.message) for w in here] == 2 * [str(w.message) for w in alone]


def test_a_worker_that_is_killed_is_told(tmp_path):
    (tmp_path / "problem.py").write_text(
        "import multiprocessing, os, signal\n"
        "import hushgrad as hg\n"
        "def build():\n"
        "    if multiprocessing.parent_process() is not None:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return hg.problems.rendezvous([[0.0], [1.0], [2.0], [3.0]])\n"
    )
    text = study_text({"EXTRA": 0.1}, problem={"function": "problem.py:build"}, iterations=2)
    (tmp_path / "sweep.toml").write_text(text + '[sweep]\n"run.seed" = [1, 2]\n')
    with pytest.raises(StudyError, match=r"a process of the sweep ended .* --resume goes on"):
        hg.sweep(load_study(tmp_path / "sweep.toml"), jobs=2)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"jobs": 0}, r"jobs ≥ 1, but jobs = 0"),
        ({"jobs": 2, "executor": _AtOnce()}, r"workers of its own, but jobs = 2"),
        ({"rows": [6]}, r"rows 0 to 5, but row = 6"),
    ],
)
def test_options_that_cannot_be_are_refused_before_a_row_runs(options, said):
    with pytest.raises(InputError, match=said):
        hg.sweep(parse_study(TEXT + SWEEP), **options)


@pytest.mark.parametrize("text", ["", "x", "3-1", "1,,2", "-1", "1-2-3", "1.5"])
def test_lists_of_rows_that_are_none_are_refused(text):
    with pytest.raises(StudyError, match="numbers and ranges"):
        numbers(text)


@pytest.mark.slow
def test_ctrl_c_leaves_the_rows_under_way_and_a_resumed_sweep_has_the_same_table(tmp_path):
    text = study_text({"EXTRA": 0.1}, iterations=1)
    rows = '[sweep]\n"run.iterations" = [100, 5_000_000, 5_000_001]\n'
    (tmp_path / "sweep.toml").write_text(text + rows)
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "hushgrad", "run", "sweep.toml", "--jobs", "2", "--out"]

    def start(out, *options):
        return subprocess.Popen(
            [*command, out, *options], cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True, process_group=0,
        )  # fmt: skip

    def code(process):
        process.communicate(timeout=300)
        return process.returncode

    first = start("interrupted")
    states = tmp_path / "cache/hushgrad/unfinished"
    wait_for(lambda: list(states.rglob("row0-0.npz")), 120)
    os.killpg(first.pid, signal.SIGINT)
    assert "--resume continues" in first.communicate(timeout=120)[1]
    assert first.returncode == 130
    assert code(start("resumed", "--resume")) == code(start("whole")) == 0
    tables = []
    for out in ("resumed", "whole"):
        with (tmp_path / out / "sweep.csv").open() as file:
            tables.append(_without_seconds(csv.DictReader(file)))
    assert tables[0] == tables[1]
