"""Every algorithm as the table of a study or of an agent's file, for tests that start networks."""

import hushgrad as hg

CONSTANT = {"kind": "constant", "value": 0.05}
PDGNDS = {"name": "PDGNDS", "stepsize": CONSTANT}
TABLES = {
    "PDGDS": {"name": "PDGDS"},
    "PDGDS isotropic": {"name": "PDGDS", "split": {"kind": "isotropic"}},
    "PDGNDS lazy": PDGNDS,
    "PDGNDS recommended": {
        "name": "PDGNDS",
        "design": "recommended",
        "stepsize": {"kind": "constant", "value": 0.003},
    },
    "PDGNDS square": PDGNDS | {"form": "square"},
    "DGD": {"name": "DGD"},
    "Consensus": {"name": "Consensus", "acceleration": "chebyshev"},
    **{
        name: {"name": name, "stepsize": CONSTANT}
        for name in ("EXTRA", "DIGing", "AugDGM", "AsynDGM", "AB", "PushPull", "ADDOPT")
    },
}
DIRECTED = ("AB", "PushPull", "ADDOPT")


def estimation(n_agents, **options):
    return hg.problems.estimation(n_agents, 3, 4, seed=1, **options)
