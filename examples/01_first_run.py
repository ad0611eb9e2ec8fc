"""A first run: five agents estimate one vector together, and no agent shows its measurements.

Prints the worst agent's distance from the exact answer at the start and at the end, the traffic of
the method, and the answer of every agent beside the exact answer.
"""

import hushgrad as hg

network = hg.Network(hg.graphs.ring(5), mixing="metropolis")
problem = hg.problems.estimation(n_agents=5, s=3, d=2, seed=0)
algorithm = hg.PDGNDS(stepsize=hg.stepsizes.constant(0.05, hg.stepsizes.geometric(0.97)))

run = hg.run(algorithm, problem, network, iterations=1000, seed=1)

print(f"{run.label} on {network}")
print(f"error: {run.error[0, 0]:.2f} at the start, {run.error[0, -1]:.1e} after 1000 iterations")
print(f"status: {run.status[0]}")
print(
    f"wire: {run.messages_per_link:g} message per link and iteration, "
    f"{run.rounds_per_iteration} round, {run.bytes_per_iteration:g} bytes on all links together"
)
print("exact   ", problem.solution().round(8))
for i, x in enumerate(run.x[0]):
    print(f"agent {i} ", x.round(8))
