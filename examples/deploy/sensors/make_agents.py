"""Write the files of five sensors: NAME/agent.toml from the template, NAME/measurements.csv.

python make_agents.py [DIRECTORY]
"""

import sys
from pathlib import Path
from string import Template

import numpy as np

import hushgrad as hg

HERE = Path(__file__).parent
LINKS = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (0, 2)]
NAMES = [f"sensor-{i}" for i in range(5)]
THETA = np.array([2.0, -1.0])  # the vector that the sensors look for


def address(i):
    return f"127.0.0.1:{7450 + i}"


def agent_file(i):
    """One sensor's agent.toml, with its neighbours and its mask partners."""
    others = sorted({b if a == i else a for a, b in LINKS if i in (a, b)})
    tables = [
        f'[[neighbour]]\nname = "{NAMES[j]}"\nnumber = {j}\naddress = "{address(j)}"\n'
        for j in others
    ]
    partners = hg.masks.zero_sum().partners(i, len(NAMES))
    tables += [f'[[partner]]\nname = "{NAMES[j]}"\nnumber = {j}\n' for j in partners]
    template = Template((HERE / "agent.toml.in").read_text(encoding="utf-8"))
    return template.substitute(
        name=NAMES[i], number=i, listen=address(i), neighbours="\n".join(tables)
    )


def measurements(i):
    """Twenty readings (a, b, reading) of sensor i, which sees one direction only."""
    rng = np.random.default_rng(i)
    gains = rng.uniform(0.5, 1.5, 20)
    angle = np.pi * i / len(NAMES)
    rows = np.outer(gains, [np.cos(angle), np.sin(angle)])
    return np.column_stack([rows, rows @ THETA + rng.normal(0, 0.05, 20)])


def write_measurements(directory):
    for i, name in enumerate(NAMES):
        home = Path(directory) / name
        home.mkdir(parents=True, exist_ok=True)
        file = home / "measurements.csv"
        np.savetxt(file, measurements(i), "%.17g", delimiter=",", header="a,b,reading", comments="")


if __name__ == "__main__":
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    write_measurements(directory)
    for i, name in enumerate(NAMES):
        (directory / name / "agent.toml").write_text(agent_file(i), encoding="utf-8")
