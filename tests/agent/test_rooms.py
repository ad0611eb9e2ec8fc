"""An array is given again only when nobody can read it any more."""

import gc

import numpy as np
import pytest

from hushgrad.agent.rooms import ALONE, BLOCK, Rooms, blocks, references


@pytest.mark.parametrize(
    "hold",
    [
        lambda room: room,
        lambda room: room[1:],
        lambda room: room[None, :, None][0, 1:, 0],
        lambda room: memoryview(room),
        lambda room: memoryview(room).cast("B")[8:16],
        lambda room: np.frombuffer(memoryview(room).cast("B")[8:], np.float64),
        lambda room: {"deep": [room.reshape(2, 2).T]},
        lambda room: lambda: room,
    ],
)
def test_what_is_held_is_not_given_again(hold):
    rooms = Rooms(4)
    first = rooms.take()
    address = first.ctypes.data
    held = hold(first)
    del first
    others = [rooms.take() for _ in range(3)]
    assert address not in {room.ctypes.data for room in others}
    del held
    gc.collect()
    assert rooms.take().ctypes.data == address


def test_rooms_are_as_many_as_are_held_at_a_time():
    rooms = Rooms(2, 3)
    seen = set()
    for _ in range(100):
        pair = rooms.take(), rooms.take()
        seen |= {id(room) for room in pair}
        assert pair[0] is not pair[1]
    assert pair[0].shape == (2, 3)
    assert len(seen) <= 4


def test_references_are_counted_from_alone():
    held = [object()]
    assert references(held, 0) == ALONE
    other = held[0]
    assert references(held, 0) == ALONE + 1
    del other
    assert references(held, 0) == ALONE


def test_rooms_lie_where_a_disk_can_read_them_and_not_all_in_the_same_place():
    rooms = [Rooms(*shape).take() for shape in [(1000,), (3, 171), (512,), (0, 4), (100_000,)] * 4]
    places = [room.ctypes.data for room in rooms]
    assert {place % 512 for place in places} == {0}
    assert len({place % BLOCK for place in places}) == BLOCK // 512
    for room in rooms:
        room[...] = np.arange(room.size).reshape(room.shape)
    for room in rooms:
        found = blocks(room)
        assert len(found) % BLOCK == 0
        assert room.nbytes <= len(found) < room.nbytes + BLOCK
        assert bytes(found) == room.tobytes().ljust(len(found), b"\0")
        assert not room.size or np.frombuffer(found, np.uint8).ctypes.data == room.ctypes.data


def test_only_whole_rooms_have_blocks(tmp_path):
    room = Rooms(4, 6).take()
    assert bytes(blocks(room.reshape(1, 24, 1))) == bytes(blocks(room))
    part, turned, back = room[1:], room.T, room[::-1]
    mapped = np.memmap(tmp_path / "file", np.float64, "w+", shape=(4,))
    for other in (part, turned, back, np.ones(600), np.ones(600)[:512], np.asarray(mapped)):
        assert blocks(other) is None
