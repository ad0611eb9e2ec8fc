"""The messages on the links: DGD sends its estimates, PDG-DS does not.

DGD is x⁺ = Wx − λg with x on the wire: a listener on the links of agent 0 computes λg_0 =
Σ w_0j x_j − x_0⁺ and, knowing λ = 1/k, its gradient. Prints the messages to two neighbours and the
distance of that formula from the true gradient in both methods. The formula fails on PDG-DS; other
attacks may not: docs/privacy.md tells the method's promise.
"""

import numpy as np

import hushgrad as hg

AGENTS, K = 4, 5
network = hg.Network(hg.graphs.complete(AGENTS))
problem = hg.problems.estimation(n_agents=AGENTS, s=3, d=2, seed=0)
W = network.matrix()


def read(wire, k, j, weight):
    """x_j^k as an eavesdropper reads it off one link of j, the weight taken out."""
    return wire.messages(k, j, (j + 1) % AGENTS)[0] / weight


for algorithm, weight in ((hg.DGD(), 1.0), (hg.PDGDS(), 1 / AGENTS)):
    states = []  # the true estimates of all agents, iteration by iteration, which nobody sees
    run = hg.run(
        algorithm, problem, network, iterations=8, record_every=1, transcript=True, engine="agents",
        metrics={"keep": lambda x, _, states=states: states.append(x[0].copy()) or 0.0},
    )  # fmt: skip
    wire = run.transcript
    sent = [wire.messages(K, 0, i)[0].round(4) for i in (1, 2)]
    print(f"{run.label}: agent 0 sends {sent[0]} to 1 and {sent[1]} to 2")
    mixed = sum(W[0, j] * read(wire, K, j, weight) for j in range(AGENTS))
    guess = (K + 1) * (mixed - read(wire, K + 1, 0, weight))
    gradient = problem.local_gradient(0)(states[K][0])
    off = np.linalg.norm(guess - gradient) / np.linalg.norm(gradient)
    print(f"  gradient {gradient.round(4)}, guessed {guess.round(4)}: {off:.1e} off, relatively")
