"""Numbers that sums reveal are counted, and too many are refused with a way out."""

import pytest

from hushgrad.errors import PrivacyError
from hushgrad.theory import check_revealed, numbers_revealed, share_revealed


@pytest.mark.parametrize("d", [1, 4, 10])
@pytest.mark.parametrize("stages", [1, 8])
def test_every_stage_reveals_a_symmetric_matrix_and_a_vector(d, stages):
    assert 2 * numbers_revealed(d, stages) == stages * d * (d + 3)
    assert 2 * numbers_revealed(d, stages, curvature="fixed") == d * (d + 1) + 2 * stages * d


def test_a_share_at_the_limit_is_accepted_and_one_row_less_refused():
    assert share_revealed(rows=10, dim=4, stages=7) == 98 / 40
    assert check_revealed(rows=245, dim=4, stages=7) == pytest.approx(0.1)
    with pytest.raises(PrivacyError) as refused:
        check_revealed(rows=244, dim=4, stages=7)
    told = str(refused.value)
    assert "at most 10 %" in told
    assert "98 numbers about 244 effective honest rows" in told
    assert "Have 245 effective rows" in told
    assert "reveals 38 numbers" in told
    assert check_revealed(rows=244, dim=4, stages=7, curvature="fixed") < 0.1
    assert check_revealed(rows=10, dim=4, stages=7, limit=3.0) == 98 / 40


def test_one_stage_and_a_fixed_curvature_offer_no_way_that_does_not_exist():
    with pytest.raises(PrivacyError) as refused:
        check_revealed(rows=10, dim=4, stages=1)
    assert "stages, or" not in str(refused.value)
    with pytest.raises(PrivacyError, match="or use fewer stages"):
        check_revealed(rows=10, dim=4, stages=3, curvature="fixed")


@pytest.mark.parametrize(
    "wrong", [{"rows": 0}, {"dim": 2.0}, {"stages": -1}, {"curvature": "exact"}]
)
def test_mistakes_are_named(wrong):
    with pytest.raises(PrivacyError, match=f"{next(iter(wrong))}.*{next(iter(wrong.values()))}"):
        check_revealed(**({"rows": 1000, "dim": 2, "stages": 1} | wrong))
