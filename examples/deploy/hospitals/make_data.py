"""Draw the patients of three hospitals: NAME/patients.csv.

python make_data.py [DIRECTORY]
"""

import csv
import sys
from pathlib import Path

import numpy as np

ROWS = {"north": 700, "south": 1600, "west": 2400}
STAGES = ["I", "II", "III"]


def write(directory):
    rng = np.random.default_rng(7)
    for n, (name, rows) in enumerate(ROWS.items()):
        age = rng.uniform(40 + 2 * n, 85, rows).round(1)
        stage = rng.choice(STAGES, rows, p=[0.4, 0.35, 0.25])
        risk = -2 + 0.06 * (age - 60) + 0.5 * (stage == "II") + 1.1 * (stage == "III")
        died = rng.uniform(size=rows) < 1 / (1 + np.exp(-risk))
        home = Path(directory) / name
        home.mkdir(parents=True, exist_ok=True)
        with (home / "patients.csv").open("w", encoding="utf-8", newline="") as file:
            table = csv.writer(file)
            table.writerow(["patient", "age", "stage", "died"])
            for patient in range(rows):
                known = stage[patient] if patient % 97 else "NA"
                table.writerow([patient, age[patient], known, "yes" if died[patient] else "no"])


if __name__ == "__main__":
    write(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent)
