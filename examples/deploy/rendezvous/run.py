"""Four robots agree on a meeting point, and meet, without telling their starts.

python examples/deploy/rendezvous/run.py

Each robot is a process with its agent in its own control loop. Prints the end of each robot, the
distance it drove, and its distance from the point that minimises the sum of squared distances.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from hushgrad.network import mint

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
import local  # noqa: E402  # needs the path above

STARTS = dict(
    zip((f"robot-{i}" for i in range(4)), [(0, 0), (9, 2), (7.5, 8), (1, 6.5)], strict=True)
)


def main(directory):
    fleet = local.with_free_ports({"": (HERE / "fleet.toml").read_text(encoding="utf-8")})[""]
    for name in STARTS:
        mint(directory / name, name)
        (directory / name / "fleet.toml").write_text(fleet, encoding="utf-8")
    for name in STARTS:
        for other in STARTS.keys() - {name}:
            trusted = directory / name / "trusted" / f"{other}.crt"
            trusted.parent.mkdir(exist_ok=True)
            trusted.write_bytes((directory / other / f"{other}.crt").read_bytes())
    robots = [
        subprocess.Popen(
            [sys.executable, HERE / "robot.py", name, *map(str, start)],
            cwd=directory / name, stdout=subprocess.PIPE, encoding="utf-8",
        )
        for name, start in STARTS.items()
    ]  # fmt: skip
    mean = np.mean(list(STARTS.values()), axis=0)
    for robot in robots:
        printed, _ = robot.communicate(timeout=120)
        if robot.returncode:
            sys.exit(f"a robot ended with {robot.returncode}")
        place = np.array(re.search(r"\((.*), (.*)\)", printed).groups(), float)
        print(f"{printed.strip()}, {np.linalg.norm(place - mean):.3f} m from the best point")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(Path(directory))
