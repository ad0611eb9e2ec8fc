"""`python -m benchmarks.simulator.designs`: the cost and the protection of PDG's privacy designs.

Every design runs on the same random problems, networks and stepsizes. Two tables show the results:
the iterations to a relative error of 1e-6 compared with the paper's design, and the error at the
end; and the error of an attacker who knows everything except one partner's share. stability.py
tells up to which size of quadratic masks networks converge.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import hushgrad as hg
from hushgrad.agent.masking import mask_sizes
from hushgrad.errors import AlgorithmError, RiskWarning

LAM_L = (0.03, 0.1, 0.3, 1.0)
OF_GAP = (0.1, 0.2, 0.5, 1.0)  # λL / (1 − η)
LONGEST = 972_000  # iterations; a slower run counts as not converged
EXACT = 1e-10
EVERY = 5

S, P, Z = hg.stepsizes, hg.splits, hg.masks.zero_sum
ONCE = S.geometric(0.5, drawn="once")

type Design = Callable[[Any], Any]  # stepsize → algorithm


def nds(**chosen: Any) -> Design:
    return lambda schedule: hg.PDGNDS(stepsize=schedule, **chosen)


def with_deviation(deviation: Any, **chosen: Any) -> Design:
    return lambda schedule: hg.PDGNDS(stepsize=schedule.deviating(deviation), **chosen)


PAPER = nds()
DESIGNS: dict[str, Design] = {
    "constant split, ϱ once": with_deviation(ONCE, split=P.private_constant()),
    "isotropic, ϱ once": with_deviation(ONCE, split=P.isotropic()),
    "masks, fresh split": with_deviation(ONCE, masks=Z()),
    "masks, isotropic": nds(design="recommended", split=P.isotropic()),
    "masks, own share drawn alike": nds(design="recommended", split=P.private_constant()),
    "masks, ratio 0.9": with_deviation(S.geometric(0.9, drawn="once"), design="recommended"),
    "linear masks only": nds(design="recommended", masks=Z(quadratic=0)),
    "recommended": nds(design="recommended"),
}


def estimation(m: int, d: int, trials: int) -> Any:
    return hg.problems.estimation(n_agents=m, s=d + 1, d=d, trials=trials)


def regression(m: int, d: int) -> tuple[list[Any], list[Any]]:
    rng = np.random.default_rng(0)
    theta = rng.normal(size=d)
    X = [rng.normal(size=(30 + 5 * i, d)) for i in range(m)]
    return X, [x @ theta + 0.3 * rng.normal(size=len(x)) for x in X]


def logistic(m: int, d: int) -> Any:
    X, y = regression(m, d)
    return hg.problems.logistic(X, [np.sign(v) for v in y], regularisation=5.0)


def stretched(m: int, trials: int) -> Any:
    """Estimation in d = 2 whose second column is ten times smaller: condition numbers near 100."""
    rng = np.random.default_rng(0)
    M = rng.normal(size=(trials, m, 6, 2)) / np.sqrt(6) * [1.0, 0.1]
    z = (M @ rng.normal(size=(trials, 1, 2, 1)))[..., 0] + 0.1 * rng.normal(size=(trials, m, 6))
    return hg.Problem(
        lambda theta, data: ((data["M"] @ theta - data["z"]) ** 2).sum(),
        {"M": M, "z": z},
        dim=2,
        gradient=lambda theta, data: 2 * data["M"].T @ (data["M"] @ theta - data["z"]),
        solution=lambda data: np.linalg.lstsq(data["M"].reshape(-1, 2), data["z"].ravel())[0],
        smoothness=lambda data: 2 * np.linalg.norm(data["M"], 2, axis=(1, 2)).max() ** 2,
        per_trial=True,
    )


def cases(trials: int) -> Iterator[tuple[str, Any, Any]]:
    """(name, problem, network): `trials` problems of estimation, one problem of other kinds."""
    g = hg.graphs
    for name, graph, d in (
        ("paper's graph", g.paper(), 2),
        ("paper's graph", g.paper(), 1),
        ("ring 10", g.ring(10), 2),
        ("path 6", g.path(6), 2),
        ("star 8", g.star(8), 2),
        ("complete 6", g.complete(6), 5),
        ("random 20", g.erdos_renyi(20, 0.25, seed=1), 2),
        ("4-regular 30", g.random_regular(30, 4, seed=1), 10),
        ("ring 50", g.ring(50), 2),
    ):
        yield f"estimation d={d}, {name}", estimation(graph.n_agents, d, trials), hg.Network(graph)
    sparse = g.erdos_renyi(12, 0.3, seed=7)
    yield "rendezvous, random 12", hg.problems.rendezvous(n_agents=12), hg.Network(sparse)
    ridge = hg.problems.ridge(*regression(5, 4), regularisation=1.0)
    yield "ridge d=4, paper's graph", ridge, hg.Network(g.paper())
    yield "logistic d=3, ring 6", logistic(6, 3), hg.Network(g.ring(6))
    for name, graph in (("paper's graph", g.paper()), ("ring 10", g.ring(10))):
        yield f"condition 100, {name}", stretched(graph.n_agents, trials), hg.Network(graph)


def to_1e_6(run: Any) -> Any:
    """Per trial, the first iteration after which the relative error stays below 1e-6, or inf."""
    size = np.linalg.norm(np.atleast_2d(run.solution), axis=1)[:, None]
    above = ~(run.error <= 1e-6 * size)
    after = above.shape[1] - np.argmax(above[:, ::-1], axis=1)
    reached = np.append(run.iterations, np.inf)
    return reached[np.minimum(after, above.shape[1])]


def iterations(
    algorithm: Any, problem: Any, network: Any, *, trials: int, start: float, n: int = 4000
) -> tuple[Any, Any]:
    """(iterations to 1e-6, last relative error), each (trials,), of a run of n or more iterations.

    The run ends at an error of 1e-10, or when rounding stops the progress of its last quarter.
    """
    shape = trials, network.n_agents, problem.dim
    x0 = start * np.random.default_rng(0).normal(size=shape)
    while True:
        run = hg.run(
            algorithm, problem, network, iterations=n, trials=trials, record_every=EVERY, seed=1,
            x0=x0, progress=False, accept_exposure=hg.theory.WEAKNESSES,
        )  # fmt: skip
        reached = to_1e_6(run)
        last = run.error[:, -1] / np.linalg.norm(np.atleast_2d(run.solution), axis=1)
        rests = run.error[:, -1] > 0.5 * run.error[:, 3 * run.error.shape[1] // 4]
        done = np.isfinite(reached).all() and ((last <= EXACT) | rests).all()
        lost = any(status.startswith("diverged") for status in run.status)
        if done or lost or n >= LONGEST:
            return reached, last
        n = min(3 * n, LONGEST)


def costs(lam_l: Sequence[float], of_gap: Sequence[float], chosen: list[str], **how: Any) -> None:
    """Print the iterations to 1e-6 of the paper's design, and the ratios of every other design."""
    for name, problem, network in cases(how["trials"]):
        gap = 1 - network.eta
        for steps in sorted({*lam_l, *(part * gap for part in of_gap)}):
            schedule = S.constant(steps / problem.smoothness())
            base, _ = iterations(PAPER(schedule), problem, network, **how)
            print(f"\n{name}, 1 − η = {gap:.3f}, λL = {steps:.4g} = {steps / gap:.3g} (1 − η)")
            print(f"  {'paper':30s} {np.median(base):8.0f}", flush=True)
            long = int(min(2.5 * base.max(), LONGEST))  # enough for 1e-10
            for label in chosen:
                algorithm = DESIGNS[label](schedule)
                try:
                    reached, last = iterations(algorithm, problem, network, n=long, **how)
                except AlgorithmError:  # far beyond the stepsizes that the masks are made for
                    print(f"  {label:30s}  refused: Hessians are far larger than their masks")
                    continue
                ratio = reached / base
                print(
                    f"  {label:30s} {np.median(reached):8.0f}  median {np.median(ratio):5.2f}×"
                    f"  largest {ratio.max():5.2f}×  not converged {np.isinf(reached).sum():2d}"
                    f"  last error {np.max(last):.0e}",
                    flush=True,
                )


def hidden(trials: int) -> None:
    """Print ‖share of one partner‖ over ‖g_i(θ*)‖ and ‖H_i‖; the mean of the others guesses H_i."""
    print("\nrelative error with one honest partner, median (10 % quantile)")
    rng = np.random.default_rng(0)
    for name, problem, network in cases(trials):
        for steps in (0.03, 0.1, 0.3):
            schedule = S.constant(steps / problem.smoothness())
            sizes = mask_sizes(
                hg.PDGNDS(design="recommended", stepsize=schedule), network, problem.dim
            )
            errors = np.array([
                one_partner(problem, sizes, trial, i, rng)
                for trial in range(problem.n_trials or 1)
                for i in range(problem.n_agents)
            ])  # fmt: skip
            g, H, guess = (f"{np.median(e):.3g} ({np.quantile(e, 0.1):.2g})" for e in errors.T)
            print(f"  {name:34s} λL = {steps:<5} g(θ*) {g:16s} H {H:16s} guessed H {guess}")


def one_partner(problem: Any, sizes: Any, trial: int, i: int, rng: Any) -> tuple[float, ...]:
    """The relative errors of the masked g_i(θ*) and H_i, and of the guessed H_i."""
    own = None if problem.n_trials is None else trial
    theta = np.atleast_2d(problem.solution())[trial]
    words = rng.integers(2**64, size=sizes.n_words, dtype=np.uint64)
    c, Q = sizes.parts(sizes.share(words))
    g = problem.local_gradient(i, own)(theta)
    H = [hessian(problem.local_gradient(j, own), theta) for j in range(problem.n_agents)]
    others = np.mean([H[j] for j in range(problem.n_agents) if j != i], axis=0)
    size = np.linalg.norm(H[i])
    return (
        float(np.linalg.norm(c + Q @ theta) / np.linalg.norm(g)),
        float(np.linalg.norm(Q) / size),
        float(np.linalg.norm(H[i] - others) / size),
    )


def hessian(gradient: Any, theta: Any, step: float = 1e-4) -> Any:
    return np.array([
        (gradient(theta + step * e) - gradient(theta - step * e)) / (2 * step)
        for e in np.eye(len(theta))
    ])  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.simulator.designs", description=__doc__
    )
    parser.add_argument("--trials", type=int, default=20, help="problems of each kind")
    parser.add_argument("--lam-l", type=float, nargs="*", default=LAM_L, help="stepsizes times L")
    parser.add_argument("--of-gap", type=float, nargs="*", default=OF_GAP, help="λL / (1 − η)")
    parser.add_argument("--start", type=float, default=0.0, help="size of random starts x^0")
    parser.add_argument("--designs", choices=DESIGNS, nargs="+", default=list(DESIGNS))
    tables = ("hidden", "costs")
    parser.add_argument("--only", choices=tables, nargs="+", default=tables)
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore", RiskWarning)
    if "hidden" in options.only:
        hidden(options.trials)
    if "costs" in options.only:
        how = {"trials": options.trials, "start": options.start}
        costs(options.lam_l, options.of_gap, options.designs, **how)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
