"""What adversaries learn: their views of a run, attacks on them, and the truth to judge by."""

from hushgrad.privacy.adversaries import Adversary, Curious, Eavesdropper
from hushgrad.privacy.attacks.base import Attack, Estimate
from hushgrad.privacy.truth import Truth
from hushgrad.privacy.view import Own, View

__all__ = ["Adversary", "Attack", "Curious", "Eavesdropper", "Estimate", "Own", "Truth", "View"]
