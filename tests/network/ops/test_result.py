"""The end of a run: statuses, exit codes, and files that are never half written."""

import io
import json
import logging
import os
from pathlib import Path

import numpy as np
import pytest

from hushgrad.errors import InputError
from hushgrad.network.config.model import LogConfig
from hushgrad.network.ops import result as results
from hushgrad.network.ops.logs import start_logging, stop_logging
from hushgrad.network.ops.result import (
    EXIT_CODES,
    AgentResult,
    Status,
    read_result,
    replace_file,
    result_files,
    write_result,
)


def a_result(**changes):
    fields = {
        "name": "ann",
        "run": "r1",
        "status": Status.DONE,
        "theta": np.array([1 / 3, -2e-300, 7.0]),
        "iterations": 500,
        "rounds": 1000,
        "incarnation": 2,
        "peers": ("bob", "dan"),
        "seconds": 1.25,
    }
    return AgentResult(**(fields | changes))


def test_a_result_is_read_back_bit_for_bit(tmp_path):
    result = a_result(status=Status.PEER_LOST, detail="bob at round 17")
    in_json, in_npz = write_result(tmp_path / "out" / "result", result)
    assert (in_json.name, in_npz.name) == ("result.json", "result.npz")
    back = read_result(tmp_path / "out" / "result")
    np.testing.assert_array_equal(back.theta, result.theta)
    assert back.document() == result.document() == json.loads(in_json.read_text())
    assert json.loads(in_json.read_text())["theta"] == result.theta.tolist()
    assert sorted(p.name for p in in_json.parent.iterdir()) == ["result.json", "result.npz"]


def test_numbers_that_json_lacks_are_null_there_and_kept_in_the_arrays(tmp_path):
    result = a_result(status=Status.DIVERGED, theta=np.array([np.inf, 1.0]))
    in_json, _ = write_result(tmp_path / "r", result)
    assert json.loads(in_json.read_text())["theta"] == [None, 1.0]
    assert read_result(tmp_path / "r").theta[0] == np.inf


def test_names_with_dots_keep_their_dots():
    assert [p.name for p in result_files(Path("run.1"))] == ["run.1.json", "run.1.npz"]


def test_no_result_is_none_and_a_torn_one_is_named(tmp_path):
    assert read_result(tmp_path / "result") is None
    write_result(tmp_path / "result", a_result())
    for file in result_files(tmp_path / "result"):
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(InputError, match="is no result of an agent"):
            read_result(tmp_path / "result")
        file.write_bytes(whole)


@pytest.mark.parametrize("failing", ["fsync", "write"])
def test_a_file_stays_as_it_was_when_its_successor_cannot_be_written(
    tmp_path, monkeypatch, failing
):
    """A full disk shows in write or in fsync; in both cases the old file stays."""
    path = tmp_path / "f"
    replace_file(path, lambda file: file.write(b"old"))

    def full(*_):
        raise OSError(28, "No space left on device")

    if failing == "fsync":
        monkeypatch.setattr(os, "fsync", full)
    write = full if failing == "write" else lambda file: file.write(b"new")
    with pytest.raises(OSError, match="No space left"):
        replace_file(path, write)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_numbers_are_durable_before_the_document_names_them(tmp_path, monkeypatch):
    order = []
    real_fsync, real_replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (order.append("fsync"), real_fsync(fd)))
    monkeypatch.setattr(
        Path, "replace", lambda self, to: (order.append(to.suffix), real_replace(self, to))[1]
    )
    write_result(tmp_path / "r", a_result())
    assert order == ["fsync", ".npz", "fsync", "fsync", ".json", "fsync"]


def test_every_status_has_one_exit_code():
    assert set(EXIT_CODES) == set(Status)
    assert {s: a_result(status=s).exit_code for s in Status} == EXIT_CODES
    assert results.BAD_INPUT not in EXIT_CODES.values()
    for status in Status:
        result = a_result(status=status)
        assert result.is_done == (result.exit_code == 0)
        assert result.is_resumable == (result.exit_code in (3, 130))


def test_exit_codes_and_statuses_are_documented():
    docs = (Path(__file__).parents[3] / "docs" / "agents.md").read_text(encoding="utf-8")
    for status, code in EXIT_CODES.items():
        assert f"| {code} | `{status}`" in docs
    assert f"| {results.BAD_INPUT} |" in docs


# ---- logs


@pytest.fixture
def spoken():
    """Logs a record and returns the lines."""

    def speak(config, *records):
        stream = io.StringIO()
        handler = start_logging(config, stream)
        try:
            for level, message, extra in records:
                logging.getLogger("hushgrad.agent").log(level, message, extra=extra)
        finally:
            stop_logging(handler)
        return stream.getvalue().splitlines()

    return speak


def test_json_lines_carry_the_event_and_its_fields(spoken):
    record = (logging.WARNING, "bob left", {"event": "lost", "peer": "bob", "round": 7})
    (line,) = spoken(LogConfig(format="json"), record)
    document = json.loads(line)
    assert document.pop("time").endswith("Z")
    assert document == {
        "level": "warning", "event": "lost", "message": "bob left", "peer": "bob", "round": 7,
    }  # fmt: skip


def test_text_lines_are_one_line_each_and_cannot_move_the_cursor(spoken):
    record = (logging.INFO, "said \x1b[2J\nforged", {"event": "x", "peer": "bob"})
    (line,) = spoken(LogConfig(), record)
    assert line.endswith("info     said �[2J�forged  peer=bob")


def test_one_line_a_second_of_each_kind_is_written_and_the_next_counts_the_others(
    spoken, monkeypatch
):
    clock = iter([0.0, 0.4, 0.5, 0.6, 0.9, 1.1, 1.2])
    make = logging.LogRecord.__init__

    def at(record, *args, **kwargs):
        make(record, *args, **kwargs)
        record.created = next(clock)

    monkeypatch.setattr(logging.LogRecord, "__init__", at)

    def refused(reason, peer=""):
        fields = {"event": "rejected", "peer": peer, "reason": reason}
        return logging.WARNING, f"refused: {reason}", fields

    same = refused("certificate")
    lines = spoken(
        LogConfig(format="json"),
        same, same, refused("silence"), same, refused("certificate", "bob"), same, same,
    )  # fmt: skip
    found = [json.loads(line) for line in lines]
    assert [(line["reason"], line["peer"], line.get("left_out")) for line in found] == [
        ("certificate", "", None), ("silence", "", None), ("certificate", "bob", None),
        ("certificate", "", 2),
    ]  # fmt: skip


def test_the_level_is_obeyed_and_stopping_restores_the_logger(spoken):
    records = [(logging.INFO, "low", {}), (logging.ERROR, "high", {})]
    assert len(spoken(LogConfig(level="warning"), *records)) == 1
    logger = logging.getLogger("hushgrad")
    assert not logger.handlers
    assert logger.propagate
