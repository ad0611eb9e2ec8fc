"""The mask of one agent's objective, from secrets that the agent shares with its partners.

Two partners hold each other's certificates, and so share a secret that nobody else can compute
(X25519). The secret and the id of the run give the key of their share, so every run has new shares.
The deployed agent (deployed.py) masks its objective here, and makes its mask tokens here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from hushgrad.algorithms.base import Private
from hushgrad.draws import ONCE, Stream, pair_keys, trial_keys, uniforms
from hushgrad.errors import ConfigError, MaskError, StateError
from hushgrad.files.atomic import replace_file
from hushgrad.masks import Floats, Mask, Sizes, Uniforms, ZeroSum
from hushgrad.network.config.model import AgentConfig, RunConfig
from hushgrad.network.keys.identity import load_certificate, load_identity, shared_secret
from hushgrad.network.keys.secret import WORDS, as_uniforms, derive, keystream
from hushgrad.network.objective.objectives import Objective
from hushgrad.network.protocol.mask_tokens import OWN, TOKEN, MaskTokens

MASKS = "masks.json"  # in the state directory: the agent's own mask tokens at its first start


def masked(config: AgentConfig, objective: Objective) -> Objective:
    """The objective with its mask; the objective itself if the run has no masks."""
    mask = mask_of(config)
    if mask is None:
        return objective
    return replace(objective, gradient=mask.over(objective.gradient))


def mask_of(config: AgentConfig) -> Mask | None:
    """This agent's part of the zero-sum mask; None if the run has no masks."""
    run, masks = config.run, _masks(config.run)
    if masks is None:
        return None
    masking, sizes = masks
    pair = _agreed(config) if run.seed is None else _seeded(run.seed, config.number)
    return masking.mask(config.number, sizes, n_agents=run.n_agents, pair_uniforms=pair)


def _masks(run: RunConfig) -> tuple[ZeroSum, Sizes] | None:
    """The masks of a run and their sizes; None if the run has no masks."""
    algorithm = run.algorithm
    if not isinstance(algorithm, Private) or algorithm.masking is None:
        return None
    sizes = algorithm.mask_sizes(run.dim, run.eta)
    return (algorithm.masking, sizes) if sizes.linear or sizes.quadratic else None


def mask_tokens_of(config: AgentConfig) -> MaskTokens:
    """This agent's mask tokens, one for each partner.

    A run without masks has no tokens. Neither has a run with a seed, because the HELLOs of all
    agents compare their seeds.
    """
    run, masks = config.run, _masks(config.run)
    if masks is None or run.seed is not None:
        return MaskTokens({}, run.n_agents, lambda _: ())
    secret_with = _secrets(config)

    def partners(number: int) -> tuple[int, ...]:
        return masks[0].partners(number, run.n_agents)

    own = {
        (min(config.number, j), max(config.number, j)): derive(
            secret_with(j), purpose="pledge", run=run.id, length=TOKEN
        )
        for j in partners(config.number)
    }
    return MaskTokens(own, run.n_agents, partners)


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
        return json.loads(file.read_text())
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
    others = [pair for pair in {**began, **own} if began.get(pair) != own.get(pair)]
    if others:
        raise MaskError(
            f"the run began with other masks of {', '.join(others)}: a key or a certificate was "
            "exchanged since. Put back the old one, or start a new run."
        )


def _agreed(config: AgentConfig) -> Callable[[int], Uniforms]:
    """Partner → the uniforms of their share, from the secret of the two certificates."""
    secret_with = _secrets(config)

    def of(number: int) -> Uniforms:
        key = derive(secret_with(number), purpose="mask", run=config.run.id)
        return lambda n: _first(n, key)

    return of


def _secrets(config: AgentConfig) -> Callable[[int], bytes]:
    """Partner → the secret that only this agent and the partner can compute."""
    identity = load_identity(config.key, config.certificate, name=config.name)
    partners = {partner.number: partner for partner in config.partners}

    def secret_with(number: int) -> bytes:
        if number not in partners:
            raise ConfigError(
                f"agent {config.number} shares a mask with agent {number}, but there is no "
                "[[partner]] of that number. Add the partner, with its certificate."
            )
        partner = partners[number]
        certificate = load_certificate(partner.certificate, name=partner.name)
        return shared_secret(identity, certificate)

    return secret_with


def _first(n: int, key: bytes) -> Floats:
    """The first n uniforms of a pair."""
    blocks = -(-n // WORDS)
    return as_uniforms(keystream(key, (Stream.MASK, 0, 0), 0, blocks).ravel()[:n])


def _seeded(seed: int, me: int) -> Callable[[int], Uniforms]:
    """Partner → the simulator's uniforms, which anyone with the seed can compute."""

    def of(number: int) -> Uniforms:
        low, high = np.array([min(me, number)]), np.array([max(me, number)])
        key = pair_keys(trial_keys(seed, [0]), low, high)

        def first(n: int) -> Floats:
            slots = np.arange(n, dtype=np.uint32)[:, None, None]
            return uniforms(key, (np.full_like(slots, ONCE), slots))[:, 0, 0]

        return first

    return of
