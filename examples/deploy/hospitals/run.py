"""Three hospitals fit one logistic model from their own CSV files, over TLS, and pool no row.

python examples/deploy/hospitals/run.py [DIRECTORY]     where everything is kept; default: nowhere

Prints the table that every hospital gets, North's check on its own rows, and the distance from
scikit-learn's fit on all rows.
"""

import csv
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import local  # noqa: E402  # needs the path above
import make_data  # noqa: E402  # needs the path above

NAMES = list(make_data.ROWS)


def pooled_fit(directory):
    """Intercept, age, stage II and stage III on the rows of all hospitals, by scikit-learn."""
    rows = []
    for name in NAMES:
        with (directory / name / "patients.csv").open(encoding="utf-8", newline="") as file:
            rows += [row for row in csv.DictReader(file) if row["stage"] != "NA"]
    X = [[float(r["age"]), r["stage"] == "II", r["stage"] == "III"] for r in rows]
    y = [r["died"] == "yes" for r in rows]
    model = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-12)
    model.fit(np.array(X, float), y)
    return np.append(model.intercept_, model.coef_[0])


def main(directory):
    make_data.write(directory)
    files = {name: (HERE / name / "agent.toml").read_text(encoding="utf-8") for name in NAMES}
    local.settle(directory, files)
    shutil.copy(HERE / "model.toml", directory)
    shutil.copy(HERE / "north" / "policy.toml", directory / "north")
    said = local.run(directory, NAMES, ("-m", "hushgrad", "fit", "agent.toml", "--quiet"))
    results = local.results(directory, NAMES)
    print(said["north"].partition("\n\n")[2])
    pooled = pooled_fit(directory)
    for name, result in results.items():
        off = np.abs(result.theta / pooled - 1).max()
        print(f"{name:5} {result.summary}: {result.rounds} rounds, {off:.0e} from the pooled fit")
    same = len({result.theta.tobytes() for result in results.values()}) == 1
    print("all three have the same numbers, bit for bit" if same else "the numbers differ")
    pages = [directory / name / "state" / "page.html" for name in NAMES]
    print(
        "each has its page, state/page.html" if all(p.exists() for p in pages) else "a page lacks"
    )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as directory:
            main(Path(directory))
