"""`hushgrad fit` as an operator runs it: processes, kills, the table, the files, the status."""

import json
import signal

import pytest
from typer.testing import CliRunner

from hushgrad.cli import app
from hushgrad.fitting import load_model, rows_of, table_of
from hushgrad.fitting.rows import needed
from hushgrad.network.keys.identity import mint
from hushgrad.schema.toml import to_toml
from support import agent_network, fit_network, fits
from support.forked_agent import Forked
from support.waiting import wait_for

MODEL = {
    "kind": "logistic", "outcome": "death", "columns": ["age", "stage"],
    "factors": {"stage": list(fits.LEVELS)},
}  # fmt: skip
SITES = fits.synthetic((80, 90, 100))
NAMES = list(SITES)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Three sites, all linked: their directories, with keys, rows and agents' files."""
    home = tmp_path_factory.mktemp("sites")
    ports = agent_network.free_ports(3)
    (home / "model.toml").write_text(to_toml({"model": MODEL}))
    for name in NAMES:
        mint(home / "keys", name)
    for j, name in enumerate(NAMES):
        (home / name).mkdir()
        others = [
            {"name": other, "number": i, "certificate": f"../keys/{other}.crt"}
            for i, other in enumerate(NAMES)
            if i != j
        ]
        fit_network.write_rows(home / name / "rows.csv", SITES[name])
        tables = {
            "agent": {
                "name": name, "number": j, "listen": f"127.0.0.1:{ports[j]}",
                "key": f"../keys/{name}.key", "certificate": f"../keys/{name}.crt",
                "durability": "process", "accept_exposure": ["sums"],
            },
            "run": {"id": agent_network.run_id(home), "n_agents": 3},
            "fit": {"model": "../model.toml", "file": "rows.csv"},
            "neighbour": [p | {"address": f"127.0.0.1:{ports[p['number']]}"} for p in others],
            "partner": others,
        }  # fmt: skip
        (home / name / "agent.toml").write_text(to_toml(tables))
    return {name: home / name / "agent.toml" for name in NAMES}


def call(*arguments, code=0):
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.output


def test_three_processes_one_of_them_killed_print_one_table(files, tmp_path):
    first, *others = NAMES
    started = Forked.start(tmp_path, "fit", files[first])
    state = files[first].parent / "state"
    wait_for(lambda: (state / "sums").exists())
    started.signal(signal.SIGKILL)
    started.process.join()
    said = call("status", files[first])
    assert "stopped, before its first round" in said
    processes = [Forked.start(tmp_path, "fit", files[name]) for name in others]
    processes.append(Forked.start(tmp_path, "agent", files[first], "--format", "json"))
    ends = [process.end() for process in processes]
    assert [code for code, _, _ in ends] == [0, 0, 0], ends
    plain = fits.fit(load_model(files[first].parents[1] / "model.toml"), SITES)
    table = plain.table().splitlines()
    for _, out, err in ends[:2]:
        lines = out.splitlines()
        assert lines[0] == "done"
        assert lines[3:-4] == table[:-2]
        assert lines[-3] == table[-1]  # the contract
        assert f"{plain.n_averages} averages, {plain.n_averages + 1} rounds" in lines[-4]
        assert "coefficients.csv" in err
        assert "page.html" in err
        name = next(name for name in others if f" rows of {name} alone" in lines[-1])
        declared = load_model(files[first].parents[1] / "model.toml")
        rows = rows_of(declared, table_of(SITES[name], needed(declared), site=name))
        assert lines[-1] == plain.checked(name, rows).line
        page = (files[name].parent / "state" / "page.html").read_text()
        assert f"The rows of {name}" in page
        assert not any(f"rows of {other} alone" in out for other in NAMES if other != name)
    document = json.loads(ends[2][1])
    assert document["fit"]["estimate"] == document["theta"] == plain.estimate.tolist()
    assert document["incarnation"] == 2
    assert list(document["local"]) == [first]
    kept = json.loads((state / "result.json").read_text())
    assert "local" not in kept
    assert "checks" not in kept["fit"]
    for file in files.values():
        assert (file.parent / "state" / "coefficients.csv").read_text() == plain.to_csv()
    said = call("status", files[first])
    assert f"done after {plain.n_averages + 1} stages" in said
    assert "stage[high]" in said


def test_fit_refuses_a_file_without_a_fit(tmp_path):
    call("new", "--agent", tmp_path / "agent.toml")
    out = call("fit", tmp_path / "agent.toml", code=2)
    assert "has no table [fit]" in out
