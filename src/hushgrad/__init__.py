"""hushgrad: agents on a network solve min Σ f_i(θ) together and keep their data and gradients to
themselves.
"""

from hushgrad import algorithms, draws, errors, graphs, problems, splits, stepsizes
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
from hushgrad.problems import Problem
from hushgrad.simulate.result import Comparison, Run, load_run
from hushgrad.simulate.run import compare, run

__version__ = "0.1.0"

__all__ = [
    "AB",
    "ADDOPT",
    "DGD",
    "EXTRA",
    "PDGDS",
    "PDGNDS",
    "Algorithm",
    "AsynDGM",
    "AugDGM",
    "Comparison",
    "DIGing",
    "HushgradError",
    "Network",
    "Problem",
    "PushPull",
    "Run",
    "algorithms",
    "compare",
    "draws",
    "errors",
    "graphs",
    "load_run",
    "problems",
    "run",
    "splits",
    "stepsizes",
]
