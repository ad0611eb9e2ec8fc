"""`stepsize = "auto"`: deployed agents agree on a stable stepsize, keep it, and tell little."""

import asyncio
import json
import math
from dataclasses import replace

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.errors import ConfigError
from hushgrad.network import auto
from hushgrad.network.agreement import ANNOUNCEMENTS
from hushgrad.network.auto import power, stepsize, with_stepsize
from hushgrad.network.config.file import parse_config
from hushgrad.network.config.model import RunConfig
from hushgrad.network.ops.result import Status
from hushgrad.network.protocol.announcements import (
    PARTS,
    Announcement,
    decode_announcements,
    decode_links,
    encode_announcements,
    encode_links,
    links_width,
)
from hushgrad.network.protocol.frames import FrameKind
from hushgrad.network.protocol.hello import config_digest, public_parts
from hushgrad.network.staging import STEPSIZE
from hushgrad.theory.least_regret import largest_extra, least_regret, log_rate
from support import agent_network, attackers, dense
from support.long_runs import iterations_to_the_end
from support.quadratics import random_graph

NETWORK = hg.Network(hg.graphs.star(5))
DIM, SEED = 3, 7
W = NETWORK.matrix()


def rows(spread=1.0):
    rng = np.random.default_rng(3)
    X = [rng.normal(size=(8, DIM)) * spread**i for i in range(5)]
    return X, [rng.normal(size=8) for _ in X]


X, Y = rows(1.5)
H = [x.T @ x for x in X]
L = [float(np.linalg.eigvalsh(h)[-1]) for h in H]


def configs(directory, algorithm, **options):
    options = {"iterations": 60, "seed": SEED, "is_auto": True, "eta": NETWORK.eta, **options}
    return agent_network.configs(directory, algorithm, NETWORK, dim=DIM, tls=False, **options)


def agents(made, data=(X, Y), *, tls=False):
    rows = list(zip(*data, strict=True))[: len(made)]
    return agent_network.agents(
        made,
        [lambda t, x=x, y=y: x.T @ (x @ t - y) for x, y in rows],
        hessians=[lambda _, x=x: x.T @ x for x, _ in rows],
        tls=tls,
    )


def agreed(config):
    return json.loads((config.state / "links.json").read_text())[STEPSIZE]


def run(made, **options):
    return asyncio.run(agent_network.ends(agents(made, **options)))


def rounded(L):
    """L_i as agents tell them."""
    return 2.0 ** np.ceil(np.log2(L))


def test_agents_take_the_stepsize_that_loses_least(tmp_path):
    made = configs(tmp_path, hg.EXTRA())
    results = run(made)
    (e,) = {agreed(config) for config in made}
    lam = least_regret(W, rounded(L), is_split=False, within=2.0).lam
    assert power(e) <= lam < power(e - 1) * (1 + 1e-9)
    assert power(e) < largest_extra(W, np.array(L))

    def gradient(x):
        return np.array([h @ t - a.T @ y for h, t, a, y in zip(H, x, X, Y, strict=True)])

    expected = dense.extra(W, gradient, np.zeros((5, DIM)), 60, power(e))[-1]
    got = np.array([result.theta for result in results])
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-11)


def test_the_recommended_design_stays_within_its_condition(tmp_path):
    made = configs(tmp_path, hg.PDGNDS(design="recommended"), stages=1)
    results = run(made)
    masks = hg.masks.zero_sum()
    room = masks.quadratic_part(NETWORK.eta)
    (e,) = {agreed(config) for config in made}
    assert room == pytest.approx(0.1 * (1 - NETWORK.eta))
    assert power(e) * max(L) <= room < power(e - 1) * max(rounded(L)) * (1 + 1e-9)
    assert all(np.isfinite(result.theta).all() for result in results)


def test_a_restarted_agent_keeps_the_stepsize_and_the_bits(tmp_path):
    whole = [r.theta for r in run(configs(tmp_path / "whole", hg.EXTRA(), id="one"))]
    made = configs(tmp_path / "parts", hg.EXTRA(), id="one")
    asyncio.run(agent_network.leave(agents(made), 7))
    before = [agreed(config) for config in made]
    # data that changed since would ask for another stepsize; the agreement stands
    results = run(made)
    assert [agreed(config) for config in made] == before
    for result, expected in zip(results, whole, strict=True):
        assert result.theta.tobytes() == expected.tobytes()


def test_agents_that_compute_different_stepsizes_take_the_smallest(tmp_path, monkeypatch):
    """As on processors that round differently."""
    every = []

    def chosen(run, announced, original=auto.chosen):
        every.append(original(run, announced) + len(every))
        return every[-1]

    monkeypatch.setattr("hushgrad.network.staging.chosen", chosen)
    made = configs(tmp_path, hg.EXTRA(), iterations=5)
    results = run(made)
    assert len(set(every)) == 5
    assert {agreed(config) for config in made} == {max(every)}
    assert {result.status for result in results} == {Status.DONE}


def told(config):
    """What an agent announced of the stepsize, by agent."""
    entries = decode_announcements((config.state / ANNOUNCEMENTS).read_bytes(), links_width(5))
    return {entry.number: entry for entry in entries}


def test_announcements_tell_a_power_of_two_above_the_curvature_and_the_links(tmp_path):
    made = configs(tmp_path / "open", hg.EXTRA(), iterations=3)
    run(made)
    entries, own = told(made[2]), [math.ceil(math.log2(big)) for big in L]
    assert [entries[j].stepsize for j in range(5)] == own
    assert len(set(own)) > 1  # they do tell the agents apart
    assert [decode_links(entries[j].links) for j in range(5)] == [[1, 2, 3, 4], *[[0]] * 4]
    assert {entries[5 + j].stepsize for j in range(5)} == {agreed(made[2])}


def test_agents_of_a_large_network_tell_a_power_of_two_and_no_links(tmp_path, monkeypatch):
    monkeypatch.setattr("hushgrad.network.config.model.MOST_LINKED", 4)
    made = configs(tmp_path, hg.EXTRA(), iterations=3)
    results = run(made)
    limits = 0.95 * (1 + 3 * np.diag(W)) / 2  # of λ L_i; the star is not dense
    own = [math.ceil(math.log2(big / limit)) for big, limit in zip(L, limits, strict=True)]
    entries = decode_announcements((made[2].state / ANNOUNCEMENTS).read_bytes(), 0)
    assert [entry.stepsize for entry in entries[:5]] == [PARTS * e for e in own]
    assert not any(entry.links for entry in entries)
    assert {agreed(config) for config in made} == {PARTS * max(own)}
    assert {result.status for result in results} == {Status.DONE}


def test_a_declared_bound_hides_the_curvature(tmp_path):
    heard = []
    for name, data in (("a", (X, Y)), ("b", rows(0.5))):
        made = configs(tmp_path / name, hg.EXTRA(), iterations=3, smoothness=4000.0)
        run(made, data=data)
        heard.append(told(made[0]))
    assert heard[0] == heard[1]


def test_the_digest_of_the_run_says_auto_and_not_the_value(tmp_path):
    made = configs(tmp_path, hg.EXTRA())[0]
    assert public_parts(made.run)["stepsize"] == "auto"
    assert config_digest(with_stepsize(made, 9).run) == config_digest(made.run)
    assert config_digest(replace(made.run, is_auto=False)) != config_digest(made.run)
    assert config_digest(replace(made.run, smoothness=4.0)) != config_digest(made.run)


def test_a_declared_bound_below_the_own_curvature_is_refused(tmp_path):
    made = configs(tmp_path, hg.EXTRA(), smoothness=max(L) / 2)
    with pytest.raises(ConfigError, match=r"smoothness in \[run\] bounds"):
        asyncio.run(agents(made)[int(np.argmax(L))].run())


def test_a_function_without_a_bound_is_refused_with_the_way_out(tmp_path):
    made = configs(tmp_path, hg.EXTRA())
    agent = agent_network.agents(made, [lambda t: t] * 5, tls=False)[0]
    with pytest.raises(ConfigError, match=r"smoothness = … in \[objective\]"):
        asyncio.run(agent.run())


def test_an_agent_that_tells_a_link_of_its_own_invention_ends_the_run_by_name(tmp_path):
    """The last leaf of the star says that it is linked with leaf 3, which says nothing of it."""
    made = agent_network.configs(
        tmp_path, hg.EXTRA(), NETWORK, dim=DIM, iterations=60, seed=SEED, is_auto=True
    )
    false = Announcement(4, 0, bytes(32), bytes(32), bytes(64), 0, encode_links([0, 3], 5))

    async def lie():
        async with attackers.Rogue(made[4], made[0]) as rogue:
            rogue.hello()
            rogue.send(FrameKind.ANNOUNCE, encode_announcements([false]))
            await rogue.reject()

    async def together():
        honest = agents(made[:4], tls=True)
        return (await asyncio.gather(*(agent.run() for agent in honest), lie()))[:-1]

    results = asyncio.run(together())
    assert all(result.status is Status.REFUSED for result in results)
    assert any("agent 4 announces a link with agent 3" in result.detail for result in results)


TABLES = {
    "agent": {"name": "a", "number": 0, "listen": "127.0.0.1:7440"},
    "run": {"id": "r", "n_agents": 2, "dim": 2, "iterations": 5},
    "objective": {"kind": "rendezvous", "position": [0.0, 1.0]},
    "neighbour": [{"name": "b", "number": 1}],
    "algorithm": {"name": "EXTRA", "stepsize": "auto"},
}


def test_a_file_says_auto():
    config = parse_config(TABLES)
    assert config.run.is_auto
    assert not parse_config({**TABLES, "algorithm": {"name": "EXTRA"}}).run.is_auto
    with pytest.raises(ConfigError, match=r"algorithm\.stepsize.*auto.*PDGNDS.*DIGing"):
        parse_config({**TABLES, "algorithm": {"name": "DIGing", "stepsize": "auto"}})


ALGORITHM = {"EXTRA": hg.EXTRA(), "PDGNDS": hg.PDGNDS()}
RATIOS = np.append(1.0, 1.25 ** np.arange(-8.0, 12))


def ratio_to_the_best(name, network, H, seed):
    """Iterations with the agreed stepsize over those with the best one of a search; and R."""
    L, W, is_split = np.linalg.eigvalsh(H)[:, -1], network.matrix(), name == "PDGNDS"
    run = RunConfig(id="r", algorithm=ALGORITHM[name], n_agents=len(W), dim=1, iterations=1)
    mine, *others = iterations_to_the_end(
        name, network, H, stepsize(run, W, rounded(L)) * RATIOS, seed
    )
    assert mine < np.inf, (name, seed)
    return mine / min(others), least_regret(W, L, is_split=is_split).regret


def a_problem(seed, most=20):
    """A random graph, and Hessians of data sets whose columns have different sizes."""
    rng = np.random.default_rng([seed, 4])
    graph = random_graph(rng, int(rng.integers(4, most + 1)))
    d = int(rng.integers(1, 5))
    columns = np.exp(rng.uniform(-2, 0, size=d))
    data = rng.normal(size=(graph.n_agents, 20, d)) * columns
    data *= np.exp(rng.uniform(0, 0.7, size=(graph.n_agents, 1, 1)))
    return hg.Network(graph), np.swapaxes(data, 1, 2) @ data


@pytest.mark.parametrize("graph", [hg.graphs.ring(8), hg.graphs.erdos_renyi(12, 0.5, seed=1)])
def test_the_stepsize_is_stable_and_not_far_from_the_best(graph):
    network = hg.Network(graph)
    H = a_problem(1)[1][0] * np.linspace(0.5, 1, network.n_agents)[:, None, None]
    ratio, regret = ratio_to_the_best("EXTRA", network, H, 1)
    assert ratio <= 1.05 * max(2.0, regret)


def least_promise(network, H, *, is_split):
    """R′: the least that a rule can promise which knows W and the powers of two above the L_i.

    The L_i may be these powers or half as large, and other data may have the same L_i and be the
    faster, the larger λ is, up to twice the λ that is safe for these powers.
    """
    W, told = network.matrix(), rounded(np.linalg.eigvalsh(H)[:, -1])
    B = (W > 0) / (W > 0).sum(0) if is_split else np.eye(len(W))
    safe = least_regret(W, told, is_split=is_split).largest
    lams = 2 * safe / 2 ** (np.arange(70) / 8)

    def losses(L):
        rates = np.array([log_rate(W, B, L, lam) for lam in lams])
        return np.divide(rates.min(), rates, out=np.full(70, np.inf), where=rates < 0)

    return np.maximum.reduce([losses(told), losses(told / 2), 2 * safe / lams]).min()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "share"), [("EXTRA", 0.97), ("PDGNDS", 0.9)])
def test_the_stepsize_of_agents_in_a_hundred_random_networks(name, share):
    """Never divergent, and within the R′ that no rule can promise less than; mostly within 2."""
    ratios, promises = [], []
    for seed in range(100):
        network, H = a_problem(seed)
        ratio, _ = ratio_to_the_best(name, network, H, seed)
        ratios.append(ratio)
        promises.append(least_promise(network, H, is_split=name == "PDGNDS"))
    within, parts = np.mean(np.array(ratios) <= 2), np.divide(ratios, promises)
    print(f"{name}: median {np.median(ratios):.2f}, within 2 in {within:.0%}, ", end="")
    print(f"worst {max(ratios):.2f}, at most {max(parts):.2f} R′, ", end="")
    print(f"R′ {min(promises):.2f} to {max(promises):.2f}")
    assert min(promises) > 2
    assert within >= share
    assert max(parts) <= 1.05  # both searches compare stepsizes an eighth of an octave apart
