"""An attack is a function of a view and a target; this module says what it takes and gives back.

Every attack of this package derives from `Attack`; attacks of users do too.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from hushgrad.privacy.knowledge import Knowledge

type Quantity = Literal[
    "gradient",  # g_i^k, (len(k), d)
    "gradient at optimum",  # g_i(θ*), (d,)
    "gradient at optimum up to sign",  # ±g_i(θ*), (d,)
    "scaled gradient",  # λ_i^k g_i^k, (len(k), d)
    "direction",  # of g_i^k, unit vectors (len(k), d), or (d,) of g_i(θ*)
    "position",  # x_i^k, (len(k), d)
    "tracker",  # y_i^k, (len(k), d)
    "objective",  # [H_i | q_i] of g_i(θ) = H_i θ + q_i, (d, d + 1)
    "rows",  # the rows of i's data, each up to its sign, (rows, d): y_r x_r of a logistic f_i
    "curvature",  # H_i, (d, d); of an f_i that is not quadratic at θ*
    "count",  # n_i, the number of i's rows, (1,)
    "membership",  # (2,) log-likelihood ratio of a candidate row, and its separation μ
    "data",  # what the problem calls its data, e.g. the position p_i of a rendezvous, (d,)
]


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The value that an attack gives for one quantity of its target."""

    attack: str
    target: int
    quantity: Quantity
    k: NDArray[np.int64] | None = None  # the iterations it is about; None: of the whole run
    value: NDArray[np.float64]  # shape by quantity


class Attack(abc.ABC):
    """A frozen dataclass of the attack's parameters, called with a view and a target.

    Attacks compute with NumPy on what the view gives, nothing else.
    """

    name: ClassVar[str]  # as the command line writes it
    title: ClassVar[str]  # as a report prints it

    @abc.abstractmethod
    def applies(self, view: Knowledge, target: int) -> str | None:
        """None if the attack can be tried, else why not, in plain words."""

    @abc.abstractmethod
    def __call__(self, view: Knowledge, target: int) -> tuple[Estimate, ...]:
        """The estimates about `target`; call it only if `applies` gives None."""


class StagesAttack(Attack):
    """An attack on all stages of a run together, called with the views of its stages."""

    @abc.abstractmethod
    def refusal(self, views: Sequence[Knowledge], target: int) -> str | None:
        """None if the attack can be tried, else why not, in plain words."""

    @abc.abstractmethod
    def over(self, views: Sequence[Knowledge], target: int) -> tuple[Estimate, ...]:
        """The estimates about `target`; call it only if `refusal` gives None."""

    def applies(self, view: Knowledge, target: int) -> str | None:
        return self.refusal([view], target)

    def __call__(self, view: Knowledge, target: int) -> tuple[Estimate, ...]:
        return self.over([view], target)
