"""Five hospitals of unequal size fit one logistic regression and pool nothing.

The rows of scikit-learn's breast cancer data are divided so that sizes and shares of benign cases
differ. Prints both, and how far the hospitals' coefficients are from scikit-learn's fit on the
pooled rows, which no hospital could compute alone: the last lines show its own fit instead.
"""

import numpy as np
from sklearn.linear_model import LogisticRegression

import hushgrad as hg

PENALTY = 10.0  # scikit-learn's 1/C
hospitals = hg.problems.dataset(
    "breast_cancer", 5, split="label_skew", skew=0.8, sizes=[10, 4, 2, 1, 1]
)
for i, y in enumerate(hospitals.y):
    print(f"hospital {i}: {len(y):3} rows, {y.mean():.0%} benign")


def fit(X, y):
    model = LogisticRegression(C=1 / PENALTY, solver="newton-cholesky", tol=1e-12).fit(X, y)
    return np.append(model.coef_[0], model.intercept_)


problem = hg.problems.logistic(*hospitals, regularisation=PENALTY, intercept=True)
network = hg.Network(hg.graphs.paper())
# 1/L, L the largest curvature of any hospital; the geometric deviation does not stall the end
step = hg.stepsizes.constant(1 / problem.smoothness(), hg.stepsizes.geometric(0.95))
run = hg.run(hg.PDGNDS(stepsize=step), problem, network, iterations=10_000)

pooled = fit(np.vstack(hospitals.X), np.hstack(hospitals.y))
print(f"PDG-NDS, {run.iterations[-1]} iterations: {run.status[0]}")
print(f"largest difference from the pooled fit: {np.abs(run.x[0] - pooled).max():.1e}")
for i in (0, 4):
    alone = fit(hospitals.X[i], hospitals.y[i])
    print(f"hospital {i} alone: {np.abs(alone - pooled).max():.2f} off")
