"""JSON without NaN, written and read."""

import json
import math

import numpy as np
import pytest

from hushgrad.files.strict_json import parse_json, plain, strict_json


def test_numbers_that_json_lacks_become_null_at_any_depth():
    value = {"a": [math.inf, {"b": np.float64("nan")}], "c": np.array([1.0, -math.inf])}
    assert json.loads(strict_json(value), parse_constant=pytest.fail) == {
        "a": [None, {"b": None}],
        "c": [1.0, None],
    }


def test_arrays_tuples_and_keys_become_those_of_json():
    assert plain({1: (np.int64(2), True, None, "x")}) == {"1": [2, True, None, "x"]}
    assert plain(object).startswith("<class")


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a": -Infinity}', '{"a": 1, "a": 1}', "{"])
def test_what_is_not_strict_json_is_not_read(text):
    with pytest.raises(ValueError, match=r"JSON has no|stands twice|Expecting"):
        parse_json(text)


def test_strict_json_is_read_back():
    value = {"a": [1, 2.5, None, "θ"], "b": {"c": True}}
    assert parse_json(strict_json(value)) == parse_json(strict_json(value).encode()) == value
