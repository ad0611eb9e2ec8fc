"""An agent judges its own exposure before its first message; the doctor shows the judgement."""

import asyncio
import json
import socket
import tomllib

import numpy as np
import pytest
from typer.testing import CliRunner

from hushgrad.cli import app
from hushgrad.cli.new import AGENT_EXAMPLE
from hushgrad.errors import PrivacyError
from hushgrad.network import Agent, mint, parse_config
from hushgrad.network.exposure import check_exposure, own_numbers, setting_of
from hushgrad.network.objective.objectives import load_objective
from hushgrad.network.ops.doctor.exposure import verdicts
from hushgrad.network.protocol.hello import public_parts
from hushgrad.network.state.journal import BEGUN
from hushgrad.schema.toml import to_toml
from hushgrad.theory import WEAKNESSES

MEAN, SCALE = np.array([60.0, 5.0]), np.array([15.0, 2.0])


def patients(n=200, seed=0):
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, 2 * np.pi, size=n)  # rows of one length once they are standardised
    X = np.column_stack([np.cos(angle), np.sin(angle)]) * SCALE + MEAN
    return X, (rng.random(n) < 0.5).astype(float)


@pytest.fixture
def home(tmp_path):
    """The data and the key of the template's agent, and the certificates of its partners."""
    X, y = patients()
    text = "\n".join(f"{a},{d},{t:g}" for (a, d), t in zip(X, y, strict=True))
    (tmp_path / "patients.csv").write_text(f"age,dose,outcome\n{text}\n")
    mint(tmp_path, "north")
    for other in ("south", "west"):
        mint(tmp_path / "others", other)
        (tmp_path / "trusted").mkdir(exist_ok=True)
        (tmp_path / "trusted" / f"{other}.crt").write_bytes(
            (tmp_path / "others" / f"{other}.crt").read_bytes()
        )
    return tmp_path


def template(**changes):
    """The template of `hushgrad new --agent`; run__eta=… sets a key, or takes it out if None."""
    tables = tomllib.loads(AGENT_EXAMPLE)
    tables["algorithm"]["stepsize"] = {"kind": "constant", "value": 0.001}
    for path, value in changes.items():
        table, key = path.split("__")
        if value is None:
            del tables[table][key]
        else:
            tables[table][key] = value
    return tables


def found(home, **changes):
    """The verdicts by name."""
    config = parse_config(template(**changes), directory=home)
    objective = load_objective(config.objective, config.run.dim)
    return {verdict.name: verdict for verdict in verdicts(config, objective)}


def refused(home, **changes):
    return [
        name for name, verdict in found(home, **changes).items() if verdict.verdict == "refused"
    ]


# ---- the judgement of one agent


def test_the_template_holds_every_condition(home):
    judged = found(home)
    assert list(judged) == list(WEAKNESSES)
    assert {verdict.verdict for verdict in judged.values()} == {"held"}


PAPER = {"algorithm__design": "paper"}
SMALL = {"algorithm__masks": {"kind": "zero_sum", "linear": 0.001}}


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"run__eta": None}, ["eta"]),
        ({"run__seed": 3}, ["seed"]),
        ({"algorithm__stepsize": {"kind": "constant", "value": 0.01}}, ["curvature"]),
        ({"run__honest_rows": 239}, ["sums"]),  # 8 stages tell 72 numbers
        ({"run__honest_rows": 241}, []),
        ({"run__honest_rows": None}, ["sums"]),  # then the agent's own 200 rows count
        ({"run__honest_rows": 30, "algorithm__stages": 6}, []),  # the own rows are more
        (SMALL, ["gradient"]),
        (PAPER | {"algorithm__masks": {"kind": "zero_sum"}}, ["design"]),
    ],
)
def test_an_agent_finds_exactly_the_weakness_of_its_file(home, changes, names):
    assert refused(home, **changes) == names
    accepted = found(home, **changes, agent__accept_exposure=names)
    assert [n for n, v in accepted.items() if v.verdict == "accepted"] == names
    assert all(v.verdict in ("held", "accepted") for v in accepted.values())


def test_a_method_without_masks_is_a_weak_design(home):
    tables = template()
    tables["algorithm"] = {"name": "EXTRA"}
    del tables["partner"]
    config = parse_config(tables, directory=home)
    objective = load_objective(config.objective, 3)
    assert [v.name for v in verdicts(config, objective) if v.verdict == "refused"] == ["design"]


def test_own_numbers_come_from_the_agents_rows(home):
    config = parse_config(template(**SMALL), directory=home)
    objective = load_objective(config.objective, 3)
    own = own_numbers(config, setting_of(config.run, is_quadratic=False), objective)
    X, y = patients()
    X = np.column_stack([(X - MEAN) / SCALE, np.ones(len(X))])
    penalty = np.diag([1 / 3, 1 / 3, 0])
    assert own.curvature == pytest.approx(np.linalg.eigvalsh(X.T @ X / 4 + penalty).max())
    assert own.gradient == pytest.approx(np.abs(X.T @ (y - 0.5)).max())
    assert (own.number, set(own.neighbours)) == (0, {1, 2})
    assert own.rows == pytest.approx(1500)  # of one length


LOSS = """
import jax.numpy as jnp
def loss(theta, data):
    return jnp.sum((data["A"] @ theta - 1.0) ** 4) / 4
"""


def test_a_function_in_jax_is_judged_by_its_own_derivatives(home):
    A = np.array([[3.0, 0.0, 0.0], [0.0, 2.0, 1.0]])
    np.savez(home / "data.npz", A=A)
    (home / "f.py").write_text(LOSS)
    tables = template()
    tables["objective"] = {"function": "f.py:loss", "data": "data.npz", "jax": True}
    tables["algorithm"]["masks"] = {"kind": "zero_sum", "linear": 0.5}
    config = parse_config(tables, directory=home)
    objective = load_objective(config.objective, 3)
    own = own_numbers(config, setting_of(config.run, is_quadratic=False), objective)
    assert own.curvature == pytest.approx(np.linalg.norm(3 * A.T @ A, 2))
    assert own.gradient == pytest.approx(np.abs(A.T @ np.ones(2)).max())
    assert own.rows == 1500  # nobody knows its rows, but the run declares some
    # and nobody can judge the starts of stages, which a participant steers
    (sums,) = [v for v in verdicts(config, objective) if v.name == "sums"]
    assert (sums.verdict, "does not know its rows" in sums.text) == ("refused", True)
    tables["algorithm"]["stages"] = 1
    config = parse_config(tables, directory=home)
    (sums,) = [v for v in verdicts(config, objective) if v.name == "sums"]
    assert sums.verdict == "refused"


@pytest.mark.parametrize(("declared", "verdict"), [(120, "refused"), (501, "held")])
def test_a_row_that_stands_out_needs_five_times_its_rows_in_other_houses(home, declared, verdict):
    """One patient of a hundred has a rare disease: the sums of two such houses may have the row."""
    X = np.column_stack([np.arange(100) % 7, np.arange(100) == 3, np.arange(100) % 3])
    text = "\n".join(f"{a},{d},{t:g}" for a, d, t in X)
    (home / "patients.csv").write_text(f"age,dose,outcome\n{text}\n")
    tables = template(run__honest_rows=declared, objective__kind="ridge")
    del tables["objective"]["standardise"]
    tables["algorithm"].pop("stages", None)
    config = parse_config(tables, directory=home)
    judged = verdicts(config, load_objective(config.objective, 3))
    assert [v.verdict for v in judged if v.name == "sums"] == [verdict]


# ---- a refusal


async def started(agent):
    """The end of an agent that refuses; one that does not would wait for its neighbours."""
    async with asyncio.timeout(20):
        return await agent.run()


def test_an_agent_that_must_refuse_sends_no_byte_and_leaves_no_file(home):
    with socket.create_server(("127.0.0.1", 0)) as south:
        south.settimeout(0)
        tables = template(run__eta=None)
        tables["agent"].pop("listen")
        for neighbour in tables["neighbour"]:
            neighbour["address"] = f"127.0.0.1:{south.getsockname()[1]}"
        before = sorted(home.rglob("*"))
        with pytest.raises(PrivacyError) as caught:
            asyncio.run(started(Agent(parse_config(tables, directory=home))))
        said = str(caught.value)
        assert "north does not start" in said
        assert "eta is missing in [run]" in said
        assert 'accept_exposure = ["eta"]' in said
        assert sorted(home.rglob("*")) == before
        with pytest.raises(BlockingIOError):
            south.accept()


def test_an_agent_with_a_gradient_of_its_own_is_judged_by_it(home):
    def gradient(theta):
        return 100.0 * theta

    def judged(**given):
        config = parse_config(template(), directory=home)
        with pytest.raises(PrivacyError) as caught:
            asyncio.run(started(Agent(config, gradient=gradient, **given)))
        return str(caught.value)

    said = judged(hessian=lambda theta: 1000.0 * np.eye(3), quadratic=True)
    assert "curvature: " in said
    assert "λ‖H_i‖ = 1," in said


def test_the_commands_refuse_with_code_2_and_the_doctor_with_code_1(home, monkeypatch):
    monkeypatch.chdir(home)
    tables = template(run__eta=None, run__honest_rows=None, agent__accept_exposure=["sums"])
    (home / "agent.toml").write_text(to_toml(tables))
    runner = CliRunner()
    agent = runner.invoke(app, ["agent", "agent.toml"])
    assert agent.exit_code == 2
    assert "eta: " in agent.stderr
    assert "sums: " not in agent.stderr
    assert 'accept_exposure = ["sums", "eta"]' in agent.stderr
    assert not (home / "state").exists()
    doctor = runner.invoke(app, ["doctor", "agent.toml", "--timeout", "0.1"])
    assert doctor.exit_code == 1
    lines = {line.split()[2]: line for line in doctor.stdout.splitlines() if " exposure " in line}
    assert list(lines) == list(WEAKNESSES)
    assert lines["eta"].startswith("✗")
    assert "refused: " in lines["eta"]
    assert "accepted: " in lines["sums"]
    assert "held: " in lines["gradient"]
    told = runner.invoke(app, ["doctor", "agent.toml", "--timeout", "0.1", "--format", "json"])
    document = json.loads(told.stdout)
    assert not document["ok"]
    verdict = dict.fromkeys(WEAKNESSES, "held") | {"eta": "refused", "sums": "accepted"}
    assert document["exposure"] == verdict


def test_the_doctor_says_what_it_cannot_judge(home, monkeypatch):
    monkeypatch.chdir(home)
    (home / "patients.csv").unlink()
    (home / "agent.toml").write_text(to_toml(template(run__honest_rows=None)))
    told = CliRunner().invoke(app, ["doctor", "agent.toml", "--timeout", "0.1", "--format", "json"])
    document = json.loads(told.stdout)
    own = dict.fromkeys(("curvature", "sums"), "not judged")
    assert document["exposure"] == dict.fromkeys(WEAKNESSES, "held") | own


def test_the_own_numbers_are_in_no_public_part(home):
    config = parse_config(template(agent__accept_exposure=["sums"]), directory=home)
    assert "exposure" not in json.dumps(public_parts(config.run))
    assert "accept" not in json.dumps(public_parts(config.run))


def test_a_run_that_has_begun_is_not_judged_again(home):
    config = parse_config(template(run__eta=None), directory=home)
    objective = load_objective(config.objective, 3)
    with pytest.raises(PrivacyError):
        check_exposure(config, objective, is_quadratic=False)
    config.state.mkdir()
    (config.state / BEGUN).touch()
    check_exposure(config, objective, is_quadratic=False)
