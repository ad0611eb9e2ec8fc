"""hushgrad: agents on a network solve min Σ f_i(θ) together and keep their data to themselves.

Names are loaded when first used, so that importing hushgrad costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hushgrad import (
        algorithms,
        draws,
        errors,
        graphs,
        masks,
        problems,
        splits,
        stepsizes,
        studies,
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
        DIGing,
        PushPull,
    )
    from hushgrad.errors import HushgradError
    from hushgrad.mixing import Network
    from hushgrad.network.deployed import Agent
    from hushgrad.privacy.adversaries import Curious, Eavesdropper
    from hushgrad.privacy.audit import audit
    from hushgrad.privacy.findings import Audit
    from hushgrad.privacy.witness import witness
    from hushgrad.problems import Problem
    from hushgrad.simulate.result import Comparison, Run, load_run
    from hushgrad.simulate.run import compare, run
    from hushgrad.studies import load_study

__version__ = "0.1.0"

__all__ = [
    "AB",
    "ADDOPT",
    "DGD",
    "EXTRA",
    "PDGDS",
    "PDGNDS",
    "Agent",
    "Algorithm",
    "AsynDGM",
    "Audit",
    "AugDGM",
    "Comparison",
    "Curious",
    "DIGing",
    "Eavesdropper",
    "HushgradError",
    "Network",
    "Problem",
    "PushPull",
    "Run",
    "algorithms",
    "audit",
    "compare",
    "draws",
    "errors",
    "graphs",
    "load_run",
    "load_study",
    "masks",
    "problems",
    "run",
    "splits",
    "stepsizes",
    "studies",
    "witness",
]

_HOMES = {
    "Agent": "network.deployed",
    "Audit": "privacy.findings",
    "Comparison": "simulate.result",
    "Curious": "privacy.adversaries",
    "Eavesdropper": "privacy.adversaries",
    "HushgradError": "errors",
    "Network": "mixing",
    "Problem": "problems",
    "Run": "simulate.result",
    "audit": "privacy.audit",
    "compare": "simulate.run",
    "load_run": "simulate.result",
    "load_study": "studies",
    "run": "simulate.run",
    "witness": "privacy.witness",
}  # the other classes live in algorithms, the other names are modules


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'hushgrad' has no attribute {name!r}")
    if name.islower() and name not in _HOMES:
        value = import_module(f"hushgrad.{name}")
    else:
        value = getattr(import_module(f"hushgrad.{_HOMES.get(name, 'algorithms')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
