"""The errors that hushgrad raises and the warning that it gives; every module uses them.

    Exception
    └── HushgradError
        ├── InputError (also a ValueError)      a bad argument value
        │   ├── GraphError                      a graph that cannot be built
        │   ├── MixingError                     weights that break Assumption 1
        │   ├── ProblemError                    losses, data or starting points that do not fit
        │   ├── ModelError                      a model that cannot be fitted, or two that differ
        │   ├── StudyError                      a study file that cannot be run
        │   ├── AlgorithmError                  a network or parameters that it cannot use
        │   ├── StepsizeError                   a malformed schedule or deviation
        │   ├── IdentityError                   keys, certificates, or a peer with a wrong name
        │   ├── ConfigError                     an agent's file that cannot be run
        │   ├── PolicyError                     a run that the site's policy forbids
        │   ├── LedgerError                     a ledger that was changed, or has lost a part
        │   └── PrivacyError                    a question that an audit cannot answer
        ├── MissingExtra (also an ImportError)  an optional package that is not installed
        ├── DivergedError                       the iterates left the finite numbers
        ├── FitError                            pooled rows that have no fit, or sums that disagree
        └── AgentError                          a networked agent cannot go on
            ├── WireError                       bytes or messages that break the protocol
            ├── StateError                      a state directory that cannot be used
            ├── ReplayError                     a journal that does not reproduce its messages
            ├── StaleCopyError                  a state that is older than the peers' messages
            ├── MaskError                       masks that do not cancel
            ├── DiameterError                   agents that would not stop together
            ├── StageError                      agents that would begin a stage at two points
            ├── JumpError                       a neighbour whose messages jump too often
            ├── ExposureError                   a stage whose sums would tell single rows
            ├── PeerLostError                   a neighbour was absent for too long
            └── PeerEndedError                  a neighbour says that the run is over

    UserWarning
    └── RiskWarning                             settings that are legal, but unlikely to work

Every message names the rule, the place, the value and the way out.
"""

from importlib import import_module
from typing import Any


class HushgradError(Exception):
    """The base class of every error that hushgrad raises on purpose."""


class InputError(HushgradError, ValueError):
    """An argument has a value that breaks a rule."""


class GraphError(InputError):
    """The arguments describe no valid graph."""


class MixingError(InputError):
    """Weights break Assumption 1, or a network has no matrix of the requested kind."""


class ProblemError(InputError):
    """A problem's losses, data or starting points do not fit together."""


class ModelError(InputError):
    """A declared model cannot be fitted, or the models of two sites differ."""


class StudyError(InputError):
    """A study file describes a study that cannot be run."""


class AlgorithmError(InputError):
    """An algorithm cannot use this network, or was given bad parameters."""


class StepsizeError(InputError):
    """A schedule or a deviation of stepsizes is malformed."""


class PrivacyError(InputError):
    """A caller asked for a value that the adversary does not know, or a run cannot be judged."""


class IdentityError(InputError):
    """A key or certificate cannot be used, or a peer is not the agent that was expected."""


class ConfigError(InputError):
    """An agent's file describes an agent that cannot be run."""


class PolicyError(InputError):
    """The policy of this site forbids a run, or the policy itself cannot be used."""


class LedgerError(InputError):
    """A ledger was changed by another program, or has lost a part."""


class MissingExtra(HushgradError, ImportError):  # noqa: N818  # the extra is missing, not the error
    """A call needs a package of an optional extra, and the package is not installed."""


class DivergedError(HushgradError):
    """The iterates left the finite numbers."""


class FitError(HushgradError):
    """The pooled rows have no finite fit, or the sites' sums do not belong together."""


class AgentError(HushgradError):
    """A networked agent cannot go on. Its state directory keeps its state."""


class WireError(AgentError):
    """Bytes or messages from a link break a rule of the protocol."""

    def __init__(self, message: str, reason: str = "frame"):
        super().__init__(message)
        self.reason = reason  # one word or two: the metrics count errors by reason


class StateError(AgentError):
    """A state directory is in use, belongs to another run, or cannot be written."""


class ReplayError(AgentError):
    """A step, rerun from the journal, gives other messages than the agent had sent."""


class StaleCopyError(AgentError):
    """A peer holds messages of this agent that its journal does not know."""


class MaskError(AgentError):
    """Two agents' shares of a mask do not cancel."""


class DiameterError(AgentError):
    """Two agents are farther apart than the given diameter, so they would not stop together."""


class StageError(AgentError):
    """Two different vectors claim to be the start of one stage."""


class JumpError(AgentError):
    """A neighbour's messages jumped more often than `max_jumps` allows."""


class ExposureError(AgentError):
    """At the start of a stage few rows dominate the sums, which would tell them."""


class PeerLostError(AgentError):
    """A neighbour was absent or silent for longer than `max_wait`, or failed."""


class PeerEndedError(AgentError):
    """A neighbour says that it has ended the run for good."""


class RiskWarning(UserWarning):
    """The settings are legal, but unlikely to work as the user means them."""


def optional(module: str, extra: str) -> Any:
    """Import a module that belongs to an optional extra, or say how to install it.

    The return type is ``Any``: a checker knows no types of a module that is imported by name.

    >>> optional("json", "sim").dumps([1])
    '[1]'
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingExtra(
            f"hushgrad needs {package} here, but cannot import it ({error}). "
            f"Install it with: pip install 'hushgrad[{extra}]'",
            name=module,
        ) from error
