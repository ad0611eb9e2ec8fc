"""The algorithms, one file each with the equation of its paper.

The author of a new algorithm imports its parts from here: the base classes, the exchanges and the
kinds of matrices.
"""

from hushgrad.algorithms.ab import AB
from hushgrad.algorithms.add_opt import ADDOPT, ADDOPTState
from hushgrad.algorithms.asyn_dgm import AsynDGM
from hushgrad.algorithms.aug_dgm import AugDGM
from hushgrad.algorithms.base import Algorithm, Masked, Private, Stepping, Tracker, TrackerState
from hushgrad.algorithms.consensus import Consensus, ConsensusState
from hushgrad.algorithms.dgd import DGD, DGDState
from hushgrad.algorithms.diging import DIGing
from hushgrad.algorithms.extra import EXTRA, EXTRAState
from hushgrad.algorithms.pdg_ds import PDGDS, PDGDSState
from hushgrad.algorithms.pdg_nds import PDGNDS, PDGNDSState
from hushgrad.algorithms.push_pull import PushPull
from hushgrad.exchange import Lazy, Pull, Push, Square
from hushgrad.mixing import Kind

ALL: tuple[type[Algorithm], ...] = (
    PDGDS, PDGNDS, DGD, EXTRA, DIGing, AugDGM, AsynDGM, AB, PushPull, ADDOPT,
    Consensus,
)  # fmt: skip

__all__ = [
    "AB",
    "ADDOPT",
    "ALL",
    "DGD",
    "EXTRA",
    "PDGDS",
    "PDGNDS",
    "ADDOPTState",
    "Algorithm",
    "AsynDGM",
    "AugDGM",
    "Consensus",
    "ConsensusState",
    "DGDState",
    "DIGing",
    "EXTRAState",
    "Kind",
    "Lazy",
    "Masked",
    "PDGDSState",
    "PDGNDSState",
    "Private",
    "Pull",
    "Push",
    "PushPull",
    "Square",
    "Stepping",
    "Tracker",
    "TrackerState",
]
