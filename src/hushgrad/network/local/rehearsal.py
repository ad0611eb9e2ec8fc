"""A rehearsal of a fit or a plan: all sites as agents on this machine, with rows that are drawn.

`hushgrad rehearse` uses it. Keys are made for the rehearsal and thrown away. The rows are drawn
from the model's declaration inside the agents' processes, so no file of a site is read, no policy
is asked, and the rehearsal is in no ledger. Every link passes through a program that delays it
(slow_links.py). All sites are linked; with `eta` an average has the rounds of a network of that η.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from hushgrad.errors import InputError
from hushgrad.fitting.model_file import load_model
from hushgrad.fitting.plan import Declared
from hushgrad.network.config.file import load_config, write_config
from hushgrad.network.config.model import AgentConfig
from hushgrad.network.config.tables import TRUSTED
from hushgrad.network.keys.identity import mint
from hushgrad.network.local.processes import LOOPBACK, AgentRow, Processes, only_one
from hushgrad.network.local.slow_links import SlowLink
from hushgrad.network.ops.result import AgentResult, read_result

RUN = "rehearsal"
SITES = 3  # of a model alone
ROWS = 10_000  # of a site; with fewer, a plain model may tell too much about single drawn rows


@dataclass(frozen=True, kw_only=True)
class RehearsalPlan:
    """The model, the sites and the rows of a rehearsal."""

    model_file: Path
    model: Declared
    names: tuple[str, ...]  # of the sites, by number
    rows: tuple[int, ...]  # of each site
    run: Mapping[str, Any]  # [run], without the id
    accept_exposure: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Rehearsed:
    """The outcome of a rehearsal."""

    plan: RehearsalPlan
    results: Sequence[AgentResult]  # of each site
    n_bytes: Sequence[int]  # sent and received by each site
    latency: float  # seconds of a round trip

    @property
    def fit(self) -> Mapping[str, Any]:
        """The fit or the plan, as `to_json` of its result has it."""
        assert self.results[0].fit is not None
        return self.results[0].fit

    @property
    def seconds(self) -> float:
        return max(result.seconds for result in self.results)


def plan_of(
    file: Path, *, sites: int | None, rows: Sequence[int], accept_exposure: Sequence[str] = ()
) -> RehearsalPlan:
    """The plan of an agent's file or of a model's file; `rows`: of all sites, or of each.

    All sites accept the weaknesses of `accept_exposure`, and those of the agent's file.
    """
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise InputError(f"there is no file at '{file}'. Correct the path.") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"'{file}' cannot be read as TOML: {error}.") from error
    if "model" in tables or "stage" in tables:
        n = sites or SITES
        names, run = tuple(f"site-{j}" for j in range(n)), {"n_agents": n}
        accepted = set(accept_exposure)
        model_file = file
    else:
        config = load_config(file)
        if config.run.model is None:
            raise InputError(f"'{file}' has no table [fit]. A rehearsal is one of a fit.")
        if sites not in (None, config.run.n_agents):
            raise InputError(f"'{file}' has n_agents = {config.run.n_agents}: leave --sites out.")
        names, accepted = _names(config), config.accept_exposure | set(accept_exposure)
        run = {key: value for key, value in tables["run"].items() if key not in ("id", "seed")}
        model_file = file.parent / tables["fit"]["model"]
    given = tuple(rows) or (ROWS,)
    if len(given) not in (1, len(names)) or min(given) < 1:
        raise InputError(
            f"--rows is one number or one for each of {len(names)} sites, but got {list(given)}."
        )
    given = given * len(names) if len(given) == 1 else given
    model = load_model(model_file)
    if "run" not in tables:  # as the sites would declare
        run["honest_rows"] = sum(sorted(given)[:2])
    return RehearsalPlan(
        model_file=model_file,
        model=model,
        names=names,
        rows=given,
        run=run,
        accept_exposure=tuple(sorted(accepted)),
    )


def _names(config: AgentConfig) -> tuple[str, ...]:
    known = {one.number: one.name for one in (*config.neighbours, *config.partners)}
    known[config.number] = config.name
    return tuple(known.get(j, f"site-{j}") for j in range(config.run.n_agents))


def rehearse(
    plan: RehearsalPlan,
    directory: Path,
    *,
    latency: float = 0.0,
    watch: Callable[[Sequence[AgentRow]], None] | None = None,
) -> Rehearsed:
    """Run all sites in `directory`, on links with this round trip."""
    shutil.copy(plan.model_file, directory / "model.toml")
    for name in plan.names:
        mint(directory / name, name)
    for name in plan.names:
        trusted = directory / name / TRUSTED
        trusted.mkdir()
        for other in plan.names:
            if other != name:
                shutil.copy(directory / other / f"{other}.crt", trusted)
    sockets = [socket.create_server((LOOPBACK, 0)) for _ in plan.names]
    # of each link the site with the smaller number dials
    links = {
        (j, i): SlowLink(sockets[i].getsockname(), latency / 2)
        for j, i in combinations(range(len(plan.names)), 2)
    }
    try:
        configs = [
            write_config(directory / name / "agent.toml", _tables(plan, j, links))
            for j, name in enumerate(plan.names)
        ]
        with only_one(directory / "lock") as lock:
            processes = Processes(directory, {}, lock=lock, watch=watch)
            asyncio.run(_run(processes, configs, sockets, list(links.values())))
    finally:
        for one in (*sockets, *links.values()):
            one.close()
    results = [found for c in configs if (found := read_result(c.result)) is not None]
    n_bytes = [
        sum(link.n_bytes for ends, link in links.items() if j in ends) for j in range(len(configs))
    ]
    return Rehearsed(plan=plan, results=results, n_bytes=n_bytes, latency=latency)


async def _run(
    processes: Processes,
    configs: Sequence[AgentConfig],
    sockets: Sequence[socket.socket],
    links: Sequence[SlowLink],
) -> None:
    for link in links:
        await link.start()
    try:
        failure = await processes.run_agents(configs, sockets)
    finally:
        for link in links:
            await link.stop()
    if failure is not None:
        raise failure


def _tables(
    plan: RehearsalPlan, j: int, links: Mapping[tuple[int, int], SlowLink]
) -> dict[str, Any]:
    others = [(i, name) for i, name in enumerate(plan.names) if i != j]
    return {
        "agent": {
            "name": plan.names[j],
            "number": j,
            "listen": f"{LOOPBACK}:1",  # the socket that it inherits has another port
            "durability": "process",
            "accept_exposure": list(plan.accept_exposure),
        },
        "fit": {"model": "../model.toml", "draw_rows": plan.rows[j]},
        "run": {"id": RUN, **plan.run},
        "neighbour": [
            {"name": name, "number": i}
            | ({"address": "{}:{}".format(*links[j, i].address)} if j < i else {})
            for i, name in others
        ],
        "partner": [{"name": name, "number": i} for i, name in others],
    }
