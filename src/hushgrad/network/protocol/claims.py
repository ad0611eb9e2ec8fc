"""Claims: the links and rounds in a neighbour's HELLO, as far as they can be true.

A neighbour may lie, or be broken. The session (session.py) asks here before it believes a HELLO.
"""

from __future__ import annotations

from collections.abc import Mapping

from hushgrad.errors import StaleCopyError, WireError
from hushgrad.network.protocol.hello import Hello

OLD_COPY = (
    "This state directory is an old copy, or another agent uses this agent's key. Restore the "
    "newest state, or start a new run."
)


class Claims:
    """The statements of one agent's neighbours about rounds, in the life of this process."""

    def __init__(self, names: Mapping[int, str], n_agents: int, most_rounds: int):
        """`names` of the neighbours by number; no run of this configuration has `most_rounds`."""
        self._names, self._n_agents, self._most_rounds = names, n_agents, most_rounds
        # the last round of this agent that each neighbour held: when it first met this process, or
        # in a claim that is not believed yet
        self._believed: dict[int, int] = {}
        self._claimed: dict[int, int] = {}

    def believe(self, j: int, held: int) -> None:
        """Note a HELLO that was found good."""
        self._believed.setdefault(j, held)

    def check_degrees(self, j: int, hello: Hello, direction: str, *, two_hop: bool) -> None:
        """Refuse a neighbour with more links than there are agents, or without the link at hand.

        `direction` of the link as this agent sees it.
        """
        into = 0 if two_hop or direction == "in" else 1  # a neighbour that hears this agent
        out = 0 if two_hop or direction == "out" else 1
        for degree, least, word in ((hello.degree_in, into, "in"), (hello.degree_out, out, "out")):
            if not least <= degree < self._n_agents:
                raise WireError(
                    f"{self._names[j]} claims {degree} links {word}, but in a run of "
                    f"{self._n_agents} agents it has {least} to {self._n_agents - 1}",
                    "claim",
                )

    def check_rounds(self, j: int, hello: Hello) -> None:
        """Refuse a neighbour whose rounds contradict each other, or the length of the run.

        Who has committed round n has consumed round n − 1, and may hold round n + 1 already.
        """
        n, held, needs = hello.round, hello.held, hello.needs
        is_consistent = n - 1 <= held <= n + 1 and n <= needs <= held + 1
        if n >= self._most_rounds or not is_consistent:
            raise WireError(
                f"{self._names[j]} claims to be at round {n}, to hold round {held} and to need "
                f"round {needs}, which no agent of this run can",
                "claim",
            )

    def judge(self, j: int, held: int, round_: int) -> None:
        """Neighbour j says that it holds a later round of this agent than `round_`, its last.

        An agent sends round n only when all neighbours hold its round n − 2. So all neighbours of
        an old copy tell the same, up to two rounds, and no neighbour is believed against another.
        Until all have spoken the agent refuses the neighbour, and makes no new message without it.

        The word of an only neighbour cannot be checked: frames carry no signature that it could
        show. It ends the run, as its silence would, and the message calls it its word.
        """
        name = self._names[j]
        text = f"{name} holds round {held} of this agent, whose journal ends at round {round_}"
        if j in self._believed:
            raise WireError(
                f"{text}; but {name} and this process have met before, and no other process has "
                "sent messages of this agent since",
                "claim",
            )
        self._claimed[j] = held
        words = self._claimed | self._believed
        for other, name in self._names.items():
            if words.get(other, held) < held - 2:
                raise WireError(
                    f"{text}; but {name} holds round {words[other]} only, and neighbours of one "
                    "agent are two rounds apart at most: one of them is wrong",
                    "claim",
                )
        unheard = [name for other, name in self._names.items() if other not in words]
        if unheard:
            raise WireError(f"{text}; this agent waits for the word of {unheard[0]}", "claim")
        if len(self._names) == 1:
            raise StaleCopyError(
                f"{text}, as {name} says. It is the only neighbour, so nobody can confirm or deny "
                f"it, and this agent makes no new message. Ask the site of {name} before anything "
                f"is restored. {OLD_COPY}"
            )
        raise StaleCopyError(f"{text}. {OLD_COPY}")
