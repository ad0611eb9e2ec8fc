"""Tables of cases: `make test` runs some combinations, `make test-all` runs all of them."""

import itertools

import pytest

_Set = type(pytest.param())  # a case with its marks and its name


def combinations(*columns):
    """Every combination of the columns' values, for parametrize.

    The quick ones are so many that each value of each column is among them; the others are slow.
    """
    longest = max(map(len, columns))
    quick = {tuple(n % len(column) for column in columns) for n in range(longest)}
    return [
        pytest.param(
            *[column[n] for column, n in zip(columns, places, strict=True)],
            marks=[] if places in quick else pytest.mark.slow,
        )
        for places in itertools.product(*map(range, map(len, columns)))
    ]


def some(values, every=3):
    """All values, or tuples of them, for parametrize: every third, or so, is quick, the rest slow.

    A table in which another quick test goes through all values may be run so.
    """
    rows = (value if isinstance(value, tuple) else (value,) for value in values)
    sets = [row if isinstance(row, _Set) else pytest.param(*row) for row in rows]
    return [
        each if n % every == 0 else each._replace(marks=[*each.marks, pytest.mark.slow])
        for n, each in enumerate(sets)
    ]
