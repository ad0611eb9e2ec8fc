"""Every method is cited, and every citation can be printed."""

import re

import pytest

from hushgrad.algorithms import ALL
from hushgrad.citations import bibtex, entries
from hushgrad.errors import InputError


def test_the_file_has_the_papers_of_all_algorithms_and_hushgrad_and_no_others():
    cited = {key for cls in ALL for key in cls.cites}
    assert set(entries()) == cited | {"hushgrad"}


@pytest.mark.parametrize("key", entries())
def test_an_entry_has_the_fields_of_a_bibliography_and_balanced_braces(key):
    text = entries()[key]
    assert text.count("{") == text.count("}")
    fields = set(re.findall(r"^  (\w+) +=", text, re.MULTILINE))
    needed = {"version"} if key == "hushgrad" else {"year"}
    assert {"author", "title"} | needed <= fields


def test_bibtex_gives_each_requested_entry_once_in_order():
    text = bibtex(["xi2017add", "shi2015extra", "xi2017add"])
    assert re.findall(r"@\w+\{(\w+),", text) == ["xi2017add", "shi2015extra"]
    assert bibtex([]) == ""
    with pytest.raises(InputError, match="nobody1999"):
        bibtex(["nobody1999"])
