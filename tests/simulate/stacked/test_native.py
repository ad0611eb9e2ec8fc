"""The native loops: the same numbers as draws.py, as XLA, and as products written out."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

import hushgrad as hg  # noqa: E402
from hushgrad import draws  # noqa: E402
from hushgrad.problems import losses, quadratic  # noqa: E402
from hushgrad.simulate.stacked import native  # noqa: E402

pytestmark = pytest.mark.skipif(
    not native.is_available(), reason="no C compiler: XLA does this work by itself"
)
WIDTHS = (1, 2, 7, 8, 9, 16, 25, 31, 32, 33, 50, 71)


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


@pytest.mark.parametrize("shape", [(1, 1, 1), (15, 1, 1), (1000, 1, 1), (3, 1, 16), (7, 1, 5)])
def test_draws_are_those_of_the_contract_bit_for_bit(shape):
    rng = np.random.default_rng(1)
    k0, k1 = rng.integers(2**32, size=(2, *shape), dtype=np.uint32)
    slots = rng.integers(2**32, size=(shape[0], 1, 1), dtype=np.uint32)
    counter = np.uint32(123_456)
    expected = draws.uniforms((k0, k1), (np.full(shape, counter), np.broadcast_to(slots, shape)))
    np.testing.assert_array_equal(native.uniforms(k0, k1, slots, counter), expected)


def links_of(W):
    """Lists of the off-diagonal links of a dense matrix; every link has an out-slot of its own."""
    receivers, senders = np.nonzero(W - np.diag(np.diag(W)))
    first = np.searchsorted(receivers, np.arange(len(W) + 1)).astype(np.int32)
    entry = np.random.default_rng(2).permutation(len(senders)).astype(np.int32)
    return {"first": first, "neighbour": senders.astype(np.int32), "entry": entry}, receivers


@pytest.mark.parametrize("d", WIDTHS)
@pytest.mark.parametrize("terms", ["public", "private", "both", "all"])
def test_mixing_is_the_product_with_dense_matrices(d, terms):
    m = 13
    W = normal(m, m) * (normal(m, m, seed=3) > 0.3) + np.eye(m)
    B = normal(m, m, seed=4) * (W != 0)
    x, h, plain = (normal(m, d, 1, seed=s) for s in (5, 6, 7))
    links, receivers = links_of(W)
    u = np.empty(len(receivers))
    u[links["entry"]] = B[receivers, links["neighbour"]]
    public = (np.diag(W), W[receivers, links["neighbour"]], x)
    private = (np.diag(B).reshape(-1, 1, 1), u.reshape(-1, 1, 1), h)
    got = native.mix(
        links,
        public=public if terms != "private" else None,
        private=private if terms != "public" else None,
        plain=plain if terms == "all" else None,
    )
    expected = np.zeros((m, d))
    expected += W @ x[:, :, 0] if terms != "private" else 0
    expected += B @ h[:, :, 0] if terms != "public" else 0
    expected += plain[:, :, 0] if terms == "all" else 0
    np.testing.assert_allclose(got[:, :, 0], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("d", WIDTHS)
@pytest.mark.parametrize("s", [1, 3, 4, 5, 20])
def test_products_with_every_agents_matrix_are_einsums(s, d):
    A, x, r = normal(6, s, d), normal(6, d, seed=1), normal(6, s, seed=2)
    np.testing.assert_allclose(native.rows(A, x), np.einsum("isd,id->is", A, x), atol=1e-13)
    np.testing.assert_allclose(native.columns(A, r), np.einsum("isd,is->id", A, r), atol=1e-13)


def regression_data(s, d):
    return {
        "X": normal(6, s, d),
        "y": np.sign(normal(6, s, seed=1)),
        "weight": normal(6, s, seed=2) ** 2,
        "penalty": normal(6, d, seed=3) ** 2,
        "delta": np.full(6, 0.7),
    }


@pytest.mark.parametrize("d", WIDTHS)
@pytest.mark.parametrize("s", [1, 4, 5, 22])
@pytest.mark.parametrize("name", ["misfit", "squares", "logistic", "huber"])
def test_gradients_that_read_rows_once_are_those_of_the_problems(name, s, d):
    x = normal(6, d, seed=4)
    if name == "misfit":
        gradient = quadratic.misfit_gradient
        data = {"M": normal(6, s, d), "z": normal(6, s, seed=1), "sigma": np.arange(6.0)}
    else:
        gradient, data = getattr(losses, f"{name}_gradient"), regression_data(s, d)
    got = native.gradients(gradient, jnp.asarray(x), data)
    for i in range(6):
        own = {key: leaf[i] for key, leaf in data.items()}
        np.testing.assert_allclose(got[i], gradient(x[i], own), rtol=1e-12, atol=1e-12)


def test_the_slope_of_a_confident_logistic_row_keeps_its_digits():
    data = {
        "X": np.array([[[1.0]]]), "y": np.ones((1, 1)), "weight": np.ones((1, 1)),
        "penalty": np.zeros((1, 1)),
    }  # fmt: skip
    for t in (600.0, 40.0, -40.0, -800.0):
        got = float(native.gradients(losses.logistic_gradient, jnp.array([[t]]), data)[0, 0])
        expected = -np.exp(-np.logaddexp(0.0, t))
        assert got == pytest.approx(expected, rel=1e-14, abs=0.0)


def huber_like(theta, data):
    residual = data["M"] @ theta - data["z"]
    return jnp.where(jnp.abs(residual) < 1, residual**2, 2 * jnp.abs(residual) - 1).sum()


def soft(theta, data):  # softplus has a rule of its own for derivatives
    return jax.nn.softplus(data["M"] @ theta - data["z"]).sum() + theta @ theta


def sequential(theta, data):  # products inside a loop stay as they are
    body = lambda total, row: (total + jnp.sin(row @ theta), None)  # noqa: E731
    return jax.lax.scan(body, 0.0, data["M"])[0] + (data["z"] ** 2).sum()


@pytest.mark.parametrize("loss", [huber_like, soft, sequential])
def test_a_users_loss_has_the_gradient_of_autodiff(loss):
    gradient = jax.grad(loss)
    data = {"M": jnp.asarray(normal(5, 4, 3)), "z": jnp.asarray(normal(5, 4, seed=1))}
    x = jnp.asarray(normal(5, 3, seed=2))
    expected = jax.vmap(gradient)(x, data)
    np.testing.assert_allclose(
        native.gradients(gradient, x, data), expected, rtol=1e-13, atol=1e-13
    )


LARGE = 150  # agents, in 20 dimensions: enough for native loops


def large(algorithm, iterations=30, **settings):
    directed = not algorithm.undirected and "W" not in algorithm.needs
    graph = (
        hg.graphs.exponential(LARGE) if directed else hg.graphs.small_world(LARGE, 4, 0.1, seed=1)
    )
    problem = hg.problems.estimation(n_agents=LARGE, s=4, d=20)
    return hg.run(algorithm, problem, hg.Network(graph), iterations=iterations, **settings)


SPLITS = [hg.splits.private_constant(), hg.splits.isotropic(0.5), hg.splits.identity()]
METHODS = [
    *(
        cls(stepsize=hg.stepsizes.constant(0.01))
        for cls in hg.algorithms.ALL
        if cls is not hg.PDGDS
    ),
    hg.PDGDS(stepsize=hg.stepsizes.diminishing(0.05)),
    hg.PDGNDS(stepsize=hg.stepsizes.constant(0.01), form="square"),
    *(hg.PDGNDS(stepsize=hg.stepsizes.constant(0.01), split=split) for split in SPLITS),
]


FEW = (hg.PDGNDS, hg.AB)  # weighed by senders on links that go both ways, by both on directed ones


def named(method):
    return f"{method.label} {getattr(method, 'split', '')}"


@pytest.fixture
def mixed(monkeypatch):
    """One entry for every native product that is compiled into a program."""
    calls, mix = [], native.mix
    monkeypatch.setattr(native, "mix", lambda *a, **b: calls.append(1) or mix(*a, **b))
    return calls


# these have the native products of a method that is quick: DGD, DIGing and Aug-DGM those of EXTRA,
# AB and Push-Pull those of ADD-OPT, constant weights and none those of fresh weights
ALIKE = [
    a
    for a in METHODS
    if isinstance(a, hg.DGD | hg.DIGing | hg.AugDGM | hg.AB | hg.PushPull)
    or getattr(a, "split", None) in (hg.splits.private_constant(), hg.splits.identity())
]


@pytest.mark.filterwarnings("ignore:DGD with a constant stepsize")
@pytest.mark.parametrize(
    "method",
    [pytest.param(a, marks=[pytest.mark.slow] * (a in ALIKE)) for a in METHODS],
    ids=named,
)
def test_a_large_run_is_that_of_the_agents_one_by_one(method, mixed):
    got = large(method, iterations=10).x
    assert mixed
    expected = large(method, iterations=10, engine="agents").x
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


@pytest.mark.filterwarnings("ignore:DGD with a constant stepsize")
@pytest.mark.parametrize(
    "method",
    [
        *(cls(stepsize=hg.stepsizes.constant(0.01)) for cls in FEW),
        *(pytest.param(a, marks=pytest.mark.slow) for a in METHODS if type(a) not in FEW),
        *(pytest.param(a, marks=pytest.mark.slow) for a in METHODS[-4:]),
    ],
    ids=named,
)
def test_a_large_run_is_that_of_xla_alone_recorded_or_not(method, mixed, monkeypatch):
    with_native, recorded = large(method), large(method, transcript=True)
    assert mixed
    mixed.clear()
    monkeypatch.setattr(native, "is_available", lambda: False)
    alone = large(method)
    assert not mixed
    scale = np.abs(alone.x).max()
    np.testing.assert_allclose(with_native.x, alone.x, rtol=0, atol=1e-12 * scale)
    np.testing.assert_allclose(recorded.x, alone.x, rtol=0, atol=1e-12 * scale)


def test_sampling_more_often_changes_no_bit_of_a_large_run():
    method = hg.PDGNDS(stepsize=hg.stepsizes.constant(0.01))
    every = [large(method, record_every=n).x for n in (1, 2, 3, 7, 30)]
    for other in every[1:]:
        np.testing.assert_array_equal(other, every[0])


def test_the_native_code_can_be_switched_off(monkeypatch):
    monkeypatch.setenv("HUSHGRAD_NATIVE", "0")
    assert not native.is_available.__wrapped__()
