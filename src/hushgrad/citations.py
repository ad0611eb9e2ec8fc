"""The BibTeX entries of references.bib by key, for `hushgrad cite`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from importlib import resources

from hushgrad.errors import InputError

_ENTRY = re.compile(r"^@\w+\{([^,\s]+),.*?^\}$", re.MULTILINE | re.DOTALL)


@cache
def entries() -> dict[str, str]:
    """Every entry of the file, unchanged, by key.

    >>> entries()["shi2015extra"].splitlines()[0]
    '@article{shi2015extra,'
    """
    text = resources.files("hushgrad").joinpath("references.bib").read_text(encoding="utf-8")
    return {match[1]: match[0] for match in _ENTRY.finditer(text)}


def bibtex(keys: Iterable[str]) -> str:
    """One BibTeX text with the entries of the given keys, in the order of the keys."""
    keys = list(dict.fromkeys(keys))
    unknown = [key for key in keys if key not in entries()]
    if unknown:
        raise InputError(
            f"references.bib has the keys {', '.join(sorted(entries()))}, but {unknown[0]!r} was "
            "asked for."
        )
    return "\n\n".join(entries()[key] for key in keys) + "\n" * bool(keys)
