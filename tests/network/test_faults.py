"""Agents that are killed at any moment: nothing is lost, nothing is drawn twice."""

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

import hushgrad as hg
from hushgrad.errors import StateError
from hushgrad.network.ops.result import Status
from hushgrad.network.state.journal import StateDirectory
from hushgrad.network.state.position import read_position
from support import attackers, process_network, random_crashes
from support.studies import agents_of, start_study, study_text

CONSTANT = {"kind": "constant", "value": 0.2}
# The parts of the recommended design but its stages, which call no objective between kills:
# test_stages.py kills agents there.
PARTS = {
    "design": "paper",
    "split": {"kind": "private_constant", "own": 0.45},
    "masks": {"kind": "zero_sum"},
}
ALGORITHMS = {
    "PDG-NDS": {"name": "PDGNDS", "stepsize": CONSTANT, **PARTS},
    "PDG-DS": {"name": "PDGDS", "stepsize": {"kind": "diminishing", "scale": 0.5}, **PARTS},
    "DIGing": {"name": "DIGing", "stepsize": {"kind": "constant", "value": 0.05}},
    "Aug-DGM": {"name": "AugDGM", "stepsize": CONSTANT},  # two rounds per iteration
    "AsynDGM": {"name": "AsynDGM", "stepsize": CONSTANT},
}
TRIANGLE = ((0, 1), (1, 2), (2, 0))


@pytest.fixture(scope="session")
def keys(tmp_path_factory):
    return tmp_path_factory.mktemp("keys")


@pytest.fixture
def write_network(tmp_path, keys):
    """A network and its twin, which shares its secrets; at the end no agent is left."""
    made = []

    def pair(algorithm, **options):
        if algorithm["name"] == "AsynDGM":
            options["n_links"] = len(options.get("edges", process_network.RING))
        network = process_network.write_network(
            tmp_path / "network", algorithm, keys=keys, **options
        )
        made.extend([network, process_network.twin(network, tmp_path / "twin")])
        return made

    yield pair
    for network in made:
        network.close()


# ---- kill -9


def torment(network, rng, kills):
    """Kill agents by kill -9, `kills` times, and start them again.

    A kill hits one agent or several, now or after some rounds, from outside or in the middle of a
    write to the journal. Restarts come at once or later, in any order.
    """
    done = 0
    while done < kills:
        count = min(rng.choice([1, 1, 1, 2, network.n_agents]), kills - done)
        victims = rng.sample(range(network.n_agents), count)
        if rng.random() < 0.7:  # in the middle of a round; otherwise perhaps while it starts
            network.wait_for_tape(victims[0], rng.randrange(100, 2000))
        time.sleep(rng.uniform(0.0, 0.3))
        for j in victims:
            assert network.is_running(j), network.log(j)
            network.kill(j)
        rng.shuffle(victims)
        for j in victims:
            time.sleep(rng.choice([0.0, 0.0, 0.2, 0.5]))
            network.start(j)
        done += count
        if done < kills and rng.random() < 0.3:
            j = rng.choice(victims)
            network.kill(j)
            network.start(j, TORN=f"{rng.randrange(1, 20)} {rng.random()}")
            network.wait(lambda j=j: not network.is_running(j))
            assert network.processes[j].exitcode == -signal.SIGKILL, network.log(j)
            network.start(j)
            done += 2


def assert_same_history(network, twin, iterations):
    """All that was ever sent, and every iterate, is what the twin sent and was."""
    for tape, calm in zip(network.tapes(), twin.tapes(), strict=True):
        assert sorted(calm.iterates) == list(range(iterations + 1))
        assert all(len(digests) == 1 for digests in calm.sent.values())
        assert tape.sent == calm.sent
        assert tape.iterates == calm.iterates
    for j in range(network.n_agents):
        assert network.result(j).theta.tobytes() == twin.result(j).theta.tobytes()


def assert_survives(network, twin, *, kills, seed, iterations):
    twin.start()
    assert set(twin.end()) == {0}
    network.hold.touch()
    network.start()
    torment(network, random.Random(seed), kills)
    network.hold.unlink()
    assert set(network.end(seconds=120)) == {0}
    assert_same_history(network, twin, iterations)


def test_killed_agents_go_on_as_if_nothing_had_happened(write_network):
    network, twin = write_network(ALGORITHMS["PDG-NDS"], edges=TRIANGLE, iterations=150, pace=0.03)
    assert_survives(network, twin, kills=9, seed=1, iterations=150)


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["process", "power"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_two_hundred_kills_leave_no_trace(write_network, algorithm, durability):
    network, twin = write_network(
        ALGORITHMS[algorithm], iterations=400, pace=0.02, durability=durability
    )
    assert_survives(network, twin, kills=24, seed=len(algorithm), iterations=400)


@pytest.mark.slow
def test_an_objective_that_never_repeats_itself_survives_kills_too(write_network):
    network, _ = write_network(
        ALGORITHMS["Aug-DGM"], edges=TRIANGLE, iterations=80, pace=0.07, noise=0.1
    )
    network.hold.touch()
    network.start()
    torment(network, random.Random(3), 6)
    network.hold.unlink()
    assert set(network.end()) == {0}
    for tape in network.tapes():
        assert sorted(tape.iterates) == list(range(81))
        assert all(len(seen) == 1 for seen in (*tape.sent.values(), *tape.iterates.values()))


# ---- the disk


def test_a_write_that_a_kill_has_torn_is_as_if_it_had_not_begun(write_network):
    network, twin = write_network(ALGORITHMS["Aug-DGM"], edges=TRIANGLE, iterations=30)
    twin.start()
    assert set(twin.end()) == {0}
    network.start(1, 2)
    for torn in ("1 0.5", "2 0.0", "3 0.1", "4 0.5", "5 0.97", "6 0.3"):
        network.start(0, TORN=torn)
        assert network.end(0) == [-signal.SIGKILL]
    network.start(0)
    assert set(network.end()) == {0}
    assert_same_history(network, twin, 30)


def test_a_full_disk_is_told_and_with_room_the_run_goes_on(write_network):
    network, twin = write_network(ALGORITHMS["PDG-NDS"], edges=TRIANGLE, iterations=30)
    twin.start()
    assert set(twin.end()) == {0}
    for full in ("1", "8"):
        network.start(1, 2)
        network.start(0, FULL=full)
        assert network.end() == [1, 3, 3]  # its neighbours are told, and can go on as well
        assert "No space left on device. Nothing of this round was sent" in network.log(0)
    assert "Traceback" not in network.log(0)
    assert "it failed (failed)" in network.log(1) + network.log(2)
    network.start()
    assert set(network.end()) == {0}
    assert_same_history(network, twin, 30)


IN_A_SMALL_DISK = """
cp -a {state} {state}.aside && mount -t tmpfs -o size=44k tmpfs {state} || exit 99
cp -a {state}.aside/. {state}
{python} -m hushgrad agent {file}; echo "ended with $?"
while [ ! -e {state}.go ]; do sleep 0.05; done
mount -o remount,size=1m {state}
{python} -m hushgrad agent {file}; echo "ended with $?"
cp {state}/result.* {state}/..
"""


def test_a_disk_that_is_really_full_stops_an_agent_and_a_larger_one_lets_it_go_on(write_network):
    # d = 600, so that one slot of the journal fits on the disk, and two do not;
    # the result is at its default place, on the same disk
    network, twin = write_network(
        ALGORITHMS["DIGing"], edges=TRIANGLE, iterations=20, dim=600, result="state/result"
    )
    script = IN_A_SMALL_DISK.format(
        state=network.state(0), file=network.file(0), python=sys.executable
    )
    network.start(1, 2)
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as running:
        network.wait(lambda: running.poll() is not None or not network.is_running(1))
        if running.poll() is not None:
            pytest.skip(f"no mounts here: {running.communicate()[1]}")
        assert network.end(1, 2) == [3, 3]
        network.start(1, 2)
        network.state(0).with_name("state.go").touch()
        stdout, stderr = running.communicate(timeout=60)
    assert set(network.end(1, 2)) == {0}
    twin.start()
    assert set(twin.end()) == {0}
    codes = [line for line in stdout.splitlines() if line.startswith("ended with")]
    assert codes == ["ended with 1", "ended with 0"], stdout + stderr
    assert "No space left on device. Nothing of this round was sent" in stdout
    assert f"the result '{network.state(0)}/result' cannot be written" in stderr
    assert "Traceback" not in stderr
    for j in range(3):
        assert network.result(j).theta.tobytes() == twin.result(j).theta.tobytes()


# ---- signals


def test_a_process_that_stands_still_for_a_while_is_waited_for(write_network):
    network, twin = write_network(
        ALGORITHMS["DIGing"], edges=TRIANGLE, iterations=100, pace=0.01, heartbeat=0.2
    )
    twin.start()
    assert set(twin.end()) == {0}
    network.hold.touch()
    network.start()
    for j in (0, 1):
        network.wait(lambda j=j: network.iteration(j) > 20 * (j + 1))
        before = network.log(2).count("reason=silent")
        network.send(j, signal.SIGSTOP)
        network.wait(lambda n=before: network.log(2).count("reason=silent") > n)
        network.send(j, signal.SIGCONT)
    network.hold.unlink()
    assert set(network.end()) == {0}
    assert_same_history(network, twin, 100)


def resident(process):
    """The memory of a process in bytes."""
    return int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * 4096


def test_a_slow_neighbour_costs_waiting_not_memory(write_network):
    dim, line = 5000, ((0, 1), (1, 2))
    network, _ = write_network(
        ALGORITHMS["DIGing"], edges=line, iterations=10**5, dim=dim, heartbeat=10.0
    )
    for j in range(3):
        network.file(j).with_name("objective.py").write_text(
            "def gradient(x):\n    return 0.1 * x\n\ndef hessian(x):\n    return None\n"
        )

    def position(j):
        found = read_position(network.state(j))
        return -1 if found is None or found.round is None else found.round

    network.start()
    network.wait(lambda: min(map(position, range(3))) > 20)
    network.send(1, signal.SIGSTOP)
    time.sleep(0.3)
    before = [resident(network.processes[j]) for j in (0, 2)]
    time.sleep(0.7)
    after = [resident(network.processes[j]) for j in (0, 2)]
    assert position(0) <= position(1) + 1
    for one, other in zip(before, after, strict=True):
        assert other - one < 4 * 8 * dim  # of two rounds
    network.send(1, signal.SIGCONT)
    at = position(0)
    network.wait(lambda: position(0) > at + 10)


# ---- the network, and old states; all agents in this process


@pytest.fixture(scope="module")
def calm(tmp_path_factory, keys):
    """The iterates of a run without faults."""
    life = random_crashes.Life(tmp_path_factory.mktemp("calm"), keys, seed=1)
    results = asyncio.run(life.run())
    assert {r.status for r in results} == {Status.DONE}
    return life.iterates


def through(life, proxy):
    """Let agent 0 dial agent 1 through a proxy; they have no other connection."""
    for j, other, address in ((0, 1, proxy.address), (1, 0, None)):
        neighbours = tuple(
            replace(n, address=address) if n.number == other else n
            for n in life.configs[j].neighbours
        )
        life.configs[j] = replace(life.configs[j], neighbours=neighbours)


def assert_undisturbed(life, results, calm):
    assert {r.status for r in results} == {Status.DONE}, results
    assert life.iterates == calm


async def partitioned(life, seconds):
    async with attackers.Proxy(life.configs[1].listen) as proxy:
        through(life, proxy)

        def part():
            proxy.hold()
            life.loop.call_later(seconds, heal)

        def heal():
            if life.agents[0].stats.reconnects["agent-1", "silent"]:
                proxy.heal()
            else:  # a busy machine takes longer to notice
                life.loop.call_later(0.1, heal)

        life.at = {(0, 40): part}
        return await life.run(seconds=seconds + 60)


@pytest.mark.parametrize(
    "seconds",
    [1, pytest.param(30, marks=pytest.mark.slow)],  # of ≥ 0.6 without a sign of life
)
def test_a_partition_that_heals_is_only_a_pause(tmp_path, keys, calm, seconds):
    life = random_crashes.Life(tmp_path, keys, seed=1, max_wait=60.0)
    began = time.monotonic()
    results = asyncio.run(partitioned(life, seconds))
    assert_undisturbed(life, results, calm)
    assert time.monotonic() - began > seconds
    assert life.agents[0].stats.reconnects["agent-1", "silent"] >= 1


def test_connections_that_silently_died_are_noticed_and_replaced(tmp_path, keys, calm):
    life = random_crashes.Life(tmp_path, keys, seed=1)

    async def forgotten():
        async with attackers.Proxy(life.configs[1].listen) as proxy:
            through(life, proxy)
            life.at = {(0, 30): proxy.forget, (1, 60): proxy.forget, (2, 90): proxy.forget}
            results = await life.run()
            assert proxy.connections >= 4  # a busy machine may lose one more
            return results

    assert_undisturbed(life, asyncio.run(forgotten()), calm)


def test_a_neighbour_that_stays_away_is_named_and_the_run_can_be_resumed(tmp_path, keys, calm):
    life = random_crashes.Life(tmp_path, keys, seed=1, max_wait=1.0)
    life.at = {(2, 41): lambda: life.agents[2].stop()}
    *left, gone = asyncio.run(life.run())
    assert gone.status is Status.STOPPED
    for result in left:
        assert result.status is Status.PEER_LOST
        assert result.summary.startswith(f"peer lost: agent-2 at round {result.rounds - 1}")
    assert_undisturbed(life, asyncio.run(life.run()), calm)


def test_an_old_backup_is_refused_by_name_and_the_newest_state_goes_on(tmp_path, keys, calm):
    life = random_crashes.Life(tmp_path, keys, seed=1, max_wait=20.0)
    state, backup, newest = life.configs[0].state, tmp_path / "backup", tmp_path / "newest"
    asyncio.run(life.run(until=30))
    shutil.copytree(state, backup)
    asyncio.run(life.run(until=60))
    state.rename(newest)
    shutil.copytree(backup, state)
    stale, *others = asyncio.run(life.run())
    assert stale.status is Status.REFUSED
    assert "agent-" in stale.detail
    assert "This state directory is an old copy" in stale.detail
    for result in others:
        assert (result.status, result.seconds < 15) == (Status.PEER_ENDED, True)
        assert "ended the run: its state is an old copy or does not repeat itself" in result.detail
    shutil.rmtree(state)
    newest.rename(state)
    assert_undisturbed(life, asyncio.run(life.run()), calm)


def test_draws_that_are_made_again_after_a_restart_are_refused(tmp_path, keys):
    life = random_crashes.Life(tmp_path, keys)
    asyncio.run(life.run(until=30))
    secret = life.configs[1].state / "secret"
    kept = secret.read_bytes()
    secret.write_bytes(os.urandom(32))
    first, redrawn, last = asyncio.run(life.run())
    assert redrawn.status is Status.REFUSED
    assert "gives other messages than were committed" in redrawn.detail
    assert min(redrawn.iterations, redrawn.rounds) >= 29
    assert {first.status, last.status} == {Status.PEER_ENDED}
    assert any("agent-1 ended the run: its state is an old" in r.detail for r in (first, last))
    secret.write_bytes(kept)
    assert {r.status for r in asyncio.run(life.run())} == {Status.DONE}


def test_agents_that_were_started_again_still_tell_a_late_neighbour_their_weights(
    tmp_path, keys, monkeypatch
):
    square = hg.PDGNDS(form="square", stepsize=hg.stepsizes.constant(0.05))
    life = random_crashes.Life(tmp_path, keys, square, max_wait=1.0)

    def die(state, links, untouched=StateDirectory.store_links):
        if state.path.name == "agent-2":
            raise StateError("ended before it had kept what it heard")
        untouched(state, links)

    with monkeypatch.context() as patch:
        patch.setattr(StateDirectory, "store_links", die)
        *others, late = asyncio.run(life.run())
    assert late.status is Status.FAILED
    assert [r.status for r in others] == [Status.PEER_LOST] * 2
    assert any("agent-2 at round 0: it failed" in r.detail for r in others)
    assert {r.status for r in asyncio.run(life.run(seconds=20))} == {Status.DONE}


def test_damage_to_a_journal_ends_by_name_or_in_the_same_run(tmp_path, keys, calm):
    life = random_crashes.Life(tmp_path, keys, seed=1, tls=False, max_wait=3.0, heartbeat=0.1)
    rng = random.Random(4)
    asyncio.run(life.run(until=50))
    shutil.copytree(tmp_path / "state", tmp_path / "kept")
    ends = set()
    for _ in range(16):
        shutil.rmtree(tmp_path / "state")
        shutil.copytree(tmp_path / "kept", tmp_path / "state")
        slot = life.configs[rng.randrange(3)].state / f"slot-{rng.randrange(2)}"
        content = bytearray(slot.read_bytes())
        place = rng.randrange(len(content))
        if rng.random() < 0.5:
            del content[place:]
        else:
            content[place] ^= 1 << rng.randrange(8)
        slot.write_bytes(content)
        results = asyncio.run(life.run())
        ends.add(frozenset(r.status for r in results))
        assert ends <= {
            frozenset({Status.DONE}),
            frozenset({Status.REFUSED, Status.PEER_ENDED}),
            frozenset({Status.PEER_LOST}),
        }
    assert frozenset({Status.DONE}) in ends
    assert len(ends) > 1
    assert life.iterates == calm


# ---- the program that starts agents


STUDY = study_text({"PDGNDS": 0.05}, problem={"kind": "estimation"}, iterations=4000, seed=3)


def run_study(directory, *options):
    path, cache = directory / "study.toml", directory / "cache"
    return start_study(path, *options, XDG_CACHE_HOME=str(cache))


@pytest.mark.slow
def test_kills_of_agents_and_of_the_program_that_started_them_leave_no_trace(tmp_path):
    (tmp_path / "study.toml").write_text(STUDY)
    calm = run_study(tmp_path, "--save", str(tmp_path / "calm"))
    _, said = calm.communicate(timeout=120)
    assert calm.returncode == 0, said
    rng, deaths = random.Random(6), {"agents": 0, "starters": 0}
    starter = run_study(tmp_path, "--save", str(tmp_path / "killed"))
    while sum(deaths.values()) < 16:
        if rng.random() < 0.9:  # otherwise while it starts
            while not agents_of(tmp_path / "cache"):
                assert starter.poll() is None, starter.communicate()[1]
                time.sleep(0.05)
        time.sleep(rng.uniform(0.2, 1.5))
        if (agents := agents_of(tmp_path / "cache")) and rng.random() < 0.7:
            with suppress(ProcessLookupError):
                os.kill(rng.choice(agents), signal.SIGKILL)
                deaths["agents"] += 1
        else:
            starter.kill()
            starter.communicate()
            deaths["starters"] += 1
            starter = run_study(tmp_path, "--resume", "--save", str(tmp_path / "killed"))
    assert starter.wait(200) == 0, starter.communicate()[1]
    starter.communicate()
    assert min(deaths.values()) >= 3
    first, second = (hg.load_run(tmp_path / name / "PDG-NDS.npz") for name in ("calm", "killed"))
    assert first.x.tobytes() == second.x.tobytes()
    assert first.error.tobytes() == second.error.tobytes()
    assert agents_of(tmp_path / "cache") == []
