"""Three hospitals fit one logistic model over TLS, pool nothing, and get the pooled fit.

python examples/deploy/tumours/run.py [DIRECTORY]     where everything is kept; default: nowhere

Prints the end of each agent, the distance of its coefficients from scikit-learn's on the pooled
rows, and two other fits: of each hospital alone, and with columns that each standardises by itself.
"""

import sys
import tempfile
import tomllib
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import local  # noqa: E402  # needs the path above
import make_data  # noqa: E402  # needs the path above

NAMES = list(make_data.ROWS)


def fit(X, y):
    """θ of scikit-learn, intercept last, with the hospitals' regularisation of 200."""
    model = LogisticRegression(C=0.005, solver="newton-cholesky", tol=1e-12).fit(X, y)
    return np.append(model.coef_[0], model.intercept_)


def curvature(X):
    """L, the largest eigenvalue that ∇²f of these rows can have: it bounds the stepsize."""
    return np.linalg.norm(np.column_stack([X, np.ones(len(X))]), 2) ** 2 / 4


def shortened(X, clip):
    """Every row of ‖x‖ > clip at that length."""
    return X / np.maximum(1, np.linalg.norm(X, axis=1, keepdims=True) / clip)


def main(directory):
    make_data.write(directory)
    files = {name: (HERE / name / "agent.toml").read_text(encoding="utf-8") for name in NAMES}
    local.settle(directory, files)
    local.run(directory, NAMES)

    tables = [
        np.loadtxt(directory / name / "patients.csv", delimiter=",", skiprows=1) for name in NAMES
    ]
    raw, y = [table[:, :-1] for table in tables], [table[:, -1] for table in tables]
    objective = tomllib.loads(files["north"])["objective"]
    common, clip = objective["standardise"], objective["clip"]
    X = [shortened((rows - common["mean"]) / common["scale"], clip) for rows in raw]
    pooled = fit(np.vstack(X), np.hstack(y))
    for name, rows, result in zip(NAMES, y, local.results(directory, NAMES).values(), strict=True):
        off = np.abs(result.theta - pooled).max()
        print(
            f"{name:5} {len(rows):3} rows, {rows.mean():.0%} malignant: {result.summary} after "
            f"{result.iterations} iterations, {off:.1e} from the pooled fit"
        )
    for name, rows, labels in zip(NAMES, X, y, strict=True):
        print(f"{name} alone: {np.abs(fit(rows, labels) - pooled).max():.2f} off")

    own = [shortened((rows - rows.mean(0)) / rows.std(0), clip) for rows in raw]
    off = np.abs(fit(np.vstack(own), np.hstack(y)) - pooled).max()
    print(f"each with means and scales of its own: {off:.2f} off, and nobody would know")
    L, unscaled = max(map(curvature, X)), max(map(curvature, raw))
    print(f"not standardised: L = {unscaled:.0f} instead of {L:.0f}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as directory:
            main(Path(directory))
