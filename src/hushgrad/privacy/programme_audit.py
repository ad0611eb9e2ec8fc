"""The audit of the programme of a fit or a plan: every average, attacked on rows that are drawn.

`hushgrad dossier` shows it. The programme runs in the simulator with as many sites and rows as in
earnest, and every average is one run of the method that deployed agents use. The other sites attack
the vector of one site: each alone, all but one together, all together; and a listener who hears
every link in clear, which TLS prevents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hushgrad.fitting.averages import averaging, rounds_of_average
from hushgrad.fitting.drawn_rows import draw_columns
from hushgrad.fitting.lockstep import drive
from hushgrad.fitting.plan import Declared, columns_of, data_of, programme_of
from hushgrad.fitting.sums import Vector
from hushgrad.fitting.tables import table_of
from hushgrad.graphs import complete
from hushgrad.mixing import Network
from hushgrad.privacy.adversaries import Adversary, Curious, Eavesdropper
from hushgrad.privacy.audit import audit
from hushgrad.problems import average
from hushgrad.simulate.run import run
from hushgrad.theory.exposure import WEAKNESSES


@dataclass(frozen=True, kw_only=True)
class ProgrammeFinding:
    """One kind of adversary against one site, over all averages of a fit."""

    adversary: str
    is_exposed: bool  # whether the site's vector was recovered in some average
    nearest: float | None  # relative error of the best estimate; None: no attack gave one
    averages: int

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


def audit_programme(
    model: Declared,
    rows: Sequence[int],
    *,
    eta: float,
    agent: int,
    progress: Callable[[int], None] = lambda _: None,
) -> list[ProgrammeFinding]:
    """Attack the vectors of site `agent` in a fit of drawn rows; `rows`: of each site."""
    n_sites = len(rows)
    network = Network(complete(n_sites))
    method = averaging(eta).on(network)
    each = rounds_of_average(method, n_sites, eta)
    found: dict[str, list[tuple[bool, float | None]]] = {}
    done = 0

    def pool(vectors: Sequence[Vector]) -> Sequence[Vector]:
        nonlocal done
        made = run(
            method, average(np.array(vectors)), network, iterations=each, trials=[done],
            engine="agents", progress=False, transcript=True, accept_exposure=list(WEAKNESSES),
        )  # fmt: skip
        for name, adversaries in _adversaries(n_sites, agent).items():
            told = audit(made, adversaries, agents=[agent], coalitions=False, progress=False)
            errors = [f.best.error for f in told.findings if f.best is not None]
            is_exposed = any(f.exposure == "exposed" for f in told.findings)
            found.setdefault(name, []).append((is_exposed, min(errors, default=None)))
        done += 1
        progress(done)
        return list(n_sites * made.x[0])

    fits = [
        programme_of(model, data_of(model, table_of(
            draw_columns(model, n, site), columns_of(model), site=f"site {site}"
        )))
        for site, n in enumerate(rows)
    ]  # fmt: skip
    drive(fits, pool)
    return [
        ProgrammeFinding(
            adversary=name,
            is_exposed=any(is_exposed for is_exposed, _ in told),
            nearest=min((error for _, error in told if error is not None), default=None),
            averages=len(told),
        )
        for name, told in found.items()
    ]


def _adversaries(n_sites: int, agent: int) -> dict[str, Sequence[Adversary]]:
    others = frozenset(range(n_sites)) - {agent}
    kinds: dict[str, Sequence[Adversary]] = {
        "a listener who hears every link in clear": [Eavesdropper()],
        "each other site alone": [Curious(frozenset({j})) for j in sorted(others)],
    }
    if len(others) > 2:
        kinds["all other sites but one, together"] = [Curious(others - {j}) for j in sorted(others)]
    if len(others) > 1:
        kinds["all other sites together"] = [Curious(others)]
    return kinds
