"""A sweep is the product of its values, and each row is a study of its own."""

import csv
import tomllib

import pytest

from hushgrad.errors import StudyError
from hushgrad.studies import parse_study
from support.studies import study_text

ALGORITHMS = {"PDGNDS": 0.1, "EXTRA": 0.1, "PDGDS": None}
TEXT = study_text(ALGORITHMS, iterations=6, engine="agents") + "[sweep]\n"
WATCHED = ("algorithm", "median_error", "worst_error", "converged", "iterations_to_1e-6")


def swept(*lines):
    return parse_study(TEXT + "\n".join(lines))


def test_rows_are_the_product_with_the_last_key_fastest():
    rows = swept('"network.graph" = ["ring", "complete"]', "run.seed = [5, 6, 7]").sweep()
    assert [tuple(row.settings.values()) for row in rows] == [
        ("ring", 5), ("ring", 6), ("ring", 7), ("complete", 5), ("complete", 6), ("complete", 7),
    ]  # fmt: skip
    assert [row.row for row in rows] == list(range(6))
    assert [row.study.tables["run"]["seed"] for row in rows] == [5, 6, 7, 5, 6, 7]


def test_a_key_of_algorithms_goes_to_all_that_take_it():
    study = swept('"algorithm.stepsize.value" = [0.2]', '"algorithm.form" = ["square"]')
    first, second, third = study.sweep()[0].study.tables["algorithm"]
    assert first == {
        "name": "PDGNDS",
        "stepsize": {"kind": "constant", "value": 0.2},
        "form": "square",
    }
    assert second == {"name": "EXTRA", "stepsize": {"kind": "constant", "value": 0.2}}
    assert third == {"name": "PDGDS"}  # its stepsize is not in the study, and has no value


@pytest.mark.parametrize("which", ["1", "EXTRA"])
def test_a_key_of_one_algorithm_by_number_or_name_goes_to_it_alone(which):
    study = swept(f'"algorithm[{which}].stepsize.value" = [0.2]').sweep()[0].study
    steps = [entry.get("stepsize", {}).get("value") for entry in study.tables["algorithm"]]
    assert steps == [0.1, 0.2, None]


def test_a_table_can_be_swept_as_a_whole():
    study = swept('"algorithm[2].split" = [{ kind = "fresh" }, { kind = "identity" }]')
    labels = [list(row.study.build().algorithms)[2] for row in study.sweep()]
    assert labels == ["PDG-DS", "PDG-DS, B=I"]


def test_the_table_has_every_row_and_algorithm_and_a_row_alone_gives_the_same_numbers():
    study = swept('"algorithm.stepsize.value" = [0.05, 0.1]', '"run.seed" = [1, 2]')
    table = study.run_sweep()
    assert len(table) == 4 * 3
    for number in (3, 1):  # in another order than the sweep's
        row = study.sweep()[number]
        alone = row.study.run_sweep()
        among = [record for record in table if record["row"] == number]
        for one, other in zip(alone, among, strict=True):
            assert [one[key] for key in WATCHED] == [other[key] for key in WATCHED]
        assert {k: among[0][k] for k in row.settings} == row.settings


def test_rows_with_other_seeds_differ_where_the_method_is_random():
    table = swept('"run.seed" = [1, 2]').run_sweep()
    first, second = (r["median_error"] for r in table if r["algorithm"] == "PDG-NDS")
    assert first != second


def test_a_row_saved_as_a_study_of_its_own_runs_the_same(tmp_path):
    row = swept('"algorithm.stepsize.value" = [0.05, 0.1]', '"run.seed" = [1, 2]').sweep()[2]
    text = row.study.to_toml()
    assert "row 2" in text.splitlines()[0]
    assert tomllib.loads(text) == row.study.tables
    assert (parse_study(text).run()[0].x == row.study.run()[0].x).all()


def test_the_csv_has_the_settings_and_exact_numbers(tmp_path):
    table = swept('"run.seed" = [1]', '"run.trials" = [[0, 3]]').run_sweep()
    with table.write_csv(tmp_path / "sweep.csv").open() as file:
        read = list(csv.DictReader(file))
    assert [float(r["median_error"]) for r in read] == [r["median_error"] for r in table]
    assert read[0]["run.trials"] == "[0, 3]"
    assert list(read[0])[:4] == ["row", "run.seed", "run.trials", "algorithm"]


def test_progress_counts_the_whole_sweep_and_ends_at_its_end():
    seen = []
    swept('"run.seed" = [1, 2]').run_sweep(progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (2 * 3 * 6, 2 * 3 * 6)
    assert seen == sorted(seen)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('"netwrk.graph" = ["ring"]', r'18: sweep.netwrk.graph does not .*Did you mean "network"'),
        ('"run.seed" = 3', r"18: sweep.run.seed = 3 is not a list"),
        ('"run.seed" = []', r"18: sweep.run.seed = \[\] is not a list"),
        ('"algorithm.stepsize.valeu" = [1]', r'is a key of no algorithm.*Did you mean "value"'),
        ('"algorithm[7].form" = ["lazy"]', r"means no algorithm.*Allowed: 0, 1, 2, PDGNDS, EXTRA"),
        ('"algorithm[PDGND].form" = ["lazy"]', r'Did you mean "PDGNDS"'),
        ('"algorithm.split.scale" = [1.0]', r"Write split into \[\[algorithm\]\]"),
        ('"network.graph" = ["ring", "rign"]', r"18: sweep row 1 \(.*\): network.graph = .rign"),
        ('"network.mixing.row" = ["uniform_row"]', r"leads into network.mixing, which is not"),
        ("", r"sweep needs at least one line"),
    ],
)
def test_a_wrong_sweep_is_an_error_when_it_is_read(line, said):
    with pytest.raises(StudyError, match=said):
        swept(line)


def test_a_value_that_a_builder_refuses_is_told_with_its_row_before_any_row_runs():
    study = swept('"run.seed" = [1, 2]', '"algorithm[1].stepsize.value" = [0.1, -0.1]')
    seen = []
    with pytest.raises(StudyError, match=r"sweep row 1 \(run.seed = 1, .* -0.1\): algorithm\[1\]"):
        study.run_sweep(each=lambda row, runs: seen.append(row))
    assert seen == []


def test_a_sweep_is_not_run_as_if_it_were_one_study():
    study = swept('"run.seed" = [1, 2]')
    with pytest.raises(StudyError, match="sweep of 2 rows"):
        study.run()
    with pytest.raises(StudyError, match=r"sweeps over run.seed"):
        study.with_run(seed=3)
