"""The benchmark notices disagreement and missed targets, and writes between its marks only."""

import argparse
import json
import os
import subprocess

import numpy as np
import pytest

from benchmarks import machine, tables
from benchmarks.simulator import __main__ as command
from benchmarks.simulator import limit, measure, processes, report, runners, workloads
from hushgrad.cli import bench


class Still:
    """A runner that stays at x and records the order of the runs."""

    def __init__(self, x, order=None):
        self.x, self.order = np.array(x, float)[None], order if order is not None else []

    def advance(self, k, n):
        self.order.append((self, k, n))


@pytest.mark.parametrize(
    ("engine", "ok"), [(1000 + 9e-10, True), (1000 + 2e-9, False), (np.nan, False)]
)
def test_engine_and_limit_agree_relative_to_the_largest_number(engine, ok):
    clocked = {
        "engine ds": runners.Clocked(Still([0, engine])),
        "limit ds": runners.Clocked(Still([0, 1000])),
    }
    assert measure._agreement(clocked)["ds"]["ok"] is ok


def test_the_loss_by_autodiff_is_compared_with_the_limit_of_ds():
    clocked = {
        "engine autodiff": runners.Clocked(Still([1])),
        "limit ds": runners.Clocked(Still([2])),
    }
    assert measure._agreement(clocked)["autodiff"]["difference"] == 0.5


def test_rounds_are_interleaved_and_every_runner_goes_on_where_it_ended():
    order = []
    first, second = runners.Clocked(Still([0], order), n=3), runners.Clocked(Still([0], order), n=5)
    runners.interleave([first, second], 3)
    assert [k for runner, k, _ in order if runner is second.runner] == [0, 5, 10]
    who = [runner is first.runner for runner, _, _ in order]
    assert who == [True, False, False, True, True, False]
    assert len(first.wall) == 3


def test_ratios_are_medians_of_the_ratios_within_rounds():
    times = {"engine ds": {"wall": [2.0, 30.0, 8.0]}, "limit ds": {"wall": [1.0, 10.0, 2.0]}}
    assert measure._ratios(times)["ds"] == {"median": 3.0, "least": 2.0, "most": 4.0}


def test_a_target_is_missed_above_its_ratio_only():
    measured = {"c": {"one_core": {"ratios": {"ds": {"median": 2.0}, "lazy": {"median": 1.61}}}}}
    found = {(t["workload"], t["what"]): t["ok"] for t in report.targets(measured)}
    assert found == {("c", "ds"): True, ("c", "lazy"): False}


def test_a_page_is_rewritten_between_the_marks_only(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- bench:begin -->\nold\n<!-- bench:end -->\nafter\n")
    for block in ("new \\1", "newer"):
        assert report.rewrite(page, block)
    assert page.read_text() == "before\n<!-- bench:begin -->\nnewer\n<!-- bench:end -->\nafter\n"
    page.write_text("no marks\n")
    assert not report.rewrite(page, "new")
    assert page.read_text() == "no marks\n"


def test_the_command_finds_the_benchmark_of_this_tree(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert bench._tree() == machine.ROOT


@pytest.mark.parametrize(
    ("flags", "name"),
    [("fpu avx avx2 avx512f", "AVX-512"), ("fpu avx avx2", "AVX2"), ("fp asimd", "NEON")],
)
def test_the_headline_names_the_widest_vector_instructions(flags, name, monkeypatch):
    monkeypatch.setattr(machine, "_field", lambda file, field: flags)
    monkeypatch.setattr(machine, "_memory_gb", lambda: 1.0)
    results = {"machine": machine.describe(), "date": "2026-11-18"}
    assert f" with {name}, " in tables.headline(results)


def test_a_cap_is_told_and_holds_for_the_limit_too(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_parallel_codegen_split_count=1")
    monkeypatch.setattr(machine, "_field", lambda file, field: "avx2 avx512f")
    assert machine.instruction_set() == "AVX-512"
    machine.cap_to_avx2()
    assert os.environ["XLA_FLAGS"].startswith("--xla_cpu_parallel_codegen_split_count=1 ")
    assert machine.instruction_set() == "AVX-512, capped to AVX2"
    commands = []

    def refused(command, **options):
        commands.append(command)
        return subprocess.CompletedProcess(command, 1, "", "no")

    monkeypatch.setattr(subprocess, "run", refused)
    with pytest.raises(limit.NoCompilerError):
        limit.library.__wrapped__(2, 3, 8)
    assert "-march=haswell" in commands[0]
    assert not any("-march=native" in command for command in commands)


def test_every_processor_has_its_column_and_every_target_its_row():
    def results(cpu, ratio):
        cell = {"workload": "d", "what": "square", "most": 2.0, "ratio": ratio, "ok": ratio <= 2}
        return {"machine": {"cpu": cpu, "instructions": "AVX2"}, "targets": [cell]}

    table = report.processors({"one": results("A", 1.5), "two": results("B", 2.5)})
    assert table.header == ["", "A, AVX2", "B, AVX2"]
    rows = {row[0]: row[1:] for row in table.rows}
    assert len(rows) == len(workloads.TARGETS)
    assert rows["d, PDG-NDS square to PDG-DS"] == ["1.50 ≤ 2", "2.50 MISSED: 2"]
    assert rows["a, PDG-DS"] == ["–", "–"]


def test_results_are_added_only_to_those_of_the_same_machine(tmp_path, monkeypatch):
    kept = {"machine": machine.describe() | {"load_before": 9.0}, "workloads": {"a": {}}}
    (tmp_path / "bench.json").write_text(json.dumps(kept))
    options = argparse.Namespace(add=True, out=tmp_path)
    assert command._kept(options)["workloads"] == {"a": {}}
    assert command._kept(argparse.Namespace(add=False, out=tmp_path)) == {}
    monkeypatch.setattr(machine, "is_capped", lambda: True)
    monkeypatch.setattr(machine, "_field", lambda file, field: "1 avx512f")
    with pytest.raises(processes.WorkerError, match="another machine"):
        command._kept(options)
