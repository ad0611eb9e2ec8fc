"""The language of a communication round: matrices, terms, Push and Pull.

Algorithms write their equations in this language. A step builds *terms*: ``W @ x`` computes
nothing, but pairs weights with a vector. Terms add, subtract and scale by plain numbers. In a
``Push`` the sender weighs the vector; in a ``Pull`` the receiver does. Drivers answer a round with
the sums that the receivers form. The drivers are the simulator, its recorder, one agent in a
network, and one process of several machines.

This module imports no numpy and no jax, and does no I/O. Each driver brings its own arrays, of
shape (agents here, d, trials).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

type Array = Any  # float64, (agents here, d, trials): numpy in an agent, jax in the simulator
type Round = Push | Pull | tuple[Push | Pull, ...]
type Step[S] = Generator[Round, Any, S]


class Links(enum.StrEnum):
    """The links that a matrix uses, besides every agent's link to itself."""

    NONE = "none"
    GRAPH = "graph"
    TWO_HOP = "two-hop"


class Matrix:
    """Weights on links. ``A @ u`` gives terms; only a driver computes their sums."""

    links: Links = Links.GRAPH
    sender_knows: bool = True  # the sender can weigh, so a Push may use this matrix
    receiver_knows: bool = False  # the receiver can weigh, so a Pull may use this matrix

    def __matmul__(self, vector: Array) -> Terms:
        return Terms(((self, vector),))


@dataclass(frozen=True)
class IdentityMatrix(Matrix):
    """I: every agent keeps its own vector, and the wire carries nothing."""

    links = Links.NONE


@dataclass(frozen=True)
class Public(Matrix):
    """The network's W (doubly stochastic), R (row) or C (column).

    Both ends of a link know w_ij. The receiver chooses r_ij, the sender chooses c_ij.
    """

    name: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "sender_knows", self.name != "R")
        object.__setattr__(self, "receiver_knows", self.name != "C")


@dataclass(frozen=True)
class Lazy(Matrix):
    """(I + A) / 2."""

    of: Public

    def __post_init__(self) -> None:
        object.__setattr__(self, "sender_knows", self.of.sender_knows)
        object.__setattr__(self, "receiver_knows", self.of.receiver_knows)


@dataclass(frozen=True)
class Square(Matrix):
    """A², which reaches agents two hops away.

    The simulator computes A (A u). One agent of a network sends with its column of A².
    """

    of: Public
    links = Links.TWO_HOP


@dataclass(frozen=True, eq=False)
class Columns(Matrix):
    """Weights that only the sender knows.

    The weights are raw draws, and `scale` normalises the vector instead; or the weights of a column
    add up to one already, and `scale` is None.
    """

    own: Array  # (agents, 1, trials) weight of the link to oneself
    out: Array  # (out-slots, 1, trials)
    scale: Array | None  # (agents, 1, trials) one over the sum of the agent's weights, or None
    links: Links = Links.GRAPH

    def __matmul__(self, vector: Array) -> Terms:
        return Terms(((self, vector if self.scale is None else self.scale * vector),))


@dataclass(frozen=True, eq=False)
class Shares(Matrix):
    """Shares that are vectors: the sender divides its vector into one share for every link and one
    for itself.
    """

    links: Links = Links.GRAPH

    def of(self, own: Array, out: Array) -> Terms:
        """Terms of the shares own (agents, d, trials) and out (out-slots, d, trials)."""
        return Terms(((self, Parcel((own, out))),))

    def __matmul__(self, vector: Array) -> NoReturn:
        raise TypeError("Shares hold vectors already: write Shares(links).of(own, out)")


class Parcel(tuple[Array, Array]):
    """The own and the outgoing array of Shares, which change sign and scale together."""

    __slots__ = ()

    def __neg__(self) -> Parcel:
        return Parcel(-part for part in self)

    def __rmul__(self, number: object) -> Parcel:
        return Parcel(number * part for part in self)


class Terms:
    """A sum of products (matrix, vector), not yet computed."""

    __slots__ = ("parts",)
    __array_ufunc__ = None  # numpy then leaves `array * terms` to `__rmul__`, which refuses

    def __init__(self, parts: Iterable[tuple[Matrix, Array]]):
        self.parts = tuple(parts)

    def __add__(self, other: Terms) -> Terms:
        return Terms(self.parts + _terms(other).parts)

    def __sub__(self, other: Terms) -> Terms:
        return Terms(self.parts + tuple([(A, -u) for A, u in _terms(other).parts]))

    def __neg__(self) -> Terms:
        return Terms((A, -u) for A, u in self.parts)

    def __rmul__(self, number: float) -> Terms:
        if not isinstance(number, (int, float)):
            raise TypeError(
                f"terms scale by plain numbers, not by {type(number).__name__}: lam * (W @ x) "
                "would silently be WΛx. Put the factor into the vector, W @ (lam * x), or apply "
                "it to the sum that the round gives back."
            )
        return Terms((A, number * u) for A, u in self.parts)

    __mul__ = __rmul__

    def __iter__(self) -> Iterator[tuple[Matrix, Array]]:
        """The products, with every (I + A)/2 taken apart exactly, into A/2 and I/2."""
        for A, u in self.parts:
            if isinstance(A, Lazy):
                half = 0.5 * u
                yield A.of, half
                yield IDENTITY, half
            else:
                yield A, u

    @property
    def links(self) -> Links:
        """The widest set of links that any part uses."""
        widest = Links.NONE
        for A, _ in self.parts:
            if A.links is not Links.NONE and widest is not Links.TWO_HOP:
                widest = A.links
        return widest


def _terms(value: object) -> Terms:
    if isinstance(value, Terms):
        return value
    raise TypeError(
        f"terms add to terms, not to {type(value).__name__}. Write `agent.I @ vector` for a vector "
        "that the agent keeps, or add the vector to the sum that the round gives back."
    )


IDENTITY = IdentityMatrix()


class Push:
    """The sender weighs: j → i carries Σ_terms a_ij u_j.

    `over` marks the links that are awake in this round (out-slots, 1, trials); None wakes all.
    `scalar` says that the terms hold one number per agent. Where d = 1, the shape alone could not
    tell such a number from a vector like x.
    """

    __slots__ = ("over", "scalar", "terms")

    def __init__(self, terms: Terms, over: Array | None = None, scalar: bool = False):
        for A, _ in terms.parts:
            if not A.sender_knows:
                raise TypeError("only the receiver knows the weights of R: Pull(R @ u), not Push")
        self.terms, self.over, self.scalar = terms, over, scalar


class Pull:
    """The receiver weighs: j → i carries u_j itself, and i forms Σ_j a_ij u_j.

    A Pull takes one product with a public matrix. `vector` goes on the wire.
    """

    __slots__ = ("matrix", "terms", "vector")

    def __init__(self, product: Terms):
        if len(product.parts) != 1:
            raise TypeError(
                f"Pull takes one product R @ u, but got {len(product.parts)}: the wire carries u"
            )
        self.terms = product
        self.matrix, self.vector = product.parts[0]
        if not self.matrix.receiver_knows:
            raise TypeError("only the sender knows these weights: Push(C @ u), not Pull")


def exchanges(asked: Round) -> tuple[Push | Pull, ...]:
    """The exchanges of one round as a tuple, also where the step yielded a single exchange."""
    return asked if isinstance(asked, tuple) else (asked,)


def reply(asked: Round, sums: tuple[Array, ...]) -> Any:
    """The answer to a step: one sum for one exchange, a tuple of sums for a tuple."""
    return sums if isinstance(asked, tuple) else sums[0]


def drive[S](step: Step[S], answer: Callable[[tuple[Push | Pull, ...]], tuple[Array, ...]]) -> S:
    """Run one step to its end; `answer` turns the exchanges of a round into their sums."""
    try:
        asked = next(step)
        while True:
            asked = step.send(reply(asked, answer(exchanges(asked))))
    except StopIteration as end:
        return end.value
