"""`python -m benchmarks.simulator.masks`: the time in which a deployed agent makes its mask.

One line for each dimension: the numbers of a pair, and the processor time for the shares with all
partners, from the key stream to the matrix. The table of the sampler is made once per process, and
has a line of its own.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import hushgrad as hg
from hushgrad.masks.gaussian import BASE_BITS, lower_half
from hushgrad.network.keys.masking import ShareSecrets

DIMS = (10, 100, 1000)
PARTNERS = 5


def seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def of_one_agent(dim: int, partners: int) -> tuple[int, float]:
    """(numbers of a pair, processor time of an agent's mask)."""
    masks = hg.masks.zero_sum(n_partners=partners + partners % 2)
    sizes = masks.sizes(dim, lam=0.01, eta=0.5)
    shares = ShareSecrets("benchmark", 0, {j: bytes([j]) * 32 for j in range(1, partners + 1)})
    words = shares.words("benchmark")
    return sizes.count, seconds(
        lambda: masks.mask(0, sizes, n_agents=partners + 1, pair_words=words)
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.simulator.masks", description=__doc__
    )
    parser.add_argument("--dims", type=int, nargs="+", default=DIMS)
    parser.add_argument("--partners", type=int, default=PARTNERS)
    options = parser.parse_args(arguments)
    print(f"table of the sampler: {seconds(lambda: lower_half(BASE_BITS)):.3f} s")
    of_one_agent(1, 1)  # makes the table of this process
    for dim in options.dims:
        count, taken = of_one_agent(dim, options.partners)
        print(f"d = {dim:5d}, {options.partners} partners, {count} numbers each: {taken:.3f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
