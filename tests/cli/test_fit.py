"""`hushgrad fit` as an operator runs it: processes, kills, the table, the files, the status."""

import json
import signal

import pytest
from typer.testing import CliRunner

from hushgrad.cli import app
from hushgrad.fitting import load_model, rows_of, table_of
from hushgrad.fitting.rows import needed
from hushgrad.network.config.file import load_config
from hushgrad.network.keys.identity import mint
from hushgrad.schema.toml import to_toml
from support import agent_network, fit_network, fits
from support.forked_agent import Forked
from support.waiting import wait_for

SITES = fits.synthetic((80, 90, 100))
NAMES = list(SITES)


def write_sites(home, **agent):
    """Three sites, all linked: their directories, with keys, rows and agents' files."""
    ports = agent_network.free_ports(3)
    (home / "model.toml").write_text(to_toml({"model": fits.MODEL}))
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
                "durability": "process", "accept_exposure": ["sums"], **agent,
            },
            "run": {"id": agent_network.run_id(home), "n_agents": 3},
            "fit": {"model": "../model.toml", "file": "rows.csv"},
            "neighbour": [p | {"address": f"127.0.0.1:{ports[p['number']]}"} for p in others],
            "partner": others,
        }  # fmt: skip
        (home / name / "agent.toml").write_text(to_toml(tables))
    return {name: home / name / "agent.toml" for name in NAMES}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_sites(tmp_path_factory.mktemp("sites"))


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
        assert lines[3:-5] == table[:-2]
        assert f"{plain.n_averages} averages, {plain.n_averages} rounds" in lines[-5]
        assert "masks: no guarantee, no bound declared" in lines[-4]
        assert lines[-3] == table[-1]  # the contract
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
    assert f"done after {plain.n_averages} stages" in said
    assert "stage[high]" in said


# ---- a wrong site: the third of three


def other_model(**changes):
    def apply(file):
        (file.parents[1] / "other.toml").write_text(to_toml({"model": fits.MODEL | changes}))
        file.write_text(file.read_text().replace("../model.toml", "../other.toml"))

    return apply


def rewritten(change, *, fit=""):
    """The file of rows, changed as a text; `fit`: more lines of [fit]."""

    def apply(file):
        rows = file.parent / "rows.csv"
        rows.write_bytes(change(rows.read_text()).encode())
        text = file.read_text()
        file.write_text(text.replace('file = "rows.csv"', f'file = "rows.csv"\n{fit}'))

    return apply


def cells(text):
    """(header, rows) of a CSV text."""
    header, *rows = [line.split(",") for line in text.splitlines()]
    return header, rows


def joined(header, rows, between=","):
    return "\n".join(between.join(row) for row in [header, *rows]) + "\n"


def column(name, change):
    def apply(text):
        header, rows = cells(text)
        n = header.index(name)
        for row in rows:
            row[n] = change(row[n])
        return joined(header, rows)

    return apply


def semicolons(text, decimal="."):
    return joined(*cells(text), ";").replace(".", decimal)


def swapped(text):
    """The columns in another order, with their names: files are read by name."""
    header, rows = cells(text)
    return joined(header[::-1], [row[::-1] for row in rows])


REFUSED = {
    "another penalty": (other_model(penalty=2.0), "model.penalty: ", "0.0", "2.0"),
    "another kind": (other_model(kind="poisson"), "model.kind: ", "'logistic'", "'poisson'"),
    "swapped columns": (
        other_model(columns=["stage", "age"]), "model.columns[0]: ", "'age'", "'stage'",
    ),
    "other units": (other_model(units={"age": "months"}), "model.units.age: ", "'months'"),
    "one extra level": (
        other_model(factors={"stage": [*fits.LEVELS, "extra"]}), "model.factors.stage[3]: ",
        "'extra'",
    ),
    "an undeclared level": (
        rewritten(column("stage", lambda v: "extra" if v == "high" else v)),
        "column stage is 'extra'", "low, middle, high",
    ),
    "months": (rewritten(column("age", lambda v: repr(12 * float(v)))), "column age is", "130"),
    "labels 1/2": (
        rewritten(column("death", lambda v: str(1 + int(float(v))))), "column death is '2'",
        "0 or 1",
    ),
    "decimal comma": (
        rewritten(lambda text: semicolons(text, ",")), "column age is '", 'decimal=","',
    ),
}  # fmt: skip
HANDLED = {
    "a BOM": rewritten(lambda text: "\ufeff" + text),
    "semicolons": rewritten(semicolons),
    "a declared decimal comma": rewritten(lambda text: semicolons(text, ","), fit='decimal = ","'),
    "columns in another order": rewritten(swapped),
}


def ends_of(home, directory, change, monkeypatch):
    monkeypatch.setitem(fits.MODEL, "ranges", {"age": [0.0, 130.0]})
    files = write_sites(home, max_wait=2.0, heartbeat=0.5)
    change(files[NAMES[2]])
    processes = [Forked.start(directory, "fit", file) for file in files.values()]
    return files, [process.end() for process in processes]


@pytest.mark.slow
@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_site_is_refused_by_field_and_both_values(case, tmp_path, monkeypatch):
    change, *words = REFUSED[case]
    home = tmp_path / "sites"
    home.mkdir()
    files, ends = ends_of(home, tmp_path, change, monkeypatch)
    assert all(code != 0 for code, _, _ in ends), ends
    assert not any((file.parent / "state" / "coefficients.csv").exists() for file in files.values())
    said = ends[2][1] + ends[2][2]
    assert all(word in said for word in [NAMES[2], *words]), said
    if "model." in words[0]:  # the other sites name it too
        for _, out, err in ends[:2]:
            assert all(word in out + err for word in [NAMES[2], *words]), out + err


@pytest.mark.slow
@pytest.mark.parametrize("case", HANDLED)
def test_a_harmless_difference_gives_the_right_table(case, tmp_path, monkeypatch):
    home = tmp_path / "sites"
    home.mkdir()
    files, ends = ends_of(home, tmp_path, HANDLED[case], monkeypatch)
    assert [code for code, _, _ in ends] == [0, 0, 0], ends
    plain = fits.fit(load_model(home / "model.toml"), SITES)
    for file in files.values():
        assert (file.parent / "state" / "coefficients.csv").read_text() == plain.to_csv()


def test_fit_refuses_a_file_without_a_fit(tmp_path):
    call("new", "--agent", tmp_path / "agent.toml")
    out = call("fit", tmp_path / "agent.toml", code=2)
    assert "has no table [fit]" in out


def test_new_fit_writes_two_files_that_belong_together_and_keeps_a_model(tmp_path):
    file, model = tmp_path / "agent.toml", tmp_path / "model.toml"
    assert "model.toml" in call("new", "--fit", file)
    mint(tmp_path, "north")
    for other in ("south", "west"):
        mint(tmp_path / "trusted", other)
    (tmp_path / "patients.csv").write_text("died,age,stage\nyes,50,I\nno,60,II\n")
    config = load_config(file)
    assert config.run.model == load_model(model)
    assert [n.name for n in config.neighbours] == [p.name for p in config.partners]
    file.unlink()
    model.write_text("# settled\n")
    assert "was there" in call("new", "--fit", file)
    assert model.read_text() == "# settled\n"
    assert "is there already" in call("new", "--fit", file, code=2)
