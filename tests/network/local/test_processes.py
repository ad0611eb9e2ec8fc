"""`hg.run` with a network of processes gives the simulator's numbers, whichever process dies."""

import asyncio
import json
import os
import signal
import stat
from pathlib import Path

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.errors import AgentError, InputError, MixingError, ProblemError
from hushgrad.network.deployed import Agent
from hushgrad.network.local.processes import Processes, only_one
from hushgrad.network.objective.pytree_file import read_data
from hushgrad.network.ops.result import Status, read_result
from hushgrad.network.state.samples import Samples, read_samples
from hushgrad.schema.algorithms import build_algorithm
from hushgrad.schema.places import Source
from hushgrad.schema.references import reference_to
from support import cases
from support.algorithm_tables import CONSTANT, DIRECTED, PDGNDS, TABLES, estimation


def ring():
    return hg.Network(hg.graphs.from_edges([(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (0, 2)]))


def run(directory, table, network, problem, *, watch=None, **options):
    """`hg.run` by processes whose files are in `directory`."""
    algorithm = build_algorithm(Source("test", Path()), table, ("algorithm",))
    with only_one(directory / "lock") as lock:
        driver = Processes(directory / "net", table, lock=lock, watch=watch)
        return hg.run(algorithm, problem, network, seed=7, driver=driver, **options)


def simulated(table, network, problem, **options):
    algorithm = build_algorithm(Source("test", Path()), table, ("algorithm",))
    return hg.run(algorithm, problem, network, seed=7, **options)


def check_same(got, reference):
    """Check that every sample is within 1e-12 of the largest number on the way: masks throw the
    iterates far out, and rounding follows their size.
    """
    scale = max(np.abs(reference.x).max(), reference.error.max())
    assert np.abs(got.x - reference.x).max() <= 1e-12 * scale
    np.testing.assert_allclose(got.error, reference.error, rtol=0, atol=1e-12 * scale)
    np.testing.assert_allclose(got.consensus, reference.consensus, rtol=0, atol=1e-12 * scale)
    assert got.metrics["difference"].shape == got.error.shape
    assert got.metrics["difference"].max() <= 1e-12
    assert got.status == reference.status
    assert got.traffic == reference.traffic


@pytest.mark.slow  # three processes, killed or in stages, are compared in every run of the tests
def test_five_processes_of_pdg_nds_give_the_simulators_trajectory(tmp_path):
    network, problem = ring(), estimation(5)
    x0 = np.random.default_rng(2).normal(size=(5, 4))
    options = {"iterations": 200, "record_every": 1, "x0": x0}
    rows = []
    got = run(tmp_path, PDGNDS, network, problem, watch=rows.append, **options)
    check_same(got, simulated(PDGNDS, network, problem, **options))
    assert got.config["engine"] == "processes"
    assert [row.peers for row in rows[-1]] == [3, 2, 3, 2, 2]
    results = [read_result(tmp_path / f"net/agent-{j}/state/result") for j in range(5)]
    assert {result.status for result in results} == {Status.DONE}
    np.testing.assert_array_equal([result.theta for result in results], got.x[0])


@pytest.mark.slow  # agents in stages run in test_stages.py, killed processes below
def test_processes_of_the_recommended_design_run_in_stages(tmp_path):
    """Samples every 7 iterations: stages begin and end between two samples, too."""
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(12, 3)) for _ in range(3)]
    y = [np.where(x @ np.ones(3) + rng.normal(size=12) > 0, 1.0, -1.0) for x in X]
    problem = hg.problems.logistic(X, y, regularisation=2.0)
    network = hg.Network(hg.graphs.complete(3))
    value = 0.2 / problem.smoothness()
    table = {
        "name": "PDGNDS", "design": "recommended", "stepsize": {"kind": "constant", "value": value}
    }  # fmt: skip
    options = {"iterations": 700, "record_every": 7, "accept_exposure": ["sums", "curvature"]}
    got = run(tmp_path, table, network, problem, **options)
    check_same(got, simulated(table, network, problem, **options))
    assert len(got.config["stages"]) == 6
    assert got.error[0, -1] < 1e-6
    result = read_result(tmp_path / "net/agent-1/state/result")
    assert (result.stage, result.stages) == (6, 6)
    assert got.mask_scale is not None


PATH, THREE = hg.Network(hg.graphs.path(3)), estimation(3)


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """The directory of a run that is over, and its result."""
    directory = tmp_path_factory.mktemp("ended")
    return directory, run(directory, PDGNDS, PATH, THREE, iterations=60)


@pytest.mark.slow  # the same run of agents in memory is audited quickly
def test_a_run_of_processes_is_audited_as_the_same_run_of_agents(ended):
    same = simulated(PDGNDS, PATH, THREE, iterations=60, engine="agents")
    assert hg.audit(ended[1]) == hg.audit(same)


def test_no_agents_directory_holds_the_data_or_key_of_another(ended):
    directory, problem = ended[0], THREE
    for j in range(3):
        own = directory / f"net/agent-{j}"
        data = read_data(own / "data.npz")
        assert data.keys() == problem.agent_data(j).keys()
        for name, array in problem.agent_data(j).items():
            np.testing.assert_array_equal(data[name], array)
        assert {path.name for path in own.rglob("*.key")} == {f"agent-{j}.key"}
        assert stat.S_IMODE((own / f"agent-{j}.key").stat().st_mode) == 0o600
        trusted = {path.stem for path in (own / "trusted").iterdir()}
        assert trusted == {f"agent-{i}" for i in range(3) if abs(i - j) == 1}
    loaded = asyncio.run(Agent(directory / "net/agent-1/agent.toml").run())
    assert loaded.status is Status.DONE  # the run is over, and its agent says so again


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Consensus gives the average")  # all have the same f_i
@pytest.mark.filterwarnings("ignore:quadratic masks must be as large")  # numbers alone count here
@pytest.mark.parametrize(
    ("name", "is_directed"),
    [(name, False) for name in TABLES] + [(name, True) for name in DIRECTED],
)
def test_every_algorithm_gives_the_simulators_trajectory(tmp_path, name, is_directed):
    network = cases.directed() if is_directed else cases.undirected()
    options = {"iterations": 200, "record_every": 5}
    problem = estimation(cases.M)
    got = run(tmp_path, TABLES[name], network, problem, **options)
    check_same(got, simulated(TABLES[name], network, problem, **options))


@pytest.mark.slow
@pytest.mark.parametrize("mixing", ["lazy_metropolis", "max_degree"])
def test_every_rule_gives_the_simulators_weights(tmp_path, mixing):
    network = hg.Network(ring().graph, mixing=mixing)
    options = {"iterations": 50}
    got = run(tmp_path, PDGNDS, network, estimation(5), **options)
    check_same(got, simulated(PDGNDS, network, estimation(5), **options))


class Killer:
    """Kills one agent at each update of the table, each time another one."""

    def __init__(self, times):
        self.left, self.reached = times, 0

    def __call__(self, rows):
        row = rows[self.left % len(rows)]
        if self.left and row.report.iteration > self.reached:
            self.left, self.reached = self.left - 1, row.report.iteration
            os.kill(row.pid, signal.SIGKILL)


def test_killed_agents_are_started_again_and_the_run_is_the_same(tmp_path):
    network, problem = hg.Network(hg.graphs.path(3)), estimation(3)
    options = {"iterations": 1500, "record_every": 1}
    starts = []
    undisturbed = simulated(PDGNDS, network, problem, engine="agents", transcript=True, **options)
    killer = Killer(2)

    def watch(rows):
        killer(rows)
        starts.append(sum(row.starts for row in rows))

    got = run(tmp_path, PDGNDS, network, problem, watch=watch, **options)
    assert killer.left == 0
    assert starts[-1] == 3 + 2
    np.testing.assert_array_equal(got.x, undisturbed.x)
    np.testing.assert_array_equal(got.error, undisturbed.error)
    for j in range(3):
        k, x = read_samples(tmp_path / f"net/agent-{j}/state/samples", 4)
        np.testing.assert_array_equal(k, np.arange(1, 1501))
        np.testing.assert_array_equal(x, undisturbed.trace[0, 1:, j])


def test_an_agent_that_fails_ends_all_and_its_log_is_shown(tmp_path, monkeypatch):
    (tmp_path / "broken.py").write_text(
        "def loss(theta, data):\n    return ((theta - data) ** 2).sum()\n"
        "def gradient(theta, data):\n"
        "    if data[0] > 1.5 and abs(theta).max() > 0:\n"
        "        raise RuntimeError('the sensor is gone')\n"
        "    return 2 * (theta - data)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import broken

    problem = hg.Problem(
        broken.loss, np.arange(6.0).reshape(3, 2), gradient=broken.gradient, solution=[2.0, 3.0],
        smoothness=2.0,
    )  # fmt: skip
    table = {"name": "EXTRA", "stepsize": CONSTANT}
    network = hg.Network(hg.graphs.path(3))
    algorithm = build_algorithm(Source("test", Path()), table, ("algorithm",))
    with only_one(tmp_path / "lock") as lock:
        driver = Processes(tmp_path / "net", table, lock=lock, imports=[tmp_path])
        with pytest.raises(AgentError, match="the sensor is gone"):
            hg.run(algorithm, problem, network, iterations=10**6, driver=driver)
        pids = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdecimal()]
        for pid in pids:
            assert str(tmp_path) not in _command(pid)


def _command(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def test_a_diverged_run_is_a_result_as_in_the_simulator(tmp_path):
    table = {"name": "EXTRA", "stepsize": {"kind": "constant", "value": 3.0}}
    network, problem = hg.Network(hg.graphs.path(2)), hg.problems.rendezvous(n_agents=2)
    got = run(tmp_path, table, network, problem, iterations=2000, record_every=20)
    assert got.status[0].startswith("diverged at")
    assert got.metrics["difference"][0, :5].max() <= 1e-12


# ---- refusals


def refused(tmp_path, error, match, table=PDGNDS, network=None, problem=None, **options):
    options = {"iterations": 5} | options
    with pytest.raises(error, match=match):
        run(tmp_path, table, network or ring(), problem or estimation(5), **options)
    assert not (tmp_path / "net").exists()


def test_runs_that_processes_cannot_do_are_refused_with_the_way_out(tmp_path):
    refused(tmp_path, InputError, "trials = 3. Use --trials 1", trials=3)
    refused(tmp_path, InputError, r"trials = \[2\]", trials=[2])
    refused(tmp_path, InputError, "no transcript.*--engine agents", transcript=True)
    metrics = {"difference": lambda x, problem: 0.0}
    refused(tmp_path, InputError, "'difference' of their own", metrics=metrics)
    W = hg.Network(hg.graphs.ring(5)).matrix()
    by_hand = hg.Network(hg.graphs.ring(5), mixing=W)
    refused(tmp_path, MixingError, "mixing matrix. Use one of metropolis", network=by_hand)
    by_row = hg.Network(hg.graphs.ring(5), mixing="uniform_row")
    refused(tmp_path, MixingError, "PDGNDS needs W", network=by_row)
    large = hg.Network(hg.graphs.ring(300))
    refused(tmp_path, InputError, "at most 256", network=large, problem=estimation(300))


def test_a_loss_without_a_place_of_its_own_is_refused(tmp_path):
    problem = hg.Problem(lambda theta, p: ((theta - p) ** 2).sum(), np.ones((5, 2)), dim=2)
    refused(tmp_path, ProblemError, "top level of its file", problem=problem)


def test_two_programs_cannot_run_one_network_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr("hushgrad.network.local.processes.GRACE", -2.0)
    with (
        only_one(tmp_path / "lock"),
        pytest.raises(AgentError, match="runs already"),
        only_one(tmp_path / "lock"),
    ):
        pass
    with only_one(tmp_path / "lock"):
        pass
    assert not (tmp_path / "lock").exists()


# ---- parts


def test_a_function_is_found_by_its_place_and_a_lambda_has_none():
    assert reference_to(cases.undirected) == "support.cases:undirected"
    assert reference_to(json.dumps) == "json:dumps"
    for homeless in (lambda: 0, cases.Quadratics().g, Killer(1)):
        assert reference_to(homeless) is None


def test_samples_are_at_their_places_however_often_they_are_written(tmp_path):
    for start in (0, 3, 5):  # an agent that was killed goes on where it stood
        samples = Samples(tmp_path / "samples", every=3, iterations=10)
        for k in range(start, 11):
            samples.keep(k, np.array([k, -k], float))
        samples.close()
    k, x = read_samples(tmp_path / "samples", 2)
    np.testing.assert_array_equal(k, [3, 6, 9, 10])
    np.testing.assert_array_equal(x, [[3, -3], [6, -6], [9, -9], [10, -10]])
    assert read_samples(tmp_path / "none", 2)[1].shape == (0, 2)
