"""The benchmark compares agents with the bare loop and with physics, and every kind runs."""

import pytest

from benchmarks.network import __main__ as command
from benchmarks.network import report
from benchmarks.network.limit import round_seconds
from benchmarks.network.link import DELAY, NoLinkError
from benchmarks.network.rings import run_ring
from support.tables import some


def turn(bare, process, power):
    rates = {"bare": bare, "DGD": process, "process": process, "power": power}
    return {
        kind: {"rate": rate, "round": 1 / rate, "cpu": 1 / rate, "peak_mb": 50.0, "heavy": []}
        for kind, rate in rates.items()
    }


def results(loopback=None, pair=None):
    return {"loopback": loopback or {}, "link": {"pair": pair} if pair else {}, "skipped": []}


def on_link(*rounds, propagation=0.005):
    """Results of turns of a pair, from the times of the agents; the bare loop is at the limit."""
    return [
        {
            kind: {"rate": 1 / seconds, "round": seconds, "cpu": 1e-4, "peak_mb": 50.0,
                   "heavy": [], "propagation": propagation}
            for kind, seconds in (("bare", 0.005), ("process", process))
        }
        for process in rounds
    ]  # fmt: skip


def test_ratios_are_taken_within_a_turn():
    found = report.summarise([
        turn(bare=100.0, process=60.0, power=30.0),
        turn(bare=10.0, process=4.0, power=3.0),
        turn(bare=200.0, process=100.0, power=60.0),
    ])  # fmt: skip
    assert found["process"]["rate_ratio"] == {"median": 0.5, "least": 0.4, "most": 0.6}
    assert found["process"]["cpu_ratio"]["median"] == pytest.approx(2.0)
    assert found["power"]["rate_ratio"]["median"] == 0.3


@pytest.mark.parametrize(("rate", "is_met"), [(50.0, True), (49.0, False)])
def test_a_target_is_missed_below_its_ratio_only(rate, is_met):
    found = report.summarise([turn(bare=100.0, process=rate, power=30.0)])
    judged = {t["what"]: t["ok"] for t in report.targets(results(loopback={"2": found}))}
    assert judged["process: rounds/s to bare"] is is_met
    assert judged["power: rounds/s to bare"]
    assert judged["memory of an agent, MB"]


@pytest.mark.parametrize(("times", "is_met"), [(1.049, True), (1.051, False)])
def test_a_round_is_compared_with_propagation_and_bytes(times, is_met):
    least = 0.005 + 122 * 8 / 100e6
    found = report.summarise_link(2, on_link(2.0, times * least, 0.001))
    assert found["process"]["limit_ratio"]["median"] == pytest.approx(times)
    (target,) = report.targets(results(pair={"2": found}))
    assert target["ok"] is is_met


def test_a_note_names_a_late_link():
    found = {"2": report.summarise_link(2, on_link(0.006, propagation=0.0051))}
    assert report.notes(results(pair=found)) == []
    found = {"2": report.summarise_link(2, on_link(0.006, propagation=0.0055))}
    (note,) = report.notes(results(pair=found))
    assert note.startswith("busy: the link of the pair was 10% late")


@pytest.mark.parametrize("kind", some(["skeleton", "process", "bare"], 2))
def test_a_ring_of_processes_runs(kind):
    found = run_ring(kind, 3, 40, n_agents=3)
    assert found["rate"] > 1
    assert 0 < found["cpu"] < 1
    assert found["heavy"] == []


@pytest.mark.parametrize("kind", ["process", "bare"])
@pytest.mark.slow  # it needs root, and `python -m benchmarks.network` checks the same
def test_agents_on_a_slow_link_are_not_faster_than_physics(kind):
    try:
        found = run_ring(kind, 1000, 20, n_agents=2, is_slow=True)
    except NoLinkError as error:
        pytest.skip(str(error))
    assert 1 / found["rate"] >= round_seconds(1000, DELAY)
    assert found["round"] >= round_seconds(1000, DELAY)


@pytest.mark.parametrize("options", ["--only pair", "--turns 4", "--dims 2", "--quick"])
def test_a_part_of_the_measurement_is_not_written_into_the_page(options, capsys):
    with pytest.raises(SystemExit):
        command.main(["--write", *options.split()])
    assert "--write needs a whole measurement" in capsys.readouterr().err


def test_a_machine_without_slow_links_names_the_skipped_parts(monkeypatch, capsys, tmp_path):
    def fail(*_, **__):
        raise NoLinkError("no /dev/net/tun")

    monkeypatch.setattr(command, "run_ring", fail)
    assert command.main(["--only", "pair", "--out", str(tmp_path)]) == 0
    assert "skipped pair: no /dev/net/tun" in capsys.readouterr().out
