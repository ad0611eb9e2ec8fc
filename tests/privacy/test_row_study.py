"""Attacks on rows of real data get all rows without stages, and what sums tell with stages.

`pytest -m slow -s tests/privacy/test_row_study.py` prints the counts that docs/privacy.md tells.
"""

from collections import Counter

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.privacy.attacks.row_fit import RowFit
from hushgrad.theory.revealed import MOST_OF_ROW
from support import row_study
from support.row_study import Case, Counts

pytestmark = pytest.mark.filterwarnings("ignore::hushgrad.errors.RiskWarning")

FEW = (Case(777417, "star", "digits", 5, 25, 10, 2, "newton", None),)  # admitted
SEEDS = pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(FEW, id="few"),
        pytest.param(range(130), id="many", marks=pytest.mark.slow),
    ],
)


def admitted(seed):
    """A case that is admitted, or the one to which a seed leads, and its run, if any."""
    if isinstance(seed, Case):
        return seed, row_study.staged_run(seed, accept_exposure=())
    return row_study.admitted_run(seed)


@SEEDS
def test_no_row_comes_out_of_a_run_that_is_admitted(seeds):
    counts, cases, found = Counts(), [], []
    for seed in seeds:
        found_case = admitted(seed)
        if found_case is None:
            continue
        case, run = found_case
        cases.append(case)
        given_away = row_study.attack_admitted(case, run, counts)
        found += [(case, np.linalg.norm(row) / np.sqrt(case.dim)) for row in given_away]
    print(f"\n{len(cases)} networks")
    for field in ("kind", "data", "curvature", "stages", "clip", "dim"):
        print(f"{field}: {dict(Counter(getattr(case, field) for case in cases))}")
    print("agents", np.quantile([case.n_agents for case in cases], [0, 0.5, 1]), end=", ")
    print("honest rows", np.quantile([case.honest_rows for case in cases], [0, 0.5, 1]))
    print(counts.table())
    print("rows that sums gave away, with their lengths over √d:", found)
    if len(seeds) > len(FEW):
        assert len(cases) >= 100
        for field, values in (("data", row_study.DATA), ("kind", row_study.KINDS)):
            tried = Counter(getattr(case, field) for case in cases)
            assert min(tried[value] for value in values) >= (25 if field == "data" else 10)
    for kind in ("clipped", "as they are"):
        for attack in ("Row fit", "Probes", "Sum fit", "Sum fit, active"):
            assert counts[f"{attack}, {kind}", "rows met"] == 0


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(1), id="few"),
        pytest.param(range(1, 13), id="many", marks=pytest.mark.slow),
    ],
)
def test_the_sums_of_a_run_that_is_refused_give_rows_away(seeds):
    counts = Counts()
    for seed in seeds:
        case = row_study.refused_case(seed)
        assert not case.is_admitted
        run = row_study.staged_run(case, per_stage=12)
        row_study.attack_sums(case, run, "Sum fit, refused", counts, starts=64, effort=1e10)
    print(f"\n{counts.table()}")
    met, control = (counts["Sum fit, refused", f"{w}rows met"] for w in ("", "control "))
    assert met >= len(seeds)
    assert met > 3 * control


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(4), id="few"),
        pytest.param(range(4, 304), id="many", marks=pytest.mark.slow),
    ],
)
def test_rows_are_met_only_where_the_sums_determine_a_row(seeds):
    """Random numbers of rows, as many as two or three stages tell 3 to 60 % of."""
    found = np.array([row_study.share_and_met(seed) for seed in seeds])
    beyond = found[:, 0] > MOST_OF_ROW
    print(f"\n{(~beyond).sum()} sets of rows within the limit, {beyond.sum()} beyond;",
          f"rows met: {found[~beyond, 1].sum():.0f}, {found[beyond, 1].sum():.0f}")  # fmt: skip
    assert found[~beyond, 1].sum() == 0
    if len(seeds) > 4:
        assert found[beyond, 1].sum() >= 3
        assert (~beyond).sum() >= 30


@pytest.mark.parametrize(
    "sets",
    [
        pytest.param(range(60), id="few"),
        pytest.param(range(900), id="many", marks=pytest.mark.slow),
    ],
)
def test_no_public_direction_tells_a_row_of_an_admitted_sum_of_squares(sets):
    """Two agents with 10 to 40 rows each, and X^T X along columns, their sums and eigenvectors."""
    found = np.array([row_study.square_and_met(seed) for seed in sets])
    is_admitted = found[:, 0] > 0
    met, control = found[is_admitted, 1:].sum(axis=0)
    print(f"\n{is_admitted.sum()} sums admitted, rows met {met}, control rows {control};",
          f"{(~is_admitted).sum()} refused, rows met {found[~is_admitted, 1].sum()}")  # fmt: skip
    assert met <= control + 1  # a long row may lie near an eigenvector by chance
    assert is_admitted.mean() > 0.6
    assert found[~is_admitted, 1].sum() > len(sets) / 30


@pytest.mark.slow
@pytest.mark.parametrize("is_clipped", [False, True], ids=["as they are", "clipped"])
def test_how_many_rows_seven_stages_tell(is_clipped):
    """98 numbers, about 10, 20, 40 and 250 rows of four entries; 245 effective rows are needed."""
    met = {}
    for n, starts in ((10, 400), (20, 100), (40, 32), (250, 6)):
        found = np.array(
            [row_study.seven_stages(n, seed, starts, is_clipped) for seed in range(6)]
        ).sum(axis=0)
        print(f"\n6 × {n} rows: near {found[0]}, claimed {found[1]}, met {found[2]}, "
              f"control rows met {found[3]}")  # fmt: skip
        met[n] = found[2]
    assert met[10] >= 12
    assert met[10] > 3 * met[250]


@pytest.mark.parametrize(
    "cases",
    [
        pytest.param([("star", "cancer", 3, 3)], id="few"),
        pytest.param(
            [
                (kind, data, 4, n)
                for kind in row_study.KINDS
                for data, n in (("cancer", 5), ("digits", 8), ("diabetes", 6))
            ],
            id="many",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_lab_recovers_rows_of_the_direct_design_and_says_exposed(cases):
    met, attacked, exposed = 0, 0, 0
    for kind, data, dim, per_agent in cases:
        case = Case(0, kind, data, dim, per_agent, 5, 0, "newton", None)
        run = row_study.direct_run(case)
        target = row_study.target_of(run.network)
        audit = hg.audit(
            run, "neighbours", agents=[target], attacks=[RowFit(effort=1e10)], coalitions=False
        )
        (finding,) = audit.findings
        exposed += finding.verdict == "exposed"
        attacked += per_agent
        met += sum(e.rows[0] for e in finding.evidence if e.quantity == "rows")
    print(f"\ndirect design: {exposed} of {len(cases)} exposed, {met} of {attacked} rows")
    assert exposed >= 0.9 * len(cases)  # a fit of bounded effort may find nothing
    assert met > attacked / 2
