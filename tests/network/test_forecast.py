"""Before a run, an agent forecasts from its own rows which stage would be refused."""

import asyncio
import logging
from dataclasses import replace

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.network import Agent
from hushgrad.network.forecast import forecast
from hushgrad.network.objective.objectives import ObjectiveSpec, load_objective
from hushgrad.network.ops.doctor.exposure import stages_line
from hushgrad.network.ops.result import Status
from hushgrad.network.transport.in_memory import InMemoryTransport
from hushgrad.problems import rows
from hushgrad.problems.determined import OwnRows, largest_share, row_loss
from hushgrad.theory import WEAKNESSES
from support import agent_network

NETWORK = hg.Network(hg.graphs.complete(3))
PENALTY, STAGES = 3.0, 4
LOGISTIC = row_loss(rows.logistic)


def clinic(n=900, seed=3):
    """Rows of which no Newton step moves a margin by more than 1: all curvatures are Hessians."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, np.where(rng.random(n) < 1 / (1 + np.exp(-X @ [0.2, -0.1])), 1.0, -1.0)


def config(directory, X, y, *, honest=None, penalty=PENALTY, accepted=()):
    """The files of three agents which all have these rows."""
    step = hg.stepsizes.constant(0.2 / (np.linalg.norm(X, 2) ** 2 / 4 + PENALTY))
    made = agent_network.configs(
        directory,
        hg.PDGNDS(stepsize=step, design="recommended", stages=STAGES),
        NETWORK, dim=2, iterations=3000, seed=1, eta=NETWORK.eta, tls=False, max_wait=5.0,
        max_jumps=None, honest_rows=honest,
        accept_exposure=frozenset(WEAKNESSES) - {"sums"} | set(accepted),
    )  # fmt: skip
    file = directory / "rows.csv"
    lines = (
        ",".join(map(repr, (*x.tolist(), float(label)))) for x, label in zip(X, y, strict=True)
    )
    file.write_text("a,b,label\n" + "\n".join(lines))
    spec = ObjectiveSpec(
        kind="logistic", n_agents=3, file=file, columns=("a", "b"), target="label",
        regularisation=penalty,
    )  # fmt: skip
    return [replace(c, objective=spec, run=replace(c.run, stages=STAGES)) for c in made]


def forecast_of(one):
    return forecast(one, load_objective(one.objective, 2))


def newton_path(X, y, stages):
    """The starts of the stages of one agent alone, straight from the loss."""
    theta, starts = np.zeros(2), []
    for _ in range(stages):
        starts.append(theta)
        p = 1 / (1 + np.exp(y * (X @ theta)))
        H = (X * (p * (1 - p))[:, None]).T @ X + PENALTY / 3 * np.eye(2)
        theta = theta - np.linalg.solve(H, PENALTY / 3 * theta - X.T @ (y * p))
    return starts


def test_the_forecast_is_the_share_along_the_newton_steps_of_these_rows(tmp_path):
    X, y = clinic()
    found = forecast_of(config(tmp_path, X, y)[0])
    shares = [
        largest_share(LOGISTIC, [OwnRows(X, y, 0.0)], newton_path(X, y, s))
        for s in range(1, STAGES + 1)
    ]
    first = next(s for s, share in enumerate(shares, start=1) if share > 0.75)
    assert (found.stages, found.refused) == (STAGES, first)
    # derivatives are differences, and their steps are not the same in both
    assert found.share == pytest.approx(shares[first - 1], rel=1e-3)
    assert f"refused at stage {first} of {STAGES}" in found.text


def test_agents_with_equal_rows_end_at_the_stage_of_the_forecast(tmp_path, caplog):
    """Then the path of all rows is the path of one agent's rows."""
    X, y = clinic()
    configs = config(tmp_path, X, y)
    expected = forecast_of(configs[0])
    everyone = {}
    agents = [Agent(c, transport=InMemoryTransport(c.name, everyone)) for c in configs]
    with caplog.at_level(logging.INFO):
        results = asyncio.run(agent_network.ends(agents))
    lines = [record.getMessage() for record in caplog.records]
    assert expected.text in lines
    first = 100 * largest_share(LOGISTIC, [OwnRows(X, y, 0.0)], newton_path(X, y, 1))
    told = f"with stage 1 of {STAGES} the sums determine at most {first:.3g} % of a row"
    assert any(line.startswith(told) for line in lines)
    refused = [r for r in results if r.status is Status.REFUSED]
    assert refused
    for result in refused:
        assert f"with stage {expected.refused} of {STAGES} the sums would" in result.detail
        assert f"determine {100 * expected.share:.3g} %" in result.detail


def test_more_honest_rows_let_the_forecast_pass(tmp_path):
    one = config(tmp_path, *clinic(), honest=9000)[0]
    found = forecast_of(one)
    assert found.refused is None
    assert found.share < 0.75
    assert "would pass" in found.text
    assert stages_line(one, load_objective(one.objective, 2)) == (True, found.text)


def test_the_doctor_calls_a_forecast_of_a_refusal_no_obstacle(tmp_path):
    one = config(tmp_path, *clinic())[0]
    is_good, text = stages_line(one, load_objective(one.objective, 2))
    assert is_good is None
    assert 'accept_exposure = ["sums"]' in text
    assert stages_line(one, None) is None


@pytest.mark.parametrize("is_one_label", [False, True])
def test_the_first_stage_is_judged_whatever_path_the_rows_take(tmp_path, is_one_label):
    """Its start is known, so its judgement is certain, also for rows that have no fit."""
    X, y = clinic()
    X[0] = [300.0, 100.0]
    y = np.ones_like(y) if is_one_label else y
    found = forecast_of(config(tmp_path, X, y)[0])
    assert (found.refused, found.stages) == (1, STAGES)
    share = largest_share(LOGISTIC, [OwnRows(X, y, 0.0)], [np.zeros(2)])
    assert found.share == pytest.approx(share, rel=1e-3)
    assert "Its start is known" in found.text


def test_clipped_rows_let_the_forecast_pass_and_the_doctor_names_the_key(tmp_path):
    one = config(tmp_path, *clinic())[0]
    assert "clip in [objective]" in forecast_of(one).text
    clipped = replace(one, objective=replace(one.objective, clip=1.5))
    assert forecast_of(clipped).refused is None
    assert forecast_of(clipped).share < 0.6


@pytest.mark.parametrize("case", ["separated", "accepted", "paper's design"])
def test_rows_that_tell_nothing_of_the_path_have_no_forecast(tmp_path, case):
    X, y = clinic()
    given = {
        "separated": {"y": np.sign(X @ [1.0, -0.5]), "penalty": 1e-6},
        "accepted": {"y": y, "accepted": ["sums"]},
        "paper's design": {"y": y},
    }[case]
    one = config(tmp_path, X, **given)[0]
    if case == "paper's design":
        paper = replace(one.run.algorithm, design="paper", stages=None)
        one = replace(one, run=replace(one.run, algorithm=paper, stages=0))
    assert forecast_of(one) is None
