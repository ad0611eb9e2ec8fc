"""Models and plans as TOML files.

The table [model] has the arguments of `Model` as keys. A plan has tables [[stage]] in its place,
each with a name and a kind: the keys of `kind = "sum"` are the arguments of `PooledTables`, and a
stage of `kind = "fit"` has its model in [stage.model].
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hushgrad.errors import ModelError
from hushgrad.fitting.model import Model
from hushgrad.fitting.plan import Declared, FitPlan
from hushgrad.fitting.pooled_tables import PooledTables
from hushgrad.schema.builders import check_call
from hushgrad.schema.places import Mistakes, Source

type Table = dict[str, Any]


def load_model(path: str | Path) -> Declared:
    """Read and check a file of a model or a plan; mistakes are named by file, line and key."""
    path = Path(path)
    source = Source(str(path), path.parent, what="model file", raises=ModelError)
    source = source.read("Correct the path.")
    tables = source.tables()
    findings = Mistakes(source)
    for name in tables:
        if name not in ("model", "stage"):
            findings.add_unknown((name,), "a table of a model file", ["model", "stage"])
    if "stage" in tables and "model" in tables:
        way_out = 'Write [stage.model] below a stage with kind = "fit".'
        findings.add(("model",), f"does not stand beside [[stage]]. {way_out}")
    listed = tables.get("stage", [])
    if not isinstance(listed, list):
        findings.add(("stage",), "is a list of tables: write [[stage]].")
        listed = []
    table = tables.get("model", {})
    if not isinstance(table, dict):
        findings.add(("model",), "is a table: write [model].")
    elif not listed:
        check_call(findings, Model, table, ("model",), what="[model]")
    for n, stage in enumerate(listed):
        _check_stage(findings, stage, ("stage", n))
    findings.throw()
    try:
        return FitPlan(stages=_stages(listed)) if listed else Model(**table)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error


def _check_stage(findings: Mistakes, stage: Table, keys: tuple[str | int, ...]) -> None:
    kind = stage.get("kind")
    if not isinstance(stage.get("name"), str):
        findings.add(keys, "needs the key name (a string).")
    if kind not in ("sum", "fit"):
        findings.add_choice((*keys, "kind"), kind, "a kind of stage", ["sum", "fit"])
    elif kind == "sum":
        rest = {key: value for key, value in stage.items() if key not in ("name", "kind")}
        check_call(
            findings, PooledTables, rest, keys, what='a stage of kind "sum"', also=["name", "kind"]
        )
    else:
        for key in stage:
            if key not in ("name", "kind", "model"):
                findings.add_unknown((*keys, key), "a key of a fit", ["name", "kind", "model"])
        model = stage.get("model")
        if isinstance(model, dict):
            check_call(findings, Model, model, (*keys, "model"), what="[stage.model]")
        else:
            findings.add(keys, "needs its model: write [stage.model] below it.")


def _stages(listed: list[Table]) -> dict[str, PooledTables | Model]:
    found: dict[str, PooledTables | Model] = {}
    for stage in listed:
        given = {key: value for key, value in stage.items() if key not in ("name", "kind")}
        name = stage["name"]
        if name in found:
            raise ModelError(f"plan: two stages have the name {name!r}. Rename one.")
        try:
            found[name] = (
                PooledTables(**given) if stage["kind"] == "sum" else Model(**given["model"])
            )
        except ModelError as error:
            raise ModelError(f"stage {name}: {error}") from error
    return found
