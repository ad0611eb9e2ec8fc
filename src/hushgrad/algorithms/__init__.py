"""One file per algorithm, each its paper's equation."""

from hushgrad.algorithms.ab import AB
from hushgrad.algorithms.add_opt import ADDOPT
from hushgrad.algorithms.asyn_dgm import AsynDGM
from hushgrad.algorithms.aug_dgm import AugDGM
from hushgrad.algorithms.base import Algorithm
from hushgrad.algorithms.dgd import DGD
from hushgrad.algorithms.diging import DIGing
from hushgrad.algorithms.extra import EXTRA
from hushgrad.algorithms.pdg_ds import PDGDS
from hushgrad.algorithms.pdg_nds import PDGNDS
from hushgrad.algorithms.push_pull import PushPull

ALL: tuple[type[Algorithm], ...] = (
    PDGDS, PDGNDS, DGD, EXTRA, DIGing, AugDGM, AsynDGM, AB, PushPull, ADDOPT,
)  # fmt: skip

__all__ = [
    "AB",
    "ADDOPT",
    "ALL",
    "DGD",
    "EXTRA",
    "PDGDS",
    "PDGNDS",
    "Algorithm",
    "AsynDGM",
    "AugDGM",
    "DIGing",
    "PushPull",
]
