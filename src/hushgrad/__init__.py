"""hushgrad: agents on a network solve min Σ f_i(θ) together and keep their data to themselves.

Names are loaded when first used, so that importing hushgrad costs next to nothing.
"""

from typing import TYPE_CHECKING

from hushgrad.exports import lazy_exports

if TYPE_CHECKING:
    from hushgrad import (
        algorithms,
        draws,
        errors,
        fitting,
        graphs,
        masks,
        network,
        paper,
        privacy,
        problems,
        simulate,
        splits,
        stepsizes,
        studies,
        theory,
    )
    from hushgrad.algorithms import (
        AB,
        ADDOPT,
        DGD,
        EXTRA,
        PDGDS,
        PDGNDS,
        Algorithm,
        AsynDGM,
        AugDGM,
        Consensus,
        DIGing,
        PushPull,
    )
    from hushgrad.errors import HushgradError
    from hushgrad.fitting import Model
    from hushgrad.mixing import Network
    from hushgrad.network.deployed import Agent
    from hushgrad.privacy.adversaries import Active, Curious, Eavesdropper
    from hushgrad.privacy.audit import audit
    from hushgrad.privacy.repeated import audit_repeated
    from hushgrad.privacy.result import Audit
    from hushgrad.privacy.witness import witness
    from hushgrad.problems import Problem
    from hushgrad.simulate.fits import fit
    from hushgrad.simulate.result import Comparison, Run, load_run
    from hushgrad.simulate.run import compare, run
    from hushgrad.studies import load_study
    from hushgrad.studies.study import sweep
    from hushgrad.theory.promise import guarantee

__version__ = "0.1.0"

__all__ = [
    "AB",
    "ADDOPT",
    "DGD",
    "EXTRA",
    "PDGDS",
    "PDGNDS",
    "Active",
    "Agent",
    "Algorithm",
    "AsynDGM",
    "Audit",
    "AugDGM",
    "Comparison",
    "Consensus",
    "Curious",
    "DIGing",
    "Eavesdropper",
    "HushgradError",
    "Model",
    "Network",
    "Problem",
    "PushPull",
    "Run",
    "algorithms",
    "audit",
    "audit_repeated",
    "compare",
    "draws",
    "errors",
    "fit",
    "fitting",
    "graphs",
    "guarantee",
    "load_run",
    "load_study",
    "masks",
    "network",
    "paper",
    "privacy",
    "problems",
    "run",
    "simulate",
    "splits",
    "stepsizes",
    "studies",
    "sweep",
    "theory",
    "witness",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "": "algorithms draws errors fitting graphs masks network paper privacy problems simulate "
        "splits stepsizes studies theory",
        "algorithms": "AB ADDOPT Algorithm AsynDGM AugDGM Consensus DGD DIGing EXTRA PDGDS PDGNDS "
        "PushPull",
        "errors": "HushgradError",
        "fitting": "Model",
        "mixing": "Network",
        "network.deployed": "Agent",
        "privacy.adversaries": "Active Curious Eavesdropper",
        "privacy.audit": "audit",
        "privacy.repeated": "audit_repeated",
        "privacy.result": "Audit",
        "privacy.witness": "witness",
        "problems": "Problem",
        "simulate.fits": "fit",
        "simulate.result": "Comparison Run load_run",
        "simulate.run": "compare run",
        "studies": "load_study",
        "studies.study": "sweep",
        "theory.promise": "guarantee",
    },
)
