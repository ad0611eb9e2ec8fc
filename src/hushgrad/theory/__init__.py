"""Certificates of runs; what masks promise, in numbers; what sums reveal; the judgement.

`hg.certify` says what is proven and how fast a run is (docs/certificates.md), `hg.guarantee` what
masks hide (docs/guarantee.md).
"""

from typing import TYPE_CHECKING

from hushgrad.exports import lazy_exports

if TYPE_CHECKING:
    from hushgrad.theory.auto import Choice, choose
    from hushgrad.theory.bounds import RowBound, huber_row, logistic_row, mean_row, ridge_row
    from hushgrad.theory.certificate import CertificateLine, RunCertificate, certify
    from hushgrad.theory.exposure import (
        WEAKNESSES,
        Held,
        OwnNumbers,
        Setting,
        Weakness,
        judge,
        weaknesses,
    )
    from hushgrad.theory.gaussian_dp import advantage, delta, epsilon, tradeoff
    from hushgrad.theory.ledger import Ledger
    from hushgrad.theory.promise import guarantee
    from hushgrad.theory.resistance import resistances
    from hushgrad.theory.result import Exposure, Guarantee
    from hushgrad.theory.revealed import (
        Revealed,
        check_revealed,
        numbers_revealed,
        share_revealed,
    )

__all__ = [
    "WEAKNESSES",
    "CertificateLine",
    "Choice",
    "Exposure",
    "Guarantee",
    "Held",
    "Ledger",
    "OwnNumbers",
    "Revealed",
    "RowBound",
    "RunCertificate",
    "Setting",
    "Weakness",
    "advantage",
    "certify",
    "check_revealed",
    "choose",
    "delta",
    "epsilon",
    "guarantee",
    "huber_row",
    "judge",
    "logistic_row",
    "mean_row",
    "numbers_revealed",
    "resistances",
    "ridge_row",
    "share_revealed",
    "tradeoff",
    "weaknesses",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "auto": "Choice choose",
        "certificate": "CertificateLine RunCertificate certify",
        "bounds": "RowBound huber_row logistic_row mean_row ridge_row",
        "exposure": "WEAKNESSES Held OwnNumbers Setting Weakness judge weaknesses",
        "gaussian_dp": "advantage delta epsilon tradeoff",
        "promise": "guarantee",
        "ledger": "Ledger",
        "result": "Exposure Guarantee",
        "resistance": "resistances",
        "revealed": "Revealed check_revealed numbers_revealed share_revealed",
    },
)
