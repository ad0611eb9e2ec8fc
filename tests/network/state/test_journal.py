"""A committed round is never lost and never changes; any other round never counts."""

import errno
import hashlib
import itertools
import os
import random
import shutil
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hushgrad as hg
from hushgrad.errors import IdentityError, ReplayError, StaleCopyError, StateError, WireError
from hushgrad.exchange import Push
from hushgrad.files import digest as digests
from hushgrad.files.digest import digest, joint_digest
from hushgrad.network.state import journal
from hushgrad.network.state.journal import FORMAT, StateDirectory
from hushgrad.network.state.sections import (
    NOTHING,
    Section,
    decode_sections,
    encode_section,
)
from support import cases, conformance, message_network
from support.tables import combinations, some

Q = cases.Quadratics(by_hand=True)
K = 12

numbers = st.lists(st.floats(width=64), max_size=4).map(lambda v: np.array(v, np.float64))
sections = st.builds(
    Section,
    st.integers(0, 9),
    st.integers(0, 99),
    st.dictionaries(st.text(max_size=5), numbers, max_size=3),
    st.binary(max_size=20),
    st.dictionaries(st.text(max_size=5), st.booleans(), max_size=2),
)


def written(parts):
    """The bytes of a slot, and where each section ends."""
    content, ends, checksum = b"", [], NOTHING
    for part in parts:
        pieces, length, checksum = encode_section(part, checksum)
        content += b"".join(bytes(memoryview(p).cast("B")) for p in pieces)
        ends.append(len(content))
        assert length == ends[-1] - sum(ends[-2:-1])
    return content, ends


def alike(a, b):
    return (
        (a.k, a.round, a.facts) == (b.k, b.round, b.facts)
        and a.blob == b.blob
        and list(a.arrays) == list(b.arrays)
        and all(a.arrays[n].tobytes() == b.arrays[n].tobytes() for n in a.arrays)
    )


@given(st.lists(sections, max_size=4), st.binary(max_size=40))
def test_sections_are_read_as_they_were_written_and_nothing_behind_them(parts, rubbish):
    content, ends = written(parts)
    got, end, _ = decode_sections(content + rubbish)
    assert end == (ends[-1] if ends else 0)
    assert len(got) == len(parts)
    assert all(map(alike, got, parts))


LONG = [
    Section(3, 5, {"x": np.arange(6.0).reshape(1, 6, 1)}, b"ab", {"is_final": False}),
    Section(3, 6, {"sum 0": np.ones((1, 2, 1)), "gradient 0": np.ones(2)}),
    Section(3, 7, {}, b"abc"),
]


def test_a_slot_torn_at_any_byte_gives_the_sections_before():
    content, ends = written(LONG)
    for length in range(len(content) + 1):
        got, end, _ = decode_sections(content[:length])
        assert len(got) == sum(e <= length for e in ends)
        assert end == max([e for e in ends if e <= length], default=0)


def test_reading_stops_at_a_flipped_byte():
    content, ends = written(LONG)
    for place in range(len(content)):
        flipped = bytearray(content)
        flipped[place] ^= 0x40
        assert len(decode_sections(bytes(flipped))[0]) == sum(e <= place for e in ends)


def test_sections_of_an_older_step_behind_new_ones_are_not_read():
    old, _ = written(LONG)
    new, ends = written([Section(5, 9, LONG[0].arrays, b"ab"), LONG[1]])
    mixed = new[: ends[0]] + old[ends[0] :]
    assert [s.k for s in decode_sections(mixed)[0]] == [5]


FILLED = np.random.default_rng(0).normal(size=20_000)
LONG_ARRAYS = [
    Section(3, 5, {"x": FILLED[:9000].reshape(1, 9000, 1), "none": FILLED[:0]}, b"abc"),
    Section(3, 6, {"sum 0": FILLED[:8192], "gradient 0": FILLED[5:8500]}),
    Section(3, 7, {"sum 0": FILLED[:3], "gradient 0": FILLED[None, :, None]}, b"a"),
    Section(3, 8, facts={"is_settled": True}),
    Section(3, 9, {"sum 0": FILLED[:9000]}),
]


def test_long_arrays_are_read_as_they_were_written():
    content, ends = written(LONG_ARRAYS)
    got, end, _ = decode_sections(content + b"rubbish")
    assert end == ends[-1]
    assert all(map(alike, got, LONG_ARRAYS))


def test_long_sections_that_are_torn_or_changed_anywhere_are_not_read():
    content, ends = written(LONG_ARRAYS)
    rng = random.Random(1)
    edges = [place + n for end in (0, *ends) for place in (end, end + 90) for n in (-1, 0, 1)]
    for place in [*edges, *(rng.randrange(len(content)) for _ in range(200))]:
        whole = sum(e <= max(place, 0) for e in ends)
        if 0 <= place <= len(content):
            assert len(decode_sections(content[:place])[0]) == whole
        if 0 <= place < len(content):
            flipped = bytearray(content)
            flipped[place] ^= 1
            assert len(decode_sections(bytes(flipped))[0]) == whole


def directory(path, run="one", agent="alice", **options):
    return StateDirectory(path, run=run, agent=agent, **options)


def test_a_directory_belongs_to_one_agent_in_one_run(tmp_path):
    directory(tmp_path / "s").close()
    for other in ({"run": "two"}, {"agent": "bob"}):
        with pytest.raises(StateError, match="belongs to agent 'alice' in run 'one'"):
            directory(tmp_path / "s", **other)
    assert directory(tmp_path / "s").incarnation == 2


def test_only_one_process_writes(tmp_path):
    first = directory(tmp_path)
    with pytest.raises(StateError, match="is in use"):
        directory(tmp_path)
    first.close()
    directory(tmp_path).close()


def test_a_secret_is_minted_once_and_is_its_owners_alone(tmp_path):
    secrets = []
    for _ in range(2):
        state = directory(tmp_path / "a")
        secrets.append(state.secret)
        state.close()
    other = directory(tmp_path / "b")
    assert secrets[0] == secrets[1] != other.secret
    assert len(other.secret) == 32
    file = tmp_path / "a" / "secret"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o640)
    with pytest.raises(IdentityError, match="0640"):
        directory(tmp_path / "a")
    file.unlink()
    with pytest.raises(StateError, match="missing"):
        directory(tmp_path / "a")


def test_a_journal_without_its_label_is_not_taken_for_a_new_one(tmp_path):
    directory(tmp_path).close()
    (tmp_path / "run.json").unlink()
    with pytest.raises(StateError, match=r"no run\.json"):
        directory(tmp_path)


def test_a_run_that_has_begun_never_begins_again(tmp_path):
    state = directory(tmp_path)
    assert state.read() == []
    for k in (0, 1):
        state.begin(Section(k, k, {"x": np.ones(2)}))
    state.close()
    before = [(tmp_path / f"slot-{n}").read_bytes() for n in (0, 1)]
    for n, content in enumerate(before):
        (tmp_path / f"slot-{n}").write_bytes(b"?" + content[1:])
    state = directory(tmp_path)
    with pytest.raises(StateError, match="cannot be read, but its run had begun"):
        state.read()
    state.close()


def test_a_first_round_that_was_torn_is_written_again(tmp_path):
    state = directory(tmp_path)
    (tmp_path / "slot-0").write_bytes(b"hushjrnl and no more")
    assert state.read() == []


@pytest.mark.parametrize("name", ["run.json", "starts", "links.json"])
def test_a_damaged_file_is_named(tmp_path, name):
    state = directory(tmp_path)
    state.store_links({"ends": {}})
    state.close()
    (tmp_path / name).write_text("")
    with pytest.raises(StateError, match=rf"{name}' is damaged.*Restore"):
        directory(tmp_path).links  # noqa: B018  # reading raises


@pytest.mark.parametrize("durability", ["process", "power"])
def test_steps_take_turns_and_the_last_two_are_there(tmp_path, durability):
    state = directory(tmp_path, durability=durability)
    for k in range(5):
        state.begin(Section(k, 2 * k, {"x": np.full(8 - k, float(k))}))
        state.append(Section(k, 2 * k + 1))
    state.close()
    state = directory(tmp_path)
    assert [[s.round for s in part] for part in state.read()] == [[6, 7], [8, 9]]
    state.append(Section(4, 10))  # follows the whole sections
    assert [s.round for s in state.read()[1]] == [8, 9, 10]


def write_all(path, parts, **options):
    """The content of a slot with these sections."""
    state = directory(path, **options)
    state.begin(parts[0])
    for part in parts[1:]:
        state.append(part)
    state.close()
    return (path / "slot-0").read_bytes()


@pytest.fixture
def calls(tmp_path, monkeypatch):
    """The number of bytes of each write to a slot, and "sync" for each wait for the disk."""
    seen = []

    def fdatasync(file, original=os.fdatasync):
        original(file)
        seen.append("sync")

    def pwritev(file, pieces, place, original=os.pwritev):
        count = original(file, pieces, place)
        seen.append(count)
        return count

    monkeypatch.setattr(os, "pwritev", pwritev)
    monkeypatch.setattr(os, "fdatasync", fdatasync)
    return seen


def test_power_durability_waits_for_the_disk_after_every_section(tmp_path, calls):
    expected, ends = written(LONG_ARRAYS)
    lengths = np.diff([0, *ends]).tolist()
    assert write_all(tmp_path / "a", LONG_ARRAYS, durability="process") == expected
    assert calls == lengths
    calls.clear()
    assert write_all(tmp_path / "b", LONG_ARRAYS, durability="power") == expected
    assert calls == [call for length in lengths for call in (length, "sync")]


def test_a_short_write_is_completed_and_a_full_disk_is_told(tmp_path, monkeypatch):
    def short(file, pieces, place, original=os.pwritev):
        return original(file, pieces[:1], place)

    monkeypatch.setattr(os, "pwritev", short)
    content = write_all(tmp_path / "s", LONG_ARRAYS, durability="process")
    assert content == written(LONG_ARRAYS)[0]

    def full(file, rest, place):
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(StateError, match=r"cannot be written: no room.*state is kept"):
        write_all(tmp_path / "t", LONG_ARRAYS, durability="process")


@pytest.mark.parametrize("durability", ["process", "power"])
@pytest.mark.parametrize("size", [17, 2048])
def test_arrays_may_be_more_than_the_system_takes_at_a_time(tmp_path, size, durability):
    part = Section(0, 0, {f"gradient {n}": FILLED[n : n + size] for n in range(1500)})
    content = write_all(tmp_path / "s", [part], durability=durability)
    assert len(content) < 1.3 * part.arrays["gradient 0"].nbytes * 1500
    (got,), _, _ = decode_sections(content)
    assert alike(got, part)


def test_the_bytes_of_the_format_have_not_changed():
    """A change of these bytes needs a new format number: a version reads only its own format."""
    parts = [*LONG, Section(3, 8, {"x": np.arange(2048.0), "y": np.arange(3000.0)}, b"abcde")]
    content, _ = written(parts)
    assert (FORMAT, hashlib.sha256(content).hexdigest()[:16]) == (12, "459a9324378e3eec")


def test_a_digest_does_not_depend_on_the_parts_that_it_is_taken_of(monkeypatch):
    data = FILLED.tobytes()
    whole = digest(data)
    for most in (1 << 30, 70_001):
        monkeypatch.setattr(digests, "_MOST", most)
        assert digest(data) == whole
        assert joint_digest(data[:5], FILLED[1:1], data[5:90_000], data[90_000:]) == whole


def test_nothing_is_left_open(tmp_path, monkeypatch):
    def n_open():
        return len(list(Path("/proc/self/fd").iterdir()))

    calls = itertools.count()

    def fail_later(path, original=journal.sync_directory):
        if next(calls) == 2:  # for the second slot
            raise OSError(errno.EIO, "no")
        original(path)

    before = n_open()
    with monkeypatch.context() as patch:
        patch.setattr(journal, "sync_directory", fail_later)
        with pytest.raises(StateError, match=r"slot-1' cannot be opened: .*no"):
            directory(tmp_path / "s", durability="power")
    assert n_open() == before
    write_all(tmp_path / "t", LONG_ARRAYS, durability="power")
    assert n_open() == before


FULL = """
import resource, sys
import numpy as np
from pathlib import Path
from hushgrad.errors import StateError
from hushgrad.network.state.journal import StateDirectory
from hushgrad.network.state.sections import Section
state = StateDirectory(Path(sys.argv[1]), run="one", agent="alice", durability="process")
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
k = 0
try:
    while True:
        state.begin(Section(k, k, {"x": np.full(500 * (k + 1), float(k))}))
        k += 1
except StateError as error:
    print(k, error)
"""


def test_a_full_disk_is_named_and_committed_rounds_are_kept(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path / "s")],
        capture_output=True,
        text=True,
        check=True,
    )
    k, said = done.stdout.split(" ", 1)
    assert "cannot be written: File too large" in said
    assert "state is kept" in said
    (last,) = directory(tmp_path / "s").read()[-1]
    assert last.k == int(k) - 1
    assert (last.arrays["x"] == float(k) - 1).all()


# ---- whole runs, rerun from their journals


def rows():
    for name, row in conformance.ROWS.items():
        yield pytest.param(row.algorithm, cases.undirected(), id=f"{name}-undirected")
        if row.directed:
            yield pytest.param(row.algorithm, cases.directed(), id=f"{name}-directed")


@pytest.mark.parametrize(("algorithm", "network"), some(rows(), 2))
def test_runs_with_many_crashes_equal_runs_without_to_the_bit(algorithm, network, tmp_path):
    expected = message_network.reference(algorithm, Q.problem, network, Q.x0, K)
    network_of_nodes = message_network.MessageNetwork(
        tmp_path, algorithm, Q.problem, network, Q.x0, iterations=K, seed=3
    )  # fmt: skip
    np.testing.assert_array_equal(network_of_nodes.live(crash_rate=0.004), expected)
    assert network_of_nodes.crashes > 5
    assert network_of_nodes.resent > 0


class Pushing(hg.DGD):
    """DGD in which the senders weigh the messages."""

    def step(self, agent, s):
        h = self.lam(agent) * agent.gradient(s.x)
        x = yield Push(agent.W @ s.x - agent.I @ h)
        return type(s)(x=x)


@pytest.mark.parametrize("name", some(["PDGNDS lazy", "PDGDS", "PDGNDS square", "EXTRA", "AB"], 4))
def test_crashes_do_not_change_runs_in_more_dimensions(name, tmp_path):
    algorithm, network = conformance.ROWS[name].algorithm, cases.undirected()
    many = cases.Quadratics(d=20)
    expected = message_network.reference(algorithm, many.problem, network, many.x0, K)
    network_of_nodes = message_network.MessageNetwork(
        tmp_path, algorithm, many.problem, network, many.x0, iterations=K, seed=3
    )
    np.testing.assert_array_equal(network_of_nodes.live(crash_rate=0.004), expected)
    assert network_of_nodes.crashes > 5


@pytest.mark.parametrize(
    ("durability", "name"), combinations(["process", "power"], ["PDGNDS lazy", "DGD"])
)
def test_crashes_do_not_change_runs_of_long_vectors_with_either_durability(
    name, durability, tmp_path
):
    dim, network = 9000, cases.undirected()
    rng = np.random.default_rng(2)
    p, x0 = rng.normal(size=(2, cases.M, dim))
    problem = hg.Problem(
        lambda theta, own: ((theta - own["p"]) ** 2).sum(), {"p": p}, dim=dim,
        gradient=lambda theta, own: 2 * (theta - own["p"]), solution=p.mean(axis=0),
    )  # fmt: skip
    algorithm = conformance.ROWS[name].algorithm
    expected = message_network.reference(algorithm, problem, network, x0, K)
    network_of_nodes = message_network.MessageNetwork(
        tmp_path, algorithm, problem, network, x0, iterations=K, seed=3, durability=durability
    )
    np.testing.assert_array_equal(network_of_nodes.live(crash_rate=0.004), expected)
    assert network_of_nodes.crashes > 5


class Cooling(Pushing):
    """A method whose state holds a number, the stepsize of the agent."""

    def init(self, agent, x0):
        return CoolingState(x0, 0.05 * agent.ones)

    def step(self, agent, s):
        x = yield Push(agent.W @ s.x - agent.I @ (s.lam * agent.gradient(s.x)))
        return CoolingState(x, 0.9 * s.lam)


class CoolingState(NamedTuple):
    x: object
    lam: object


class Silent(hg.DGD):
    """A method that sends nothing and keeps a multiple of its gradient."""

    def init(self, agent, x0):
        return SilentState(x0, 0.0 * x0)

    def step(self, agent, s):
        y = yield Push(agent.I @ s.y)
        return SilentState(s.x + y, -0.05 * agent.gradient(s.x))


class SilentState(NamedTuple):
    x: object
    y: object


@pytest.mark.parametrize("dim", some([1, 4, 20], 2))
@pytest.mark.parametrize("algorithm", [Cooling(), Silent()], ids=["cooling", "silent"])
def test_crashes_do_not_change_runs_with_states_of_any_kind(algorithm, dim, tmp_path):
    many, network = cases.Quadratics(d=dim), cases.undirected()
    expected = message_network.reference(algorithm, many.problem, network, many.x0, K)
    network_of_nodes = message_network.MessageNetwork(
        tmp_path, algorithm, many.problem, network, many.x0, iterations=K, seed=3
    )
    np.testing.assert_array_equal(network_of_nodes.live(crash_rate=0.004), expected)


def test_crashes_do_not_change_runs_with_many_neighbours(tmp_path):
    many, network = cases.Quadratics(m=9, d=16), hg.Network(hg.graphs.star(9))
    algorithm = conformance.ROWS["PDGNDS lazy"].algorithm
    expected = message_network.reference(algorithm, many.problem, network, many.x0, K)
    network_of_nodes = message_network.MessageNetwork(
        tmp_path, algorithm, many.problem, network, many.x0, iterations=K, seed=3
    )
    np.testing.assert_array_equal(network_of_nodes.live(crash_rate=0.004), expected)


@pytest.mark.parametrize(("dim", "algorithm"), combinations([4, 20], [hg.DGD(), Pushing()]))
def test_crashes_do_not_change_runs_whose_messages_skip_neighbours(algorithm, dim, tmp_path):
    """A directed ring: agents hear from one neighbour and send to the other."""
    many, m = cases.Quadratics(d=dim), cases.M
    arcs = [(j, (j + 1) % m) for j in range(m)]
    W = 0.6 * np.eye(m) + 0.4 * np.roll(np.eye(m), 1, axis=0)
    network = hg.Network(hg.graphs.from_edges(arcs, is_directed=True), mixing=W)
    expected = message_network.reference(algorithm, many.problem, network, many.x0, K)
    network_of_nodes = message_network.MessageNetwork(
        tmp_path, algorithm, many.problem, network, many.x0, iterations=K, seed=3
    )
    np.testing.assert_array_equal(network_of_nodes.live(crash_rate=0.004), expected)


def test_an_objective_that_never_repeats_itself_is_not_asked_twice(tmp_path):
    network = cases.undirected()
    network_of_nodes = message_network.MessageNetwork(
        tmp_path, hg.AB(stepsize=conformance.CONSTANT), Q.problem, network, Q.x0, iterations=K,
        seed=4, noisy=random.Random(0),
    )  # fmt: skip
    got = network_of_nodes.live(
        crash_rate=0.01
    )  # a second answer would be a second message: WireError
    assert network_of_nodes.crashes > 5
    expected = message_network.reference(
        network_of_nodes.run.algorithm, Q.problem, network, Q.x0, K
    )
    np.testing.assert_allclose(got, expected, atol=1e-12)


def test_draws_that_differ_after_a_restart_are_refused(tmp_path):
    network_of_nodes = message_network.MessageNetwork(
        tmp_path, hg.PDGDS(), Q.problem, cases.undirected(), Q.x0, iterations=K, seed=1
    )
    for _ in range(500):
        network_of_nodes.step(0.0)
    network_of_nodes.nodes[2].state.close()
    with pytest.raises(ReplayError, match="gives other messages than were committed"):
        network_of_nodes.start(2, seed=6)


def test_a_journal_of_another_algorithm_is_refused(tmp_path):
    network_of_nodes = message_network.MessageNetwork(
        tmp_path, hg.DGD(), Q.problem, cases.undirected(), Q.x0, iterations=K, seed=1
    )
    for _ in range(500):
        network_of_nodes.step(0.0)
    network_of_nodes.nodes[2].state.close()
    network_of_nodes.run = replace(network_of_nodes.run, algorithm=hg.DIGing())
    with pytest.raises(ReplayError):
        network_of_nodes.start(2)


@pytest.mark.parametrize("name", ["PDGDS", "AB", "PDGNDS square"])
def test_a_slot_torn_at_any_place_resumes_from_its_whole_sections(name, tmp_path):
    """Cut the last section, which was not sent yet, at many bytes: the run goes on the same."""
    algorithm = conformance.ROWS[name].algorithm
    network = cases.undirected()
    expected = message_network.reference(algorithm, Q.problem, network, Q.x0, K)
    network_of_nodes = message_network.MessageNetwork(
        tmp_path, algorithm, Q.problem, network, Q.x0, iterations=K, seed=2
    )
    rng = random.Random(0)
    torn = 0
    while any(node.rounds.status is None for node in network_of_nodes.nodes):
        j = rng.randrange(cases.M)
        node = network_of_nodes.nodes[j]
        if not (node.session.is_complete and node.rounds.status is None and rng.random() < 0.1):
            network_of_nodes.step(0.0)
            continue
        before = {f: f.read_bytes() for f in Path(node.state.path).glob("slot-*")}
        node.advance()  # committed, but not sent: the crash tears the write itself
        node.state.close()
        for file, old in before.items():
            new = file.read_bytes()
            if new != old:
                changed = [n for n in range(len(new)) if new[n : n + 1] != old[n : n + 1]]
                reached = rng.randrange(changed[0], changed[-1] + 1)
                file.write_bytes(new[:reached] + old[reached:])
        network_of_nodes.kept[j] |= node.kept
        torn += 1
        network_of_nodes.start(j)
    assert torn > 10
    np.testing.assert_array_equal(network_of_nodes.live(), expected)


def test_an_old_copy_of_a_state_cannot_go_on(tmp_path):
    """A directory is restored from a backup, and a neighbour holds a later round of it."""
    network_of_nodes = message_network.MessageNetwork(
        tmp_path, hg.PDGDS(), Q.problem, cases.undirected(), Q.x0, iterations=K, seed=1
    )
    while network_of_nodes.nodes[0].rounds.round < 3:
        network_of_nodes.step(0.0)
    shutil.copytree(tmp_path / "0", tmp_path / "backup")
    while network_of_nodes.nodes[0].rounds.round < 6:
        network_of_nodes.step(0.0)
    network_of_nodes.nodes[0].state.close()
    shutil.rmtree(tmp_path / "0")
    (tmp_path / "backup").rename(tmp_path / "0")
    with pytest.raises(WireError, match="0 is at round 3, but its round 5 is here") as refused:
        network_of_nodes.start(0)
    assert refused.value.reason == "old copy"
    old, claims = network_of_nodes.nodes[0].session, []

    def ask():
        for j in [*old.peers] * 2:  # a neighbour whom the agent refuses comes again
            there = network_of_nodes.nodes[j].session
            try:
                old.greet(old.peers[j], there.hello(there.peers[0]))
            except WireError as error:
                claims.append(error.reason)

    with pytest.raises(StaleCopyError, match="holds round 5 of this agent, whose journal ends at"):
        ask()
    assert set(claims) == {"claim"}  # before all neighbours had spoken
