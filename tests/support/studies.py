"""Study files for tests of studies, of commands and of networks of processes; and the processes
that run such a file.
"""

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path


def study_text(algorithms, *, network=None, problem=None, **run):
    """A study as TOML. `algorithms`: name → constant stepsize; None leaves the stepsize out.

    Without other tables, four agents on a ring meet.
    """
    tables = [
        ("[network]", network or {"graph": "ring", "n_agents": 4}),
        ("[problem]", problem or {"kind": "rendezvous"}),
        *(("[[algorithm]]", {"name": name, "stepsize": lam}) for name, lam in algorithms.items()),
        ("[run]", run),
    ]
    return "".join(
        f"{head}\n"
        + "".join(f"{key} = {_toml(key, v)}\n" for key, v in table.items() if v is not None)
        for head, table in tables
    )


def _toml(key, value):
    if key == "stepsize":
        return f'{{ kind = "constant", value = {value} }}'
    return json.dumps(value)


def start_study(path, *options, **environment):
    """`hushgrad run path --engine processes` in a process of its own.

    It reads and keeps compiled programs where this process does.
    """
    import jax

    if kept := jax.config.jax_compilation_cache_dir:
        environment |= {"JAX_COMPILATION_CACHE_DIR": kept}
        environment |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.05"}
    return subprocess.Popen(
        [sys.executable, "-m", "hushgrad", "run", str(path), "--engine", "processes",
         *map(str, options)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | environment,
    )  # fmt: skip


def agents_of(cache):
    """The numbers of the processes of agents whose files are in the directory `cache`."""
    found = []
    for place in Path("/proc").iterdir():
        with suppress(OSError):  # the process has just ended
            if place.name.isdecimal() and str(cache) in (place / "cmdline").read_text():
                found.append(int(place.name))
    return sorted(found)
