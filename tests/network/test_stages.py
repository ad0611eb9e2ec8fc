"""Deployed agents in stages: the simulator's numbers, also after kills, and one start for all."""

import asyncio
import json
import random
import re
import time
from dataclasses import replace

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.agent.stages import n_stages, stage_lengths
from hushgrad.errors import ConfigError, ProblemError, StageError, WireError
from hushgrad.network.agreement import ANNOUNCEMENTS
from hushgrad.network.deployed import Agent
from hushgrad.network.local.setup import function_of
from hushgrad.network.objective.objectives import ObjectiveSpec
from hushgrad.network.objective.pytree_file import write_data
from hushgrad.network.ops.result import Status
from hushgrad.network.protocol.announcements import decode_announcements
from hushgrad.network.protocol.frames import HEADER, Frame, FrameKind
from hushgrad.network.protocol.hello import differences, public_parts
from hushgrad.network.protocol.stages import Starts
from hushgrad.network.state.journal import StateDirectory
from hushgrad.network.state.stages import read_stages, write_stage
from hushgrad.network.transport.in_memory import InMemoryTransport
from hushgrad.problems.rows import Grids
from support import agent_network
from support.tables import some

NETWORK = hg.Network(hg.graphs.ring(4))
GAP = 0.2 * (1 - NETWORK.eta)
DIM, SEED = 3, 7


def rows():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(12, DIM)) for _ in range(4)]
    return X, [x @ np.ones(DIM) + rng.normal(size=12) for x in X]


def logistic():
    X, y = rows()
    return hg.problems.logistic(X, [np.sign(v) for v in y], regularisation=2.0)


def ridge():
    return hg.problems.ridge(*rows(), regularisation=2.0)


def huber():
    X, y = rows()
    y[0][:3] += 20.0
    return hg.problems.huber(X, y, regularisation=2.0)


def recommended(problem, **chosen):
    schedule = hg.stepsizes.constant(GAP / problem.smoothness())
    return hg.PDGNDS(stepsize=schedule, design="recommended", **chosen)


def objectives(directory, problem):
    """The objective of every agent, as a network of processes writes it."""
    table = function_of(problem)
    specs = []
    for j in range(problem.n_agents):
        file = directory / f"data-{j}.npz"
        write_data(file, problem.agent_data(j))
        given = {key: value for key, value in table.items() if key != "data"}
        specs.append(ObjectiveSpec(kind="function", n_agents=4, file=file, **given))
    return specs


def configs(
    directory, algorithm, problem, *, network=NETWORK, iterations=400, seed=SEED, **options
):
    made = agent_network.configs(
        directory, algorithm, network, dim=DIM, iterations=iterations, seed=seed,
        eta=network.eta, **{"tls": False} | options,
    )  # fmt: skip
    stages = n_stages(algorithm, is_quadratic=problem.is_quadratic)
    return [
        replace(c, objective=objective, run=replace(c.run, stages=stages))
        for c, objective in zip(made, objectives(directory, problem), strict=True)
    ]


def run(configs, *, tls=False):
    """The estimates (K, agents, d)."""
    agents = agent_network.agents(configs, [None] * len(configs), tls=tls)
    return asyncio.run(agent_network.together(agents))


def simulated(algorithm, problem, iterations):
    kept = []
    hg.run(
        algorithm, problem, NETWORK, iterations=iterations, record_every=1, seed=SEED,
        engine="agents", progress=False, accept_exposure=["sums", "curvature"],
        metrics={"keep": lambda x, _: kept.append(x[0].copy()) or 0.0},
    )  # fmt: skip
    starts = np.cumsum([0, *(n + 1 for n in lengths(algorithm, problem, iterations)[:-1])])
    return np.delete(kept, starts, axis=0)  # the metric also sees the start of each stage


def lengths(algorithm, problem, iterations):
    return stage_lengths(iterations, n_stages(algorithm, is_quadratic=problem.is_quadratic))


# ---- the numbers


@pytest.mark.parametrize("make", some([logistic, ridge, huber]))
def test_seeded_agents_are_the_simulator(tmp_path, make):
    problem = make()
    algorithm = recommended(problem)
    found = run(configs(tmp_path, algorithm, problem))
    assert np.abs(found - simulated(algorithm, problem, 400)).max() < 1e-12


def test_a_fixed_curvature_is_the_simulators_too(tmp_path):
    problem = logistic()
    algorithm = recommended(problem, stages=4, curvature="fixed")
    found = run(configs(tmp_path, algorithm, problem, iterations=200))
    kept = read_stages(tmp_path / "state" / "agent-1")
    assert np.array_equal(kept[2].statistic.H, kept[3].statistic.H)
    assert not np.array_equal(kept[2].statistic.q, kept[3].statistic.q)
    result = hg.run(
        algorithm, problem, NETWORK, iterations=200, seed=SEED, engine="agents", progress=False,
        accept_exposure=["sums", "curvature"],
    )  # fmt: skip
    assert np.abs(found[-1] - result.x[0]).max() < 1e-12


@pytest.mark.parametrize("scale", [pytest.param(None, marks=pytest.mark.slow), 100.0])
def test_secret_agents_end_at_the_optimum(tmp_path, scale):
    """Over TLS, with announced keys and exponents, or with a declared scale."""
    problem = logistic()
    complete = hg.Network(hg.graphs.complete(4))
    algorithm = hg.PDGNDS(
        stepsize=hg.stepsizes.constant(0.2 / problem.smoothness()), design="recommended"
    )
    setting = configs(
        tmp_path, algorithm, problem, network=complete, iterations=1800, seed=None, tls=True,
        scale=scale,
    )  # fmt: skip
    found = run(setting, tls=True)
    assert np.abs(found[-1] - problem.solution()).max() < 1e-10
    links = [json.loads((c.state / "links.json").read_text()) for c in setting]
    assert len({link["scale"] for link in links}) == 1
    if scale:  # announcements then tell the scale, and nothing of the data
        assert links[0]["scale"] == 128.0
        for c in setting:
            told = decode_announcements((c.state / ANNOUNCEMENTS).read_bytes())
            assert {announcement.exponent for announcement in told} == {7}


def test_the_unit_covers_what_targets_far_beyond_delta_tell_in_later_stages(tmp_path):
    """At θ = 0 such rows pull with delta alone; where they fit, q_i has their targets whole."""
    X, y = rows()
    problem = hg.problems.huber(X, [1e4 * v for v in y], regularisation=2.0)
    setting = configs(tmp_path, recommended(problem), problem, iterations=20)
    run(setting)
    unit = json.loads((setting[0].state / "links.json").read_text())["scale"]
    fitted = problem.solution()
    late = [problem.local_rows(i)(fitted, None, Grids(0.0, 0.0), False)[1] for i in range(4)]
    assert np.abs(late).max() <= unit
    result = hg.run(
        recommended(problem), problem, NETWORK, iterations=20, seed=SEED, progress=False,
        accept_exposure=["sums", "curvature"],
    )  # fmt: skip
    assert result.mask_scale.tolist() == [unit]


def test_a_declared_scale_that_is_too_small_is_refused(tmp_path):
    problem = logistic()
    setting = configs(tmp_path, recommended(problem), problem, scale=2.0**-10)
    with pytest.raises(ExceptionGroup) as raised:
        run(setting)
    assert raised.group_contains(ConfigError, match=r"scale = 0\.000976562 and this agent needs")


@pytest.mark.parametrize("slow", range(4))
def test_an_agent_that_hears_all_others_first_still_announces_itself(tmp_path, slow):
    problem = logistic()

    def objective(j):
        gradient, hessian = by_hand(problem)(j)

        def slowly(theta):
            time.sleep(0.5 * (j == slow and not theta.any()))
            return gradient(theta)

        return slowly, hessian

    setting = configs(tmp_path, recommended(problem), problem, iterations=20)
    results, _ = asyncio.run(survive(setting, objective, seconds=30))
    assert {r.status for r in results} == {Status.DONE}


# ---- kills


class KilledError(Exception):
    """Stands for kill -9: the agent ends here, and only its state directory is left."""


async def survive(setting, objective, seconds=120):
    """Run agents in memory to their end; an agent that is killed begins again.

    objective(j) → ∇f_j and ∇²f_j. Returns the results, and how often agents were killed.
    """
    everyone, deaths = {}, 0

    async def live(j, config):
        nonlocal deaths
        while True:
            gradient, hessian = objective(j)
            agent = Agent(
                config, gradient=gradient, hessian=hessian,
                transport=InMemoryTransport(config.name, everyone),
            )  # fmt: skip
            try:
                return await agent.run()
            except KilledError:
                deaths += 1

    async with asyncio.timeout(seconds):
        return await asyncio.gather(*(live(j, c) for j, c in enumerate(setting))), deaths


def by_hand(problem, calls=None):
    """Gradients and Hessians of a logistic problem; `calls` counts the points of evaluations."""

    def objective(j):
        slope, curve = problem.local_gradient(j), problem.local_curvature(j)

        def gradient(theta):
            if calls is not None:
                calls.append((j, theta.tobytes()))
            return slope(theta)

        return gradient, lambda theta: curve(theta, None)

    return objective


def ends(directory, objective, *, iterations=160):
    problem = logistic()
    setting = configs(
        directory, recommended(problem), problem, iterations=iterations, record_every=1
    )
    results, deaths = asyncio.run(survive(setting, objective))
    assert {r.status for r in results} == {Status.DONE}, results
    samples = [(c.state / "samples").read_bytes() for c in setting]
    return [r.theta.tobytes() for r in results], samples, deaths


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """An uninterrupted run, and its number of stages."""
    calls = []
    theta, samples, _ = ends(tmp_path_factory.mktemp("calm"), by_hand(logistic(), calls))
    n = len(lengths(recommended(logistic()), logistic(), 160))
    assert n == 4
    assert len(calls) == len(set(calls)) == 4 * n  # only at the starts of stages
    return theta, samples, n


def once(kill_at, original, *, after):
    """A function that is killed once for each key, before or after it does its work."""
    seen = set()

    def killed(*given, **named):
        key = kill_at(*given, **named)
        is_due = key is not None and key not in seen
        seen.add(key)
        if is_due and not after:
            raise KilledError
        done = original(*given, **named)
        if is_due:
            raise KilledError
        return done

    return killed


@pytest.mark.parametrize("after", [False, True])
def test_killed_at_the_file_of_every_stage_the_bits_are_the_same(
    tmp_path, calm, monkeypatch, after
):
    calls = []
    killed = once(lambda directory, begun: (directory, begun.stage), write_stage, after=after)
    monkeypatch.setattr("hushgrad.network.staging.write_stage", killed)
    theta, samples, deaths = ends(tmp_path, by_hand(logistic(), calls))
    assert (theta, samples, deaths) == (*calm[:2], 4 * calm[2])
    # a stage whose file is there is never evaluated again
    assert len(calls) == (1 if after else 2) * 4 * calm[2]


@pytest.mark.parametrize("after", [False, True])
def test_killed_at_the_first_round_of_every_stage_the_bits_are_the_same(
    tmp_path, calm, monkeypatch, after
):
    calls = []
    killed = once(
        lambda state, section: (
            (state.path, section.facts.get("stage")) if "x0" in section.arrays else None
        ),
        StateDirectory.begin,
        after=after,
    )
    monkeypatch.setattr(StateDirectory, "begin", killed)
    theta, samples, deaths = ends(tmp_path, by_hand(logistic(), calls))
    assert (theta, samples, deaths) == (*calm[:2], 4 * calm[2])
    assert len(calls) == 4 * calm[2]


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]
)
def test_killed_at_random_the_bits_are_the_same(tmp_path, calm, monkeypatch, seed):
    rng = random.Random(seed)
    for name in ("begin", "append"):
        original = getattr(StateDirectory, name)

        def killed(state, section, original=original):
            if rng.random() < 0.02:
                raise KilledError
            original(state, section)
            if rng.random() < 0.02:
                raise KilledError

        monkeypatch.setattr(StateDirectory, name, killed)
    theta, samples, deaths = ends(tmp_path, by_hand(logistic()))
    assert (theta, samples) == calm[:2]
    assert deaths > 10


# ---- the starts of stages


def test_a_false_start_ends_the_run_by_name(tmp_path, monkeypatch):
    """Agent 2 passes on another vector: its neighbour hears the true one from the other side."""
    problem = logistic()

    def learn(starts, frame, source, original=Starts.learn):
        news = original(starts, frame, source)
        if news is None or starts.number != 2:
            return news
        return news[:-8] + (np.frombuffer(news[-8:]) + 1.0).tobytes()

    monkeypatch.setattr(Starts, "learn", learn)
    setting = configs(tmp_path, recommended(problem), problem)
    results, _ = asyncio.run(survive(setting, by_hand(problem)))
    for result in results:
        assert result.status is Status.REFUSED, result
        own = "all agents begin stage 1 at one θ, but there are two"
        assert own in result.detail or "ended the run: agents would not begin" in result.detail
    assert any("by agent-2" in result.detail for result in results)


def start(stage, vector):
    return Frame(
        FrameKind.STAGE, stage, 0, bytes(HEADER.size) + np.asarray(vector, float).tobytes()
    )


def test_a_start_is_passed_on_once_and_two_starts_are_named():
    starts = Starts(3, 2, 4)
    assert starts.frames() == []
    passed = starts.learn(start(1, [1.0, 2.0]), "bob")
    assert starts.frames() == [passed]
    assert starts.learn(start(1, [1.0, 2.0]), "carol") is None
    with pytest.raises(StageError, match=r"stage 1 .*told by bob, another by carol"):
        starts.learn(start(1, [1.0, 2.5]), "carol")
    assert starts.learn(start(2, [0.0, -0.0]), "bob") is not None
    with pytest.raises(StageError):
        starts.learn(start(2, [0.0, 0.0]), "bob")  # the bits count
    assert starts.of(2).tobytes() == np.array([0.0, -0.0]).tobytes()


@pytest.mark.parametrize(
    ("stage", "vector", "reason"),
    [
        (0, [1.0, 2.0], "order"),
        (2, [1.0, 2.0], "order"),
        (4, [1.0, 2.0], "order"),
        (1, [1.0, 2.0, 3.0], "dimension"),
        (1, [1.0], "dimension"),
        (1, [1.0, np.nan], "not finite"),
        (1, [np.inf, 1.0], "not finite"),
        (1, [1.0, -1.5e9], "too large"),
    ],
)
def test_a_start_that_breaks_a_rule_is_refused(stage, vector, reason):
    starts = Starts(3, 2, 4, largest=1e9)
    with pytest.raises(WireError, match="bob") as refused:
        starts.learn(start(stage, vector), "bob")
    assert refused.value.reason == reason
    assert starts.frames() == []


def test_nobody_tells_the_leader_where_a_stage_begins():
    starts = Starts(0, 2, 4)
    with pytest.raises(WireError, match="agent 0 alone decides"):
        starts.learn(start(1, [1.0, 2.0]), "bob")
    starts.add(1, np.array([1.0, 2.0]))
    assert starts.learn(start(1, [1.0, 2.0]), "bob") is None
    with pytest.raises(StageError, match="told by this agent itself, another by bob"):
        starts.learn(start(1, [3.0, 2.0]), "bob")


# ---- words


def test_a_function_without_its_hessian_is_refused_before_the_run_begins(tmp_path):
    problem = logistic()
    setting = configs(tmp_path, recommended(problem), problem)[0]
    agent = Agent(setting, gradient=problem.local_gradient(0))
    with pytest.raises(ProblemError, match=r"Hessian of .* unknown. Give hessian = .*jax = true"):
        asyncio.run(agent.run())
    assert not setting.state.exists()


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"stages": 2}, r"stages: \(\d+, .*\) here, \(\d+, \d+\) there"),
        ({"scale": 4.0}, r"scale: None here, 4\.0 there"),
        ({"x0": (0.0, 0.0, 1.0)}, "start: "),
    ],
)
def test_agents_name_a_difference_in_their_stages(tmp_path, other, words):
    problem = logistic()
    run = configs(tmp_path, recommended(problem), problem)[0].run
    assert re.search(words, differences(public_parts(run), public_parts(replace(run, **other))))
