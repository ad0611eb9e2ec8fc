"""Regressions on the pooled rows of many sites, as programmes of pooled sums.

`hg.fit` runs a programme in the simulator. A programme reads no file and knows no network.
"""

from typing import TYPE_CHECKING

from hushgrad.exports import lazy_exports

if TYPE_CHECKING:
    from hushgrad.fitting.contracts import contract, contract_digest, first_difference
    from hushgrad.fitting.model import Model
    from hushgrad.fitting.model_file import load_model
    from hushgrad.fitting.newton import FitStage
    from hushgrad.fitting.programmes import programme
    from hushgrad.fitting.result import FitResult
    from hushgrad.fitting.rows import Rows, rows_of
    from hushgrad.fitting.site_check import CheckGroup, SiteCheck
    from hushgrad.fitting.tables import SiteTable, read_table, table_of

__all__ = [
    "CheckGroup",
    "FitResult",
    "FitStage",
    "Model",
    "Rows",
    "SiteCheck",
    "SiteTable",
    "contract",
    "contract_digest",
    "first_difference",
    "load_model",
    "programme",
    "read_table",
    "rows_of",
    "table_of",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "contracts": "contract contract_digest first_difference",
        "model": "Model",
        "model_file": "load_model",
        "newton": "FitStage",
        "programmes": "programme",
        "result": "FitResult",
        "rows": "Rows rows_of",
        "site_check": "CheckGroup SiteCheck",
        "tables": "SiteTable read_table table_of",
    },
)
