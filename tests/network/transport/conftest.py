"""A small run of which an agent is attacked, and the same run without an attack."""

import asyncio

import pytest

from support import random_crashes
from support.attacked_life import K


@pytest.fixture(scope="session")
def keys(tmp_path_factory):
    return tmp_path_factory.mktemp("keys")


@pytest.fixture(scope="session")
def calm(tmp_path_factory, keys):
    """The iterates of a run without an attack."""
    life = random_crashes.Life(tmp_path_factory.mktemp("calm"), keys, seed=1, iterations=K)
    asyncio.run(life.run())
    return life.iterates


@pytest.fixture
def life(tmp_path, keys):
    return random_crashes.Life(tmp_path, keys, seed=1, iterations=K)
