"""What hushgrad raises, and what it warns of.

    Exception
    └── HushgradError
        ├── InputError (also a ValueError)      a bad argument value
        │   ├── GraphError                      a graph that cannot be built
        │   ├── MixingError                     weights that break Assumption 1
        │   ├── ProblemError                    losses, data, starting points
        │   ├── StudyError                      a study file
        │   ├── AlgorithmError                  a network or parameters it cannot use
        │   ├── StepsizeError                   schedules and deviations
        │   ├── IdentityError                   keys, certificates, who is at the other end
        │   ├── ConfigError                     an agent's file
        │   └── PrivacyError                    what an adversary does not know, or cannot be judged
        ├── MissingExtra (also an ImportError)  an optional package that is not installed
        ├── DivergedError                       the iterates left the finite numbers
        └── AgentError                          a networked agent cannot go on
            ├── WireError                       bytes or messages that break the protocol
            ├── StateError                      a state directory that cannot be used
            ├── ReplayError                     a journal that does not reproduce its messages
            ├── StaleCopyError                  a state that is older than what peers hold
            ├── MaskError                       masks that do not cancel
            ├── DiameterError                   agents that would not stop together
            └── PeerLostError                   a neighbour was absent for too long

    UserWarning
    └── RiskWarning                             legal, but unlikely to be what was meant

Every message names the rule, the place, the value and the way out.
"""

from importlib import import_module
from typing import Any


class HushgradError(Exception):
    """The root of everything that hushgrad raises on purpose."""


class InputError(HushgradError, ValueError):
    """An argument has a value that breaks a rule."""


class GraphError(InputError):
    """A graph cannot be built from what was given."""


class MixingError(InputError):
    """Weights break Assumption 1, or a network does not have the kind of matrix asked for."""


class ProblemError(InputError):
    """A problem's losses, data or starting points do not fit together."""


class StudyError(InputError):
    """A study file says something that cannot be run."""


class AlgorithmError(InputError):
    """An algorithm cannot use this network, or was given bad parameters."""


class StepsizeError(InputError):
    """A schedule or a deviation of stepsizes is malformed."""


class PrivacyError(InputError):
    """An adversary was asked for what it does not know, or a run cannot be judged."""


class IdentityError(InputError):
    """Keys or certificates that cannot be used, or a peer that is not who it should be."""


class ConfigError(InputError):
    """An agent's file says something that cannot be run."""


class MissingExtra(HushgradError, ImportError):  # noqa: N818 the extra is missing, not the error
    """A package of an optional extra is needed here and is not installed."""


class DivergedError(HushgradError):
    """The iterates left the finite numbers."""


class AgentError(HushgradError):
    """A networked agent cannot go on; its state is kept."""


class WireError(AgentError):
    """What came over a link breaks a rule of the protocol."""

    def __init__(self, message: str, reason: str = "frame"):
        super().__init__(message)
        self.reason = reason  # one word or two, to count by


class StateError(AgentError):
    """A state directory is in use, belongs to another run, or cannot be written."""


class ReplayError(AgentError):
    """Rerun from its journal, a step does not give the messages that it had sent."""


class StaleCopyError(AgentError):
    """A peer holds messages of this agent that its journal does not know."""


class MaskError(AgentError):
    """Two agents' shares of a mask do not cancel."""


class DiameterError(AgentError):
    """Agents are farther apart than they were told, so that they would not stop together."""


class PeerLostError(AgentError):
    """A neighbour was absent for longer than `max_wait`."""


class RiskWarning(UserWarning):
    """What was asked for is legal, but unlikely to work as meant."""


def optional(module: str, extra: str) -> Any:
    """Import a module that belongs to an optional extra, or say how to install it.

    Returns ``Any``, not a module type: what is imported by name has no types to check.

    >>> optional("json", "sim").dumps([1])
    '[1]'
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingExtra(
            f"this needs {package}, which cannot be imported ({error}). "
            f"Install it with: pip install 'hushgrad[{extra}]'",
            name=module,
        ) from error
