"""The algebra of terms equals the equation, and refuses products with another silent meaning."""

import numpy as np
import pytest

from hushgrad.exchange import (
    IDENTITY,
    Columns,
    Lazy,
    Links,
    Public,
    Pull,
    Push,
    Shares,
    Square,
    drive,
)

W, R, C = Public("W"), Public("R"), Public("C")
u, v = np.array([1.0, 2.0]), np.array([3.0, 5.0])
private = Columns(np.ones(1), np.ones(1), np.float64(0.5))


def meaning(terms):
    return [(matrix, vector.tolist()) for matrix, vector in terms]


def test_terms_add_subtract_and_scale_by_numbers():
    assert meaning(2 * (W @ u) - IDENTITY @ v) == [(W, [2, 4]), (IDENTITY, [-3, -5])]
    assert meaning(-(W @ u + R @ v) * np.float64(3)) == [(W, [-3, -6]), (R, [-9, -15])]


def test_lazy_falls_into_half_of_w_and_half_of_the_identity():
    assert meaning(Lazy(W) @ u) == [(W, [0.5, 1]), (IDENTITY, [0.5, 1])]


def test_columns_put_their_normalisation_into_the_vector():
    assert [vector.tolist() for _, vector in private @ u] == [[0.5, 1]]


def test_shares_are_negated_and_scaled_together():
    ((_, (own, out)),) = (-2 * Shares().of(u, v)).parts
    assert own.tolist() == [-2, -4]
    assert out.tolist() == [-6, -10]


@pytest.mark.parametrize("factor", [np.ones(2), np.ones((1, 1)), "x"])
def test_a_per_agent_factor_outside_the_product_is_refused(factor):
    with pytest.raises(TypeError, match=r"W @ \(lam \* x\)"):
        factor * (W @ u)


def test_a_jax_factor_is_refused_too():
    import jax.numpy as jnp

    with pytest.raises(TypeError, match="plain numbers"):
        jnp.ones(2) * (W @ u)


def test_adding_a_plain_vector_is_refused():
    with pytest.raises(TypeError, match=r"agent\.I @ vector"):
        W @ u + v


def test_pull_takes_one_product_that_the_receiver_can_weigh():
    with pytest.raises(TypeError, match="one product"):
        Pull(W @ u + W @ v)
    for secret in (private, C):
        with pytest.raises(TypeError, match="Push"):
            Pull(secret @ u)
    assert Pull(Lazy(W) @ u).vector is u


def test_push_refuses_weights_that_only_the_receiver_knows():
    with pytest.raises(TypeError, match="Pull"):
        Push(R @ u)


def test_links_are_the_widest_that_any_part_uses():
    assert (W @ u - Square(W) @ v).links is Links.TWO_HOP
    assert (IDENTITY @ u).links is Links.NONE
    assert (IDENTITY @ u + W @ v).links is Links.GRAPH


def test_drive_answers_single_exchanges_with_a_sum_and_tuples_with_tuples():
    def step():
        a = yield Pull(W @ u)
        b, c = yield Pull(W @ a), Push(C @ v)
        return a, b, c

    seen = []

    def answer(asked):
        seen.append(len(asked))
        return tuple(10 * exchange.terms.parts[0][1] for exchange in asked)

    a, b, c = drive(step(), answer)
    assert seen == [1, 2]
    assert [x.tolist() for x in (a, b, c)] == [[10, 20], [100, 200], [30, 50]]
