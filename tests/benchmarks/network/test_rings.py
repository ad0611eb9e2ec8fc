"""The ring of agents is compared with the bare loop turn by turn, and each of them really runs."""

import pytest

from benchmarks import network


def turn(bare, process, power):
    rates = {"bare": bare, "DGD": process, "process": process, "power": power}
    return {
        kind: {"rate": rate, "cpu": 1 / rate, "peak_mb": 50.0, "heavy": []}
        for kind, rate in rates.items()
    }


def test_ratios_are_taken_within_a_turn():
    found = network.summarise([
        turn(bare=100.0, process=60.0, power=30.0),
        turn(bare=10.0, process=4.0, power=3.0),
        turn(bare=200.0, process=100.0, power=60.0),
    ])  # fmt: skip
    assert found["process"]["rate_ratio"] == {"median": 0.5, "least": 0.4, "most": 0.6}
    assert found["process"]["cpu_ratio"]["median"] == pytest.approx(2.0)
    assert found["power"]["rate_ratio"]["median"] == 0.3


@pytest.mark.parametrize(("rate", "is_met"), [(50.0, True), (49.0, False)])
def test_a_target_is_missed_below_its_ratio_only(rate, is_met):
    found = network.summarise([turn(bare=100.0, process=rate, power=30.0)]) | {"command_mb": 70.0}
    judged = {t["what"]: t["ok"] for t in network.targets({"2": found})}
    assert judged["process: rounds/s"] is is_met
    assert judged["power: rounds/s"]
    assert judged["memory of an agent, MB"]


@pytest.mark.parametrize("kind", ["bare", "process"])
def test_a_ring_of_processes_runs(kind):
    found = network.run_ring(kind, 3, 40)
    assert found["rate"] > 1
    assert 0 < found["cpu"] < 1
    assert found["heavy"] == []
