"""The same rows are known again, however they are written; other rows are not."""

import numpy as np
import pytest

from hushgrad.network.objective.data_digest import SAME, data_digest

SECRET = bytes(range(32))
RNG = np.random.default_rng(3)
ROWS = [[f"{a:.3f}", f"{b:.3f}", "xy"[int(a > b)]] for a, b in RNG.normal(size=(500, 2))]


def write(path, rows, header=("a", "b", "c"), delimiter=","):
    path.write_text("".join(f"{delimiter.join(row)}\n" for row in [header, *rows]))
    return path


def digest(path, secret=SECRET, delimiter=","):
    return data_digest(path, secret, delimiter=delimiter)


@pytest.fixture
def first(tmp_path):
    return digest(write(tmp_path / "rows.csv", ROWS))


@pytest.mark.parametrize(
    "same",
    [
        {"rows": ROWS[::-1]},
        {"rows": [ROWS[7], *ROWS[:7], *ROWS[8:]]},
        {"rows": [[c, a, b] for a, b, c in ROWS], "header": ("c", "a", "b")},
        {"rows": ROWS, "header": ("age", "dose", "group")},
        {"rows": ROWS, "delimiter": ";"},
        {"rows": ROWS, "delimiter": "|"},
        {"rows": [[f"{float(a):.6e}", b, f" {c}"] for a, b, c in ROWS]},
    ],
    ids=["order", "one moved", "columns", "names", "semicolons", "bars", "digits"],
)
def test_rows_written_another_way_are_the_same_content(tmp_path, first, same):
    copy = write(tmp_path / "copy.csv", **same)
    assert digest(copy, delimiter=same.get("delimiter", ",")).content == first.content


def test_a_decimal_comma_is_a_point(tmp_path, first):
    rows = [[a.replace(".", ","), b.replace(".", ","), c] for a, b, c in ROWS]
    copy = write(tmp_path / "copy.csv", rows, delimiter=";")
    assert digest(copy, delimiter=";").content == first.content


@pytest.mark.parametrize("shared", [0, 50, 200, 400, 499])
def test_the_sketch_estimates_the_shared_part(tmp_path, first, shared):
    others = [[f"{n}", "0", "z"] for n in range(500 - shared)]
    other = digest(write(tmp_path / "other.csv", ROWS[:shared] + others))
    assert other.content != first.content
    assert other.shares(first.facts()) == pytest.approx(shared / 500, abs=0.2)  # ± 0.06 each
    assert (other.shares(first.facts()) >= SAME) == (shared >= 200)


@pytest.mark.parametrize("part", [0.03, 0.1, 0.5])
def test_a_small_part_and_a_file_with_many_other_rows_are_the_same_data(tmp_path, first, part):
    """Neither fewer rows, each several times, nor many made-up ones are other data."""
    few = ROWS[: int(part * 500)]
    made_up = [[f"{n}", "0", "z"] for n in range(int(500 / part))]
    for name, rows in (("part", few), ("often", few * 20), ("more", made_up + ROWS)):
        other = digest(write(tmp_path / f"{name}.csv", rows))
        assert other.shares(first.facts()) >= SAME, name
        assert first.shares(other.facts()) >= SAME, name


def test_a_symlink_and_a_relative_path_are_the_same_place(tmp_path, first, monkeypatch):
    (tmp_path / "link.csv").symlink_to(tmp_path / "rows.csv")
    monkeypatch.chdir(tmp_path)
    for name in ("link.csv", "rows.csv", "./rows.csv"):
        assert digest(type(tmp_path)(name)).place == first.place


def test_other_content_at_the_same_place_is_the_same_data(tmp_path, first):
    changed = digest(write(tmp_path / "rows.csv", [["1", "2", "q"]]))
    assert changed.content != first.content
    assert changed.shares(first.facts()) == 1.0


def test_without_the_secret_the_digests_tell_nothing(tmp_path, first):
    other = digest(tmp_path / "rows.csv", bytes(32))
    assert not set(other.sketch) & set(first.sketch)
    assert other.content != first.content
    assert other.place != first.place


def test_files_without_rows_are_known_by_their_bytes(tmp_path):
    (tmp_path / "a.npz").write_bytes(b"some")
    (tmp_path / "b.npz").write_bytes(b"some")
    one, two = (data_digest(tmp_path / name, SECRET) for name in ("a.npz", "b.npz"))
    assert one.content == two.content
    assert one.place != two.place


def test_data_that_are_no_file_have_their_name():
    assert data_digest(None, SECRET) is None
    one, two = (data_digest(None, SECRET, other=name) for name in ("f.py:g", "f.py:h"))
    assert one.content != two.content


@pytest.mark.parametrize("n", [127, 200, 3000])
def test_no_few_changed_rows_among_many_pass_for_more(tmp_path, n):
    """Files of 128 rows and more are compared by a sample, which may have a changed row."""
    rows = [[str(i), str(i * 7 % 13), "x"] for i in range(n)]
    new = [[str(10**7 + i), "5", "x"] for i in range(3)]
    write(tmp_path / "first.csv", rows)
    for name, other, changed in (("joined", rows + new[:1], 1), ("replaced", new + rows[3:], 6)):
        write(tmp_path / f"{name}.csv", other)
        for seed in range(60):
            secret = np.random.default_rng(seed).bytes(32)
            first = digest(tmp_path / "first.csv", secret)
            found = digest(tmp_path / f"{name}.csv", secret).changed(first.facts())
            assert 1 <= found <= changed


def test_many_changed_rows_among_many_are_told(tmp_path):
    rows = [[str(i), str(i * 7 % 13), "x"] for i in range(3000)]
    first = digest(write(tmp_path / "first.csv", rows))
    later = digest(write(tmp_path / "later.csv", rows[:2000]))
    assert 400 < later.changed(first.facts()) <= 1000
