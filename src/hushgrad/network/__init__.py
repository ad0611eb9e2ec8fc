"""The deployed agent: its configuration, its keys, its run, and the files that a run leaves.

Programs that run or set up agents import from here. Names are loaded when first used: an agent's
process imports no JAX, and a script that makes keys imports no agent.
"""

from typing import TYPE_CHECKING

from hushgrad.exports import lazy_exports

if TYPE_CHECKING:
    from hushgrad.network.config.file import load_config, parse_config, write_config
    from hushgrad.network.config.model import (
        AgentConfig,
        LogConfig,
        Neighbour,
        Partner,
        RunConfig,
    )
    from hushgrad.network.deployed import Agent
    from hushgrad.network.keys.identity import (
        Certificate,
        Identity,
        load_certificate,
        load_identity,
        mint,
    )
    from hushgrad.network.local.processes import Processes
    from hushgrad.network.objective.fit_rows import FitSpec
    from hushgrad.network.objective.objectives import ObjectiveSpec
    from hushgrad.network.objective.units import Standardise
    from hushgrad.network.ops.result import AgentResult, Status, read_result
    from hushgrad.network.state.samples import read_samples

__all__ = [
    "Agent",
    "AgentConfig",
    "AgentResult",
    "Certificate",
    "FitSpec",
    "Identity",
    "LogConfig",
    "Neighbour",
    "ObjectiveSpec",
    "Partner",
    "Processes",
    "RunConfig",
    "Standardise",
    "Status",
    "load_certificate",
    "load_config",
    "load_identity",
    "mint",
    "parse_config",
    "read_result",
    "read_samples",
    "write_config",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "config.file": "load_config parse_config write_config",
        "config.model": "AgentConfig LogConfig Neighbour Partner RunConfig",
        "deployed": "Agent",
        "keys.identity": "Certificate Identity load_certificate load_identity mint",
        "local.processes": "Processes",
        "objective.fit_rows": "FitSpec",
        "objective.objectives": "ObjectiveSpec",
        "objective.units": "Standardise",
        "ops.result": "AgentResult Status read_result",
        "state.samples": "read_samples",
    },
)
