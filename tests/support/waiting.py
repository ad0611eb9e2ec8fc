"""A free port and the wait for a condition, for tests that start processes of agents."""

import socket
import time


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def wait_for(condition, seconds=60):
    """Wait until a condition is true; returns what it says."""
    deadline = time.monotonic() + seconds
    while not (met := condition()):
        assert time.monotonic() < deadline, "it does not come true"
        time.sleep(0.02)
    return met
