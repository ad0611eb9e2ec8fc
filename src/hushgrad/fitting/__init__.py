"""Regressions on the pooled rows of many sites, as programmes of pooled sums.

`hg.fit` runs a programme in the simulator. A programme reads no file and knows no network.
"""

from typing import TYPE_CHECKING

from hushgrad.exports import lazy_exports

if TYPE_CHECKING:
    from hushgrad.fitting.contract import contract, contract_digest, first_difference
    from hushgrad.fitting.model import Model
    from hushgrad.fitting.programme import programme
    from hushgrad.fitting.result import FitResult
    from hushgrad.fitting.rows import Rows, rows_of
    from hushgrad.fitting.tables import SiteTable, read_table, table_of

__all__ = [
    "FitResult",
    "Model",
    "Rows",
    "SiteTable",
    "contract",
    "contract_digest",
    "first_difference",
    "programme",
    "read_table",
    "rows_of",
    "table_of",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "contract": "contract contract_digest first_difference",
        "model": "Model",
        "programme": "programme",
        "result": "FitResult",
        "rows": "Rows rows_of",
        "tables": "SiteTable read_table table_of",
    },
)
