"""Recorded runs for tests of privacy: every run with masks or stages goes through `recorded`."""

import hushgrad as hg


def recorded(algorithm, problem, network, *, iterations, **options):
    """A run, agent by agent, with its transcript."""
    return hg.run(
        algorithm,
        problem,
        network,
        iterations=iterations,
        transcript=True,
        engine="agents",
        **{"accept_exposure": ("sums", "curvature")} | options,
    )
