"""The agreement of an agent with its mask partners on the keys of their shares, before round 0.

The agent announces its keys of this run, waits for the announcements of its partners, keeps them in
its state directory, and tells the tokens of its shares. In a run in stages, all agents agree on the
unit of their masks, too. With `stepsize = "auto"` they announce twice (auto.py): what the stepsize
follows from, then the stepsize. A restarted agent takes the announcements from its state directory
and waits for nobody. The deployed agent (deployed.py) calls `prepare` before its run begins, and
`agree` before the first round of every start.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hushgrad.errors import MaskError, StateError, WireError
from hushgrad.files.atomic import replace_file
from hushgrad.network.admission import check_unused
from hushgrad.network.config.model import AgentConfig
from hushgrad.network.keys.masking import ShareSecrets, needs_scale, pairing_of
from hushgrad.network.keys.pairing import Pairing
from hushgrad.network.protocol import frames as wire
from hushgrad.network.protocol.announcements import (
    KEY,
    NONCE,
    OWN,
    SIGNATURE,
    Announcement,
    decode_announcements,
    encode_announcements,
)
from hushgrad.network.protocol.frames import FrameKind
from hushgrad.network.protocol.mask_tokens import encode_entries
from hushgrad.network.state.journal import StateDirectory
from hushgrad.network.transport.hub import Hub

# in the state directory: this agent's announcement, then all that it has waited for
ANNOUNCEMENTS = "announcements"


def prepare(config: AgentConfig) -> Pairing | None:
    """The keys of this agent and its partners; None if the run has no secret masks.

    Refuses a new state directory for a run whose id was used before.
    """
    pairing = pairing_of(config)
    if pairing is not None:
        check_unused(config)
    return pairing


type Choose = Callable[[Mapping[int, Announcement]], Awaitable[int]]


@dataclass(frozen=True)
class Agreement:
    """The agreement of an agent with the others."""

    shares: ShareSecrets | None = None  # with its partners; None: the run has no secret masks
    scale: float | None = None  # the unit of masks, in a run in stages
    stepsize: int = 0  # e of the stepsize 2^(−e/64), if agents agree on one
    lacks_key: bool = False  # the run has ended, and its masks cannot be computed again


async def agree(
    config: AgentConfig,
    pairing: Pairing | None,
    state: StateDirectory,
    hub: Hub,
    is_over: Callable[[], bool],
    *,
    scale: float | None = None,
    exponent: int = 0,
    stepsize: int = 0,
    links: bytes = b"",
    choose: Choose | None = None,
) -> Agreement | None:
    """The agreement of this agent; None if `is_over` becomes true before.

    scale       if it is declared, or was agreed on at an earlier start
    exponent    this agent's, for its announcement at the first start
    stepsize    what this agent tells for the stepsize, and its `links`; or, without `choose`, the
                e of the stepsize that all took at an earlier start
    choose      computes e from the announcements of all
    """
    run, is_scaled = config.run, needs_scale(config.run)
    if pairing is None and not is_scaled and not run.is_auto:
        return Agreement(scale=scale)
    mask_key = None
    if pairing is not None:
        mask_key = state.mask_key
        if mask_key is None:  # the run has ended, and no gradient is evaluated again
            return Agreement(scale=scale, stepsize=stepsize, lacks_key=True)
    file, known = state.path / ANNOUNCEMENTS, hub.announcements
    if not file.exists():
        _store(file, [_own(config, pairing, mask_key, exponent, stepsize, links)])
    kept = _recall(file, known.width)
    for announcement in kept:
        known.add(announcement, OWN)
    asks_all = choose is not None or (is_scaled and scale is None)
    wanted = set(range(run.n_agents)) if asks_all else set[int]()
    wanted |= set() if pairing is None else pairing.partners.keys()
    # announcements may have come while this agent met its neighbours: they count as new, too
    is_new = not wanted <= {announcement.number for announcement in kept}
    if is_new:
        hub.start()
    # neighbours that this agent met before it read its file know nothing of the file yet
    hub.broadcast(wire.encode(FrameKind.ANNOUNCE, encode_announcements(known.entries())))
    if not await _heard(hub, wanted, is_over):
        return None
    shares = None
    if pairing is not None and mask_key is not None:
        shares = _share(pairing, mask_key, hub, is_new=is_new)
    if is_new:
        _keep(file, hub, wanted | {config.number, *(one.number for one in kept)})
    if choose is not None:
        stepsize = await choose({number: _first(hub, number)[0] for number in range(run.n_agents)})
        if run.tells_links:
            second = run.n_agents + config.number
            if known.of(second) is None:
                nothing = bytes(NONCE), bytes(KEY), bytes(SIGNATURE)
                own = Announcement(second, 0, *nothing, stepsize, bytes(known.width))
                known.add(own, OWN)
                _keep(file, hub, wanted | {second})
                hub.start()
                hub.broadcast(wire.encode(FrameKind.ANNOUNCE, encode_announcements([own])))
            every = set(range(run.n_agents, 2 * run.n_agents))
            if not await _heard(hub, every, is_over):
                return None
            _keep(file, hub, wanted | every)
            stepsize = max(_first(hub, number)[0].stepsize for number in every)
    if is_scaled and scale is None:
        scale = 2.0 ** max(_first(hub, number)[0].exponent for number in range(run.n_agents))
    return Agreement(shares, scale, stepsize)


async def _heard(hub: Hub, wanted: set[int], is_over: Callable[[], bool]) -> bool:
    """Wait for the announcements of these numbers; False if `is_over` becomes true before."""
    known, n_agents = hub.announcements.known, hub.announcements.n_agents

    def unheard() -> list[str]:
        return [
            f"the announcement of agent {n}"
            if n < n_agents
            else f"the stepsize of agent {n - n_agents}"
            for n in sorted(wanted - known.keys())
        ]

    with hub.watching.awaiting(unheard):
        while not wanted <= known.keys():
            if is_over():
                return False
            await hub.change()
    hub.check()
    return True


def _own(
    config: AgentConfig,
    pairing: Pairing | None,
    mask_key: bytes | None,
    exponent: int,
    stepsize: int,
    links: bytes,
) -> Announcement:
    if pairing is None or mask_key is None:  # a run with a seed has no secrets
        empty = bytes(NONCE), bytes(KEY), bytes(SIGNATURE)
        return Announcement(config.number, exponent, *empty, stepsize, links)
    return pairing.announcement(mask_key, exponent, stepsize, links)


def _share(pairing: Pairing, mask_key: bytes, hub: Hub, *, is_new: bool) -> ShareSecrets:
    """The secrets of this agent's shares; tells their tokens."""
    theirs = {number: _first(hub, number) for number in pairing.partners}
    try:
        if is_new:
            _check_signatures(pairing, theirs)
        secrets = {n: pairing.secret(mask_key, told) for n, (told, _) in theirs.items()}
        shares = ShareSecrets(pairing.run.id, pairing.number, secrets)
        news = hub.mask_tokens.add(shares.tokens())
        hub.broadcast(wire.encode(FrameKind.GOSSIP, encode_entries(news)))
        hub.mask_tokens.check()
    except MaskError as error:
        hub.fail(error)
        raise
    return shares


def _recall(file: Path, width: int) -> list[Announcement]:
    """The announcements of the state directory."""
    try:
        return decode_announcements(file.read_bytes(), width)
    except (OSError, WireError) as error:
        raise StateError(f"'{file}' cannot be read: {error}. Restore it.") from error


def _keep(file: Path, hub: Hub, numbers: set[int]) -> None:
    """Keep the announcements of these numbers in the state directory."""
    _store(file, [_first(hub, number)[0] for number in sorted(numbers)])


def _store(file: Path, announcements: list[Announcement]) -> None:
    content = encode_announcements(announcements)
    try:
        replace_file(file, lambda part: part.write(content))
    except OSError as error:
        raise StateError(f"'{file}' cannot be written: {error.strerror}.") from error


def _first(hub: Hub, number: int) -> tuple[Announcement, str]:
    found = hub.announcements.of(number)
    assert found is not None
    return found


def _check_signatures(pairing: Pairing, theirs: dict[int, tuple[Announcement, str]]) -> None:
    for number, (announcement, source) in theirs.items():
        if not pairing.is_signed(announcement):
            raise MaskError(
                f"the announcement of agent {number}, told by {source}, is not signed by the key "
                f"of {pairing.partners[number].name}'s certificate in this agent's file. Either "
                "the certificate is an old one: compare fingerprints (hushgrad key show), exchange "
                "certificates again, and start a new run. Or an agent has told a false "
                "announcement: ask from whom it came, agent by agent."
            )
