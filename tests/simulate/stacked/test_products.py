"""Products written out: the same numbers as NumPy's, and none left to XLA where they are few."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402  # after importorskip

from hushgrad.simulate.stacked.products import SHORT, write_products_out  # noqa: E402  # after importorskip
from support.tables import some  # noqa: E402  # after importorskip

AGENTS = 5


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


def data_of(s, d, seed=0):
    rng = np.random.default_rng(seed)
    return {"M": rng.normal(size=(AGENTS, s, d)), "z": rng.normal(size=(AGENTS, s))}


def loss(theta, data):
    return ((data["M"] @ theta - data["z"]) ** 2).sum()


def by_hand(x, data):
    return np.stack(
        [2 * M.T @ (M @ own - z) for own, M, z in zip(x, data["M"], data["z"], strict=True)]
    )


def dots(function, *arguments):
    """How many products XLA still gets."""
    return str(jax.make_jaxpr(function)(*arguments)).count("dot_general")


@pytest.mark.parametrize("s", [1, 3, SHORT, SHORT + 1])
@pytest.mark.parametrize("d", [1, 2, SHORT, SHORT + 1])
def test_gradients_are_those_by_hand(s, d):
    data, x = data_of(s, d), np.random.default_rng(1).normal(size=(AGENTS, d))

    def written(x, data):
        return write_products_out(jax.vmap(jax.grad(loss)), x, data)

    np.testing.assert_allclose(jax.jit(written)(x, data), by_hand(x, data), rtol=1e-13, atol=1e-13)
    assert dots(jax.vmap(jax.grad(loss)), x, data) == 2
    assert dots(written, x, data) == (s > SHORT) + (d > SHORT)


@pytest.mark.parametrize(
    "product",
    [
        lambda A, x: A @ x,
        lambda A, x: x @ A.T,
        lambda A, x: jnp.einsum("sd,d->s", A, x),
        lambda A, x: jax.jit(lambda A, x: A @ x)(A, x),
    ],
    ids=["matrix first", "vector first", "einsum", "within a jitted function"],
)
def test_every_way_to_write_a_product(product):
    rng = np.random.default_rng(2)
    A, x = rng.normal(size=(AGENTS, 3, 2)), rng.normal(size=(AGENTS, 2))

    def written(A, x):
        return write_products_out(jax.vmap(product), A, x)

    np.testing.assert_allclose(written(A, x), np.einsum("isd,id->is", A, x), rtol=1e-14)
    assert dots(written, A, x) == 0


def huber_like(theta, data):
    residual = data["M"] @ theta - data["z"]
    return jnp.where(jnp.abs(residual) < 1, residual**2, 2 * jnp.abs(residual) - 1).sum()


def soft(theta, data):  # softplus has a rule of its own for derivatives
    return jax.nn.softplus(data["M"] @ theta - data["z"]).sum() + theta @ theta


def sequential(theta, data):  # products inside a loop stay as they are
    body = lambda total, row: (total + jnp.sin(row @ theta), None)  # noqa: E731  # one line, used here
    return jax.lax.scan(body, 0.0, data["M"])[0] + (data["z"] ** 2).sum()


@pytest.mark.parametrize("loss", some([sequential, huber_like, soft], 2))
def test_a_users_loss_has_the_gradient_of_autodiff(loss):
    gradients = jax.vmap(jax.grad(loss))
    data, x = data_of(4, 3), np.random.default_rng(2).normal(size=(AGENTS, 3))
    expected = gradients(x, data)
    np.testing.assert_allclose(
        write_products_out(gradients, x, data), expected, rtol=1e-13, atol=1e-13
    )


def test_a_rule_of_the_users_own_is_left_alone():
    @jax.custom_jvp
    def twice(x):
        return 2.0 * x

    twice.defjvp(lambda primals, tangents: (twice(*primals), 3.0 * tangents[0]))
    A, x = np.ones((AGENTS, 2, 2)), np.ones((AGENTS, 2))
    gradient = jax.vmap(jax.grad(lambda x, A: twice(A @ x).sum()))
    # by the rule 3 Aᵀ1, whatever twice computes
    np.testing.assert_array_equal(write_products_out(gradient, x, A), np.full((AGENTS, 2), 6.0))


def test_products_of_other_shapes_are_xlas():
    A, B = np.ones((AGENTS, 2, 3)), np.ones((AGENTS, 3, 2))

    def written(A, B):
        return write_products_out(jax.vmap(lambda A, B: A @ B), A, B)

    np.testing.assert_array_equal(written(A, B), np.full((AGENTS, 2, 2), 3.0))
    assert dots(written, A, B) == 1
