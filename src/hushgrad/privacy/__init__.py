"""What adversaries learn: their views of a run, attacks on them, and the truth to judge by."""

from hushgrad.privacy.adversaries import Adversary, Curious, Eavesdropper
from hushgrad.privacy.attacks.base import Attack, Estimate
from hushgrad.privacy.knowledge import Knowledge, Own
from hushgrad.privacy.truth import Truth

__all__ = [
    "Adversary",
    "Attack",
    "Curious",
    "Eavesdropper",
    "Estimate",
    "Knowledge",
    "Own",
    "Truth",
]
