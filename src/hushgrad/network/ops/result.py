"""The result of one agent's run: its status, its exit code, its files.

`hushgrad agent` writes a result, and users read it by `read_result`. A result is two files,
NAME.json and NAME.npz; a fit has `coefficients.csv` beside them. Each file is replaced atomically,
so a reader never sees half of one. The JSON is written last: if it is there, the numbers are there.
"""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from hushgrad.errors import InputError
from hushgrad.files.atomic import replace_file
from hushgrad.files.strict_json import parse_json, plain

COEFFICIENTS = "coefficients.csv"  # beside the result of a fit
_PIECE = 4096  # numbers of θ in one piece of JSON


class Status(enum.StrEnum):
    """The way in which a run ended."""

    DONE = "done"  # the agent has done all iterations
    CONVERGED = "converged"  # all agents moved less than the tolerance
    NOT_CONVERGED = "not converged"  # the agent has done all iterations without that
    STOPPED = "stopped"  # a user ended the agent; the run can be resumed
    PEER_LOST = "peer lost"  # a neighbour stayed away; the run can be resumed
    PEER_ENDED = "peer ended"  # a neighbour says that it has ended the run for good
    REFUSED = "refused"  # going on would end at a wrong θ, or tell what must stay secret
    DIVERGED = "diverged"  # the iterates left the finite numbers
    FAILED = "failed"  # anything else


# The exit codes of `hushgrad agent`.
EXIT_CODES = {
    Status.DONE: 0,
    Status.CONVERGED: 0,
    Status.FAILED: 1,
    Status.PEER_LOST: 3,
    Status.REFUSED: 4,
    Status.DIVERGED: 5,
    Status.NOT_CONVERGED: 6,
    Status.PEER_ENDED: 7,
    Status.STOPPED: 130,
}
BAD_INPUT = 2  # a file, a key or an option is wrong, and the run did not begin


@dataclass(frozen=True, kw_only=True)
class AgentResult:
    """The result of one agent."""

    name: str
    run: str
    status: Status
    detail: str = ""  # the reason, such as the lost neighbour and the round
    theta: NDArray[np.float64]  # (d,)
    iterations: int
    rounds: int
    incarnation: int  # how often this agent was started in this run
    peers: tuple[str, ...]
    seconds: float  # of this incarnation
    stage: int = 0  # that the agent has reached, from 1 on
    stages: int = 0  # of the run; 0: it has none
    jumps: Mapping[str, int] = field(default_factory=dict[str, int])  # by peer; this incarnation
    fit: Mapping[str, Any] | None = None  # `FitResult.to_json` of a fit that has ended well

    @property
    def is_done(self) -> bool:
        return self.status in (Status.DONE, Status.CONVERGED)

    @property
    def is_resumable(self) -> bool:
        """Whether the same command can continue the run."""
        return self.status in (Status.STOPPED, Status.PEER_LOST)

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.status]

    @property
    def summary(self) -> str:
        """The status with its detail: `peer lost: bob at round 17`."""
        return f"{self.status}: {self.detail}" if self.detail else str(self.status)

    def document(self) -> dict[str, Any]:
        """The result for JSON."""
        theta = [v if math.isfinite(v) else None for v in self.theta.tolist()]
        return self.facts() | {"theta": theta}

    def facts(self) -> dict[str, Any]:
        """The result without θ, for JSON."""
        return {
            "name": self.name,
            "run": self.run,
            "status": str(self.status),
            "detail": self.detail,
            "resumable": self.is_resumable,
            "iterations": self.iterations,
            "rounds": self.rounds,
            "incarnation": self.incarnation,
            "peers": list(self.peers),
            "seconds": self.seconds,
            "stage": self.stage,
            "stages": self.stages,
            "jumps": dict(self.jumps),
            **({} if self.fit is None else {"fit": plain(self.fit)}),
        }


def result_files(path: Path) -> tuple[Path, Path]:
    """The JSON and the NPZ file of a result.

    >>> [file.name for file in result_files(Path("out/result"))]
    ['result.json', 'result.npz']
    """
    return path.with_name(f"{path.name}.json"), path.with_name(f"{path.name}.npz")


def write_result(path: Path, result: AgentResult) -> list[Path]:
    """Write the files of a result."""
    in_json, in_npz = result_files(path)
    files = [in_json, in_npz]

    def write_json(file: IO[bytes]) -> None:
        for piece in json_pieces(result):
            file.write(piece.encode())

    replace_file(in_npz, lambda file: np.savez(file, theta=result.theta))
    if result.fit is not None:
        from hushgrad.fitting.result import coefficients_csv

        table = coefficients_csv(result.fit)
        files.append(path.with_name(COEFFICIENTS))
        replace_file(files[-1], lambda file: file.write(table.encode()))
    replace_file(in_json, write_json)
    return files


def json_pieces(result: AgentResult, more: Mapping[str, Any] | None = None) -> Iterator[str]:
    """The result as one JSON document, in pieces: the text of a long θ would need much memory."""
    facts = json.dumps(result.facts() | dict(more or {}), indent=2, allow_nan=False)
    yield facts.removesuffix("\n}") + ',\n  "theta": ['
    for start in range(0, len(result.theta), _PIECE):
        numbers = result.theta[start : start + _PIECE].tolist()
        texts = [repr(v) if math.isfinite(v) else "null" for v in numbers]
        yield ("," if start else "") + "\n    " + ",\n    ".join(texts)
    yield ("\n  " if len(result.theta) else "") + "]\n}\n"


def read_result(path: Path) -> AgentResult | None:
    """The result at a path, or None if there is no result yet."""
    in_json, in_npz = result_files(path)
    try:
        document = parse_json(in_json.read_text(encoding="utf-8"))
        with in_npz.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            theta = file["theta"]
        return AgentResult(
            theta=theta,
            status=Status(document.pop("status")),
            peers=tuple(document.pop("peers")),
            **{key: value for key, value in document.items() if key not in ("theta", "resumable")},
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, LookupError, TypeError, BadZipFile, EOFError) as error:
        raise InputError(f"'{in_json}' is no result of an agent: {error}.") from error
