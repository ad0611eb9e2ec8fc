"""What an algorithm may ask of a communication round.

A step writes its equation with *terms*: ``W @ x`` computes nothing, it says which weights go with
which vector. Terms add, subtract and scale by plain numbers. ``Push`` and ``Pull`` say who weighs
them. Drivers (stacked, recording, one agent alone, a block per rank) answer a round with the sums
the receivers form.

No numpy, no jax, no I/O: arrays are whatever the driver uses, of shape (agents here, d, trials).
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
    """Weights on links. ``A @ u`` gives terms; only a driver computes with them."""

    links: Links = Links.GRAPH
    sender_knows: bool = True  # so that it can weigh: a Push may carry it
    receiver_knows: bool = False  # the same, and a Pull

    def __matmul__(self, vector: Array) -> Terms:
        return Terms(((self, vector),))


@dataclass(frozen=True)
class IdentityMatrix(Matrix):
    """Every agent to itself: nothing on the wire."""

    links = Links.NONE


@dataclass(frozen=True)
class Public(Matrix):
    """The network's W (doubly stochastic), R (row) or C (column).

    Both ends of a link know w_ij; r_ij is the receiver's choice, c_ij the sender's.
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
    """A², over links to agents two hops away: computed as A (A u) in bulk, sent as its column by
    one agent.
    """

    of: Public
    links = Links.TWO_HOP


@dataclass(frozen=True, eq=False)
class Columns(Matrix):
    """Weights that only the sender knows: raw draws, which `scale` normalises through the vector,
    or a column that adds up to one already.
    """

    own: Array  # (agents, 1, trials) weight of the link to oneself
    out: Array  # (out-slots, 1, trials)
    scale: Array | None  # (agents, 1, trials) one over the sum of the agent's weights, or None
    links: Links = Links.GRAPH

    def __matmul__(self, vector: Array) -> Terms:
        return Terms(((self, vector if self.scale is None else self.scale * vector),))


@dataclass(frozen=True, eq=False)
class Shares(Matrix):
    """Shares that are vectors: link by link what the sender made of its vector, own share
    included.
    """

    links: Links = Links.GRAPH

    def of(self, own: Array, out: Array) -> Terms:
        """Terms of the shares own (agents, d, trials) and out (out-slots, d, trials)."""
        return Terms(((self, Parcel((own, out))),))

    def __matmul__(self, vector: Array) -> NoReturn:
        raise TypeError("Shares hold vectors already: write Shares(links).of(own, out)")


class Parcel(tuple[Array, Array]):
    """The two arrays of Shares, scaled together."""

    __slots__ = ()

    def __neg__(self) -> Parcel:
        return Parcel(-part for part in self)

    def __rmul__(self, number: object) -> Parcel:
        return Parcel(number * part for part in self)


class Terms:
    """A sum of products (matrix, vector), not yet computed."""

    __slots__ = ("parts",)
    __array_ufunc__ = None  # so that numpy hands `array * terms` to us, who refuse it

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
        """Products with simple matrices: (I + A)/2 falls into A/2 and I/2, exactly."""
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
        f"terms add to terms, not to {type(value).__name__}: a vector of the agent's own is "
        "`agent.I @ vector`, or is added to the sum that the round gives back"
    )


IDENTITY = IdentityMatrix()


class Push:
    """The sender weighs: j → i carries Σ_terms a_ij u_j.

    `over` says which links are awake in this round (out-slots, 1, trials), None for all; `scalar`
    that the terms are one number per agent, not a vector like x, which matters where d = 1.
    """

    __slots__ = ("over", "scalar", "terms")

    def __init__(self, terms: Terms, over: Array | None = None, scalar: bool = False):
        for A, _ in terms.parts:
            if not A.sender_knows:
                raise TypeError("only the receiver knows the weights of R: Pull(R @ u), not Push")
        self.terms, self.over, self.scalar = terms, over, scalar


class Pull:
    """The receiver weighs: j → i carries u_j itself, i forms Σ_j a_ij u_j. One public product.

    `vector` is what goes on the wire.
    """

    __slots__ = ("matrix", "terms", "vector")

    def __init__(self, product: Terms):
        if len(product.parts) != 1:
            raise TypeError(
                f"Pull takes one product R @ u, got {len(product.parts)}: its wire carries u"
            )
        self.terms = product
        self.matrix, self.vector = product.parts[0]
        if not self.matrix.receiver_knows:
            raise TypeError("only the sender knows these weights: Push(C @ u), not Pull")


def exchanges(asked: Round) -> tuple[Push | Pull, ...]:
    """The exchanges of one round, whether the step yielded one or a tuple."""
    return asked if isinstance(asked, tuple) else (asked,)


def reply(asked: Round, sums: tuple[Array, ...]) -> Any:
    """What a step gets back: one sum for one exchange, a tuple for a tuple."""
    return sums if isinstance(asked, tuple) else sums[0]


def drive[S](step: Step[S], answer: Callable[[tuple[Push | Pull, ...]], tuple[Array, ...]]) -> S:
    """Run one step to its end; `answer` turns the exchanges of a round into their sums."""
    try:
        asked = next(step)
        while True:
            asked = step.send(reply(asked, answer(exchanges(asked))))
    except StopIteration as end:
        return end.value
