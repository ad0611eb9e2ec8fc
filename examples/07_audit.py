"""An audit: three methods, attacked with every attack of the lab.

Prints for DGD, for PDG-NDS as in the paper and for its recommended design how many of the five
agents are exposed to an eavesdropper, to a single curious neighbour and to all neighbours together,
and the smallest coalition that exposes agent 0. DGD falls to every adversary; the paper's design to
a listener on all links of an agent; of the recommended design nothing is recovered, until all
others collude. "Not recovered" counts attacks, it proves nothing: docs/threat-model.md.
"""

import hushgrad as hg

network = hg.Network(hg.graphs.paper())  # a ring of five with one chord
problem = hg.problems.estimation(n_agents=5, s=3, d=2, seed=0)
step = hg.stepsizes.constant(0.02)
# masks are as large as Hessians at this stepsize; a smaller one takes more iterations
calm = hg.stepsizes.constant(0.1 * (1 - network.eta) / problem.smoothness())
methods = {
    "DGD": (hg.DGD(), 1500),
    "PDG-NDS": (hg.PDGNDS(stepsize=step), 1500),
    "PDG-NDS, recommended": (hg.PDGNDS(stepsize=calm, design="recommended"), 4500),
}
for label, (algorithm, iterations) in methods.items():
    run = hg.run(algorithm, problem, network, iterations=iterations, transcript=True, label=label)
    audit = hg.audit(run)
    print(f"{label}, accurate to {audit.accuracy:.0e}")
    for kind in audit.kinds:
        worst = audit.worst(0, kind)
        print(f"  {kind}: {audit.count(kind, 'exposed')} of 5 exposed; agent 0 {worst.verdict}")
        if worst.best and worst.best.counts:
            error = worst.best.error
            off = f"{error:.0e}" if error > 1e-9 else "< 1e-9"  # below, it is rounding
            print(f"    {worst.best.quantity} by {worst.best.attack}, {off} off")
    print(f"  agent 0 is exposed by {audit.coalition(0)}")
