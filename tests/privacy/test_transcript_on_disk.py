"""Large transcripts go to disk, and nothing else changes."""

import errno
import gc
import os
from pathlib import Path

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.errors import InputError
from hushgrad.privacy import Eavesdropper, Knowledge, Truth
from hushgrad.simulate import recording as book
from support import cases
from support.tables import some

D = 3
PROBLEM = hg.problems.estimation(n_agents=7, d=D)
NETWORK = cases.undirected()  # whose agents the stacked engine reorders
ALGORITHMS = [
    hg.PDGDS(),
    hg.PDGNDS(form="square"),  # a first iteration that differs
    hg.DIGing(),  # pulled, two exchanges
    hg.ADDOPT(),  # vectors and scalars
    hg.AsynDGM(),  # links that sleep
]
COMPILED = [a for a in ALGORITHMS if not isinstance(a, hg.DIGing | hg.ADDOPT)]


def record(algorithm, engine="stacked", trials=2, **options):
    options = {"iterations": 300, "seed": 3, "transcript": True} | options
    return hg.run(algorithm, PROBLEM, NETWORK, engine=engine, trials=trials, **options)


def is_on_disk(array):
    while array is not None:
        if isinstance(array, np.memmap):
            return True
        array = array.base
    return False


@pytest.mark.optimised
@pytest.mark.parametrize(
    ("algorithm", "engine"),
    [*((a, "agents") for a in ALGORITHMS), *some([(a, "stacked") for a in COMPILED], 6)],
    ids=lambda v: getattr(v, "label", v),
)
def test_a_transcript_on_disk_equals_one_in_memory(algorithm, engine, monkeypatch):
    iterations = 300 if algorithm == hg.PDGDS() and engine == "stacked" else 40  # two chunks, one
    kept = record(algorithm, engine, iterations=iterations)
    monkeypatch.setattr(book, "MEMORY", 0)
    stored = record(algorithm, engine, iterations=iterations)
    assert is_on_disk(stored.trace)
    assert not is_on_disk(kept.trace)
    np.testing.assert_array_equal(stored.trace, kept.trace)
    assert stored.transcript.n_messages == kept.transcript.n_messages
    for one, other in zip(stored.transcript.channels, kept.transcript.channels, strict=True):
        assert is_on_disk(one.values)
        assert not is_on_disk(other.values)
        np.testing.assert_array_equal(one.values, other.values)
        np.testing.assert_array_equal(one.iterations, other.iterations)
        assert (one.awake is None) == (other.awake is None)
        if one.awake is not None:
            np.testing.assert_array_equal(one.awake, other.awake)


def test_memory_is_filled_before_the_disk(monkeypatch):
    monkeypatch.setattr(book, "MEMORY", 2 * 301 * 18 * D * 8)  # the messages, or first the trace
    run = record(hg.PDGDS())
    assert not is_on_disk(run.trace)
    assert is_on_disk(run.transcript.channels[0].values)


@pytest.mark.parametrize("algorithm", some(reversed(COMPILED)), ids=lambda a: a.label)
def test_the_trace_is_every_estimate_in_both_engines(algorithm):
    stacked = record(algorithm, iterations=40)
    alone = record(algorithm, "agents", iterations=40)
    assert stacked.trace.shape == (2, 41, 7, D)
    np.testing.assert_allclose(stacked.trace, alone.trace, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(stacked.trace[:, 0], stacked.x0)
    np.testing.assert_array_equal(stacked.trace[:, -1], stacked.x)
    short = record(algorithm, iterations=7, transcript=False)  # the same run, ended before
    np.testing.assert_allclose(stacked.trace[:, 7], short.x, rtol=1e-13, atol=1e-15)
    assert short.trace is None  # without a transcript


def test_a_saved_run_takes_the_messages_and_leaves_the_trace(tmp_path, monkeypatch):
    monkeypatch.setattr(book, "MEMORY", 0)
    run = record(hg.PDGDS())
    loaded = hg.load_run(run.save(tmp_path / "run.npz"))
    np.testing.assert_array_equal(
        loaded.transcript.channels[0].values, run.transcript.channels[0].values
    )
    assert loaded.trace is None
    assert loaded.x0 is None
    with np.load(tmp_path / "run.npz") as file:
        stored = {name: file[name] for name in file.files}
    for name, array in stored.items():
        assert not np.isin(run.trace[0, 150], array).any(), name


MAPS = Path("/proc/self/maps")


def open_files():
    return MAPS.read_text().count("(deleted)")


@pytest.mark.skipif(not MAPS.exists(), reason="needs /proc")
def test_files_vanish_with_the_transcript(tmp_path, monkeypatch):
    monkeypatch.setattr(book, "MEMORY", 0)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    gc.collect()
    before = open_files()
    run = record(hg.PDGDS())
    assert open_files() > before
    assert not list(tmp_path.iterdir())  # they never had a name
    del run
    gc.collect()
    assert open_files() == before


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="needs posix_fallocate")
def test_a_full_disk_is_an_error_that_says_what_to_do(monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(book, "MEMORY", 0)
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(InputError, match=r"no room for .* GiB .*No space left.* TMPDIR"):
        record(hg.PDGDS())


def test_a_block_that_diverges_early_leaves_nan_behind():
    """Sixteen trials run in two blocks; all of the first are lost at once, the second goes on."""
    x0 = np.zeros((16, 7, D))
    x0[:8] = 1e101
    run = hg.run(
        hg.DGD(stepsize=hg.stepsizes.diminishing(0.01)), PROBLEM, NETWORK, iterations=300,
        trials=16, transcript=True, x0=x0,
    )  # fmt: skip
    (channel,) = run.transcript.channels
    assert run.trace.shape[1] == 301
    assert channel.values.shape[1] == len(channel.iterations) == 300
    assert np.isfinite(run.trace[8:]).all()
    assert np.isfinite(channel.values[8:]).all()
    assert np.isnan(run.trace[:8, -1]).all()
    assert np.isnan(channel.values[:8, -1]).all()
    np.testing.assert_array_equal(run.trace[8:, -1], run.x[8:])


@pytest.mark.slow
def test_ten_million_messages_are_kept_without_failing():
    """600 links, 16 700 iterations, d = 30: 2.4 GB of messages, more than MEMORY."""
    network = hg.Network(hg.graphs.random_regular(100, 6, seed=0))
    problem = hg.problems.estimation(n_agents=100, s=3, d=30)
    run = hg.run(
        hg.PDGDS(stepsize=hg.stepsizes.diminishing(0.1)), problem, network, iterations=16_700,
        transcript=True,
    )  # fmt: skip
    assert run.transcript.n_messages == 16_700 * 600 > 10**7
    (channel,) = run.transcript.channels
    assert is_on_disk(channel.values)
    assert channel.values.nbytes > book.MEMORY
    view = Knowledge.of(run, Eavesdropper())
    truth = Truth(run)
    i = 5
    sent = sum(view.sent(i, j) for j in view.out_links(i))
    told = sum(view.sent(j, i) for j in view.in_links(i))
    # columns of W and B sum to one: what is neither sent nor stepped is kept
    kept = truth.x[:-1, i] - truth.h(i) - sent
    np.testing.assert_allclose(kept + told, truth.x[1:, i], rtol=1e-9, atol=1e-12)
