"""The bodies of HELLO and ROW frames, and the public configuration that a HELLO compares.

Two agents say HELLO to each other before anything else. The session (session.py) judges a HELLO.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from hashlib import sha256
from typing import Any

import numpy as np

from hushgrad.agent.weights import Ends, Row
from hushgrad.algorithms.base import Algorithm, Stepping
from hushgrad.draws import SeededDraws, Stream, trial_keys
from hushgrad.errors import WireError
from hushgrad.files.strict_json import parse_json
from hushgrad.network.config.model import RunConfig
from hushgrad.network.keys.identity import is_name
from hushgrad.network.protocol.codes import RUN_DIGEST
from hushgrad.stepsizes import Schedule, constant

type Json = Any

# a value, and the name of an entry, that need no quotation marks: no sentence looks like them
_PLAIN = re.compile(r"[\w.+:-]{1,64}|'[^'\s]{0,64}'|[(\[][\d., -]{0,64}[)\]]")
_ENTRY = re.compile(r"[\w.\[\]]{1,64}")
MIRROR = {"both": "both", "in": "out", "out": "in"}  # the direction of a link, as the peer sees it


@dataclass(frozen=True, kw_only=True)
class Hello:
    """The HELLO of one agent, the speaker, to one peer."""

    public: Mapping[str, str]  # the run, as `public_parts` writes it
    number: int
    incarnation: int  # how often the speaker's state directory was opened
    life: str  # drawn by the speaker's process: two HELLOs with the same life come from one process
    round: int  # the last round that the speaker has committed, −1 before the first
    needs: int  # the first round of the peer that the speaker lacks
    held: int  # the last round of the peer that the speaker holds, −1 for none
    held_digest: str  # of the peer's message in that round, in hex
    degree_in: int
    degree_out: int
    direction: str  # of this link, as the speaker sees it: "both", "in" or "out"
    two_hop: bool
    clock: int = 0  # the speaker's unix time; `hushgrad doctor` compares clocks
    heartbeat: int = 0  # milliseconds between two signs of life of the speaker

    @property
    def heard(self) -> int:
        """The last round of the peer that the speaker has received."""
        return max(self.held, self.needs - 1)

    @property
    def ends(self) -> Ends:
        return Ends(self.degree_in, self.degree_out)

    def encode(self) -> bytes:
        return json.dumps(asdict(self), separators=(",", ":")).encode()


def decode_hello(body: bytes | memoryview) -> Hello:
    """A HELLO from a peer; WireError if an entry has the wrong type."""
    said = _object(body, "HELLO")
    kinds = {int: lambda v: type(v) is int and -1 <= v < 2**63, str: lambda v: type(v) is str}
    rules = {
        field.name: {"int": kinds[int], "str": kinds[str], "bool": lambda v: type(v) is bool}.get(
            str(field.type), _is_text_table
        )
        for field in fields(Hello)
    }
    if set(said) != set(rules):
        raise WireError(f"a HELLO has the entries {sorted(rules)}, not {sorted(said)[:20]}")
    for name, holds in rules.items():
        if not holds(said[name]) or (said[name] == -1 and name not in ("round", "held")):
            raise WireError(f"the entry '{name}' of a HELLO cannot be {said[name]!r:.60}")
    return Hello(**said)


def _is_text_table(value: Json) -> bool:
    return type(value) is dict and all(type(text) is str for text in value.values())


def row_document(row: Row) -> dict[str, Json]:
    """A row of weights as a JSON document."""
    links = [[i, weight, row.names[i]] for i, weight in row.links.items()]
    return {"own": row.own, "links": links}


def read_row(document: Mapping[str, Json]) -> Row:
    """The row of weights in a document that `row_document` wrote."""
    links: list[tuple[int, float, str]] = document["links"]
    weights = {i: weight for i, weight, _ in links}
    return Row(document["own"], weights, {i: name for i, _, name in links})


def encode_row(row: Row) -> bytes:
    return json.dumps(row_document(row)).encode()


def decode_row(body: bytes | memoryview, n_agents: int) -> Row:
    """A ROW from a peer; WireError if an entry has the wrong type."""
    said = _object(body, "ROW")
    links: Json = said.get("links")
    holds = (
        set(said) == {"own", "links"}
        and _is_weight(said["own"])
        and type(links) is list
        and all(_is_link(link, n_agents) for link in links)
    )
    if not holds:
        raise WireError("a ROW holds the own weight and [number, weight, name] of every link")
    return read_row(said)


def _is_link(value: Json, n_agents: int) -> bool:
    return (
        type(value) is list
        and len(value) == 3
        and type(value[0]) is int
        and 0 <= value[0] < n_agents
        and _is_weight(value[1])
        and type(value[2]) is str
        and is_name(value[2])
    )


def _is_weight(value: Json) -> bool:
    return type(value) is float and 0.0 < value < 1.0


def _object(body: bytes | memoryview, what: str) -> dict[str, Json]:
    try:
        said = parse_json(bytes(body))
    except (ValueError, RecursionError) as error:
        raise WireError(
            f"a {what} is JSON, but its parser raised {type(error).__name__}"
        ) from error
    if type(said) is not dict:
        raise WireError(f"a {what} is a table, not a {type(said).__name__}")
    return said


# ---- the public configuration, on which all agents of a run must agree


def public_parts(run: RunConfig) -> dict[str, str]:
    """The run's public configuration, entry by entry.

    The seed is not public. The start is public in a run of several stages, since all agents make
    their models at one point. Of a fit, every value that the sites declare is an entry.
    """
    lengths = run.lengths
    names = [
        "dim", "n_agents", "iterations", "tolerance", "diameter", "mixing", "max_degree",
        "eta", "n_links", "honest_rows", "largest",
    ]  # fmt: skip
    declared, staged = dict[str, str](), dict[str, str]()
    if run.model is not None:
        from hushgrad.fitting.contracts import contract, contract_digest

        document = contract(run.model)
        names.remove("dim")  # it follows from the model
        declared = _contract_parts(document)
        staged = {"contract": contract_digest(document)}
    elif lengths:
        staged = {"stages": repr(lengths), "scale": repr(run.scale)}
        if len(lengths) > 1:
            start = np.zeros(run.dim) if run.x0 is None else np.array(run.x0, np.float64)
            staged["start"] = sha256((start + 0.0).tobytes()).hexdigest()[:16]
    return {
        **declared,
        "run": run.id,
        "algorithm": describe(_as_declared(run)),
        "draws": _draws(run),
        **{name: repr(getattr(run, name)) for name in names},
        **staged,
        **({"stepsize": "auto", "smoothness": repr(run.smoothness)} if run.is_auto else {}),
    }


def _as_declared(run: RunConfig) -> Algorithm:
    """The algorithm before the agents agree on a stepsize."""
    algorithm = run.algorithm
    if not run.is_auto or not isinstance(algorithm, Stepping):
        return algorithm
    assert isinstance(algorithm.stepsize, Schedule)  # config/file.py took "auto" away
    return replace(algorithm, stepsize=constant(1.0, algorithm.stepsize.deviation))


def _contract_parts(document: Any, name: str = "model") -> dict[str, str]:
    """Every value of a contract by its place, such as `model.columns[1]`."""
    if isinstance(document, Mapping):
        inside = [(f"{name}.{key}", value) for key, value in document.items()]
    elif isinstance(document, list):
        inside = [(f"{name}[{n}]", value) for n, value in enumerate(document)]
    else:
        return {name: repr(document)}
    return {
        key: text for part, value in inside for key, text in _contract_parts(value, part).items()
    }


def _draws(run: RunConfig) -> str:
    """Whether the agents draw from a secret or from a seed.

    All agents need the same seed, because masks and coins come from it. Coins are public, so they
    tell seeds apart.
    """
    if run.seed is None:
        return "secret"
    at = np.arange(4, dtype=np.uint32)
    coins = SeededDraws(trial_keys(run.seed, [0]), 0).uniforms(Stream.COIN, at, at)
    return f"seeded, with coins {sha256(coins.tobytes()).hexdigest()[:8]}"


def describe(value: Any) -> str:
    """Public parameters as text that is the same at every agent: `PDGDS(split=FreshSplit(), …)`."""
    if is_dataclass(value) and not isinstance(value, type):
        inside = (f"{f.name}={describe(getattr(value, f.name))}" for f in fields(value))
        return f"{type(value).__name__}({', '.join(inside)})"
    if callable(value):
        return getattr(value, "__qualname__", type(value).__name__)
    return repr(value)


def config_digest(run: RunConfig) -> str:
    """A digest of the public configuration: equal if and only if two agents mean the same run."""
    return run_digest(public_parts(run)).hex()


def run_digest(public: Mapping[str, str]) -> bytes:
    """The digest of a public configuration, RUN_DIGEST bytes."""
    return sha256(json.dumps(public, sort_keys=True).encode()).digest()[:RUN_DIGEST]


def differences(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """The differences of two configurations: `iterations: 500 here, 600 there; …`, or nothing.

    >>> differences({"run": "a"}, {"run": "b there. error: forged"})
    'run: a here, “b there. error: forged” there'
    """
    names = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
    return "; ".join(
        f"{name if name in ours or _ENTRY.fullmatch(name) else 'an entry'}: "
        f"{ours.get(name, 'nothing')} here, {_quoted(theirs.get(name, 'nothing'))} there"
        for name in names[:20]
    )


def _quoted(text: str) -> str:
    """The words of a peer, so that nobody takes them for this agent's; a plain value as it is."""
    if _PLAIN.fullmatch(text):
        return text
    shown = "".join(c for c in text[:300] if c.isprintable() and c not in "“”")
    return f"“{shown}”"
