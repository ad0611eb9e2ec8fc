"""Agents divided among devices give the numbers of agents on one device."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.errors import InputError
from hushgrad.simulate.stacked.shards.halo import Halo
from hushgrad.simulate.stacked.shards.layout import LocalLinks
from hushgrad.simulate.stacked.shards.partition import blocks, cut_arcs, partition
from support import cases, cuda, shard_runs

CLOSE = 1e-12


def check(found):
    assert found
    for name, by_devices in found.items():
        for devices, told in by_devices.items():
            place = f"{name} on {devices}: {told}"
            limit = CLOSE * max(1.0, told["size"])
            assert told["x"] <= limit, place
            assert told["error"] <= limit, place
            assert told["consensus"] <= limit, place
            assert told.get("dense", 0.0) <= limit, place
            assert told["traffic"], place
            assert not told["whole"], place  # nobody made the arrays of all arcs
            assert told["same"] or devices != "1", place


def check_cuda(found):
    """The kinds of exchanges in the programs for CUDA, by case and number of devices."""
    kinds = {}
    for name, by_devices in found.items():
        for devices, told in by_devices.items():
            if "cuda" in told:
                kinds[name, devices] = told["cuda"].pop("exchanges")
                assert told["cuda"] == {"is_float64": True, "native": []}, name
    return kinds


def test_shards_give_the_numbers_of_one_device_and_of_the_equations():
    """One of them has fewer agents than devices; the program of another lowers for CUDA, too."""
    names = ["PDGNDS square", "torus", "alone"]
    found = shard_runs.distances(names, [2, 5], 40, lowered=["torus"])
    check(found)
    assert check_cuda(found) == {("torus", n): ["collective_permute"] for n in "25"}


def test_agents_that_hear_from_more_shards_than_slots_are_written_out():
    """Wider buckets are summed in groups of slots."""
    check(shard_runs.distances(["complete"], [34], 5, trials=1))


@pytest.mark.slow
def test_every_algorithm_split_mask_and_kind_of_data_on_1_2_5_and_8_devices():
    check(shard_runs.distances([], [1, 2, 5, 8], 200, timeout=3000))


@pytest.mark.slow
def test_the_program_of_several_devices_lowers_for_cuda_in_every_case():
    every = shard_runs.names()
    found = check_cuda(shard_runs.distances(every, [2, 5], 1, lowered=every, timeout=3000))
    assert set(found) == {(name, n) for name in every for n in "25"}
    for (name, n), kinds in found.items():
        assert bool(kinds) == (name != "alone"), name  # a single agent has no neighbours
        assert kinds == (["collective_permute"] if kinds and n == "2" else kinds), name
    assert {kind for kinds in found.values() for kind in kinds} == set(cuda.EXCHANGES)


@pytest.mark.slow
def test_every_row_of_the_conformance_table_on_shards_is_its_dense_recursion():
    found = shard_runs.distances([], [3], 100, timeout=3000)
    check(found)
    assert sum("dense" in told["3"] for told in found.values()) >= 14


@pytest.mark.parametrize("n_shards", [1, 2, 3, 8])
@pytest.mark.parametrize("method", ["blocks", "rcm"])
def test_every_agent_is_in_one_shard_and_shards_are_even(n_shards, method):
    graph = hg.graphs.erdos_renyi(50, 0.1, seed=2)
    found = partition(graph, n_shards, method)
    shards = [found.agents(s) for s in range(n_shards)]
    assert np.array_equal(np.sort(np.concatenate(shards)), np.arange(50))
    assert max(map(len, shards)) - min(map(len, shards)) <= 1
    for s, agents in enumerate(shards):
        assert (np.diff(agents) > 0).all()
        assert (found.shards(agents) == s).all()


def test_cuthill_mckee_finds_a_row_whose_agents_have_mixed_numbers():
    order = np.random.default_rng(0).permutation(200)
    graph = hg.graphs.from_edges(list(zip(order[:-1].tolist(), order[1:].tolist(), strict=True)))
    assert cut_arcs(graph, blocks(200, 4)) > 100
    assert cut_arcs(graph, partition(graph, 4)) == 6


def test_rings_rows_and_grids_keep_their_numbers():
    for graph in (hg.graphs.ring(300), hg.graphs.path(300), hg.graphs.grid(60, 5)):
        assert partition(graph, 3).order is None


def test_metis_cuts_less_than_blocks():
    pytest.importorskip("pymetis", reason="the extra `scale` is not installed")
    graph = hg.graphs.grid(60, 60)
    assert cut_arcs(graph, partition(graph, 16, "metis")) < cut_arcs(graph, blocks(3600, 16))


def test_no_file_of_the_working_directory_takes_part_in_the_division(tmp_path, monkeypatch):
    pytest.importorskip("pymetis", reason="the extra `scale` is not installed")
    (tmp_path / "random.py").write_text("raise RuntimeError('a file beside the study')")
    monkeypatch.chdir(tmp_path)
    graph = hg.graphs.grid(20, 20)
    assert cut_arcs(graph, partition(graph, 4, "metis")) < 200


def test_other_threads_run_while_metis_divides_a_graph():
    """One of them says that the process lives; pymetis would hold Python's lock."""
    pytest.importorskip("pymetis", reason="the extra `scale` is not installed")
    graph = hg.graphs.random_regular(100_000, 6)
    gaps, end = [0.0], threading.Event()

    def watch():
        last = time.monotonic()
        while not end.wait(0.01):
            gaps.append(time.monotonic() - last)
            last = time.monotonic()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(watch)
        begun = time.monotonic()
        partition(graph, 8, "metis")
        took = time.monotonic() - begun
        end.set()
    assert max(gaps) < took / 2


@pytest.mark.parametrize("n_shards", [2, 5])
@pytest.mark.parametrize(
    "graph",
    [
        hg.graphs.erdos_renyi(50, 0.1, seed=2),
        hg.graphs.exponential(30),
        hg.graphs.paper().two_hop(),
        hg.graphs.torus(6, 7),
    ],
    ids=["undirected", "directed", "two hops", "by a rule"],
)
def test_every_arc_is_one_shards_and_a_row_travels_for_each_guest(graph, n_shards):
    division = partition(graph, n_shards)
    every = [LocalLinks.of(graph, division, s) for s in range(n_shards)]
    arcs = [
        (int(local.own[j]), int(local.targets[i]))
        for local in every
        for j, i in zip(local.senders, local.receivers, strict=True)
    ]
    assert sorted(arcs) == sorted(
        zip(graph.senders.tolist(), graph.receivers.tolist(), strict=True)
    )
    shard = division.shards(np.arange(graph.n_agents))
    rows = {(int(shard[j]), i) for j, i in arcs if shard[j] != shard[i]}
    given = [(p, i) for p in range(n_shards) for q in every[p].guests.values() for i in q.tolist()]
    assert sorted(given) == sorted(rows)
    heard = {
        (p, int(local.own[place])): int(n)
        for local in every
        for p, hearers in local.hearers.items()
        for place, n in zip(*hearers, strict=True)
    }
    assert heard == {(p, i): sum(shard[j] == p for j, other in arcs if other == i) for p, i in rows}


@pytest.mark.parametrize("density", [0.1, 0.3, 1.0])
@pytest.mark.parametrize("n", [2, 3, 9])
def test_in_every_round_of_an_exchange_a_shard_sends_once_and_receives_once(n, density):
    rng = np.random.default_rng(n)
    counts = rng.integers(1, 50, (n, n)) * (rng.random((n, n)) < density)
    np.fill_diagonal(counts, 0)
    halo = Halo.of(counts)
    pairs = [pair for pairs in halo.rounds for pair in pairs]
    assert sorted(pairs) == sorted(map(tuple, np.argwhere(counts).tolist()))
    if not halo.is_dense:
        for of_round in halo.rounds:
            for ends in zip(*of_round, strict=True):
                assert len(set(ends)) == len(ends)
    taken = {}
    for p, q in pairs:
        for who, sending in ((p, True), (q, False)):
            start = halo.start(p, q, is_sending=sending)
            rows = set(range(start, start + int(counts[p, q])))
            assert max(rows) < halo.n_rows
            assert not rows & taken.setdefault((who, sending), set())
            taken[who, sending] |= rows


def test_a_mesh_is_refused_where_it_cannot_serve():
    with pytest.raises(InputError, match="a mesh is None"):
        _run(mesh="all")
    with pytest.raises(InputError, match="without a transcript"):
        _run(mesh="auto", transcript=True)
    with pytest.raises(InputError, match="only on the stacked engine"):
        _run(mesh="auto", engine="agents")


def test_a_mesh_of_one_device_is_a_run_without_a_mesh():
    assert np.array_equal(_run(mesh="auto").x, _run().x)


def _run(**options):
    problem = cases.Quadratics().problem
    return hg.run(hg.DGD(), problem, cases.undirected(), iterations=3, **options)
