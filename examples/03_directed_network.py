"""Links that carry in one direction only: AB, Push-Pull and ADD-OPT.

A directed graph has no doubly stochastic weights by rule, so hg.run refuses DGD and says why. AB
and Push-Pull use row- and column-stochastic weights, ADD-OPT column-stochastic weights alone; all
three come to the exact answer. Prints the refusal and each method's final error.
"""

import hushgrad as hg

network = hg.Network(hg.graphs.random_directed(8, degree=2, seed=3))
problem = hg.problems.estimation(n_agents=8, s=3, d=2, seed=0)
print(network)

try:
    hg.run(hg.DGD(), problem, network, iterations=1)
except hg.errors.MixingError as refusal:
    print(f"refused: {refusal}")

step = hg.stepsizes.constant(0.05)
for algorithm in (hg.AB(stepsize=step), hg.PushPull(stepsize=step), hg.ADDOPT(stepsize=step)):
    run = hg.run(algorithm, problem, network, iterations=3000)
    print(
        f"{run.label:10} error {run.error[0, -1]:.1e}, {run.rounds_per_iteration} rounds, "
        f"{run.traffic.numbers_per_link:g} numbers per link and iteration"
    )
