"""Studies as TOML files: `load_study` reads and checks one, `run` and `run_sweep` run it."""

from typing import TYPE_CHECKING

from hushgrad.exports import lazy_exports

if TYPE_CHECKING:
    from hushgrad.studies.gathering import Gathered, gather
    from hushgrad.studies.study import Built, Study, load_study, parse_study, record
    from hushgrad.studies.sweep import SweepRow, Table
    from hushgrad.studies.unfinished import Unfinished

__all__ = [
    "Built",
    "Gathered",
    "Study",
    "SweepRow",
    "Table",
    "Unfinished",
    "gather",
    "load_study",
    "parse_study",
    "record",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "gathering": "Gathered gather",
        "study": "Built Study load_study parse_study record",
        "sweep": "SweepRow Table",
        "unfinished": "Unfinished",
    },
)
