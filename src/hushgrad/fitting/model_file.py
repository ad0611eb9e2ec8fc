"""Models as TOML files: the table [model] has the arguments of `Model` as keys."""

from __future__ import annotations

from pathlib import Path

from hushgrad.errors import ModelError
from hushgrad.fitting.model import Model
from hushgrad.schema.builders import check_call
from hushgrad.schema.places import Mistakes, Source


def load_model(path: str | Path) -> Model:
    """Read and check a model file; mistakes are named by file, line and key."""
    path = Path(path)
    source = Source(str(path), path.parent, what="model file", raises=ModelError)
    source = source.read("Correct the path.")
    tables = source.tables()
    findings = Mistakes(source)
    for name in tables:
        if name != "model":
            findings.add_unknown((name,), "a table of a model file", ["model"])
    table = tables.get("model", {})
    if isinstance(table, dict):
        check_call(findings, Model, table, ("model",), what="[model]")
    else:
        findings.add(("model",), "is a table: write [model].")
    findings.throw()
    try:
        return Model(**table)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error
