"""An interrupted run leaves its state, and the same call continues it bit for bit."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.errors import InputError
from support import cases
from support.studies import study_text

pytestmark = pytest.mark.optimised  # every bit counts here


Q = cases.Quadratics()
# a state of one vector and one of several; the others are studies
ALGORITHMS = [hg.PDGDS(), hg.PDGNDS(form="square"), hg.AsynDGM(), hg.ADDOPT()]


def run(algorithm, **options):
    return hg.run(
        algorithm, Q.problem, cases.undirected(),
        **({"iterations": 300, "record_every": 3, "x0": Q.x0, "trials": 20, "seed": 3} | options),
    )  # fmt: skip


def interrupting(after):
    """A progress function that raises Ctrl-C once, when `after` of the work is done."""
    sent = []

    def watch(done, total):
        if done >= after * total and not sent:
            sent.append(done)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    return watch


@pytest.mark.parametrize(
    "algorithm",
    [pytest.param(a, marks=[pytest.mark.slow] * (n > 0)) for n, a in enumerate(ALGORITHMS)],
    ids=lambda a: a.label,
)
def test_a_run_that_was_interrupted_continues_bit_for_bit(algorithm, tmp_path):
    metrics = {"mean": lambda x, p: x.mean((1, 2))}
    whole = run(algorithm, metrics=metrics)
    state = tmp_path / "state"
    with pytest.raises(KeyboardInterrupt):
        run(algorithm, metrics=metrics, checkpoint=state, progress=interrupting(0.3))
    assert list(state.glob("block-*.npz"))
    ticks = []
    resumed = run(
        algorithm, metrics=metrics, checkpoint=state, progress=lambda done, _: ticks.append(done)
    )
    np.testing.assert_array_equal(resumed.x, whole.x)
    np.testing.assert_array_equal(resumed.error, whole.error)
    np.testing.assert_array_equal(resumed.consensus, whole.consensus)
    np.testing.assert_array_equal(resumed.metrics["mean"], whole.metrics["mean"])
    assert resumed.status == whole.status
    assert resumed.traffic == whole.traffic
    # a block began where it was left
    assert np.diff([0, *ticks]).max() > 0.2 * 300 * 10
    assert not state.exists()


def test_a_state_never_continues_another_run(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(hg.PDGDS(), checkpoint=tmp_path, progress=interrupting(0.3))
    metric = {"metrics": {"one": lambda x, p: 1.0}}
    for other in ({"seed": 4}, {"x0": None}, {"record_every": 7}, {"trials": 21}, metric):
        with pytest.raises(InputError, match="the state of another run"):
            run(hg.PDGDS(), checkpoint=tmp_path, **other)
    with pytest.raises(InputError, match="the state of another run"):
        run(hg.DGD(), checkpoint=tmp_path)
    assert list(tmp_path.glob("block-*.npz"))  # and nothing was lost


def test_transcripts_and_agents_alone_are_not_continued(tmp_path):
    for options in ({"transcript": True}, {"engine": "agents"}):
        with pytest.raises(InputError, match="only on the stacked engine"):
            run(hg.PDGDS(), checkpoint=tmp_path, **options)


STUDY = study_text(
    {"DGD": None, "PDGDS": None}, network={"graph": "ring", "n_agents": 50},
    problem={"kind": "estimation", "s": 20, "d": 30}, iterations=30_000, record_every=100,
    trials=20,
)  # fmt: skip


def hushgrad(folder, *arguments):
    constants = os.environ | {"XDG_CACHE_HOME": str(folder / "cache")}
    command = [sys.executable, "-m", "hushgrad", "run", "study.toml", *arguments]
    return subprocess.Popen(
        command, cwd=folder, env=constants, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip


@pytest.mark.slow
def test_ctrl_c_on_the_command_line_says_how_to_resume_and_resume_gives_the_same_result(tmp_path):
    (tmp_path / "study.toml").write_text(STUDY)
    whole = json.loads(hushgrad(tmp_path, "--format", "json").communicate()[0])
    process = hushgrad(tmp_path, "--format", "json")
    cache = tmp_path / "cache" / "hushgrad" / "unfinished"
    deadline = time.monotonic() + 120
    while not list(cache.glob("*/run-0.npz")) and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert not out
    assert "--resume" in err
    assert "finished runs (1)" in err
    resumed = json.loads(hushgrad(tmp_path, "--format", "json", "--resume").communicate()[0])
    for a, b in zip(whole["results"], resumed["results"], strict=True):
        assert a | {"seconds": 0} == b | {"seconds": 0}
    assert not list(cache.iterdir())
