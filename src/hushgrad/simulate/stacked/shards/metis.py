"""METIS in a program of its own, `python -m hushgrad.simulate.stacked.shards.metis`.

pymetis holds Python's lock until METIS is done, which takes minutes for 10⁷ agents. No other thread
of the process could say meanwhile that the process lives (job.py).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrad.errors import InputError, optional

_GIVEN, _FOUND = "links.npz", "part.npy"


def parts(starts: NDArray[Any], neighbours: NDArray[Any], n_parts: int) -> NDArray[np.int64]:
    """(agents,) the part of each agent; its neighbours are neighbours[starts[i]:starts[i + 1]]."""
    optional("pymetis", "scale")
    with TemporaryDirectory(prefix="hushgrad-") as directory:
        np.savez(Path(directory, _GIVEN), starts=starts, neighbours=neighbours)
        # -P: no file of the working directory takes the place of a module
        command = [sys.executable, "-P", "-m", __name__, directory, str(n_parts)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise InputError(
                f"METIS ended with exit code {done.returncode}: {done.stderr.strip()[-300:]}. "
                "Without pymetis SciPy's reverse Cuthill–McKee order divides the graph."
            )
        return np.load(Path(directory, _FOUND))


def _main(directory: str, n_parts: str) -> None:
    metis: Any = optional("pymetis", "scale")
    with np.load(Path(directory, _GIVEN)) as given:
        adjacency = metis.CSRAdjacency(given["starts"], given["neighbours"])
    rows = metis.Options(objtype=metis.ObjType.VOL)  # fewest guests: arcs that are cut cost nothing
    _, part = metis.part_graph(int(n_parts), adjacency=adjacency, recursive=False, options=rows)
    np.save(Path(directory, _FOUND), np.asarray(part, np.int64))


if __name__ == "__main__":
    _main(*sys.argv[1:])
