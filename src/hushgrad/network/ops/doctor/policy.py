"""The rulings of a site's policies on an agent, for the doctor and the dossier."""

from __future__ import annotations

from collections.abc import Iterator

from hushgrad.errors import HushgradError
from hushgrad.network.admission import run_facts
from hushgrad.network.budgets import counted_rulings, read_ledger
from hushgrad.network.config.model import AgentConfig
from hushgrad.network.ledgers import digest_of, governing, runs_of_data
from hushgrad.network.objective.objectives import Objective
from hushgrad.network.policy import Ruling, rulings
from hushgrad.network.state.journal import LABEL


def policy_rulings(config: AgentConfig, objective: Objective | None) -> Iterator[Ruling]:
    """Every rule of every policy; a policy that cannot be used is a broken rule itself."""
    try:
        policies = governing(config)
        if not policies:
            return
        is_quadratic = config.objective.is_quadratic
        facts = run_facts(config, objective, is_quadratic=is_quadratic)
        for policy in policies:
            yield from rulings(policy, facts)
            if policy.ledger_file is None:
                continue
            lines = read_ledger(policy)
            if (config.state / LABEL).exists():  # the run has begun, and its ledger has it
                continue
            data = digest_of(config, policy.ledger_file.secret)
            yield from counted_rulings(policy, facts, lines, runs_of_data(lines, data))
    except (HushgradError, OSError) as error:
        yield Ruling("policy", False, str(error))
