"""A loss of your own, agents with unequal amounts of data, and a metric of your own.

The loss is the log-cosh of the residuals, which outliers spoil less than squares. Gradients come
from JAX, the exact answer from Newton's method on the sum; L is passed, since log-cosh is steepest
where the residuals vanish, not at θ = 0. The metric is the loss of the agents' mean above the least
one. Prints both along the run, and how far log-cosh and least squares end from the truth.
"""

import jax.numpy as jnp
import numpy as np

import hushgrad as hg

rng = np.random.default_rng(0)
truth = np.array([1.0, -2.0, 0.5])
data = []
for n in (5, 5, 5, 40, 5, 40):  # rows of each agent
    X = rng.normal(size=(n, 3))
    y = X @ truth + 0.1 * rng.normal(size=n)
    y[0] += 20.0  # everyone has one outlier
    data.append({"X": X, "y": y})


def loss(theta, own):
    residual = own["X"] @ theta - own["y"]
    return jnp.sum(jnp.logaddexp(residual, -residual))  # log(2 cosh r)


def excess(x, problem):
    """Σ f_i at the agents' mean, above its least value; x is (trials, agents, d)."""
    least = problem.value(problem.solution())
    return np.array([problem.value(one.mean(axis=0)) - least for one in x])


L = max(np.linalg.norm(own["X"], 2) ** 2 for own in data)  # (log cosh)'' ≤ 1
problem = hg.Problem(loss, data, dim=3, smoothness=L, name="log-cosh")
network = hg.Network(hg.graphs.small_world(6, degree=2, p=0.3, seed=1))
step = hg.stepsizes.constant(1 / L, hg.stepsizes.geometric(0.95))
run = hg.run(
    hg.PDGNDS(stepsize=step), problem, network, iterations=300, record_every=60,
    metrics={"excess": excess},
)  # fmt: skip

squares = np.linalg.lstsq(np.vstack([d["X"] for d in data]), np.hstack([d["y"] for d in data]))[0]
print(f"{problem}, rows {[len(d['y']) for d in data]}")
for k, error, gap in zip(run.iterations, run.error[0], run.metrics["excess"][0], strict=True):
    print(f"k = {k:3}  error {error:.1e}  excess {gap:.1e}")
print(f"off the truth: log-cosh {np.abs(run.x[0] - truth).max():.2f}, "
      f"least squares {np.abs(squares - truth).max():.2f}")  # fmt: skip
