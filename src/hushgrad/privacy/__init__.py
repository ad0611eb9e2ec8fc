"""The privacy lab: what adversaries know of a run, attacks on a run, and the truth to judge by.

`hg.audit` and `hg.witness` start it. Attacks of a user's own take a `Knowledge` and return an
`Estimate`.
"""

from typing import TYPE_CHECKING

from hushgrad.exports import lazy_exports

if TYPE_CHECKING:
    from hushgrad.privacy import attacks
    from hushgrad.privacy.adversaries import Active, Adversary, Curious, Eavesdropper
    from hushgrad.privacy.attacks.base import Attack, Estimate
    from hushgrad.privacy.coalitions import Coalition
    from hushgrad.privacy.findings import Finding
    from hushgrad.privacy.knowledge import Knowledge, Own
    from hushgrad.privacy.result import Audit
    from hushgrad.privacy.truth import Truth
    from hushgrad.privacy.verdict import Evidence
    from hushgrad.privacy.witness import Witness

__all__ = [
    "Active",
    "Adversary",
    "Attack",
    "Audit",
    "Coalition",
    "Curious",
    "Eavesdropper",
    "Estimate",
    "Evidence",
    "Finding",
    "Knowledge",
    "Own",
    "Truth",
    "Witness",
    "attacks",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "": "attacks",
        "adversaries": "Active Adversary Curious Eavesdropper",
        "attacks.base": "Attack Estimate",
        "coalitions": "Coalition",
        "findings": "Finding",
        "result": "Audit",
        "knowledge": "Knowledge Own",
        "truth": "Truth",
        "verdict": "Evidence",
        "witness": "Witness",
    },
)
