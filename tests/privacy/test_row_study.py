"""Attacks on rows of real data get all rows without stages, and what sums tell with stages.

`pytest -m slow -s tests/privacy/test_row_study.py` prints the counts that docs/privacy.md tells.
"""

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.privacy.attacks.row_fit import RowFit
from support import row_study
from support.row_study import Case, Counts

pytestmark = pytest.mark.filterwarnings("ignore::hushgrad.errors.RiskWarning")

FEW = (  # admitted: the search for such cases, from a seed, takes longest
    Case(19, "random", "diabetes", 4, 20, 17, 2, "fixed", False),
    Case(20, "tree", "diabetes", 3, 18, 19, 2, "newton", True),
)
SEEDS = pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(FEW, id="few"),
        pytest.param(range(3, 113), id="many", marks=pytest.mark.slow),
    ],
)


def admitted(seed):
    """A case that is admitted, or the one to which a seed leads, and its run."""
    if isinstance(seed, Case):
        return seed, row_study.staged_run(seed, accept_exposure=())
    return row_study.admitted_run(seed)


@SEEDS
def test_no_row_of_usual_length_comes_out_of_a_run_that_is_admitted(seeds):
    counts, kinds, found = Counts(), set(), []
    for seed in seeds:
        case, run = admitted(seed)
        kinds.add((case.kind, case.data))
        long = row_study.LONG * np.sqrt(case.dim)
        given_away = row_study.attack_admitted(case, run, counts)
        found += [np.linalg.norm(row) / long for row in given_away]
    print(f"\n{len(seeds)} networks, {len(kinds)} kinds of networks and data\n{counts.table()}")
    print("lengths of rows that sums gave away:", np.round(found, 2))
    for attack in ("Row fit", "Probes"):
        for kind in ("clipped", "as they are"):
            assert counts[f"{attack}, {kind}", "rows met"] == 0
    for active in ("", "active, "):
        assert counts[f"Sum fit, {active}clipped", "rows met"] == 0
    assert all(length > 1 for length in found)


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
    met, attacked = 0, 0
    for kind, data, dim, per_agent in cases:
        case = Case(0, kind, data, dim, per_agent, 5, 0, "newton", False)
        run = row_study.direct_run(case)
        target = row_study.target_of(run.network)
        audit = hg.audit(
            run, "neighbours", agents=[target], attacks=[RowFit(effort=1e10)], coalitions=False
        )
        (finding,) = audit.findings
        assert finding.verdict == "exposed", case
        (evidence,) = [e for e in finding.evidence if e.quantity == "rows"]
        met, attacked = met + evidence.rows[0], attacked + evidence.rows[1]
    print(f"\ndirect design: {met} of {attacked} rows in {len(cases)} runs")
    assert met > attacked / 2
