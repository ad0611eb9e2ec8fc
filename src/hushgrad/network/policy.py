"""The policy of a site: rules that its IT sets, and that no agent of the site can leave out.

A policy is a TOML file with the table [policy]. Every policy that is found holds: the system's at
/etc/hushgrad/policy.toml, the one that the environment variable HUSHGRAD_POLICY names, and the one
that an agent's file names. An agent judges itself by all of them before it makes a connection
(admission.py), and the doctor and the dossier show the same rulings.

Rules that count runs or spend privacy look into a ledger that the policy itself names, so another
key, another agent's file or another run id does not begin a new count.
"""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hushgrad.errors import PolicyError
from hushgrad.network.state.ledger import LedgerFile
from hushgrad.schema.builders import check_call
from hushgrad.schema.places import Mistakes, Source, shown
from hushgrad.theory.exposure import WEAKNESSES

SYSTEM = Path("/etc/hushgrad/policy.toml")
VARIABLE = "HUSHGRAD_POLICY"
TABLES = "sum"  # the kind of pooled tables, a stage of a plan
_WRITERS = stat.S_IWGRP | stat.S_IWOTH
_COUNTED = ("max_runs", "max_runs_in_period", "max_mu", "max_epsilon")


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The rules of one file; None: no such rule."""

    path: Path
    min_rows: int | None = None
    min_events: int | None = None
    min_participants: int | None = None
    max_parameters_per_row: float | None = None
    kinds: tuple[str, ...] | None = None
    designs: tuple[str, ...] | None = None
    peers: tuple[str, ...] | None = None  # fingerprints
    data: tuple[Path, ...] | None = None  # files, resolved
    exposure: tuple[str, ...] | None = None  # weaknesses that an agent's file may accept
    max_share_revealed: float | None = None
    max_runs: int | None = None
    max_runs_in_period: int | None = None
    period_days: float | None = None
    max_mu: float | None = None
    max_epsilon: float | None = None
    ledger: Path | None = None
    ledger_start: str | None = None

    @property
    def ledger_file(self) -> LedgerFile | None:
        return None if self.ledger is None else LedgerFile(self.ledger)


def policy(
    *,
    min_rows: int | None = None,
    min_events: int | None = None,
    min_participants: int | None = None,
    max_parameters_per_row: float | None = None,
    kinds: list[str] | None = None,
    designs: list[str] | None = None,
    peers: list[str] | None = None,
    data: list[str] | None = None,
    exposure: list[str] | None = None,
    max_share_revealed: float | None = None,
    max_runs: int | None = None,
    max_runs_in_period: int | None = None,
    period_days: float | None = None,
    max_mu: float | None = None,
    max_epsilon: float | None = None,
    ledger: str | None = None,
    ledger_start: str | None = None,
) -> dict[str, Any]:
    """[policy]; the signature is the schema of the table."""
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in locals().items()
        if value is not None
    }


def load_policy(path: Path) -> Policy:
    """Read a policy; a file that others may change, or that cannot be read, is refused."""
    try:
        resolved = path.resolve(strict=True)
        _check_writers(resolved)
        text = resolved.read_text(encoding="utf-8")
        tables: dict[str, Any] = tomllib.loads(text)
    except FileNotFoundError:
        raise PolicyError(
            f"there is no policy at '{path}'. Restore it: an agent does not start without it."
        ) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise PolicyError(f"the policy '{path}' cannot be read: {error}.") from error
    source = Source(str(path), resolved.parent, text, what="policy", raises=PolicyError)
    findings = Mistakes(source)
    for name in tables:
        if name != "policy":
            findings.add_unknown((name,), "a table of a policy", ["policy"])
    table = tables.get("policy", {})
    if not isinstance(table, dict):
        findings.add(("policy",), "is a table: write [policy].")
        table = {}
    check_call(findings, policy, table, ("policy",), what="[policy]")
    if not findings.found:
        _check_sense(findings, table)
    findings.throw()
    rules = policy(**table)
    if "ledger" in rules:
        rules["ledger"] = (resolved.parent / rules["ledger"]).resolve()
    if "data" in rules:
        rules["data"] = tuple((resolved.parent / name).resolve() for name in rules["data"])
    return Policy(path=path, **rules)


def _check_writers(file: Path) -> None:
    """Refuse a policy that others than its owner can change or replace."""
    for place in (file, file.parent):
        mode = place.stat().st_mode
        is_sticky = place is not file and mode & stat.S_ISVTX
        if mode & _WRITERS and not is_sticky:
            raise PolicyError(
                f"only its owner may change a policy, but '{place}' has mode "
                f"{stat.S_IMODE(mode):04o}. Run: chmod go-w '{place}'"
            )


def _check_sense(findings: Mistakes, table: dict[str, Any]) -> None:
    here = "policy"
    for name, value in table.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and not value > 0:
            findings.add((here, name), f"= {shown(value)} is not above 0.")
    for name in table.get("exposure", []):
        if name not in WEAKNESSES:
            findings.add_choice((here, "exposure"), name, "a weakness", WEAKNESSES)
    if ("max_runs_in_period" in table) != ("period_days" in table):
        findings.add((here,), "needs max_runs_in_period and period_days together.")
    counted = [name for name in _COUNTED if name in table]
    for name in ("ledger", "ledger_start"):
        if counted and name not in table:
            findings.add(
                (here, counted[0]),
                f"needs the key {name}: runs are counted in a ledger that no agent's file chooses. "
                "`hushgrad ledger new FILE` begins one and prints both lines.",
            )


def _is_there(path: Path) -> bool:
    """Whether there is a file or a link; a place that cannot be looked at is no empty place."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise PolicyError(
            f"whether there is a policy at '{path}' cannot be told: {error.strerror}. Let the "
            f"agent's account read it: chmod o+x '{path.parent}'; chmod o+r '{path}'"
        ) from error
    return True


def policies_of(named: Path | None) -> list[Policy]:
    """Every policy that holds on this machine, and the one that an agent's file names."""
    places = [SYSTEM] if _is_there(SYSTEM) else []
    if os.environ.get(VARIABLE):
        places.append(Path(os.environ[VARIABLE]))
    if named is not None:
        places.append(named)
    return [load_policy(place) for place in dict.fromkeys(places)]


# ---- the judgement of one run


@dataclass(frozen=True, kw_only=True)
class StageFacts:
    """The facts about one stage of a plan that a policy judges."""

    name: str
    kind: str  # of the fit, or "sum": pooled tables
    n_parameters: int  # coefficients, or numbers of tables
    n_rows: int | None
    n_events: int | None
    has_events: bool


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """The facts about a run that a policy judges; None: not known, which no rule accepts."""

    kind: str
    design: str
    n_participants: int
    n_parameters: int
    n_rows: int | None
    n_events: int | None  # of the rarer outcome
    has_events: bool  # whether the outcome is one that is counted
    fingerprints: dict[str, str]  # of all agents in the file, by name
    file: Path | None  # of the data, resolved
    accepted: tuple[str, ...]  # weaknesses
    numbers: int | None  # that the sums reveal
    mu: float | None
    stages: tuple[StageFacts, ...] = ()  # of a plan: each must keep the rules

    @property
    def share(self) -> float | None:
        """The numbers that the sums reveal, as a part of the n·d entries of this site's rows."""
        if not self.numbers or not self.n_rows:
            return None
        return self.numbers / (self.n_rows * self.n_parameters)


@dataclass(frozen=True)
class Ruling:
    """One rule of a policy on one run."""

    rule: str
    is_kept: bool
    text: str  # rule, value and limit; and the way out, if it is broken


def rulings(policy: Policy, run: RunFacts) -> Iterator[Ruling]:
    """The rules that need no ledger."""
    for part in run.stages or (run,):
        yield from _of_stage(policy, part)
    yield from _least(
        policy, "min_participants", run.n_participants, "sites that take part",
        "Have more sites in the run.",
    )  # fmt: skip
    yield from _listed("designs", run.design, policy.designs, "this run")
    if policy.peers is not None:
        yield _peers(policy.peers, run.fingerprints)
    if policy.data is not None:
        is_listed = run.file is not None and run.file in policy.data
        text = f"data lists {len(policy.data)} files, and this run reads '{run.file}'"
        yield Ruling("data", is_listed, text if is_listed else f"{text}. Use one of the list.")
    if policy.exposure is not None:
        more = sorted(set(run.accepted) - set(policy.exposure))
        text = f"exposure = {list(policy.exposure)}, and the file accepts {sorted(run.accepted)}"
        way = f". Take {', '.join(more)} out of accept_exposure in [agent]." if more else ""
        yield Ruling("exposure", not more, text + way)
    yield from at_most(
        policy, "max_share_revealed", run.share,
        "numbers that the sums reveal, of the n·d entries of this site's rows",
        "Use fewer columns, or more rows.",
    )  # fmt: skip


def _of_stage(policy: Policy, part: StageFacts | RunFacts) -> Iterator[Ruling]:
    """The rules that a run keeps, and every stage of a plan."""
    n, of = part.n_rows, f" in stage {part.name}" if isinstance(part, StageFacts) else ""
    yield from _least(policy, "min_rows", n, f"rows of this site{of}", "Use more rows.")
    if part.has_events:
        yield from _least(
            policy, "min_events", part.n_events, f"events of this site (the rarer outcome){of}",
            "Use more rows, or another outcome.",
        )  # fmt: skip
    per_row = None if not n else part.n_parameters / n
    numbers = "numbers of tables" if part.kind == TABLES else "coefficients"
    yield from at_most(
        policy, "max_parameters_per_row", per_row, f"{numbers} per row of this site{of}",
        "Use fewer columns, or more rows.",
    )  # fmt: skip
    yield from _listed("kinds", part.kind, policy.kinds, f"this run{of}")


def _listed(rule: str, value: str, allowed: tuple[str, ...] | None, whose: str) -> Iterator[Ruling]:
    if allowed is not None:
        text = f"{rule} = {list(allowed)}, and {whose} has {value!r}"
        way = "" if value in allowed else ". Use one of these."
        yield Ruling(rule, value in allowed, text + way)


def _least(policy: Policy, rule: str, value: int | None, what: str, way: str) -> Iterator[Ruling]:
    limit = getattr(policy, rule)
    if limit is None:
        return
    if value is None:
        yield Ruling(rule, False, f"{rule} = {limit}, but the number of {what} is not known.")
        return
    is_kept = value >= limit
    text = f"{rule} = {limit}, and there are {value} {what}"
    yield Ruling(rule, is_kept, text if is_kept else f"{text}. {way}")


def at_most(
    policy: Policy, rule: str, value: float | None, what: str, way: str
) -> Iterator[Ruling]:
    limit = getattr(policy, rule)
    if limit is None:
        return
    if value is None:
        yield Ruling(rule, False, f"{rule} = {limit:g}, but {what}: not known.")
        return
    is_kept = value <= limit
    text = f"{rule} = {limit:g}, and {what}: {value:.4g}"
    yield Ruling(rule, is_kept, text if is_kept else f"{text}. {way}")


def _peers(allowed: Sequence[str], found: dict[str, str]) -> Ruling:
    def bare(text: str) -> str:
        return text.replace(":", "").replace(" ", "").lower()

    known = {bare(one) for one in allowed}
    strangers = [f"{name} ({f[:19]}…)" for name, f in found.items() if bare(f) not in known]
    text = f"peers lists {len(allowed)} certificates"
    if not strangers:
        return Ruling("peers", True, f"{text}, and all {len(found)} of this run are among them")
    return Ruling(
        "peers", False, f"{text}, but not that of {', '.join(strangers)}. Compare fingerprints "
        "(hushgrad key show), and have IT add it.",
    )  # fmt: skip
