"""One file per attack, each with its derivation. The lab (privacy/lab.py) tries them."""

from hushgrad.privacy.attacks.averaged_vectors import AveragedVectors
from hushgrad.privacy.attacks.base import Attack, Estimate
from hushgrad.privacy.attacks.dgd_inversion import DGDInversion
from hushgrad.privacy.attacks.drift import Drift
from hushgrad.privacy.attacks.extra_inversion import EXTRAInversion
from hushgrad.privacy.attacks.first_message import FirstMessage
from hushgrad.privacy.attacks.first_tracker import FirstTracker
from hushgrad.privacy.attacks.flow import Flow
from hushgrad.privacy.attacks.gossip_reconstruction import GossipReconstruction
from hushgrad.privacy.attacks.in_clear import EstimatesInClear
from hushgrad.privacy.attacks.membership import Membership
from hushgrad.privacy.attacks.objective_fit import ObjectiveFit
from hushgrad.privacy.attacks.optimum import Optimum
from hushgrad.privacy.attacks.probes import Probes
from hushgrad.privacy.attacks.row_fit import RowFit
from hushgrad.privacy.attacks.span import Span
from hushgrad.privacy.attacks.spread import Spread
from hushgrad.privacy.attacks.structured_hessian import StructuredHessian
from hushgrad.privacy.attacks.sum_fit import SumFit
from hushgrad.privacy.attacks.telescoped_trackers import TelescopedTrackers
from hushgrad.privacy.attacks.trajectory import Trajectory
from hushgrad.privacy.attacks.whitening import Whitening

ALL: tuple[Attack, ...] = (
    DGDInversion(),
    EXTRAInversion(),
    EstimatesInClear(),
    AveragedVectors(),
    FirstTracker(),
    TelescopedTrackers(),
    GossipReconstruction(),
    FirstMessage(),
    Flow(),
    Span(),
    ObjectiveFit(),
    Trajectory(),
    RowFit(),
    Probes(),
    SumFit(),
    StructuredHessian(),
    Membership(),
    Spread(),
    Whitening(),
    Drift(),
    Optimum(),
)

__all__ = ["ALL", "Attack", "Estimate"]
