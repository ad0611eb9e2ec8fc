"""The pooled numbers of a fit do not depend on which site holds a row, bit for bit."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgrad.fitting import arithmetic
from hushgrad.fitting.lockstep import add, drive
from support.fit_network import bits
from support.fits import model, pooled_columns, programmes, synthetic
from support.tables import some

SITES = synthetic((15, 30, 45))
ROWS = pooled_columns(SITES)
N = len(ROWS["age"])
MODELS = {
    "linear": model("linear"),
    "weighted": model("linear", weights="weight", standard_errors="sandwich"),
    "ridge": model("ridge"),
    "logistic": model("logistic"),
    "poisson": model("poisson", offset="log_exposure", weights="weight"),
    "huber": model("huber"),
}


def deal(order, cuts):
    """{site: columns} of rows in an order, cut into sites that each have a row."""
    places = np.split(np.asarray(order), cuts)
    return {
        f"site{n}": {name: column[place] for name, column in ROWS.items()}
        for n, place in enumerate(places)
    }


def pooled_bits(declared, sites):
    """The bits of every pooled sum, without the number of sites and their votes; the result."""
    sums = []

    def pool(vectors):
        got = add(vectors)
        first = 6 if not sums else 1  # the digests of the contract, once per site; the votes
        sums.append(got[0][first:].tobytes())
        return got

    result = drive(programmes(declared, sites), pool)[0]
    return sums, result


@pytest.fixture(scope="module", params=some(MODELS))
def told(request):
    declared = MODELS[request.param]
    return declared, pooled_bits(declared, deal(range(N), [30, 60]))


@settings(max_examples=10)
@given(data=st.data())
def test_rows_dealt_to_other_sites_give_the_same_pooled_limbs_and_result(told, data):
    declared, (sums, result) = told
    order = data.draw(st.permutations(range(N)))
    cuts = sorted(data.draw(st.sets(st.integers(1, N - 1), min_size=2, max_size=2)))
    others, other = pooled_bits(declared, deal(order, cuts))
    assert others == sums
    assert bits(other) == bits(result)


def test_one_row_that_moves_changes_nothing():
    """By hand: site 0 gives its last row to site 2; every entry of every sum stays."""
    for declared in MODELS.values():
        order = np.arange(N)
        moved = [*order[:29], *order[30:], order[29]]
        assert (
            pooled_bits(declared, deal(moved, [29, 59]))[0]
            == (pooled_bits(declared, deal(order, [30, 60]))[0])
        )


def test_cox_and_errors_by_site_depend_on_the_sites():
    """Their strata and clusters are the sites. The page says so."""
    for declared in (model("cox"), model("linear", standard_errors="site")):
        one = pooled_bits(declared, deal(range(N), [30, 60]))[1]
        other = pooled_bits(declared, deal(range(N), [31, 60]))[1]
        assert bits(one) != bits(other)


# ---- the arithmetic


@given(st.floats(-690, 690))
def test_exponentials_and_logarithms_are_those_of_the_library(x):
    found = float(arithmetic.exp(np.array([x]))[0])
    assert found == pytest.approx(math.exp(x), rel=1e-15)
    assert float(arithmetic.log(np.array([found]))[0]) == pytest.approx(x, rel=1e-15, abs=3e-16)
    small = math.exp(-abs(x))
    assert float(arithmetic.log1p(np.array([small]))[0]) == pytest.approx(
        math.log1p(small), rel=1e-15
    )


def test_log_factorials_are_those_of_the_library():
    y = np.array([*range(60), 1e3, 1e6, 1e9, 1e15])
    found = arithmetic.log_factorial(y)
    np.testing.assert_allclose(found, [math.lgamma(v + 1) for v in y], rtol=1e-15, atol=1e-15)


@given(st.floats(-(2.0**64), 2.0**64).filter(lambda x: abs(x) > 1e-60 or x == 0))
def test_squares_are_exact(x):
    whole, rest = (float(v[0]) for v in arithmetic.square(np.array([x])))
    assert Fraction(whole) + Fraction(rest) == Fraction(x) ** 2


@pytest.mark.parametrize("p", [1, 2, 7, 40])
def test_a_system_is_solved_as_lapack_solves_it(p):
    rng = np.random.default_rng(p)
    A = rng.standard_normal((p, p + 3))
    H, b = A @ A.T, rng.standard_normal(p)
    np.testing.assert_allclose(arithmetic.solve(H, b), np.linalg.solve(H, b), rtol=1e-9)
    for bad in (np.zeros((p, p)), -H):
        with pytest.raises(np.linalg.LinAlgError):
            arithmetic.solve(bad, b)
