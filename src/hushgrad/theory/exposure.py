"""The judgement of exposure: do the settings of a run hide what its masks promise to hide?

`judge` takes the public facts of a run and one agent's own numbers. It answers for every name of
`WEAKNESSES` whether the condition holds, in a sentence with the rule, the value and the way out.
A deployed agent judges itself before its first message, and refuses to start with a weakness that
its file does not accept by name. `hushgrad doctor` prints the whole judgement. The simulator judges
a run with masks in the same words: it refuses `sums` and warns of the others.

The own numbers never leave the agent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from hushgrad.algorithms.base import Algorithm, Masked, Private
from hushgrad.errors import PrivacyError
from hushgrad.masks import MOST_QUADRATIC, Sizes, ZeroSum
from hushgrad.theory.pooled import Pooled
from hushgrad.theory.revealed import Revealed

# the names by which a weakness is accepted, in the order of the judgement
WEAKNESSES = {
    "design": "messages tell more than a masked statistic",
    "seed": "draws and masks come from a seed, so nothing is secret",
    "eta": "quadratic masks have no size, because η is missing",
    "dimension": "the dimension is too large for quadratic masks",
    "curvature": "the agent's curvature exceeds its quadratic mask",
    "gradient": "the agent's gradient exceeds its linear mask",
    "partners": "too few mask partners, or none but neighbours",
    "degree": "one neighbour hears everything that the agent sends",
    "sums": "the sums over honest agents tell too much about their rows",
    "changes": "few rows have changed since an earlier run on the same data",
    "cells": "a cell of a pooled table has few rows of this agent",
}

_ROUNDING = 1 + 1e-9  # a stepsize that meets a condition exactly stays within it
_FEWEST_PARTNERS = 2


@dataclass(frozen=True)
class Weakness:
    """A condition that does not hold."""

    name: str  # one of WEAKNESSES
    text: str  # the rule, the value and the way out


@dataclass(frozen=True)
class Held:
    """A condition that holds, or that these settings do not need."""

    name: str  # one of WEAKNESSES
    text: str  # why


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The public facts of a run."""

    algorithm: Algorithm
    n_agents: int
    dim: int
    is_quadratic: bool  # every f_i is
    stages: int  # that really run; 0: the agents compute with f_i itself
    sizes: Sizes | None  # of the masks in the units of θ; None: the algorithm takes no masks
    is_seeded: bool = False  # secrets come from a seed; a simulation has none to keep
    coefficients: int = 0  # of a fit, whose stages are averages; 0: there is no fit
    averages: int = 0  # that the fit is expected to need
    numbers: int = 0  # and the numbers that they pool

    @property
    def masks(self) -> ZeroSum | None:
        """The masks that the agents use; None: no masks, or masks of the size 0."""
        masks = self.algorithm.masking if isinstance(self.algorithm, Masked) else None
        is_used = self.sizes is not None and (self.sizes.linear > 0 or self.sizes.quadratic > 0)
        return masks if is_used else None

    @property
    def is_masked_statistic(self) -> bool:
        """Whether messages depend on the data through a masked statistic only."""
        return self.masks is not None and (self.stages > 0 or self.is_quadratic)

    @property
    def has_curvature(self) -> bool:
        """Whether the statistic has a curvature H_i for masks to hide."""
        return not isinstance(self.algorithm, Masked) or self.algorithm.masks_curvature

    @property
    def needs_gradient(self) -> bool:
        """Whether a gradient can exceed its mask: the unit of stages covers every gradient."""
        return self.masks is not None and not (self.stages and self.masks.linear >= 1)

    @property
    def lam(self) -> float:
        """λ of the first step; 0 for a method without private steps."""
        algorithm = self.algorithm
        return float(algorithm.schedule.base(1.0)) if isinstance(algorithm, Private) else 0.0

    @property
    def quadratic(self) -> float:
        """The size of λQ."""
        return 0.0 if self.sizes is None else self.sizes.curvature * self.lam


@dataclass(frozen=True, kw_only=True)
class OwnNumbers:
    """The numbers of one agent."""

    number: int
    neighbours: Collection[int]  # their numbers
    curvature: float | None = None  # a bound of ‖H_i‖; None: not known
    gradient: float | None = None  # the largest entry of g_i(x⁰) and q_i; None: not known
    rows: float | None = None  # effective ones of the smallest honest component; None: not known
    determined: float | None = None  # of a row, by the sums of a fit of these rows; None: unknown
    told: int = 0  # numbers that the sums of other runs told about the same rows
    is_judged: bool = True  # every stage is judged row by row, or need not be
    changed: float | None = None  # rows that another run on the same data had not; None: no such
    small_cell: str | None = None  # a cell with too few rows of this agent; None: there is none


def weaknesses(setting: Setting, own: OwnNumbers) -> tuple[Weakness, ...]:
    """The conditions that do not hold."""
    return tuple(found for found in judge(setting, own) if isinstance(found, Weakness))


def judge(setting: Setting, own: OwnNumbers) -> tuple[Weakness | Held, ...]:
    """The answer to every name of WEAKNESSES, in their order."""
    answers = ((name, *_CONDITIONS[name](setting, own)) for name in WEAKNESSES)
    return tuple((Held if holds else Weakness)(name, text) for name, holds, text in answers)


def check_accepted(names: object) -> frozenset[str]:
    """The names of weaknesses that are accepted; PrivacyError lists the names that there are."""
    given = None if isinstance(names, str) or not isinstance(names, Iterable) else set(names)
    unknown = {names} if given is None else given - WEAKNESSES.keys()
    if unknown:
        raise PrivacyError(
            f"accept_exposure is a list of names out of {', '.join(WEAKNESSES)}, but got "
            f"{sorted(map(repr, unknown))[0]}."
        )
    return frozenset(str(name) for name in given or ())


def count_revealed(setting: Setting, rows: float | None, before: int = 0) -> Revealed | None:
    """The count of what stages reveal about the effective honest rows; None without stages.

    before    numbers that other runs have revealed about the same rows
    """
    if setting.coefficients:
        return Pooled(
            dim=setting.coefficients,
            stages=setting.averages,
            rows=rows,
            is_quadratic=setting.is_quadratic,
            told=setting.numbers,
        )
    if not setting.stages or not setting.has_curvature:
        return None
    return Revealed(
        dim=setting.dim,
        stages=setting.stages,
        rows=rows,
        curvature=getattr(setting.algorithm, "curvature", "newton"),
        is_quadratic=setting.is_quadratic,
        before=before,
    )


# ---- the conditions: whether each holds, and why

type Answer = tuple[bool, str]

_UNMASKED: Answer = (True, "there are no masks to judge")
_NO_CURVATURE: Answer = (True, "messages tell a vector, and no H_i")


def _design(setting: Setting, own: OwnNumbers) -> Answer:
    del own
    name = type(setting.algorithm).__name__
    if setting.masks is None:
        return False, (
            f"messages must depend on the data through masked numbers only, but {name} has no "
            f"masks here, and its messages tell {_told(setting)}."
        )
    if not setting.is_masked_statistic:
        return False, (
            "masks hide the part of a gradient that is affine in θ, but the f_i are not quadratic "
            "and the run has no stages. A row attack on the rest recovers the rows of an agent "
            '(logistic regression: exactly). Use design = "recommended", or stages = 8.'
        )
    return True, "messages depend on the data through a masked statistic only"


def _told(setting: Setting) -> str:
    """The numbers that messages tell without masks, and the way out."""
    if setting.has_curvature:
        return 'gradients. Use PDGNDS with design = "recommended"'
    return "the vector itself. Use masks, as Consensus does if you leave them out"


def _seed(setting: Setting, own: OwnNumbers) -> Answer:
    del own
    if setting.is_seeded:
        return False, (
            "draws and masks must be secret, but they come from the seed in [run]: whoever has the "
            "file computes them all. Leave seed out; it is for tests."
        )
    return True, "draws and masks come from secrets"


def _eta(setting: Setting, own: OwnNumbers) -> Answer:
    del own
    if setting.masks is None:
        return _UNMASKED
    if not setting.has_curvature:
        return _NO_CURVATURE
    if setting.masks.quadratic is None and not setting.quadratic and not _is_large(setting):
        return False, (
            "the size of quadratic masks follows from η of the network, but eta is missing in "
            "[run]: masks are linear only, and messages tell H_i. Write eta, the same in every "
            "file: hg.Network(graph).eta computes it."
        )
    return True, f"quadratic masks have the size {setting.quadratic:.3g}, as λQ"


def _is_large(setting: Setting) -> bool:
    return setting.dim > MOST_QUADRATIC


def _dimension(setting: Setting, own: OwnNumbers) -> Answer:
    del own
    if not setting.has_curvature:
        return _NO_CURVATURE
    if setting.masks is not None and _is_large(setting):
        return False, (
            f"quadratic masks are for d ≤ {MOST_QUADRATIC}, but d = {setting.dim}: masks are "
            "linear only, and messages tell H_i. Use fewer parameters."
        )
    return True, f"d = {setting.dim} of at most {MOST_QUADRATIC}"


def _curvature(setting: Setting, own: OwnNumbers) -> Answer:
    masks, size, lam = setting.masks, setting.quadratic, setting.lam
    if masks is None:
        return _UNMASKED
    if not setting.has_curvature:
        return _NO_CURVATURE
    if not size and masks.quadratic is None:
        return True, "there are no quadratic masks to judge"  # eta or dimension says so
    rule = "quadratic masks must be as large as the curvature, λ‖H_i‖ ≤ the size of λQ"
    if not size:
        return False, (
            f"{rule}, but their size is 0, and messages tell H_i. Leave quadratic out: the size "
            "follows from η."
        )
    if own.curvature is None:
        return False, f"{rule}, but H_i is not known. Give the Hessian of f_i."
    own_size = lam * own.curvature
    values = f"λ‖H_i‖ = {own_size:.3g}, and λQ has the size {size:.3g}"
    if own_size > size * _ROUNDING:
        return False, (
            f"{rule}, but {values}. Use a stepsize of {_below(size / own.curvature)} or less, or a "
            "network with more links."
        )
    return True, values


def _gradient(setting: Setting, own: OwnNumbers) -> Answer:
    """An entry of c has at least the size linear/λ; stages have a unit that covers all entries."""
    masks, lam = setting.masks, setting.lam
    if masks is None:
        return _UNMASKED
    rule = "linear masks must be as large as the gradient, λ|g_i| ≤ the size of λc"
    if not setting.needs_gradient:
        return True, "the agents agree on a unit of linear masks that covers g_i(x⁰) and q_i"
    if not setting.has_curvature:
        return False, (
            "linear masks must be as large as the unit that covers all vectors, but their size is "
            f"{masks.linear:g} units. Use masks with linear = 1e4."
        )
    if own.gradient is None:
        return False, f"{rule}, but g_i is not known. Give the gradient of f_i."
    largest = lam * own.gradient
    values = (
        f"the largest entry of λ g_i(x⁰) and λ q_i is {largest:.3g}, and λc has {masks.linear:.3g}"
    )
    if largest > masks.linear * _ROUNDING:
        wanted = 1.0 if setting.stages else math.ceil(largest)
        return False, (
            f"{rule}, but {values}. Use masks with linear = {wanted:g}, a smaller stepsize, or "
            "smaller units."
        )
    return True, values


def _partners(setting: Setting, own: OwnNumbers) -> Answer:
    if setting.masks is None:
        return _UNMASKED
    partners = setting.masks.partners(own.number, setting.n_agents)
    if len(partners) < _FEWEST_PARTNERS:
        return False, (
            f"a mask needs at least {_FEWEST_PARTNERS} partners, but agent {own.number} has "
            f"{len(partners)}: the partner alone takes the mask off. Have three agents or more."
        )
    near, others = set(own.neighbours), setting.n_agents - 1
    if set(partners) <= near and len(near) < others:
        return False, (
            "an agent needs a mask partner that is no neighbour, but all "
            f"{len(partners)} partners of agent {own.number} are neighbours, who take its mask off "
            f"together. Use masks with n_partners = {_even(len(near) + 1)}."
        )
    beyond = len(set(partners) - near)
    return True, f"agent {own.number} has {len(partners)} mask partners, {beyond} beyond its links"


def _degree(setting: Setting, own: OwnNumbers) -> Answer:
    count = len(set(own.neighbours))
    if count > 1:
        return True, f"agent {own.number} has {count} neighbours"
    if setting.is_masked_statistic:
        return True, (
            f"agent {own.number} has one neighbour, who learns nothing beyond the masked statistic"
        )
    return False, (
        "without a masked statistic an agent needs at least two neighbours, but agent "
        f"{own.number} has one, who hears everything that it sends. Use "
        'design = "recommended", or add a link.'
    )


def _sums(setting: Setting, own: OwnNumbers) -> Answer:
    told = count_revealed(setting, own.rows, own.told)
    if told is None:
        if not setting.has_curvature:
            return True, f"the sum of the honest agents' vectors has {setting.dim} numbers"
        return True, "the run has no stages whose sums could be counted"
    if not own.is_judged:
        return False, (
            "every stage is judged row by row, because a participant can steer its start to a θ at "
            "which single rows have weight, but the objective does not know its rows. Give rows in "
            "[objective], a function of the form of hushgrad.problems.rows."
        )
    objection = told.objection()
    if objection is None and isinstance(told, Pooled):
        objection = told.average_objection(own.determined, "in a fit like one of these rows alone")
    return objection is None, objection or told.summary


def _changes(setting: Setting, own: OwnNumbers) -> Answer:
    told = count_revealed(setting, own.changed)
    if own.changed is None or told is None:
        return True, "no other run is known that had nearly the same rows"
    objection = told.change_objection(own.changed)
    return objection is None, objection or f"{own.changed:.0f} rows have changed since another run"


def _cells(setting: Setting, own: OwnNumbers) -> Answer:
    del setting
    if own.small_cell is None:
        return True, "no cell of a pooled table has few rows of this agent"
    return False, (
        "an agent adds no row to a cell of a pooled table, or at least min_cell rows, so that no "
        f"sum over some agents shows a few rows; but {own.small_cell}. Join levels, widen edges, "
        "or leave the table out."
    )


def _below(value: float) -> str:
    """The value, rounded down to two digits.

    >>> _below(0.0019999), _below(0.25)
    ('0.0019', '0.25')
    """
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return f"{math.floor(value / unit * _ROUNDING) * unit:.2g}"


def _even(number: int) -> int:
    return number + number % 2


_CONDITIONS: dict[str, Callable[[Setting, OwnNumbers], Answer]] = {
    "design": _design,
    "seed": _seed,
    "eta": _eta,
    "dimension": _dimension,
    "curvature": _curvature,
    "gradient": _gradient,
    "partners": _partners,
    "degree": _degree,
    "sums": _sums,
    "changes": _changes,
    "cells": _cells,
}
