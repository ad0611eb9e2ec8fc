"""The limit of speed: the C kernel beside this file, compiled for one shape.

The kernel is compiled for several lengths of vectors, and the fastest code on this machine is the
limit. Where XLA is capped to AVX2, so is the kernel. measure.py calls the kernel through ctypes and
compares the engine with it.
"""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hushgrad as hg
from benchmarks.machine import is_capped
from hushgrad.draws import Stream, agent_keys, trial_keys
from hushgrad.graphs import Graph

SOURCE = Path(__file__).with_name("kernel.c")
FORMS = ("ds", "lazy", "square")  # in the kernel's order
WIDTHS = (8, 4)  # doubles in a vector: 512 and 256 bits
TURNS, SECONDS = 5, 0.005  # for each compilation, before the fastest is chosen
LANES = 16
BLOCK = 64  # agents whose draws are made together, so that L1 still holds them
SMALL = 16  # the largest d · s of the kernel's code for tiny runs and for trials in lanes
TINY = 8  # the most agents of a run that stays in registers
COLOURS = 3  # the most colours of the links of such a run
CACHE_LINE = 64

type Floats = NDArray[np.float64]
type Ints = NDArray[np.int64]


class NoCompilerError(Exception):
    """The machine has no C compiler, or its compiler cannot compile the kernel."""


def compiler() -> str:
    """The first of $CC, cc, gcc and clang that is installed."""
    for name in (os.environ.get("CC"), "cc", "gcc", "clang"):
        if name and shutil.which(name):
            return name
    raise NoCompilerError("no C compiler (cc, gcc or clang) found")


@functools.cache
def _directory() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="hushgrad-bench-")  # removed when Python ends


@functools.cache
def library(dim: int, rows: int | None, width: int) -> ctypes.CDLL:
    """The kernel for d = dim, s = rows measurements per agent (None: logistic losses), and vectors
    of `width` doubles.
    """
    name = compiler()
    target = Path(_directory().name) / f"kernel-{dim}-{rows}-{width}.so"
    shape = [f"-DDIM={dim}", "-DLOGISTIC" if rows is None else f"-DROWS={rows}", f"-DWIDTH={width}"]
    common = [str(SOURCE), "-o", str(target), "-std=gnu11", "-O3", "-shared", "-fPIC", "-pthread"]
    bits = f"-mprefer-vector-width={64 * width}"
    complaint = ""
    native = "-march=haswell" if is_capped() else "-march=native"
    for own in ([native, bits], [native], ["-mcpu=native"], []):
        done = subprocess.run([name, *common, *shape, *own], capture_output=True, text=True)
        if done.returncode == 0:
            return ctypes.CDLL(str(target))
        complaint = complaint or done.stderr
    raise NoCompilerError(f"{name} does not compile {SOURCE.name}: {complaint.strip()[:400]}")


def _structure(layout: str) -> type[ctypes.Structure]:
    """Fields in the kernel's order: `i:name` an int64, `d:name` a double, `name` a pointer."""
    kinds = {"i": ctypes.c_int64, "d": ctypes.c_double}
    pairs = (field.rpartition(":") for field in layout.split())
    fields = [(name, kinds.get(kind, ctypes.c_void_p)) for kind, _, name in pairs]
    return type("Structure", (ctypes.Structure,), {"_fields_": fields})


_Run = _structure(
    "i:form i:agents i:blocks i:threads d:scale d:power block_agent block_draw key0 key1 slot "
    "share shares own rho first sender entry w_own w first_b sender_b entry_b colour "
    "data target weight i:samples x next h h_prev y wx u"
)
_Trials = _structure(
    "i:agents i:tiles i:threads d:scale d:power split0 split1 step0 step1 share own "
    "first sender entry w_own w data target weight x"
)


class _Kernel:
    """A function of the kernel in all its compilations; the fastest of them runs."""

    def __init__(
        self,
        function: str,
        dim: int,
        rows: int | None,
        run: ctypes.Structure,
        state: list[Floats],  # the arrays that the function changes and reads again
    ):
        self._calls = {width: getattr(library(dim, rows, width), function) for width in WIDTHS}
        self._run = run
        before = [array.copy() for array in state]
        n = 2  # an even number: the kernel swaps its arrays after an odd one
        while self._seconds(WIDTHS[-1], n) < SECONDS:
            n *= 2
        times = [(self._seconds(width, n), width) for _ in range(TURNS) for width in WIDTHS]
        self.width = min(times)[1]  # doubles in a vector; tests set another one
        for array, old in zip(state, before, strict=True):
            array[:] = old

    def _seconds(self, width: int, n: int) -> float:
        started = time.process_time()
        self._calls[width](ctypes.byref(self._run), ctypes.c_int64(0), ctypes.c_int64(n))
        return time.process_time() - started

    def advance(self, k: int, n: int) -> None:
        """Run n iterations, from iteration k on."""
        call = self._calls[self.width]
        call(ctypes.byref(self._run), ctypes.c_int64(k), ctypes.c_int64(n))


class Limit:
    """One run of the kernel; `form` is "ds" for PDG-DS, or the form of PDG-NDS."""

    def __init__(
        self,
        network: hg.Network,
        problem: hg.Problem,
        x0: Floats,  # (agents, d)
        *,
        form: str,
        scale: float,
        power: int,
        seed: int,
        threads: int = 1,
    ):
        graph = network.graph
        over = graph.two_hop() if form == "square" else graph
        shares = _Shares(over, seed, block=min(BLOCK, -(-graph.n_agents // threads)))
        data, rows = _data(problem)
        weights = network.weights("doubly")
        self._arrays: dict[str, Any] = {
            **shares.arrays,
            **data,
            **_links(graph, shares.of_arcs if over is graph else None),
            "w_own": weights.own,
            "w": weights.links,
            "colour": _colours(graph) if rows is not None and rows * problem.dim <= SMALL else None,
        }
        if over is not graph:
            two = _links(over, shares.of_arcs)
            self._arrays |= {f"{name}_b": values for name, values in two.items()}
        self._rows = {
            name: _aligned((graph.n_agents, problem.dim))
            for name in ("x", "next", "h", "h_prev", "y", "wx")
        }
        self._rows["x"][:] = self._rows["next"][:] = x0
        self._arrays |= self._rows | {"u": _aligned(shares.arrays["key0"].shape)}
        self._run = _Run(
            form=FORMS.index(form),
            agents=graph.n_agents,
            blocks=len(shares.arrays["block_agent"]) - 1,
            threads=threads,
            scale=scale,
            power=power,
            samples=data["target"].shape[1],
            **_pointers(self._arrays),
        )
        state = list(self._rows.values())
        self.kernel = _Kernel("advance", problem.dim, rows, self._run, state)
        self.advance = self.kernel.advance

    @property
    def x(self) -> Floats:
        """(1, agents, d)"""
        current = next(r for r in self._rows.values() if r.ctypes.data == self._run.x)
        return current[None].copy()


class TrialsLimit:
    """Many trials of a small run, sixteen trials at a time."""

    def __init__(
        self,
        network: hg.Network,
        problem: hg.Problem,
        x0: Floats,  # (agents, d)
        *,
        scale: float,
        power: int,
        seed: int,
        trials: int,
        threads: int = 1,
    ):
        graph, m, d = network.graph, network.n_agents, problem.dim
        data, rows = _data(problem)
        if rows is None or rows * d > SMALL:
            raise ValueError(f"the kernel runs trials in lanes for d · s ≤ {SMALL} only")
        self._n = trials
        tiles = -(-trials // LANES)
        key = trial_keys(seed, np.arange(tiles * LANES))
        split = agent_keys(key, np.arange(m), Stream.SPLIT)
        step = agent_keys(key, np.arange(m), Stream.STEPSIZE)
        senders, receivers, n_shares = _senders_view(graph)
        place = np.empty(len(senders), np.int64)
        place[np.lexsort((receivers, senders))] = np.arange(len(senders))
        weights = network.weights("doubly")
        self._x = _aligned((tiles, m, d, LANES))
        self._x[:] = x0[None, :, :, None]
        self._arrays: dict[str, Any] = {
            **{f"split{n}": np.ascontiguousarray(word) for n, word in enumerate(split)},
            **{f"step{n}": np.ascontiguousarray(word) for n, word in enumerate(step)},
            "share": _starts(n_shares),
            "own": place[graph.n_arcs :].astype(np.int32),
            **_links(graph, place[: graph.n_arcs]),
            "w_own": weights.own,
            "w": weights.links,
            **data,
            "x": self._x,
        }
        self._run = _Trials(
            agents=m, tiles=tiles, threads=threads, scale=scale, power=power,
            **_pointers(self._arrays),
        )  # fmt: skip
        self.kernel = _Kernel("advance_trials", d, rows, self._run, [self._x])
        self.advance = self.kernel.advance

    @property
    def x(self) -> Floats:
        """(trials, agents, d)"""
        tiles, m, d, _ = self._x.shape
        return self._x.transpose(0, 3, 1, 2).reshape(tiles * LANES, m, d)[: self._n].copy()


class _Shares:
    """The layout of the draws of a split over some links.

    A block holds the shares of its senders, in the order of the receivers' numbers, then the
    stepsizes, then padding to whole vectors.
    """

    def __init__(self, graph: Graph, seed: int, *, block: int):
        m = graph.n_agents
        senders, receivers, n_shares = _senders_view(graph)
        order = np.lexsort((receivers, senders))
        block_agent = np.append(np.arange(0, m, block), m)
        in_block = np.add.reduceat(n_shares, block_agent[:-1])
        with_steps = in_block + np.diff(block_agent)
        block_draw = _starts(-(-with_steps // LANES) * LANES, np.int64)
        place = np.arange(len(order)) + np.repeat(
            block_draw[:-1] - _starts(in_block)[:-1], in_block
        )
        inside = np.arange(m) // block
        rho = (block_draw[:-1] + in_block)[inside] + np.arange(m) - block_agent[inside]
        first = _starts(n_shares, np.int64)
        sender = senders[order]
        trial = trial_keys(seed, np.arange(1))
        split = agent_keys(trial, np.arange(m), Stream.SPLIT)
        step = agent_keys(trial, np.arange(m), Stream.STEPSIZE)
        keys = np.zeros((2, block_draw[-1]), np.uint32)
        slot = np.zeros(block_draw[-1], np.uint32)
        for n in (0, 1):
            keys[n, place] = split[n][sender, 0]
            keys[n, rho] = step[n][:, 0]
        slot[place] = np.arange(len(order)) - first[sender]
        back = np.empty(len(order), np.int64)
        back[order] = place
        self.of_arcs = back[: graph.n_arcs]  # (arcs,) the draw of each link
        self.arrays: dict[str, NDArray[Any]] = {
            "block_agent": block_agent.astype(np.int64),
            "block_draw": block_draw,
            "key0": keys[0],
            "key1": keys[1],
            "slot": slot,
            "share": place[first[:-1]].astype(np.int32),
            "shares": n_shares.astype(np.int32),
            "own": back[graph.n_arcs :].astype(np.int32),
            "rho": rho.astype(np.int32),
        }


def _senders_view(graph: Graph) -> tuple[Ints, Ints, Ints]:
    """Senders and receivers of the arcs, then of the agents' links to themselves; and the number of
    shares of each sender.
    """
    own = np.arange(graph.n_agents)
    senders = np.concatenate([graph.senders, own])
    return senders, np.concatenate([graph.receivers, own]), graph.out_degree + 1


def _starts(counts: Ints, dtype: Any = np.int32) -> NDArray[Any]:
    return np.concatenate([[0], np.cumsum(counts)]).astype(dtype)


def _links(graph: Graph, entry: Ints | None) -> dict[str, NDArray[np.int32] | None]:
    """The kernel's arrays of the links. The graph's arcs are already sorted by receiver."""
    return {
        "first": _starts(graph.in_degree),
        "sender": graph.senders.astype(np.int32),
        "entry": None if entry is None else entry.astype(np.int32),
    }


def _colours(graph: Graph) -> NDArray[np.int32] | None:
    """Colours (arcs,): links of one colour share no agent. None if the registers are too few."""
    if graph.n_agents > TINY or graph.n_arcs > LANES:
        return None
    colour: dict[tuple[int, int], int] = {}
    for i, j in graph.links.tolist():
        taken = {c for link, c in colour.items() if {i, j} & set(link)}
        colour[i, j] = min(set(range(graph.n_arcs + 1)) - taken)
    if max(colour.values(), default=0) >= COLOURS:
        return None
    ends = zip(graph.senders.tolist(), graph.receivers.tolist(), strict=True)
    return np.array([colour[min(pair), max(pair)] for pair in ends], np.int32)


def _data(problem: hg.Problem) -> tuple[dict[str, Floats], int | None]:
    """The kernel's three arrays, and s of an estimation problem; None for a logistic problem."""
    given = problem.data
    if "M" in given:
        names, rows = ("M", "z", "sigma"), given["M"].shape[1]
    else:
        if not (given["weight"] == 1).all():
            raise ValueError("the kernel takes rows of weight 1 only")
        names, rows = ("X", "y", "penalty"), None
    arrays = (np.ascontiguousarray(given[name], np.float64) for name in names)
    return dict(zip(("data", "target", "weight"), arrays, strict=True)), rows


def _aligned(shape: tuple[int, ...]) -> Floats:
    size = int(np.prod(shape))
    room = np.zeros(size + CACHE_LINE // 8)
    skip = -room.ctypes.data % CACHE_LINE // 8
    return room[skip : skip + size].reshape(shape)


def _pointers(arrays: dict[str, Any]) -> dict[str, int | None]:
    return {name: None if a is None else a.ctypes.data for name, a in arrays.items()}
