"""Lines of Python for what was traced: every operation on numbers is one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from hushgrad.agent.single import OneAgent
from hushgrad.agent.trace import Number, Symbol, Vector, in_order
from hushgrad.draws import Stream
from hushgrad.exchange import Links


def tools(agent: OneAgent) -> dict[str, Any]:
    """What written functions call to draw."""

    def weights(stream: Stream, links: Links) -> list[float]:
        own, out = agent.link_uniforms(stream, links)
        return agent.columns(own, out, links).out.ravel().tolist()

    return {"uniform": agent.uniform, "weights": weights}


class Writer:
    """Lines of one function; `outer` are names that those before it gave to what they knew."""

    def __init__(self, dim: int, before: dict[Symbol, str] | None = None):
        self._dim, self._before = dim, before or {}
        self.names: dict[Symbol, str] = {}
        self.outer: dict[Symbol, None] = {}  # what is used of it
        self._lines: list[str] = []
        self._constants: dict[str, Any] = {}
        self._drawn: dict[tuple[Any, ...], str] = {}

    def take(self, given: str, vectors: Iterable[Vector]) -> None:
        """Name the numbers of what a function is given."""
        for u in vectors:
            self.names[u] = self._new("t")
        targets = ", ".join([self.tuple(u) for u in vectors])
        if targets:
            self._lines.append(f"{targets}, = {given}")

    def call(self, symbol: Symbol, known: Symbol) -> None:
        """Let a symbol be another one that is known."""
        self.names[symbol] = self._name(known)

    def evaluate(self, gradients: Iterable[tuple[Vector, Vector]]) -> None:
        for g, x in gradients:
            where = self.tuple(x)
            self.names[g] = self._new("g")
            self._lines.append(f"{self.tuple(g)} = gradient({where})")

    def _new(self, letter: str) -> str:
        # a later function has all names of those before it
        return f"{letter}{len(self._before) + len(self.names)}"

    def each(self, symbol: Symbol) -> list[str]:
        """The variables that hold it, in order."""
        return self._variables(symbol, self._name(symbol))

    def _variables(self, symbol: Symbol, name: str) -> list[str]:
        if isinstance(symbol, Number):
            return [name]
        return [f"{name}_{c}" for c in range(self._dim)]

    def tuple(self, vector: Vector) -> str:
        return f"({', '.join(self.each(vector))},)"

    def tuples(self, vectors: Iterable[Vector]) -> str:
        every = [self.tuple(u) for u in vectors]
        if len(every) > 1 and len(set(every)) == 1:  # a Pull sends one to all
            return f"({every[0]},) * {len(every)}"
        return f"({''.join([one + ', ' for one in every])})"

    def _name(self, symbol: Symbol) -> str:
        if symbol not in self.names and symbol in self._before:
            self.outer[symbol] = None
            return self._before[symbol]
        for u in in_order((symbol,), self):
            self.names[u] = self._source(*u.source) if u.operation is None else self._written(u)
        return self.names[symbol]

    def __contains__(self, symbol: Symbol) -> bool:
        return symbol in self.names or symbol in self._before

    def _written(self, symbol: Symbol) -> str:
        """Write down how it is computed of what has a name."""
        given = [self._texts(u, symbol) for u in symbol.given]
        name = self._new("n" if isinstance(symbol, Number) else "v")
        for variable, *texts in zip(self._variables(symbol, name), *given, strict=True):
            if symbol.operation == "-u":
                self._lines.append(f"{variable} = -{texts[0]}")
            else:
                self._lines.append(f"{variable} = {texts[0]} {symbol.operation} {texts[1]}")
        return name

    def _texts(self, given: Symbol | float, of: Symbol) -> list[str]:
        """An operand for each number of what is computed."""
        texts = self.each(given) if isinstance(given, Symbol) else [f"({given!r})"]
        if isinstance(of, Vector) and not isinstance(given, Vector):
            return texts * self._dim
        return texts

    def _source(self, kind: str, *where: Any) -> str:
        """Numbers that come from the agent."""
        name = self._new("n")
        if kind == "uniform":
            stream, slot = where
            self._lines.append(f"{name} = uniform({self._constant(stream)}, slot={slot!r})")
        else:
            assert kind == "weight"
            stream, links, place = where
            if (stream, links) not in self._drawn:
                self._drawn[stream, links] = every = f"{name}_all"
                text = f"{every} = weights({self._constant(stream)}, {self._constant(links)})"
                self._lines.append(text)
            self._lines.append(f"{name} = {self._drawn[stream, links]}[{place}]")
        return name

    def _constant(self, value: Any) -> str:
        name = f"c{len(self._constants)}"
        self._constants[name] = value
        return name

    def function(
        self, given: str, result: str, tools: dict[str, Any], kept: Iterable[Symbol] = ()
    ) -> Callable[..., Any]:
        """The function of these lines; `kept` are symbols whose numbers it gets first."""
        outer = ", ".join([name for u in kept for name in self.each(u)])
        lines = [f"({outer},) = kept"] * bool(outer) + self._lines
        text = f"def written({given}):\n    " + "\n    ".join([*lines, f"return {result}"])
        room: dict[str, Any] = {**tools, **self._constants}
        exec(compile(text, "<a traced step>", "exec"), room)
        return room["written"]
