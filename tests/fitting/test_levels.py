"""Levels that sites agree on: the table of texts is read back, and the fit is the declared one."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hushgrad as hg
from hushgrad.errors import FitError, ModelError, PrivacyError, ProblemError
from hushgrad.fitting import contract, contract_digest
from hushgrad.fitting.averages import longest_vector
from hushgrad.fitting.levels import ENTRY, n_numbers, read_levels, write_levels
from hushgrad.fitting.lockstep import drive
from support.fits import LEVELS, fit, model, programmes, synthetic

SITES = synthetic((200, 300, 500))
AGREED = model("logistic", factors={"stage": "agreed"})
NETWORK = hg.Network(hg.graphs.complete(3))

TEXTS = st.text(min_size=1, max_size=7).filter(lambda t: "\0" not in t and len(t.encode()) <= 30)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sets(TEXTS, min_size=1, max_size=5), min_size=1, max_size=4), st.integers())
def test_a_pooled_table_is_read_back_and_depends_on_counts_alone(sites, salt):
    """Who has which text does not show: the same counts give the same table, dealt anew."""
    wanted = Counter(text for site in sites for text in site)
    if len(wanted) > 12:
        return
    table = sum(write_levels(site, str(salt), 12) for site in sites)
    found = read_levels(table, str(salt), 12, len(sites))
    assert found == wanted
    dealt = [{t for t, count in wanted.items() if count > n} for n in range(len(sites))]
    assert (sum(write_levels(site, str(salt), 12) for site in dealt) == table).all()


def test_a_table_is_rarely_unreadable():
    """Of 200 tables of 12 texts none: theory says 2 of a million for two equal places."""
    bad = 0
    for salt in range(200):
        texts = {f"level {n} {salt}" for n in range(12)}
        bad += read_levels(write_levels(texts, str(salt), 12), str(salt), 12, 1) is None
    assert not bad


def test_a_false_table_is_not_read():
    table = write_levels({"I", "II"}, "s", 12) + write_levels({"II"}, "s", 12)
    assert read_levels(table, "s", 12, 2) == {"I": 1, "II": 2}
    for place in np.flatnonzero(table)[::7]:
        false = table.copy()
        false[place] += 1.0
        assert read_levels(false, "s", 12, 2) is None
    assert read_levels(table, "s", 12, 1) is None  # "II" would be at two of one site
    assert read_levels(table, "t", 12, 2) is None
    many = write_levels({str(n) for n in range(200)}, "s", 12)
    assert read_levels(many, "s", 12, 1) is None


def test_a_fit_with_agreed_levels_is_the_fit_with_declared_ones():
    result = fit(AGREED, SITES)
    declared = fit(model("logistic", factors={"stage": sorted(LEVELS)}), SITES)
    assert result.names == declared.names
    assert result.estimate.tolist() == declared.estimate.tolist()
    assert result.levels == {"stage": dict.fromkeys(sorted(LEVELS), 3)}
    assert result.contract == contract_digest(contract(AGREED)) != declared.contract
    assert result.n_averages == declared.n_averages + 1
    assert result.numbers_pooled == declared.numbers_pooled + 12 * ENTRY
    assert "levels of stage, agreed (sites): high (3), low (3), middle (3)" in result.table()
    assert contract_digest(result.to_json()["contract"]) == result.contract


def test_a_reference_comes_first_and_numbers_are_sorted_as_numbers():
    chosen = model("logistic", factors={"stage": "agreed"}, references={"stage": "low"})
    assert list(fit(chosen, SITES).levels["stage"]) == ["low", "high", "middle"]
    sites = {n: s | {"stage": np.where(s["stage"] == "low", "10", "9")} for n, s in SITES.items()}
    assert list(fit(AGREED, sites).levels["stage"]) == ["9", "10"]


def test_a_typo_at_one_site_shows_with_its_number_of_sites():
    north = SITES["north"] | {"stage": np.where(SITES["north"]["stage"] == "low", "lo", "high")}
    result = fit(AGREED, SITES | {"north": north})
    assert result.levels["stage"] == {"high": 3, "lo": 1, "low": 2, "middle": 2}


def test_on_a_network_and_in_a_plan_the_bits_are_the_same():
    plain = fit(AGREED, SITES)
    found = hg.fit(AGREED, SITES, network=NETWORK, accept_exposure=["sums"])
    assert found.estimate.tobytes() == plain.estimate.tobytes()
    assert found.levels == plain.levels
    plan = hg.FitPlan(stages={"deaths": AGREED})
    assert hg.fit(plan, SITES)["deaths"].estimate.tobytes() == plain.estimate.tobytes()


def test_the_longest_vector_bounds_every_vector():
    lengths = []

    def pool(vectors):
        lengths.append(len(vectors[0]))
        return [np.sum(vectors, axis=0)] * len(vectors)

    drive(programmes(AGREED, SITES), pool)
    assert lengths[0] == 6 + n_numbers(12)
    assert max(lengths) <= longest_vector(AGREED)


def test_a_table_that_cannot_be_read_is_pooled_again_with_other_places(monkeypatch):
    import hushgrad.fitting.levels as levels

    calls, original = [], levels.read_levels

    def reading(table, salt, most, n_sites):
        calls.append(salt)
        return None if len(calls) <= 3 else original(table, salt, most, n_sites)  # at each site

    monkeypatch.setattr(levels, "read_levels", reading)
    result = fit(AGREED, SITES)
    assert [stage.name for stage in result.stages[:3]] == ["levels", "levels", "counts and moments"]
    assert len(set(calls)) == 2


def with_stage(values):
    return {"y": np.arange(len(values)) % 2, "stage": values}


@pytest.mark.parametrize(
    ("sites", "error", "part"),
    [
        ({"a": ["x"] * 9, "b": ["x"] * 9}, FitError, "has 1 at all sites together"),
        ({"a": ["x" * 31, "y"], "b": ["x", "y"]}, ProblemError, "up to 30 bytes"),
        ({"a": [str(n) for n in range(13)], "b": ["1", "2"]}, ProblemError, "agree on at most 12"),
        ({"a": [f"a{n}" for n in range(12)], "b": [f"b{n}" for n in range(12)]}, FitError,
         "has 24 at all sites together"),
    ],
)  # fmt: skip
def test_what_makes_no_factor_is_refused_by_name(sites, error, part):
    declared = hg.Model(
        kind="logistic", outcome="y", columns=["stage"], factors={"stage": "agreed"}
    )
    with pytest.raises(error) as refused:
        hg.fit(declared, {name: with_stage(values) for name, values in sites.items()})
    assert part in str(refused.value)


def test_a_reference_that_no_site_has_is_named():
    declared = model("logistic", factors={"stage": "agreed"}, references={"stage": "none"})
    with pytest.raises(FitError, match=r"the reference 'none' .* 'high' \(3\), 'low' \(3\)"):
        fit(declared, SITES)


def test_a_rare_level_is_refused_before_its_text_is_pooled():
    texts = SITES["north"]["stage"].astype("U20").copy()
    texts[:4] = "rare disease"
    sites = SITES | {"north": SITES["north"] | {"stage": texts}}
    with pytest.raises(PrivacyError, match="the agreed level 'rare disease' of 'stage': 4 of at"):
        hg.fit(AGREED, sites, network=NETWORK, accept_exposure=["sums"])
    found = hg.fit(AGREED, sites, network=NETWORK, accept_exposure=["cells", "sums"])
    assert found.levels["stage"]["rare disease"] == 1


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"factors": {"stage": "agree"}}, 'two or more different texts, or "agreed"'),
        ({"factors": {"stage": LEVELS}, "references": {"stage": "low"}}, "is no factor of levels"),
        ({"factors": {"stage": "agreed"}, "most_levels": 1}, "whole number from 2 to 100"),
        ({"factors": {"stage": "agreed"}, "min_cell": 0}, "whole number from 1"),
    ],
)
def test_wrong_declarations_are_refused(options, part):
    with pytest.raises(ModelError) as refused:
        model("logistic", **options)
    assert part in str(refused.value)
