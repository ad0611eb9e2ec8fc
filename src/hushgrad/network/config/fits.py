"""The run of a fit, from the tables [fit] and [run] of an agent's file and the model's own file.

file.py calls `fit_of` if an agent's file has the table [fit].
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hushgrad.fitting.averages import (
    averaging,
    longest_vector,
    most_averages,
    rounds_of_average,
)
from hushgrad.fitting.model_file import load_model
from hushgrad.fitting.plan import Declared
from hushgrad.fitting.sums import SIZE
from hushgrad.network.config.checks import check_links, check_partners
from hushgrad.network.config.model import RunConfig
from hushgrad.network.config.tables import fit, fit_run
from hushgrad.network.objective.fit_rows import FitSpec
from hushgrad.network.protocol.frames import MOST_HELLO
from hushgrad.network.protocol.hello import public_parts
from hushgrad.schema.places import Mistakes, Source, shown

type Table = Mapping[str, Any]

_ROOM = 2048  # bytes of a HELLO besides its public entries


def run_of_fit(model: Declared, *, id: str, n_agents: int, eta: float, **more: Any) -> RunConfig:  # noqa: A002  # as in the file
    """The run of a model on a network of this η; 0: all agents are linked."""
    method = averaging(eta)
    each = rounds_of_average(method, n_agents, eta)
    most = most_averages(model)
    return RunConfig(
        id=id,
        algorithm=method,
        iterations=most * each,
        stages=most,
        dim=longest_vector(model),
        n_agents=n_agents,
        eta=eta,
        scale=SIZE,
        model=model,
        **more,
    )


def check_fit(findings: Mistakes, tables: Table) -> None:
    """Find keys of [agent], [run] and [fit] that make no sense for a fit."""
    for key in ("x0", "record_every"):
        if key in tables["agent"]:
            findings.add(("agent", key), "belongs to an [objective], not to a [fit]. Leave it out.")
    decimal = tables["fit"].get("decimal", ".")
    if decimal not in (".", ","):
        findings.add(("fit", "decimal"), f'= {shown(decimal)} is neither "." nor ",".')
    delimiter = tables["fit"].get("delimiter")
    if delimiter is not None and len(delimiter) != 1:
        findings.add(("fit", "delimiter"), f"= {shown(delimiter)} is not one character.")
    if ("file" in tables["fit"]) == ("draw_rows" in tables["fit"]):
        findings.add(("fit",), "needs the key file, this site's rows (or draw_rows, to rehearse).")
    elif tables["fit"].get("draw_rows", 1) < 1:
        findings.add(("fit", "draw_rows"), "is a number of rows, at least 1.")
    common = tables["run"]
    eta, n_agents = common.get("eta", 0), common.get("n_agents", 0)
    linked = len(tables.get("neighbour", []))
    if eta != 0 or linked == n_agents - 1:
        if eta == 0 and common.get("mixing", "metropolis") != "metropolis":
            findings.add(
                ("run", "mixing"),
                f"= {shown(common['mixing'])} needs the key eta: without eta, agents that are all "
                'linked average in one round, with mixing = "metropolis".',
            )
        return
    findings.add(
        ("run",),
        f"needs the key eta: this agent has {linked} of {n_agents - 1} possible neighbours, and "
        "the rounds of an average follow from η of the network. Write the same number in every "
        "file: hg.Network(graph).eta computes it.",
    )


def fit_of(findings: Mistakes, source: Source, tables: Table) -> tuple[RunConfig, FitSpec]:
    """The run of a fit and the file of this agent's rows."""
    check_fit(findings, tables)
    findings.throw()
    own = fit(**tables["fit"])
    with source.telling(("fit", "model"), tables["fit"]):
        model = load_model(source.directory / own.pop("model"))
    run = run_of_fit(model, **fit_run(**tables["run"]))
    check_links(findings, tables, run.algorithm)
    check_partners(findings, tables, run.algorithm)
    size = len(json.dumps(public_parts(run)).encode())
    if size > MOST_HELLO - _ROOM:
        findings.add(
            ("fit", "model"),
            f"has a contract of {size} bytes, and agents compare up to {MOST_HELLO - _ROOM}. Use "
            "shorter names, units and levels.",
        )
    findings.throw()
    own["file"] = None if own["file"] is None else source.directory / own["file"]
    site, number = tables["agent"]["name"], tables["agent"]["number"]
    return run, FitSpec(model=model, site=site, number=number, **own)
