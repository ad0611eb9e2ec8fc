"""Divide scikit-learn's breast cancer data among three hospitals: NAME/patients.csv.

python make_data.py [DIRECTORY]
"""

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer

ROWS = {"north": 240, "south": 190, "west": 139}
COLUMNS = ["radius", "texture"]
# public limits: longer rows would stand out in the sums that everyone sees
LIMITS = [[10.5, 17.5], [14.7, 23.3]]


def write(directory):
    data = load_breast_cancer()
    places = [list(data.feature_names).index(f"mean {name}") for name in COLUMNS]
    clipped = np.clip(data.data[:, places], *np.transpose(LIMITS))
    table = np.column_stack([clipped, 1 - data.target])
    header = ",".join([*COLUMNS, "malignant"])
    ends = np.cumsum(list(ROWS.values()))
    for name, rows in zip(ROWS, np.split(table, ends[:-1]), strict=True):
        home = Path(directory) / name
        home.mkdir(parents=True, exist_ok=True)
        np.savetxt(home / "patients.csv", rows, "%.17g", delimiter=",", header=header, comments="")


if __name__ == "__main__":
    write(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent)
