"""Example scripts in processes of their own, and the numbers that they print."""

import os
import re
import subprocess
import sys

NUMBER = r"(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)"


def output(script, directory, **environment):
    """What a script prints; without a warning, and without a file left in its directory."""
    done = subprocess.run(
        [sys.executable, "-W", "error", script],
        cwd=directory, capture_output=True, text=True, encoding="utf-8", timeout=300, check=False,
        env=os.environ | {"PYTHONIOENCODING": "utf-8"} | environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert list(directory.iterdir()) == []
    return done.stdout


def numbers(pattern, text):
    """The number at the # of the pattern, in every place where the pattern matches."""
    return [float(n) for n in re.findall(re.escape(pattern).replace(r"\#", NUMBER), text)]
