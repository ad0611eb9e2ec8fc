"""The mask of one agent's objective, from secrets that the agent shares with its partners.

Every pair of partners has a secret of this run (pairing.py), which gives the key of their share in
every stage. The deployed agent (deployed.py) masks its objective here, and the agreement of the
partners (agreement.py) makes the mask tokens here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hushgrad.agent.stages import Statistic
from hushgrad.agent.vectors import Vector
from hushgrad.algorithms.base import Masked
from hushgrad.draws import Stream, pair_keys, pair_words, trial_keys
from hushgrad.errors import MaskError, StateError
from hushgrad.files.atomic import replace_file
from hushgrad.files.digest import commitment
from hushgrad.files.strict_json import parse_json
from hushgrad.masks import Mask, PairWords, Sizes, ZeroSum
from hushgrad.network.config.model import AgentConfig, RunConfig
from hushgrad.network.keys.pairing import Pairing
from hushgrad.network.keys.secret import WORDS, derive, keystream
from hushgrad.network.protocol.announcements import Announcements
from hushgrad.network.protocol.confirmations import Confirmations, Way
from hushgrad.network.protocol.mask_tokens import OWN, TOKEN, MaskTokens, Pair
from hushgrad.problems.rows import Grids

MASKS = "masks.json"  # in the state directory: the agent's own mask tokens at its first start


@dataclass(frozen=True)
class ShareSecrets:
    """The secrets from which an agent and its partners make their shares in one run."""

    run: str
    number: int
    secrets: Mapping[int, bytes]  # by partner

    def words(self, purpose: str) -> Callable[[int], PairWords]:
        """Partner → the words of their share for one purpose."""

        def of(number: int) -> PairWords:
            key = derive(self.secrets[number], purpose=purpose, run=self.run)
            return lambda n: _first(n, key)

        return of

    def tokens(self) -> dict[Pair, bytes]:
        """This agent's mask tokens, one for each partner."""
        return {
            (min(self.number, j), max(self.number, j)): derive(
                secret, purpose="token", run=self.run, length=TOKEN
            )
            for j, secret in self.secrets.items()
        }


def confirmation_tokens(
    config: AgentConfig, shares: ShareSecrets | None, seen: str
) -> tuple[dict[Way, bytes], dict[Way, bytes]]:
    """The tokens that this agent sends to its partners, and those that it must get from them.

    seen    a digest of everything on which two partners must agree

    A token depends on its direction: a relay that sends an agent its own token back proves nothing.
    The tokens of a run with a seed are as little secret as its masks.
    """
    me, run = config.number, config.run
    if shares is None:
        masks = _masks(run)
        numbers = () if masks is None else masks[0].partners(me, run.n_agents)
        secrets = {j: f"hushgrad seed {run.seed}".encode() for j in numbers}
    else:
        secrets = shares.secrets

    def token(j: int, way: Way) -> bytes:
        purpose = f"confirmation from {way[0]} to {way[1]} of {seen}"
        return derive(secrets[j], purpose=purpose, run=run.id, length=TOKEN)

    own = {(me, j): token(j, (me, j)) for j in secrets}
    return own, {(j, me): token(j, (j, me)) for j in secrets}


def pairing_of(config: AgentConfig) -> Pairing | None:
    """The keys of this agent and its partners; None if the run has no secret masks.

    The masks of a run with a seed are not secret: the HELLOs of all agents compare their seeds.
    """
    run, masks = config.run, _masks(config.run)
    if masks is None or run.seed is not None:
        return None
    return Pairing(config, masks[0].partners(config.number, run.n_agents))


def mask_of(
    config: AgentConfig,
    shares: ShareSecrets | None,
    stage: int = 0,
    scale: float | None = None,
    starts: Sequence[Vector] = (),
) -> Mask | None:
    """This agent's part of the zero-sum mask of a stage; None if the run has no masks.

    starts    the points on which the statistic of the stage depends, apart from x⁰

    Partners whose starts differ have different shares. So an agent that tells two agents different
    starts learns no sum of their statistics: the masks do not cancel, and the run is spoilt.

    With a fixed curvature H_i is the same in all stages, and so is its mask.
    """
    run, masks = config.run, _masks(config.run, scale)
    if masks is None:
        return None
    masking, sizes = masks

    def of(stage: int, purpose: str) -> Mask:
        if run.seed is not None:
            words = _seeded(run.seed, config.number, stage)
        else:
            assert shares is not None
            words = shares.words(purpose)
        return masking.mask(config.number, sizes, n_agents=run.n_agents, pair_words=words)

    mask = of(stage, f"mask of stage {stage}, {_commitment(starts)}")
    is_fixed = getattr(run.algorithm, "curvature", "newton") == "fixed"
    return replace(mask, Q=of(0, "mask of the fixed curvature").Q) if is_fixed else mask


def _commitment(starts: Sequence[Vector]) -> str:
    return commitment(b"".join([np.asarray(start, "<f8").tobytes() for start in starts]))


def masked_statistic(
    config: AgentConfig,
    shares: ShareSecrets | None,
    own: Statistic,
    stage: int,
    scale: float | None,
    starts: Sequence[Vector],
) -> Statistic:
    """The statistic with which this agent computes in a stage; `starts` as in `mask_of`."""
    mask, masks = mask_of(config, shares, stage, scale, starts), _masks(config.run, scale)
    if mask is None or masks is None:
        return own
    return Statistic(*mask.statistic(own.H, own.q, masks[1]))


def mask_grids(run: RunConfig, scale: float | None) -> Grids | None:
    """The grids of the masks of a run; None if the run has no masks."""
    masks = _masks(run, scale)
    return None if masks is None else Grids(masks[1].linear_grid, masks[1].quadratic_grid)


def needs_scale(run: RunConfig) -> bool:
    """Whether the masks of a run have a unit on which the agents must agree."""
    masks = _masks(run)
    return bool(run.lengths) and run.scale is None and masks is not None and masks[1].linear > 0


def _masks(run: RunConfig, scale: float | None = None) -> tuple[ZeroSum, Sizes] | None:
    """The masks of a run and their sizes; None if the run has no masks."""
    algorithm = run.algorithm
    if not isinstance(algorithm, Masked) or algorithm.masking is None:
        return None
    sizes = algorithm.mask_sizes(run.dim, run.eta, scale)
    return (algorithm.masking, sizes) if sizes.linear or sizes.quadratic else None


def mask_tokens_of(config: AgentConfig) -> MaskTokens:
    """The mask tokens that this agent may hear of; none in a run without secret masks."""
    run, masks = config.run, _masks(config.run)
    if masks is None or run.seed is not None:
        return MaskTokens(run.n_agents, lambda _: ())
    return MaskTokens(run.n_agents, lambda number: masks[0].partners(number, run.n_agents))


def confirmations_of(config: AgentConfig) -> Confirmations:
    """The confirmations that this agent may hear of; none unless the run is a fit."""
    run, masks = config.run, _masks(config.run)
    if masks is None or run.model is None:
        return Confirmations(run.n_agents, lambda _: ())
    return Confirmations(run.n_agents, lambda number: masks[0].partners(number, run.n_agents))


def announcements_of(config: AgentConfig) -> Announcements:
    """The announcements that this agent may hear of; none if the agents need not agree."""
    run = config.run
    is_secret = _masks(run) is not None and run.seed is None
    is_told = is_secret or needs_scale(run) or run.is_auto
    return Announcements(run.n_agents if is_told else 0, has_links=run.tells_links)


def begun_with(file: Path, mask_tokens: MaskTokens) -> dict[str, str]:
    """The agent's own mask tokens at its first start; writes the file if it does not exist."""
    own = _own(mask_tokens)
    if not file.exists():
        if not own:
            return own
        try:
            replace_file(file, lambda part: part.write(json.dumps(own).encode()))
        except OSError as error:
            raise StateError(f"'{file}' cannot be written: {error.strerror}.") from error
    try:
        return parse_json(file.read_text())
    except (OSError, ValueError) as error:
        raise StateError(f"'{file}' cannot be read: {error}. Restore it.") from error


def _own(mask_tokens: MaskTokens) -> dict[str, str]:
    return {
        f"agents {low} and {high}": token.hex()
        for (low, high), held in mask_tokens.known.items()
        for token, source in held.items()
        if source == OWN
    }


def check_begun(began: Mapping[str, str], mask_tokens: MaskTokens) -> None:
    """Refuse to continue a run with other masks: the masks of its first rounds would remain."""
    own = _own(mask_tokens)
    if began and not own:
        raise MaskError(
            "the agent cannot make the masks with which the run began: mask-key is missing in its "
            "state directory. Restore it, or start a new run with a new id and directory."
        )
    others = [pair for pair in {**began, **own} if began.get(pair) != own.get(pair)]
    if others:
        raise MaskError(
            f"the run began with other masks of {', '.join(others)}: a key, a certificate or the "
            "configuration of the run was exchanged since. Put back the old one, or start a new "
            "run."
        )


def _first(n: int, key: bytes) -> NDArray[np.uint64]:
    """The first n words of a pair."""
    blocks = -(-n // WORDS)
    return keystream(key, (Stream.MASK, 0, 0), 0, blocks).ravel()[:n]


def _seeded(seed: int, me: int, stage: int) -> Callable[[int], PairWords]:
    """Partner → the simulator's words, which anyone with the seed can compute."""

    def of(number: int) -> PairWords:
        low, high = np.array([min(me, number)]), np.array([max(me, number)])
        key = pair_keys(trial_keys(seed, [0], stage), low, high)

        return lambda n: pair_words(key, n)[:, 0, 0]

    return of
