"""A stage whose sums would determine a row is not entered: an agent sends nothing and ends."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.agent.stages import Statistic
from hushgrad.network.deployed import Agent
from hushgrad.network.local.setup import function_of
from hushgrad.network.objective.objectives import ObjectiveSpec, load_objective
from hushgrad.network.objective.pytree_file import write_data
from hushgrad.network.ops.result import Status
from hushgrad.network.state.stages import Begun, read_stages, write_stage
from hushgrad.network.transport.in_memory import InMemoryTransport
from hushgrad.theory import WEAKNESSES
from support import agent_network

NETWORK = hg.Network(hg.graphs.complete(3))
ROWS, ITERATIONS = 80, 120  # 2 stages tell 10 numbers: 50 effective rows are needed
FAR = 6e3 * np.array([0.6, 0.8])


def clinics():
    """Rows of one length, and a penalty that keeps all of them near the boundary."""
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(ROWS, 2)) for _ in range(3)]
    y = [np.sign(x @ FAR) for x in X]  # far out, all are on the right side but few are near
    X = [0.1 * x / np.linalg.norm(x, axis=1, keepdims=True) for x in X]
    return hg.problems.logistic(X, y)


PROBLEM = clinics()
ALGORITHM = hg.PDGNDS(
    stepsize=hg.stepsizes.constant(0.2 / PROBLEM.smoothness()), design="recommended", stages=2
)


def network(directory, accepted=()):
    """The configurations; the agents accept all weaknesses but `sums`, and `accepted`."""
    names = frozenset(WEAKNESSES) - {"sums"} | set(accepted)
    made = agent_network.configs(
        directory, ALGORITHM, NETWORK, dim=2, iterations=ITERATIONS, seed=1, eta=NETWORK.eta,
        tls=False, max_wait=1.0, max_jumps=None, accept_exposure=names,
    )  # fmt: skip
    given = {key: value for key, value in function_of(PROBLEM).items() if key != "data"}
    for j in range(3):
        write_data(directory / f"data-{j}.npz", PROBLEM.agent_data(j))
    specs = [
        ObjectiveSpec(kind="function", n_agents=3, file=directory / f"data-{j}.npz", **given)
        for j in range(3)
    ]
    return [
        replace(c, objective=spec, run=replace(c.run, stages=2))
        for c, spec in zip(made, specs, strict=True)
    ]


def ends(configs, liar=None):
    """The results; the liar pretends to have data whose optimum is far away."""
    everyone, L = {}, PROBLEM.smoothness()
    lie = {"gradient": lambda x: L * (x - FAR), "hessian": lambda x: L * np.eye(2)}
    if liar is not None:  # its rows are not known, and it accepts anything
        configs[liar] = replace(configs[liar], accept_exposure=frozenset(WEAKNESSES))
    agents = [
        Agent(
            c, transport=InMemoryTransport(c.name, everyone), **(lie if j == liar else {})
        )
        for j, c in enumerate(configs)
    ]  # fmt: skip
    return agents, asyncio.run(agent_network.ends(agents))


def test_an_honest_run_passes_all_its_stages(tmp_path):
    _, results = ends(network(tmp_path))
    assert [r.status for r in results] == [Status.DONE] * 3


@pytest.mark.parametrize("liar", [0, 2])
def test_a_steered_start_ends_the_run_by_name_and_nothing_of_the_stage_is_sent(tmp_path, liar):
    configs = network(tmp_path)
    agents, results = ends(configs, liar)
    first = configs[0].run.lengths[0]
    honest = [j for j in range(3) if j != liar]
    assert np.linalg.norm(agents[liar].x) > 1e3  # the start was steered indeed
    refused = [j for j in honest if results[j].status is Status.REFUSED]
    # the first tells the others; agent 0 does not even tell the start
    assert refused if liar == 0 else refused == [0]
    for j in refused:
        assert results[j].exit_code == 4
        assert "with stage 2 of 2 the sums would tell too much" in results[j].detail
        assert "at most 75 % of it, but would determine" in results[j].detail
        assert 'accept_exposure = ["sums"]' in results[j].detail
        assert set(read_stages(configs[j].state)) == {0}  # no statistic was made
    for result in results:
        assert result.iterations == first  # nobody got a message of the second stage
    for j in {0, 1, 2} - set(refused):
        assert results[j].status is Status.PEER_ENDED
        assert "ended the run: a stage would expose its data (refused)" in results[j].detail
    if liar:
        return
    # accepted by name, the run goes on from where it stood
    accepting = [replace(c, accept_exposure=frozenset(WEAKNESSES), max_wait=20.0) for c in configs]
    _, results = ends(accepting, liar)
    assert [r.status for r in results] == [Status.DONE] * 3
    assert {r.incarnation for r in results} == {2}


def test_an_agent_judges_its_rows_and_those_of_a_function_cannot_be_judged(tmp_path):
    objective = load_objective(network(tmp_path)[0].objective, 2)
    assert objective.determined is not None
    assert objective.effective_lengths == pytest.approx(ROWS)
    start = [np.zeros(2)]
    alone = objective.determined(start, False, 1.0, ())
    assert alone < 0.2
    assert objective.determined([*start, FAR], False, 1.0, ()) > 0.9
    assert objective.determined(start, False, 4.0, ()) < 0.5 * alone
    unknown = load_objective(lambda x: x, 2)
    assert (unknown.determined, unknown.effective_lengths) == (None, None)


def test_an_agent_that_starts_again_knows_where_all_stages_began(tmp_path):
    begun = Begun(3, np.ones(2), Statistic(np.eye(2), np.zeros(2)), np.arange(6.0).reshape(3, 2))
    write_stage(tmp_path, begun)
    assert np.array_equal(read_stages(tmp_path)[3].earlier, begun.earlier)


@pytest.mark.parametrize(("kind", "expected"), [("ridge", 1.0), ("logistic", 50.0)])
def test_an_agent_counts_rows_that_differ_in_a_column_where_no_stage_judges_rows(
    tmp_path, kind, expected
):
    lines = [
        "rare,other,y",
        *(f"{int(n == 7)},{(-1) ** n},{2 * (n % 3 > 0) - 1}" for n in range(99)),
    ]
    file = tmp_path / "rows.csv"
    file.write_text("\n".join(lines))
    spec = ObjectiveSpec(kind=kind, n_agents=3, file=file, columns=("rare", "other"), target="y")
    assert load_objective(spec, 2).effective_lengths == pytest.approx(expected)


def test_a_function_that_outgrows_its_masks_at_a_steered_start_sends_nothing(tmp_path):
    """q_i = −8 θ³ of θ⁴ has no bound, so a participant with a far optimum would see through it."""
    names = frozenset(WEAKNESSES) - {"gradient"}
    configs = [replace(c, accept_exposure=names) for c in network(tmp_path)]
    everyone, L = {}, PROBLEM.smoothness()
    honest = {
        "gradient": lambda x: 4 * L * x**3 + L * x / 2,
        "hessian": lambda x: np.diag(12 * L * x**2 + L / 2),
    }
    lie = {"gradient": lambda x: L * (x - FAR / 100), "hessian": lambda x: L * np.eye(2)}
    agents = [
        Agent(c, transport=InMemoryTransport(c.name, everyone), **(lie if j == 2 else honest))
        for j, c in enumerate(configs)
    ]
    results = asyncio.run(agent_network.ends(agents))
    assert [r.status for r in results] == [Status.REFUSED, Status.PEER_ENDED, Status.PEER_ENDED]
    assert "linear masks must be as large as q_i, but at stage 2" in results[0].detail
    assert 'accept_exposure = ["gradient"]' in results[0].detail
    assert set(read_stages(configs[0].state)) == {0}
