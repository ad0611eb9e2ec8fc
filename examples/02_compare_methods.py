"""Three exact methods side by side: the private PDG-NDS, EXTRA and DIGing.

Prints for each method the iterations that the median of ten trials takes to a millionth of the
first error, and its traffic. PDG-NDS takes about a fifth more iterations here: the price of private
stepsizes that start well below the public stepsize and come up to it; the random splits cost almost
nothing. DIGing sends twice as much. EXTRA and DIGing send plain estimates, PDG-NDS does not.
"""

import hushgrad as hg

network = hg.Network(hg.graphs.paper())
problem = hg.problems.estimation(n_agents=5, s=3, d=2, seed=1, trials=10)
LAM = 0.05

comparison = hg.compare(
    {
        "PDG-NDS": hg.PDGNDS(stepsize=hg.stepsizes.constant(LAM, hg.stepsizes.geometric(0.95))),
        "EXTRA": hg.EXTRA(stepsize=hg.stepsizes.constant(LAM)),
        "DIGing": hg.DIGing(stepsize=hg.stepsizes.constant(LAM)),
    },
    problem,
    network,
    iterations=600,
    trials=10,
    record_every=1,
)

print(f"{'method':10}{'to 1e-6':>10}{'messages':>10}{'bytes':>8}{'worst error':>14}")
for row in comparison.rows():
    print(
        f"{row['algorithm']:10}{row['iterations_to_1e-6']:>10}{row['messages_per_link']:>10g}"
        f"{row['bytes_per_iteration']:>8g}{row['worst_error']:>14.1e}"
    )
