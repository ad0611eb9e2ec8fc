"""Neighbours that break a rule are refused by name, and runs go on."""

import ast
import asyncio
import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.errors import WireError
from hushgrad.network.ops.result import Status
from hushgrad.network.protocol import codes, hello
from hushgrad.network.protocol import frames as wire
from hushgrad.network.protocol.frames import FrameKind
from hushgrad.network.protocol.mask_tokens import encode_entries
from support import random_crashes
from support.attacked_life import ACTOR, VICTIM, assert_goes_on, rogue
from support.tables import some


def numbers(*values):
    return np.array(values, "<f8").tobytes()


def header(kind, length, *, magic=b"hush", version=wire.VERSION, zero=0, flags=0):
    return wire.HEADER.pack(magic, version, kind, zero, 0, length, flags)


def says(*frames, hello=True, **changes):
    def script(rogue):
        if hello:
            rogue.hello(**changes)
        for frame in frames:
            rogue.write(frame)

    return script


def data(*values, round_=0, flags=1):
    return wire.encode(FrameKind.DATA, numbers(*values), round_=round_, flags=flags)


def row(number, name):
    links = [[0, 0.25, "agent-0"], [number, 0.25, name]]
    return wire.encode(FrameKind.ROW, json.dumps({"own": 0.5, "links": links}).encode())


# name → the frames of the attacker, the reason of the refusal, a word of the answer
BREACHES = {
    "an oversized length": (says(header(FrameKind.DATA, 1 << 40)), "frame", "announces 109951162"),
    "an oversized hello": (says(header(FrameKind.HELLO, 1 << 20), hello=False), "frame", "at most"),
    "half a number": (says(header(FrameKind.DATA, 12)), "frame", "whole float64"),
    "another magic": (says(header(FrameKind.DATA, 0, magic=b"HTTP")), "frame", "begins with"),
    "another version": (says(header(FrameKind.DATA, 0, version=9)), "frame", "version 7"),
    "no kind": (says(header(99, 0)), "frame", "kind 99"),
    "flags of nothing": (says(header(FrameKind.HEARTBEAT, 0, flags=1)), "frame", "flags"),
    "nan": (says(data(1.0, np.nan, 0.0)), "not finite", "number 1 of round 0 is nan"),
    "a huge number": (says(data(1.0, 0.0, -2e30)), "too large", "1e+30 in size, but number 2"),
    "infinity": (says(data(-np.inf, 1.0, 0.0)), "not finite", "is -inf"),
    "a number too few": (says(data(1.0, 2.0)), "dimension", "2 numbers"),
    "exchanges that are not": (says(data(1.0, 2.0, 3.0, flags=4)), "dimension", "0b100"),
    "a future round": (says(data(1.0, 2.0, 3.0, round_=7)), "future round", "round 7"),
    "a round left out": (says(data(1.0, 2.0, 3.0, round_=1)), "future round", "round 1"),
    "data before hello": (says(data(1.0, 2.0, 3.0), hello=False), "order", "before HELLO"),
    "hello twice": (lambda r: (r.hello(), r.hello()), "order", "HELLO twice"),
    "an end before the end": (says(wire.encode(FrameKind.FIN, round_=0)), "other end", "committed"),
    "no json": (says(wire.encode(FrameKind.HELLO, b"\xff{"), hello=False), "frame", "JSON"),
    "deep json": (says(wire.encode(FrameKind.HELLO, b"[" * 16_000), hello=False), "frame", "JSON"),
    "no table": (says(wire.encode(FrameKind.HELLO, b"[]"), hello=False), "frame", "table"),
    "a degree below nothing": (says(degree_out=-1), "frame", "degree_out"),
    "a degree beyond all agents": (says(degree_in=10**9), "claim", "1000000000 links in"),
    "a number as text": (says(needs="0"), "frame", "needs"),
    "an entry too much": (says(extra=1), "frame", "entries"),
    "another run": (says(public={"run": "x"}), "configuration", "here, x there"),
    "another's number": (says(number=0), "configuration", "calls itself agent 0"),
    "another direction": (says(direction="in"), "configuration", "link"),
    "a row of another kind": (says(wire.encode(FrameKind.ROW, b"{}")), "frame", "ROW"),
    "a row with a name that is none": (says(row(0, "x\x1b[2J\nerror: forged")), "frame", "ROW"),
    "a row of nobody's": (says(row(9**30, "agent-0")), "frame", "ROW"),
    "a token where nothing is masked": (says(header(FrameKind.GOSSIP, 32)), "frame", "at most 0"),
    "a key where nothing is masked": (says(header(FrameKind.ANNOUNCE, 152)), "frame", "at most 0"),
}  # fmt: skip


@pytest.mark.parametrize("breach", BREACHES)
def test_a_neighbour_that_breaks_a_rule_is_refused_by_name(life, calm, caplog, breach):
    script, reason, word = BREACHES[breach]

    async def siege():
        async with rogue(life) as actor:
            script(actor)
            assert await actor.reject() == reason

    assert_goes_on(life, asyncio.run(life.run(siege=siege())), calm)
    assert life.agents[VICTIM].stats.rejected == {reason: 1}
    (record,) = [r for r in caplog.records if getattr(r, "event", "") == "rejected"]
    assert (record.peer, record.reason) == ("agent-2", reason)
    assert "agent-2" in record.getMessage()
    assert word in record.getMessage()


MASKED = hg.PDGNDS(design="recommended", stepsize=hg.stepsizes.constant(0.1))


NOBODYS = encode_entries([(1, 3, bytes(16))])


MASKED_BREACHES = {
    "nan": BREACHES["nan"],
    "half a token": (says(wire.encode(FrameKind.GOSSIP, bytes(40))), "frame", "32 bytes"),
    "half an announcement": (says(wire.encode(FrameKind.ANNOUNCE, bytes(40))), "frame", "152 b"),
    "a key of nobody's": (
        says(wire.encode(FrameKind.ANNOUNCE, b"\3" + bytes(151))), "frame", "no agent 3",
    ),
    "a token too much": (says(header(FrameKind.GOSSIP, 7 * 32)), "frame", "at most 192"),
    "a token of nobody's": (says(wire.encode(FrameKind.GOSSIP, NOBODYS)), "frame", "no mask"),
    "a distance in a run without tolerance": (
        says(wire.encode(FrameKind.GOSSIP, bytes(32))), "frame", "hops away",
    ),
}  # fmt: skip


@pytest.mark.parametrize("breach", some(MASKED_BREACHES, 2))
def test_with_masks_a_peer_that_breaks_a_rule_is_refused_and_the_run_ends_at_the_optimum(
    tmp_path, keys, caplog, breach
):
    """The agents run their default design, with draws from secrets."""
    script, reason, word = MASKED_BREACHES[breach]
    life = random_crashes.Life(tmp_path, keys, MASKED, iterations=300)
    assert all(config.partners for config in life.configs)

    async def siege():
        async with rogue(life) as actor:
            script(actor)
            assert await actor.reject() == reason

    results = asyncio.run(life.run(siege=siege()))
    assert {r.status for r in results} == {Status.DONE}, results
    (record,) = [r for r in caplog.records if getattr(r, "event", "") == "rejected"]
    assert word in record.getMessage()
    assert life.agents[VICTIM].stats.rejected == {reason: 1}
    slopes = [life.gradient(j) for j in range(random_crashes.M)]
    for result in results:
        pull = np.sum([slope(result.theta) for slope in slopes], axis=0)
        assert np.abs(pull).max() < 1e-3


def test_in_a_run_with_a_tolerance_a_peer_that_ends_too_early_is_named_by_every_agent(
    tmp_path, keys
):
    life = random_crashes.Life(tmp_path, keys, iterations=5000, tolerance=1e-12, max_wait=10.0)
    life.configs[ACTOR] = replace(life.configs[ACTOR], max_wait=0.5)

    async def siege():
        async with rogue(life) as actor:
            actor.hello()
            while life.agents[VICTIM].stats.round < 0:
                await asyncio.sleep(0.01)
            actor.send(FrameKind.FIN, round_=0)
            await actor.reject()

    first, victim, _ = asyncio.run(life.run(siege=siege()))
    assert {first.status, victim.status} == {Status.REFUSED}
    assert "agent-2 says that the run ended before round 0" in victim.detail
    assert "The diameter in [run] must bound the hops" in victim.detail
    assert first.detail.startswith(
        "agent-1 ended the run: agents would not stop in the same round (refused)"
    )


@pytest.mark.parametrize(
    ("second", "reason"),
    [(data(1.0, 2.0, 3.0), "replay"), (data(1.0, 2.0, 4.0), "equivocation")],
    ids=["replay", "equivocation"],
)
def test_two_messages_for_one_round_are_refused_by_name_and_so_is_the_run(
    life, calm, second, reason
):
    life.configs[VICTIM] = replace(life.configs[VICTIM], max_wait=1.0)
    life.configs[0] = replace(life.configs[0], max_wait=3.0)

    async def siege():
        async with rogue(life) as actor:
            actor.hello()
            actor.write(data(1.0, 2.0, 3.0) + second)
            assert await actor.reject() == reason

    first, victim, late = asyncio.run(life.run(siege=siege()))
    # the victim holds a message of the false agent-2, so the honest one cannot begin
    assert late.status is Status.REFUSED
    assert late.detail.startswith("agent-1 holds round 0 of this agent")
    assert {first.status, victim.status} == {Status.PEER_ENDED}
    assert first.detail.startswith("agent-2 ended the run: its state is an old copy or does not")


@pytest.mark.parametrize("n", [9, 10**6])
def test_a_peer_that_claims_to_hold_what_was_never_sent_ends_nobody(life, calm, caplog, n):
    async def siege():
        for _ in range(2):
            async with rogue(life) as actor:
                actor.hello(held=n, held_digest="00", needs=n + 1, round=n)
                assert await actor.reject() == "claim"

    assert_goes_on(life, asyncio.run(life.run(siege=siege())), calm)
    assert life.agents[VICTIM].stats.rejected == {"claim": 2}


def test_a_peer_that_is_refused_again_and_again_counts_as_absent(life):
    life.configs = [replace(config, max_wait=1.5) for config in life.configs]

    async def besiege():
        while True:
            async with rogue(life) as actor:
                actor.hello()
                actor.write(data(np.nan, 0.0, 0.0))
                await actor.reject()

    async def siege():
        with suppress(OSError, AssertionError, TypeError):  # until the victim has ended
            await besiege()

    _, victim, _ = asyncio.run(life.run(siege=siege()))
    assert victim.status is Status.PEER_LOST
    assert victim.detail.startswith("agent-2 at round 0 (agent-2: numbers are finite")
    assert life.agents[VICTIM].stats.rejected["not finite"] > 1


def test_text_of_a_neighbour_stands_in_quotation_marks_and_adds_no_lines(life, calm, caplog):
    """The values of a HELLO are the only text of a peer that an agent ever prints."""

    async def siege():
        async with rogue(life) as actor:
            actor.hello(public={"run": "x\nerror: \x1b[2J\ud800 forged”", "error: all": "lost"})
            await actor.reject()
        async with rogue(life) as actor:
            actor.hello()
            actor.send(FrameKind.REJECT, flags=2)
            await actor.reject()

    assert_goes_on(life, asyncio.run(life.run(siege=siege())), calm)
    labels = {reason for _, reason in life.agents[VICTIM].stats.reconnects}
    assert labels <= {"refused (order)", "left", "closed by the peer", "broken"}
    assert "“xerror: [2J forged” there" in caplog.text
    assert "an entry: nothing here, lost there" in caplog.text
    for record in caplog.records:
        assert all(c.isprintable() for c in record.getMessage())


def test_every_reason_that_an_agent_gives_is_one_that_a_neighbour_counts():
    """Reasons label metrics, so a neighbour's choice must not add any."""
    given = set()
    for path in Path(hello.__file__).parents[1].rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            is_error = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "WireError"
            if is_error and len(node.args) > 1:
                given |= {
                    part.value for part in ast.walk(node.args[1]) if isinstance(part, ast.Constant)
                }
    assert {"equivocation", "replay", "not finite"} <= given
    assert given <= codes.REASONS.keys()
    for reason in codes.REASONS:
        assert codes.reason_of(codes.reason_code(reason)) == reason
    for code in (0, codes.MOST_REASON + 1):
        with pytest.raises(WireError, match=f"its code is {code}"):
            codes.reason_of(code)
