"""What masks promise, in numbers: guarantees, their ledger, and what sums reveal.

`hg.guarantee` computes a guarantee; docs/guarantee.md derives it.
"""

from typing import TYPE_CHECKING

from hushgrad.exports import lazy_exports

if TYPE_CHECKING:
    from hushgrad.theory.bounds import RowBound, huber_row, logistic_row, mean_row, ridge_row
    from hushgrad.theory.gaussian_dp import advantage, delta, epsilon, tradeoff
    from hushgrad.theory.ledger import Ledger
    from hushgrad.theory.promise import guarantee
    from hushgrad.theory.resistance import resistances
    from hushgrad.theory.result import Exposure, Guarantee
    from hushgrad.theory.revealed import check_revealed, numbers_revealed, share_revealed

__all__ = [
    "Exposure",
    "Guarantee",
    "Ledger",
    "RowBound",
    "advantage",
    "check_revealed",
    "delta",
    "epsilon",
    "guarantee",
    "huber_row",
    "logistic_row",
    "mean_row",
    "numbers_revealed",
    "resistances",
    "ridge_row",
    "share_revealed",
    "tradeoff",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "bounds": "RowBound huber_row logistic_row mean_row ridge_row",
        "gaussian_dp": "advantage delta epsilon tradeoff",
        "promise": "guarantee",
        "ledger": "Ledger",
        "result": "Exposure Guarantee",
        "resistance": "resistances",
        "revealed": "check_revealed numbers_revealed share_revealed",
    },
)
