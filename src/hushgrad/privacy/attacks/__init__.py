"""One file per attack, each with its derivation."""

from hushgrad.privacy.attacks.base import Attack, Estimate
from hushgrad.privacy.attacks.dgd_inversion import DGDInversion
from hushgrad.privacy.attacks.drift import Drift
from hushgrad.privacy.attacks.extra_inversion import EXTRAInversion
from hushgrad.privacy.attacks.first_tracker import FirstTracker
from hushgrad.privacy.attacks.flow import Flow
from hushgrad.privacy.attacks.gossip_reconstruction import GossipReconstruction
from hushgrad.privacy.attacks.in_clear import EstimatesInClear
from hushgrad.privacy.attacks.objective_fit import ObjectiveFit
from hushgrad.privacy.attacks.optimum import Optimum
from hushgrad.privacy.attacks.span import Span
from hushgrad.privacy.attacks.spread import Spread
from hushgrad.privacy.attacks.telescoped_trackers import TelescopedTrackers
from hushgrad.privacy.attacks.whitening import Whitening

ALL: tuple[Attack, ...] = (
    DGDInversion(),
    EXTRAInversion(),
    EstimatesInClear(),
    FirstTracker(),
    TelescopedTrackers(),
    GossipReconstruction(),
    Flow(),
    Span(),
    ObjectiveFit(),
    Spread(),
    Whitening(),
    Drift(),
    Optimum(),
)

__all__ = ["ALL", "Attack", "Estimate"]
