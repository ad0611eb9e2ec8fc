"""Processes with --coordinator meet, or hear why not, within a bounded time."""

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from hushgrad.errors import InputError
from hushgrad.simulate.stacked.shards import meeting
from hushgrad.simulate.stacked.shards.meeting import meet
from support.jobs import free_port

SOON = 3.0  # seconds


def told(*processes, limit=SOON, address=None):
    """How the meeting of processes (n_processes, number) ends for each of them."""
    address = address or f"127.0.0.1:{free_port()}"

    def one(process):
        try:
            meet(address, *process, limit)
        except InputError as error:
            return str(error)
        return "met"

    with ThreadPoolExecutor(len(processes)) as pool:
        return list(pool.map(one, processes))


def test_all_processes_meet_and_leave_the_address_to_others():
    address = f"127.0.0.1:{free_port()}"
    assert told((3, 2), (3, 0), (3, 1), address=address) == ["met"] * 3
    socket.create_server(("127.0.0.1", int(address.rpartition(":")[2]))).close()


def test_a_missing_process_is_named_to_those_that_came():
    found = told((3, 0), (3, 2), limit=0.5)
    assert ["process 1 has not come within 0 s" in text for text in found] == [True, True]
    (found,) = told((2, 1), limit=0.5)
    assert "process 0 has not answered at 127.0.0.1" in found


@pytest.mark.parametrize("kind", ["silent", "dripping"])
def test_strangers_that_never_say_a_line_keep_nobody_longer_than_the_limit(kind, monkeypatch):
    monkeypatch.setattr(meeting, "_LINE", 30.0)
    address = ("127.0.0.1", free_port())
    until = time.monotonic() + 30.0

    def stranger():
        while time.monotonic() < until:
            with suppress(OSError), socket.create_connection(address) as line:
                while time.monotonic() < until:
                    if kind == "dripping":
                        line.sendall(b"h")
                    time.sleep(0.1)
                    if first.done():
                        return

    with ThreadPoolExecutor(3) as pool:
        begun = time.monotonic()
        first = pool.submit(told, (2, 0), limit=1.0, address=f"127.0.0.1:{address[1]}")
        pool.submit(stranger)
        assert "process 1 has not come within 1 s" in first.result()[0]
        assert time.monotonic() - begun < 15.0


def test_a_process_that_was_started_again_takes_its_old_place():
    port = free_port()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(told, (3, 0), limit=10.0, address=f"127.0.0.1:{port}")
        for _ in range(500):  # the first start of process 1, which ends
            time.sleep(0.02)
            with suppress(OSError), socket.create_connection(("127.0.0.1", port)) as line:
                line.sendall(b"hushgrad 3 1\n")
                time.sleep(0.3)
                break
        assert told((3, 1), (3, 2), limit=10.0, address=f"127.0.0.1:{port}") == ["met", "met"]
        assert first.result() == ["met"]


@pytest.mark.parametrize("host", ["a..b", "x" * 64])
def test_a_name_that_no_machine_can_have_is_refused(host):
    (found,) = told((2, 1), limit=1.0, address=f"{host}:29500")
    assert "--coordinator names no machine" in found


@pytest.mark.parametrize(
    ("processes", "said"),
    [
        ([(3, 0), (3, 1), (3, 1)], "two processes have the number 1"),
        ([(2, 0), (3, 1)], "process 1 counts 3 processes, and process 0 counts 2"),
    ],
)
def test_wrong_numbers_are_told_to_every_process_that_came(processes, said):
    assert all(said in text for text in told(*processes))


def test_another_program_at_the_address_is_no_process_of_the_job():
    with socket.create_server(("127.0.0.1", 0)) as other, ThreadPoolExecutor(1) as pool:

        def answer():
            line, _ = other.accept()
            with line:
                line.recv(100)
                line.sendall(b"HTTP/1.0 400 Bad Request\r\n")

        pool.submit(answer)
        port = other.getsockname()[1]
        found = told((2, 0), (2, 1), address=f"127.0.0.1:{port}")
    assert "cannot listen at 127.0.0.1" in found[0]
    assert "in use" in found[0]
    assert found[1] == f"127.0.0.1:{port} is not process 0."


def test_a_stranger_that_says_something_else_does_not_disturb_the_meeting():
    address = ("127.0.0.1", free_port())

    def stranger(_):
        for _ in range(200):
            try:
                with socket.create_connection(address) as line:
                    line.sendall(b"GET / HTTP/1.0\r\n")
                    return line.recv(10)
            except OSError:
                pass
        return None

    with ThreadPoolExecutor(2) as pool:
        strange = pool.submit(stranger, None)
        first = pool.submit(told, (2, 0), address=f"127.0.0.1:{address[1]}")
        strange.result()
        assert told((2, 1), address=f"127.0.0.1:{address[1]}") == ["met"]
        assert first.result() == ["met"]
