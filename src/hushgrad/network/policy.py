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
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from hushgrad.errors import PolicyError
from hushgrad.network.state.ledger import LedgerFile, LedgerLine, LedgerRun, runs_of
from hushgrad.schema.builders import check_call
from hushgrad.schema.places import Mistakes, Source, shown
from hushgrad.theory.exposure import WEAKNESSES
from hushgrad.theory.gaussian_dp import epsilon
from hushgrad.theory.ledger import Ledger

SYSTEM = Path("/etc/hushgrad/policy.toml")
VARIABLE = "HUSHGRAD_POLICY"
DELTA = 1e-6  # of max_epsilon
AHEAD = timedelta(hours=1)  # a ledger's last line may be so far in the future: clocks differ
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


def policies_of(named: Path | None) -> list[Policy]:
    """Every policy that holds on this machine, and the one that an agent's file names."""
    places = [SYSTEM] if SYSTEM.exists() or SYSTEM.is_symlink() else []
    if os.environ.get(VARIABLE):
        places.append(Path(os.environ[VARIABLE]))
    if named is not None:
        places.append(named)
    return [load_policy(place) for place in dict.fromkeys(places)]


# ---- the judgement of one run


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What a policy asks about a run; None: not known, which no rule accepts."""

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


@dataclass(frozen=True)
class Ruling:
    """One rule of a policy on one run."""

    rule: str
    is_kept: bool
    text: str  # rule, value and limit; and the way out, if it is broken


def rulings(policy: Policy, run: RunFacts) -> Iterator[Ruling]:
    """The rules that need no ledger."""
    n = run.n_rows
    yield from _least(policy, "min_rows", n, "rows of this site", "Use more rows.")
    if run.has_events:
        yield from _least(
            policy, "min_events", run.n_events, "events of this site (the rarer outcome)",
            "Use more rows, or another outcome.",
        )  # fmt: skip
    yield from _least(
        policy, "min_participants", run.n_participants, "sites that take part",
        "Have more sites in the run.",
    )  # fmt: skip
    per_row = None if not n else run.n_parameters / n
    yield from _most(
        policy, "max_parameters_per_row", per_row, "coefficients per row of this site",
        "Use fewer columns, or more rows.",
    )  # fmt: skip
    for rule, value, allowed in (
        ("kinds", run.kind, policy.kinds),
        ("designs", run.design, policy.designs),
    ):
        if allowed is not None:
            text = f"{rule} = {list(allowed)}, and this run has {value!r}"
            way = "" if value in allowed else ". Use one of these."
            yield Ruling(rule, value in allowed, text + way)
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
    share = run.numbers / (n * run.n_parameters) if run.numbers and n else None
    yield from _most(
        policy, "max_share_revealed", share,
        "numbers that the sums reveal, of the n·d entries of this site's rows",
        "Use fewer columns, or more rows.",
    )  # fmt: skip


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


def _most(policy: Policy, rule: str, value: float | None, what: str, way: str) -> Iterator[Ruling]:
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


# ---- rules that look into the ledger


def check_start(policy: Policy, lines: list[LedgerLine]) -> None:
    """Refuse a ledger that is another than the policy names."""
    if policy.ledger_start not in (None, lines[0].digest):
        raise PolicyError(
            f"the policy '{policy.path}' counts in the ledger that began with "
            f"{policy.ledger_start}, but '{policy.ledger}' began with {lines[0].digest}. Restore "
            "the ledger."
        )


def counted_rulings(
    policy: Policy, run: RunFacts, lines: list[LedgerLine], same: list[LedgerRun]
) -> Iterator[Ruling]:
    """The rules that count runs; `same`: the runs of the same data."""
    now = datetime.now(UTC)
    if lines[-1].time > now + AHEAD:
        last, here = (f"{moment:%Y-%m-%d %H:%M}" for moment in (lines[-1].time, now))
        yield Ruling(
            "clock", False, f"the last line of '{policy.ledger}' is of {last} UTC, and this "
            f"machine's clock says {here}. Set the clock, and ask who had set it.",
        )  # fmt: skip
    if policy.max_runs is not None:
        yield _count("max_runs", policy.max_runs, len(same), "of these data",
                     "Ask IT for a larger number.")  # fmt: skip
    if policy.max_runs_in_period is not None and policy.period_days is not None:
        since = now - timedelta(days=policy.period_days)
        recent = [r for r in runs_of(lines) if r.begun.time > since]
        when = f"within {policy.period_days:g} days"
        way = "Wait, or ask IT."
        if recent:
            free = min(r.begun.time for r in recent) + timedelta(days=policy.period_days)
            way = f"Wait until {free:%Y-%m-%d %H:%M} UTC, or ask IT."
        yield _count("max_runs_in_period", policy.max_runs_in_period, len(recent), when, way)
    if policy.max_mu is not None or policy.max_epsilon is not None:
        yield from _budget(policy, run, same)


def _count(rule: str, limit: int, before: int, which: str, way: str) -> Ruling:
    text = f"{rule} = {limit}, and this would be run {before + 1} {which}"
    return Ruling(rule, before < limit, text if before < limit else f"{text}. {way}")


def _budget(policy: Policy, run: RunFacts, same: list[LedgerRun]) -> Iterator[Ruling]:
    """μ² of all runs of these data and of this one add up."""
    unknown = [r.begun.run for r in same if r.mu is None]
    spent = Ledger()
    for n, earlier in enumerate(same):
        spent = spent.add(f"{n}", earlier.mu or 0.0)
    total = None if run.mu is None or unknown else spent.add("this", run.mu).mu
    for rule, limit, value in (
        ("max_mu", policy.max_mu, total),
        ("max_epsilon", policy.max_epsilon, None if total is None else epsilon(DELTA, total)),
    ):
        if limit is None:
            continue
        if value is None:
            whose = f"run {unknown[0]}" if unknown else "this run"
            yield Ruling(
                rule, False, f"{rule} = {limit:g}, but μ of {whose} is not known. Declare a bound "
                "of the rows (row_norm in [run]), or ask IT.",
            )  # fmt: skip
            continue
        text = f"{rule} = {limit:g}, and with this run {value:.4g} is spent on these data"
        is_kept = value <= limit
        yield Ruling(rule, is_kept, text if is_kept else f"{text}. Use other data, or ask IT.")
