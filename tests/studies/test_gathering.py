"""Parts of a sweep's table, joined, are the table of the whole sweep."""

import csv

import pytest

from hushgrad.errors import StudyError
from hushgrad.studies import gather, load_study
from support.studies import study_text

TEXT = study_text({"PDGNDS": 0.1, "EXTRA": 0.1}, iterations=6, engine="agents")
TEXT += '[sweep]\n"run.seed" = [1, 2]\n"run.trials" = [[0, 3], 1]\n'


@pytest.fixture
def study(tmp_path):
    (tmp_path / "sweep.toml").write_text(TEXT)
    return load_study(tmp_path / "sweep.toml")


def _write(study, name, *rows):
    return study.run_sweep(rows=rows).write_csv(study.source.directory / name)


def _read(path):
    with path.open() as file:
        return [{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(file)]


def test_joined_parts_are_the_whole_table(study, tmp_path):
    _write(study, "sweep-2-3.csv", 2, 3)
    _write(study, "sweep-1.csv", 1)
    found = gather(study, tmp_path)
    assert found.missing == (0,)
    assert [int(row["row"]) for row in found.table] == [1, 1, 2, 2, 3, 3]
    _write(study, "sweep-0,1.csv", 0, 1)  # row 1 twice, with the same numbers
    found = gather(study, tmp_path)
    assert found.missing == ()
    got = _read(found.table.write_csv(tmp_path / "sweep.csv"))
    assert got == _read(_write(study, "whole.csv", 0, 1, 2, 3))
    assert len(gather(study, tmp_path).table) == 8  # the joined table is no part


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("\n1,", "\n9,", r"sweep-1.csv:2: .*sweep.toml has rows 0 to 3, but the part has row '9'"),
        ("\n1,1,", "\n1,7,", r"sweep-1.csv:2: the study's row has run.seed = 1, but .* '7'"),
        ("row,", "rwo,", r"sweep-1.csv:2: .* but the part has row ''"),
    ],
)
def test_a_part_of_another_study_is_refused_by_its_place(study, tmp_path, old, new, said):
    part = _write(study, "sweep-1.csv", 1)
    part.write_text(part.read_text().replace("\r\n", "\n").replace(old, new))
    with pytest.raises(StudyError, match=said):
        gather(study, tmp_path)


def test_two_parts_that_disagree_are_refused(study, tmp_path):
    _write(study, "sweep-1.csv", 1)
    other = _write(study, "sweep-1-2.csv", 1, 2)
    value = _read(other)[0]["median_error"]
    other.write_text(other.read_text().replace(value, "0.5"))
    with pytest.raises(StudyError, match=r"has the same row with median_error = .* Keep one"):
        gather(study, tmp_path)
