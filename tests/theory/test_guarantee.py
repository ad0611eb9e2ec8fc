"""Guarantees: the formula, the worst coalitions by brute force, a ledger, a table, JSON."""

import itertools
import json
import math
import re

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.errors import PrivacyError
from hushgrad.masks import Sizes
from hushgrad.theory import Ledger, RowBound, gaussian_dp, logistic_row, resistances

SIZES = Sizes(3, 100.0, 10.0)
BOUND = RowBound(linear=1.0, quadratic=0.25)


def honest_resistances(masks, m, coalition):
    """R (m, m) of the honest pairs, agent by agent."""
    honest = set(range(m)) - set(coalition)
    return resistances(m, [(i, j) for i in honest for j in masks.partners(i, m) if j in honest])


def guarantee(m, n_partners=4, **options):
    options = {"sizes": SIZES, "bound": BOUND} | options
    return hg.guarantee(hg.masks.zero_sum(n_partners=n_partners), m, **options)


def test_the_formula_by_hand():
    """Two agents: R = 1. Both parts, every stage and every run count."""
    (outsider,) = guarantee(2, stages=3, runs=5).exposures
    mu = math.sqrt(15 * ((1 / 100) ** 2 + (0.25 / 10) ** 2))
    assert outsider.mu == pytest.approx(mu, rel=1e-12)
    assert outsider.advantage == pytest.approx(gaussian_dp.advantage(mu))
    assert gaussian_dp.delta(outsider.epsilon, mu) == pytest.approx(1e-6)
    (once,) = guarantee(2, stages=3, runs=5, curvature="fixed").exposures
    assert once.mu == pytest.approx(math.sqrt(15 * 1e-4 + 5 * 0.025**2), rel=1e-12)


@pytest.mark.parametrize(("m", "n_partners"), [(7, 2), (9, 4), (11, 4), (9, 6), (6, 8)])
def test_no_coalition_harms_more_than_the_named_one(m, n_partners):
    masks = hg.masks.zero_sum(n_partners=n_partners)
    found = guarantee(m, n_partners, agent=2)
    for size, exposure in enumerate(found.exposures):
        assert len(exposure.coalition) == size
        assert exposure.is_exact
        harms = []
        for coalition in itertools.combinations([i for i in range(m) if i != 2], size):
            others = np.delete(honest_resistances(masks, m, coalition)[2], 2)
            finite = others[np.isfinite(others)]
            harms.append(finite.max() if finite.size else math.inf)
        assert exposure.resistance == pytest.approx(max(harms))
    assert found.exposures[-1].is_alone == (n_partners < m - 1)
    assert len(found.exposures) == (m - 1 if n_partners >= m - 1 else n_partners + 1)


def test_a_named_coalition_tells_about_every_honest_agent():
    m, coalition = 12, {1, 4, 7}
    R = honest_resistances(hg.masks.zero_sum(), m, coalition)
    found = guarantee(m, coalition=coalition)
    assert [e.agent for e in found.exposures] == [i for i in range(m) if i not in coalition]
    for e in found.exposures:
        others = {j: r for j, r in enumerate(R[e.agent]) if j != e.agent and np.isfinite(r)}
        assert e.hidden_among == 1 + len(others)
        assert e.resistance == pytest.approx(max(others.values())) == others[e.other]
        assert e.mu == pytest.approx(found.unit_mu * math.sqrt(max(others.values())))
        assert e.nearest_mu == pytest.approx(found.unit_mu * math.sqrt(min(others.values())))
    assert found.worst.mu == max(e.mu for e in found.exposures)


def test_a_coalition_of_all_partners_exposes_the_agent_and_the_table_says_so():
    masks = hg.masks.zero_sum()
    found = guarantee(20, coalition=masks.partners(0, 20))
    alone = found.exposures[0]
    assert alone.is_alone
    assert (alone.mu, alone.epsilon, alone.advantage) == (math.inf, math.inf, 1.0)
    assert alone.other is alone.nearest is None
    assert "nothing is hidden" in str(found)


def test_every_agent_has_the_same_worst_numbers():
    first, other = guarantee(11), guarantee(11, agent=5)
    for a, b in zip(first.exposures, other.exposures, strict=True):
        assert a.mu == pytest.approx(b.mu)


def test_large_networks_are_marked_as_searched_in_part_and_never_above_the_safe_bound(monkeypatch):
    monkeypatch.setattr("hushgrad.theory.coalitions.BUDGET", 0.05)
    found = guarantee(30, 12)
    parts = [e for e in found.exposures if not e.is_exact]
    assert parts
    assert "~" in str(found)
    exact = guarantee(30, 12).exposures[0]
    assert exact.most_mu == exact.mu
    bounded = [e for e in parts if e.most_mu is not None]
    assert bounded
    assert all(e.mu <= e.most_mu for e in bounded)
    assert f"(≤ {bounded[0].most_mu:.3g})" in str(found)


def test_the_safe_bound_holds_for_every_coalition_of_two():
    masks, m = hg.masks.zero_sum(n_partners=8), 12
    from hushgrad.theory.promise import _spectral_gap
    from hushgrad.theory.resistance import pairs_of

    links = [(i, j) for i in range(m) for j in masks.partners(i, m)]
    gap = _spectral_gap(pairs_of(m, links))
    L = 8 * np.eye(m) - pairs_of(m, links)
    assert gap == pytest.approx(np.linalg.eigvalsh(L)[1])
    for coalition in itertools.combinations(range(m), 2):
        R = honest_resistances(masks, m, coalition)
        assert R[np.isfinite(R)].max() <= 2 / (gap - 2)


def test_a_part_without_a_mask_is_seen():
    found = guarantee(5, sizes=Sizes(3, 100.0, 0.0))
    assert found.worst.mu == math.inf
    assert "a part has no mask" in str(found)
    assert guarantee(5, sizes=Sizes(3, 100.0, 0.0), bound=RowBound(linear=1.0)).unit_mu == 0.01


def test_json_has_every_field_and_no_infinity():
    stored = json.loads(guarantee(9, bound=logistic_row(1.0)).to_json())
    assert stored["bound"] == {"linear": 1.0, "quadratic": 0.25}
    assert [len(e["coalition"]) for e in stored["exposures"]] == [0, 1, 2, 3, 4]
    assert stored["exposures"][-1]["mu"] is None
    assert stored["exposures"][-1]["is_alone"]


def test_the_table_names_who_must_be_honest():
    text = str(guarantee(9))
    partners = ", ".join(map(str, hg.masks.zero_sum().partners(0, 9)))
    assert f"{{{partners}}}" in text
    assert "4 agents can expose this one" in text
    assert "Not covered" in text


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"bound": 1.0}, "takes a RowBound, but got 1.0"),
        ({"sizes": None}, "takes a Sizes, but got None"),
        ({"stages": 0}, "stages is a whole number"),
        ({"runs": 1.5}, "runs is a whole number"),
        ({"delta": 0.0}, "between 0 and 1, but delta = 0.0"),
        ({"coalition": {9}}, "numbers 0 to 8, but 9"),
        ({"coalition": range(9)}, "all 9 agents"),
        ({"agent": -1}, "numbers 0 to 8, but -1"),
        ({"curvature": "exact"}, "one of newton, fixed"),
    ],
)
def test_mistakes_are_named(options, told):
    with pytest.raises(PrivacyError, match=re.escape(told)):
        guarantee(9, **options)


def test_too_many_agents_and_no_masks_are_refused():
    with pytest.raises(PrivacyError, match="2 to 1000 agents, but n_agents = 1001"):
        guarantee(1001)
    with pytest.raises(PrivacyError, match="takes a ZeroSum"):
        hg.guarantee(None, 5, sizes=SIZES, bound=BOUND)


# ---- the ledger


def test_runs_add_their_squares_and_survive_json():
    ledger = Ledger()
    for n in range(8):
        ledger = ledger.add(f"run {n}", 0.1)
    assert ledger.mu == pytest.approx(0.1 * math.sqrt(8))
    assert ledger.mu == pytest.approx(guarantee(2, runs=8, sizes=Sizes(1, 10.0, 0.0),
                                                bound=RowBound(linear=1.0)).worst.mu)  # fmt: skip
    assert ledger.epsilon(1e-6) == gaussian_dp.epsilon(1e-6, ledger.mu)
    assert ledger.advantage == gaussian_dp.advantage(ledger.mu)
    assert Ledger.from_json(ledger.add("bare", math.inf).to_json()).mu == math.inf
    assert Ledger.from_json(ledger.to_json()) == ledger
    assert Ledger().mu == 0.0


def test_a_ledger_refuses_an_id_twice_and_a_negative_mu():
    with pytest.raises(PrivacyError, match="share their masks"):
        Ledger().add("a", 0.1).add("a", 0.2)
    with pytest.raises(PrivacyError, match="μ ≥ 0"):
        Ledger().add("a", -0.1)
