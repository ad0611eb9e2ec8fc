"""Problems min Σ_i f_i(θ): `Problem` for any loss, builders for the usual ones, data to divide."""

from typing import TYPE_CHECKING

from hushgrad.exports import lazy_exports

if TYPE_CHECKING:
    from hushgrad.problems.data import Group
    from hushgrad.problems.datasets import AgentData, dataset
    from hushgrad.problems.late import AgentRows, rows_from_files
    from hushgrad.problems.problem import Problem
    from hushgrad.problems.quadratic import average, estimation, estimation_from, rendezvous
    from hushgrad.problems.regression import huber, logistic, ridge

__all__ = [
    "AgentData",
    "AgentRows",
    "Group",
    "Problem",
    "average",
    "dataset",
    "estimation",
    "estimation_from",
    "huber",
    "logistic",
    "rendezvous",
    "ridge",
    "rows_from_files",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "data": "Group",
        "datasets": "AgentData dataset",
        "late": "AgentRows rows_from_files",
        "problem": "Problem",
        "quadratic": "average estimation estimation_from rendezvous",
        "regression": "huber logistic ridge",
    },
)
