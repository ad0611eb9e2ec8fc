"""The answer of a deployed agent to a neighbour whose messages jump.

It logs one line for each burst of jumps, counts every jump and, past the bound of its file, ends
the run by name. The rule that finds jumps is in protocol/jumps.py. The rounds (rounds.py) ask
before they use the messages of a round, so an agent that ends has not used the last jump.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from hushgrad.agent.rounds import Payload
from hushgrad.errors import JumpError
from hushgrad.files.atomic import replace_file
from hushgrad.network.ops.counters import Stats
from hushgrad.network.protocol.jumps import Jump, JumpWatch

log = logging.getLogger("hushgrad.agent")

# A file in the state directory: the reason for which the run ended. A new agent would know nothing
# of the messages before, and would take the jump.
JUMPED = "jumped"
BURST = 100  # rounds: a jump that follows another by fewer rounds is not logged


class JumpPolicy:
    """The watch of one agent over its neighbours; a restarted agent begins with a new one."""

    def __init__(
        self, names: Mapping[int, str], stats: Stats, *, state: Path, max_jumps: int | None
    ):
        """`names` of the neighbours, by number; `state`: the state directory."""
        self._names, self._stats, self._state, self._most = names, stats, state, max_jumps
        self._watch = JumpWatch()
        self._last: dict[int, int] = {}  # the round of the last jump, by sender

    def look(self, came: Mapping[int, Payload], *, stage: int, k: int, round_: int) -> None:
        """Judge the messages of a round; JumpError if a neighbour has jumped too often."""
        for jump in self._watch.look(came, stage=stage, k=k):
            self._note(jump, round_)

    def _note(self, jump: Jump, round_: int) -> None:
        sender, name = jump.sender, self._names[jump.sender]
        self._stats.jumps[name] += 1
        most = f"but the messages before explain {jump.expected:.1e} at most"
        text = f"{name} sent a message in round {round_} that moved by {jump.size:.1e}, {most}"
        if sender not in self._last or round_ - self._last[sender] >= BURST:
            log.warning("jump: %s", text, extra={"event": "jump", "peer": name})
        self._last[sender] = round_
        if self._most is not None and self._stats.jumps[name] > self._most:
            text = f"{text}; max_jumps = {self._most} allows no more"
            replace_file(self._state / JUMPED, lambda file: file.write(text.encode()))
            raise JumpError(_with_way_out(text, self._state))


def check_jumped(state: Path) -> None:
    """Refuse to go on with a run that ended because of a jump."""
    try:
        text = (state / JUMPED).read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    raise JumpError(_with_way_out(text, state))


def _with_way_out(text: str, state: Path) -> str:
    return (
        f"{text}. That neighbour, or an agent behind it, computes wrongly or probes. To use the "
        f"message all the same, delete '{state / JUMPED}' and start the agent again."
    )
