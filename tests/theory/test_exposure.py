"""Each weakness appears exactly where its condition fails, and says how to correct it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import hushgrad as hg
from hushgrad.errors import AlgorithmError, PrivacyError
from hushgrad.masks import MOST_QUADRATIC
from hushgrad.theory import WEAKNESSES, OwnNumbers, Setting, judge, weaknesses
from hushgrad.theory.exposure import check_accepted
from hushgrad.theory.revealed import Revealed

LAM, ETA = 0.01, 0.5


def setting(eta=ETA, dim=3, stages=1, is_quadratic=True, n_agents=8, **chosen):
    design = {} if "masks" in chosen else {"design": "recommended"}
    algorithm = hg.PDGNDS(stepsize=hg.stepsizes.constant(LAM), **design | chosen)
    return Setting(
        algorithm=algorithm,
        n_agents=n_agents,
        dim=dim,
        is_quadratic=is_quadratic,
        stages=stages,
        sizes=None if algorithm.masking is None else algorithm.mask_sizes(dim, eta),
    )


def own(**numbers):
    return OwnNumbers(
        **{"number": 0, "neighbours": (1, 7), "curvature": 1.0, "gradient": 1.0, "rows": 1000}
        | numbers
    )


def names(*arguments):
    return [weakness.name for weakness in weaknesses(*arguments)]


def text(name, *arguments):
    (found,) = (w for w in weaknesses(*arguments) if w.name == name)
    return found.text


def test_the_recommended_design_within_its_conditions_has_no_weakness():
    assert names(setting(), own()) == []
    assert names(setting(stages=8, is_quadratic=False), own()) == []
    assert [found.name for found in judge(setting(), own())] == list(WEAKNESSES)


# ---- one condition after the other


def test_a_design_is_weak_without_masks_and_without_stages_unless_f_is_quadratic():
    masks = hg.masks.zero_sum()
    assert names(setting(masks=masks, stages=0), own()) == []
    assert names(setting(masks=masks, stages=0, is_quadratic=False), own()) == ["design"]
    assert "row attack" in text("design", setting(masks=masks, stages=0, is_quadratic=False), own())
    for nothing in (None, hg.masks.zero_sum(linear=0, quadratic=0)):
        assert names(setting(masks=nothing, stages=0, design="paper"), own()) == ["design"]
    extra = replace(setting(), algorithm=hg.EXTRA(), sizes=None, stages=0)
    assert names(extra, own()) == ["design"]
    assert "EXTRA has no masks" in text("design", extra, own())


def test_a_seed_is_weak():
    assert names(replace(setting(), is_seeded=True), own()) == ["seed"]


def test_masks_by_eta_are_weak_without_eta_and_the_text_says_where_to_get_it():
    assert names(setting(eta=None), own()) == ["eta"]
    assert "hg.Network(graph).eta" in text("eta", setting(eta=None), own())
    assert names(setting(eta=None, masks=hg.masks.zero_sum(quadratic=0.1)), own()) == []


def test_beyond_the_largest_dimension_masks_are_linear_only():
    assert names(setting(dim=MOST_QUADRATIC), own()) == []
    for eta in (ETA, None):  # the dimension alone is the reason
        assert names(setting(dim=MOST_QUADRATIC + 1, eta=eta), own()) == ["dimension"]


@given(st.floats(0.01, 100.0))
def test_a_curvature_is_weak_exactly_above_the_quadratic_mask(ratio):
    sizes = setting().sizes  # the mean square of ‖Qv‖, ‖v‖ = 1, is d times that of an entry of W
    size = np.sqrt(3 * sizes.quadratic**2 + sizes.identity**2)
    assert names(setting(), own(curvature=ratio * size)) == ["curvature"] * (ratio > 1 + 1e-9)


def test_a_stepsize_that_meets_the_condition_exactly_and_the_proposed_one_are_within_it():
    gap = hg.masks.zero_sum().sizes(3, lam=1.0, eta=ETA).curvature  # of λQ
    assert names(setting(), own(curvature=gap / LAM)) == []
    proposed = float(text("curvature", setting(), own(curvature=77.0)).split("stepsize of ")[1][:6])
    assert 0.9 * gap < proposed * 77.0 <= gap


def test_masks_without_a_quadratic_part_and_an_unknown_curvature_are_weak():
    assert names(setting(masks=hg.masks.zero_sum(quadratic=0)), own()) == ["curvature"]
    assert names(setting(), own(curvature=None)) == ["curvature"]


@given(st.floats(0.01, 100.0), st.sampled_from([0.5, 1.0, 2.0]))
def test_without_stages_a_gradient_is_weak_exactly_above_the_linear_mask(ratio, linear):
    direct = setting(masks=hg.masks.zero_sum(linear=linear), stages=0)
    found = names(direct, own(gradient=ratio * linear / LAM))
    assert found == ["gradient"] * (ratio > 1 + 1e-9)


@given(st.floats(0.01, 1e6))
def test_the_unit_of_stages_covers_every_gradient_unless_masks_are_a_part_of_it(gradient):
    assert names(setting(), own(gradient=gradient)) == []
    part = setting(masks=hg.masks.zero_sum(linear=0.5))
    assert names(part, own(gradient=gradient)) == ["gradient"] * (LAM * gradient > 0.5 * (1 + 1e-9))


def test_partners_are_weak_if_there_is_one_or_if_all_are_neighbours_and_others_are_not():
    assert names(setting(n_agents=2), own(neighbours=(1,))) == ["partners"]
    partners = hg.masks.zero_sum().partners(0, 8)
    assert names(setting(), own(neighbours=partners)) == ["partners"]
    assert names(setting(), own(neighbours=partners[1:])) == []
    assert names(setting(), own(neighbours=range(1, 8))) == []  # there is nobody beyond
    more = int(text("partners", setting(), own(neighbours=partners)).split("n_partners = ")[1][:-1])
    assert names(setting(masks=hg.masks.zero_sum(n_partners=more)), own(neighbours=partners)) == []


def test_one_neighbour_is_weak_only_where_messages_tell_more_than_the_masked_statistic():
    assert names(setting(), own(neighbours=(1,))) == []
    said = {found.name: found.text for found in judge(setting(), own(neighbours=(1,)))}
    assert "nothing beyond the masked statistic" in said["degree"]
    direct = setting(masks=hg.masks.zero_sum(), stages=0, is_quadratic=False)
    assert names(direct, own(neighbours=(1,))) == ["design", "degree"]


@given(st.integers(1, 400), st.integers(1, 6), st.integers(1, 9), st.booleans())
@example(rows=245, dim=4, stages=7, fixed=False)  # 98 of 980 entries
@example(rows=95, dim=4, stages=7, fixed=True)  # 38 of 380 entries
def test_sums_are_weak_exactly_above_a_tenth_of_the_entries_of_the_honest_rows(
    rows, dim, stages, fixed
):
    matrix = dim * (dim + 1) // 2
    numbers = matrix + stages * dim if fixed else stages * (matrix + dim)
    chosen = {"curvature": "fixed"} if fixed else {}
    found = names(setting(dim=dim, stages=stages, is_quadratic=False, **chosen), own(rows=rows))
    assert found == ["sums"] * (10 * numbers > rows * dim)


def test_sums_of_unknown_rows_are_weak_and_those_of_quadratics_only_for_a_single_row():
    curved = setting(stages=8, is_quadratic=False)
    assert names(curved, own(rows=None)) == ["sums"]
    assert "240 or more are enough" in text("sums", curved, own(rows=None))
    assert [names(setting(), own(rows=n)) for n in (None, 1, 2)] == [[], ["sums"], []]
    one, three = (Revealed(dim=3, stages=n, rows=10, is_quadratic=True).numbers for n in (1, 3))
    assert one == three == 9  # every stage of a quadratic tells the same


# ---- names


def test_names_are_accepted_and_others_refused_with_the_list():
    assert check_accepted(WEAKNESSES) == set(WEAKNESSES)
    assert check_accepted([]) == set()
    for wrong in (["sum"], "sums", None, ["sums", 3]):
        with pytest.raises(PrivacyError, match="out of design, seed, eta"):
            check_accepted(wrong)


def test_a_count_goes_through_json():
    count = Revealed(dim=4, stages=7, rows=245)
    assert Revealed.from_json(count.to_json()) == count
    assert (
        count.summary
        == "7 stages reveal 98 numbers about 245 effective honest rows of 4 entries, 10 %"
    )


@pytest.mark.parametrize("honest", [0, -1, 1.5, True])
def test_masks_assume_a_whole_number_of_honest_agents(honest):
    with pytest.raises(AlgorithmError, match=f"honest = {honest}"):
        hg.masks.zero_sum(honest=honest)
