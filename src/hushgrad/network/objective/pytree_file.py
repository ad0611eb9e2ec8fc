"""One agent's data as an NPZ file: the name of each array is its path in the data.

A network of local processes (local/setup.py) writes such files; agents whose objective is a
function (objectives.py) read them.

X, y      a dict {"X": …, "y": …}
0, 1      a tuple
a/0       a tuple in a dict
.         the data is one array
"""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any, cast
from zipfile import BadZipFile, ZipFile

import numpy as np
from numpy.typing import NDArray

from hushgrad.errors import ProblemError
from hushgrad.files.atomic import replace_file

ALONE = "."


def write_data(path: Path, data: Any) -> None:
    """Write an agent's data; ProblemError if names cannot express its structure."""
    arrays = _named(data, "")

    def write(file: IO[bytes]) -> None:
        # np.savez would take an array called "file" for its own argument
        with ZipFile(file, "w") as archive:
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    np.lib.format.write_array(entry, array, allow_pickle=False)

    replace_file(path, write)


def _named(data: Any, name: str) -> dict[str, NDArray[Any]]:
    if data is None or hasattr(data, "_fields"):
        raise ProblemError(
            "an agent's data is written as a file if it is made of dicts, tuples, lists and "
            f"arrays, but {name or 'the data'} is a {type(data).__name__}. Use a dict."
        )
    if isinstance(data, dict):
        inner = cast("dict[Any, Any]", data)
        for key in inner:
            if not isinstance(key, str) or not key or "/" in key or key == ALONE or key.isdecimal():
                raise ProblemError(
                    f"the keys of an agent's data name arrays in a file, but {key!r} cannot. "
                    "Use a word."
                )
    elif isinstance(data, tuple | list):
        inner = {str(n): part for n, part in enumerate(cast("list[Any]", data))}
    else:
        return {name or ALONE: np.asarray(data)}
    prefix = f"{name}/" if name else ""
    return {n: a for key, part in inner.items() for n, a in _named(part, prefix + key).items()}


def read_data(path: Path) -> Any:
    """The data that `write_data` wrote; lists come back as tuples."""
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise ProblemError(f"there is no data file at '{path}'. Correct the path.") from None
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise ProblemError(f"'{path}' cannot be read as NPZ: {error}.") from error
    if not arrays:
        raise ProblemError(f"'{path}' holds no arrays. Every agent needs some data.")
    return arrays[ALONE] if ALONE in arrays else _nested(arrays)


def _nested(arrays: dict[str, Any]) -> Any:
    parts: dict[str, Any] = {}
    for name, array in arrays.items():
        first, _, rest = name.partition("/")
        if rest:
            parts.setdefault(first, {})[rest] = array
        else:
            parts[first] = array
    parts = {key: _nested(part) if isinstance(part, dict) else part for key, part in parts.items()}
    numbers = [str(n) for n in range(len(parts))]
    return tuple(parts[n] for n in numbers) if sorted(parts) == sorted(numbers) else parts
