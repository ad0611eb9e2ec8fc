"""The rule of partners: one component, short ways between any two agents, no adjacent numbers."""

import math

import numpy as np
import pytest

from hushgrad.masks.partners import offsets


def worst_resistance(m, k):
    """The largest effective resistance of the circulant, by its eigenvalues."""
    steps = np.arange(1, m)
    half = offsets(m, k)[: k // 2]
    eigenvalues = sum(2 - 2 * np.cos(2 * np.pi * steps * o / m) for o in half)
    green = np.fft.fft(np.concatenate([[0], 1 / eigenvalues])).real / m
    return 2 * (green[0] - green).max()


@pytest.mark.parametrize("k", [2, 4, 6, 8, 20])
def test_all_agents_are_one_component(k):
    for m in range(2, 600):
        assert math.gcd(m, *offsets(m, k)) == 1, m


@pytest.mark.parametrize("k", [2, 4, 6, 8, 20])
def test_offsets_are_distinct_and_closed_under_the_opposite(k):
    for m in range(2, 600):
        steps = {o % m for o in offsets(m, k)}
        assert len(steps) == len(offsets(m, k)) == min(k, m - 1)
        assert 0 not in steps
        assert {-o % m for o in steps} == steps


@pytest.mark.parametrize("k", [2, 4, 6, 8, 20])
def test_no_partner_has_an_adjacent_number_where_another_choice_exists(k):
    for m in range(k + 3, 600):
        assert not {1, m - 1} & {o % m for o in offsets(m, k)} or (m, k) == (6, 2)


# A torus with two equal sides has about (ln m)/(2π) + 0.26; with three or more it stays bounded.
BOUNDS = {4: lambda m: 0.3 + math.log(m) / (2 * math.pi), 6: lambda m: 0.51, 8: lambda m: 0.36}


@pytest.mark.parametrize("k", BOUNDS)
def test_the_worst_resistance_is_that_of_a_torus_with_equal_sides(k):
    sizes = [*range(k + 3, 300), 500, 997, 1000, 1024, 10**4, 10**5, 10**6]
    for m in sizes:
        assert 2 / k < worst_resistance(m, k) < BOUNDS[k](m), m


def test_a_million_agents_have_the_partners_of_every_machine():
    assert offsets(10**6, 4) == (381967, 33000, -381967, -33000)
    assert offsets(10**6, 6)[:3] == (381967, 196700, 330000)
    assert offsets(20, 4) == (7, 8, -7, -8)
