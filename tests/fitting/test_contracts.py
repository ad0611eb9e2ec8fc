"""A contract is one text for equal models, and two that differ are told apart by their field."""

import json
from dataclasses import fields

import pytest

import hushgrad as hg
from hushgrad.errors import FitError
from hushgrad.fitting import contract, contract_digest, first_difference
from hushgrad.fitting.lockstep import drive
from support.fits import COLUMNS, model, programmes, synthetic

SITES = synthetic((30, 40))


def test_the_contract_has_every_field_and_equal_models_have_one_digest():
    ours = model("logistic", units={"age": "years", "dose": "g"}, penalty=1)
    theirs = model("logistic", units={"dose": "g", "age": "years"}, penalty=1.0,
                   columns=list(ours.columns))  # fmt: skip
    document = contract(ours)
    assert {field.name for field in fields(hg.Model)} | {"programme"} == document.keys()
    assert contract_digest(document) == contract_digest(contract(theirs))
    assert first_difference(document, contract(theirs)) is None
    assert first_difference(document, json.loads(json.dumps(document))) is None


CHANGES = {
    "kind": "poisson", "outcome": "event", "columns": ("dose", "age", "year", "stage"),
    "factors": {"stage": ("low", "high", "middle")}, "intercept": False, "weights": "weight",
    "penalty": 2.0, "penalise": "raw", "missing": "drop", "missing_values": ("",),
    "ranges": {"age": (0, 100)}, "units": {"age": "years"}, "level": 0.9, "ties": "breslow",
    "standard_errors": "sandwich",
}  # fmt: skip


@pytest.mark.parametrize("field", CHANGES)
def test_any_change_of_a_field_changes_the_digest_and_is_named(field):
    given = COLUMNS | {"kind": "logistic", "outcome": "death"}
    ours, theirs = (contract(hg.Model(**(given | d))) for d in ({}, {field: CHANGES[field]}))
    assert contract_digest(ours) != contract_digest(theirs)
    assert first_difference(ours, theirs)[0].startswith(field)


def test_true_is_not_one_and_lists_of_other_lengths_differ_as_a_whole():
    assert first_difference({"a": True}, {"a": 1.0}) == ("a", True, 1.0)
    assert first_difference({"a": [1.0]}, {"a": [1.0, 2.0]}) == ("a", [1.0], [1.0, 2.0])
    assert first_difference({"a": {"b": 1.0}}, {"a": {}}) == ("a.b", 1.0, None)


def test_sites_with_different_contracts_do_not_pool_even_if_nobody_compared_them():
    fits = [*programmes(model("logistic", penalty=1.0), {"a": SITES["north"]}),
            *programmes(model("logistic", penalty=2.0), {"b": SITES["middle"]})]  # fmt: skip
    with pytest.raises(FitError, match="digests of their contracts differ"):
        drive(fits)
    shorter = model("logistic", columns=("age",), factors={})
    fits = [*programmes(model("logistic"), {"a": SITES["north"]}),
            *programmes(shorter, {"b": SITES["middle"]})]  # fmt: skip
    with pytest.raises(FitError, match="vectors of one length"):
        drive(fits)
