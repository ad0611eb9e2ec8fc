"""The quadratic problems of the paper and its relatives: estimation, rendezvous, average.

Users call them as `hg.problems.estimation` and so on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushgrad.errors import ProblemError, optional
from hushgrad.problems.checks import (
    check_array,
    check_count,
    check_rows,
    check_seed,
    check_size,
    largest_gram_eigenvalue,
    least_squares,
    pad,
)
from hushgrad.problems.late import AgentRows, drawn_rows
from hushgrad.problems.problem import Problem

UNROLLED = 16  # entries of M up to which products are written out for JAX


def estimation(
    n_agents: int = 5,
    s: int = 3,
    d: int = 2,
    *,
    noise: float = 0.1,
    regularisation: float = 0.1,
    seed: int = 0,
    trials: int | None = None,
    addressed: bool = False,
) -> Problem:
    """The paper's distributed estimation, f_i(θ) = ‖z_i − M_i θ‖² + σ_i ‖θ‖².

    z_i = M_i θ + noise · N(0, 1), the entries of M_i (s, d) drawn from N(0, 1)/√s, those of the
    true θ from N(0, 1), σ_i = regularisation. At the paper's size L is about 6 (at most 12 in 100
    draws), so that the paper's stepsize 1/k is harmless.

    With `trials` every Monte Carlo trial has a problem of its own: trial t is drawn from the seed
    (seed, t), and without `trials` the problem is that of trial 0. With `addressed` the data of
    some agents can be drawn without the others, so that a shard of a simulation draws its own; the
    data are others than without it. Your own M and z go to `estimation_from`.

    >>> estimation(seed=1)
    Problem('estimation', n_agents=5, dim=2)
    """
    shape = (check_count("n_agents", n_agents), check_count("s", s), check_count("d", d))
    deviation, sigma = check_size("noise", noise), check_size("regularisation", regularisation)
    seed = check_seed(seed)
    if addressed:
        if trials is not None:
            raise ProblemError(
                f"addressed data are the same in every trial, but trials = {trials!r}. "
                "Leave trials or addressed out."
            )
        return _addressed_estimation(shape, deviation, sigma, seed)

    def draw(trial: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        rng = np.random.default_rng(np.random.SeedSequence((seed, trial)))
        M = rng.normal(size=shape) / np.sqrt(s)
        theta = rng.normal(size=d)
        return M, M @ theta + deviation * rng.normal(size=shape[:2])

    drawn = [draw(t) for t in range(1 if trials is None else check_count("trials", trials))]
    matrices, vectors = (np.stack(parts) for parts in zip(*drawn, strict=True))
    M, z = (matrices[0], vectors[0]) if trials is None else (matrices, vectors)
    return _estimation(M, z, np.full(z.shape[:-1], sigma))


def _addressed_estimation(
    shape: tuple[int, int, int], deviation: float, sigma: float, seed: int
) -> Problem:
    n_agents, s, d = shape
    theta = np.random.default_rng(np.random.SeedSequence((seed, 0))).normal(size=d)

    def draw(rng: np.random.Generator, n: int) -> Any:
        M = rng.normal(size=(n, s, d)) / np.sqrt(s)
        return {
            "M": M,
            "z": M @ theta + deviation * rng.normal(size=(n, s)),
            "sigma": np.full(n, sigma),
        }

    name = f"estimation {shape} noise {deviation!r} sigma {sigma!r} seed {seed}"
    rows = AgentRows(n_agents, drawn_rows(n_agents, draw, seed, 0, 0), name)
    return _problem(rows, d, solution=None)


def estimation_from(M: Any, z: Any, *, sigma: ArrayLike = 0.1) -> Problem:
    """Estimation, f_i(θ) = ‖z_i − M_i θ‖² + σ_i ‖θ‖², from measurements of your own.

    M (m, s, d) and z (m, s), or lists of (s_i, d) and (s_i,) when agents measured unequally often
    (shorter ones are padded with zero rows, which add exactly nothing); sigma a number, or (m,).

    >>> estimation_from([[[1.0]], [[1.0], [1.0]]], [[3.0], [0.0, 0.0]], sigma=0).solution().round(9)
    array([1.])
    """
    matrices, vectors = check_rows(M, z, ("M", "z"))
    sizes = np.asarray(sigma, np.float64)
    if sizes.shape not in ((), (len(matrices),)) or not (np.isfinite(sizes) & (sizes >= 0)).all():
        raise ProblemError(
            f"sigma is a finite number at least 0, or one for each of the {len(matrices)} agents, "
            f"but it is {sigma!r}. Use sigma=0 for no regulariser."
        )
    return _estimation(pad(matrices), pad(vectors), np.broadcast_to(sizes, len(matrices)))


def rendezvous(
    positions: ArrayLike | None = None,
    *,
    n_agents: int | None = None,
    d: int | None = None,
    seed: int = 0,
) -> Problem:
    """Agents at p_i meet at their mean: f_i(θ) = ‖θ − p_i‖².

    positions (m, d); without them they are drawn from N(0, 1), for n_agents = 5 agents in d = 2
    dimensions unless these are given.

    >>> rendezvous([[0.0, 0.0], [2.0, 4.0]]).solution()
    array([1., 2.])
    """
    if positions is None:
        shape = (
            check_count("n_agents", 5 if n_agents is None else n_agents),
            check_count("d", 2 if d is None else d),
        )
        p = np.random.default_rng(check_seed(seed)).normal(size=shape)
    else:
        p = check_array("positions", positions, ("agents", "d"))
        for name, given, axis in (("n_agents", n_agents, 0), ("d", d, 1)):
            if given is not None and given != p.shape[axis]:
                raise ProblemError(
                    f"{name} follows from positions of shape {p.shape}, but it is {given!r}. "
                    "Leave it out."
                )
    return Problem(
        _distance,
        {"p": p},
        dim=p.shape[1],
        gradient=_distance_gradient,
        solution=_mean,
        smoothness=2.0,
        strong_convexity=2.0,
        hessian=_distance_hessian,
        quadratic=True,
        name="rendezvous",
    )


def average(values: ArrayLike) -> Problem:
    """The average of vectors a_i, one for each agent: f_i(θ) = ½ ‖θ − a_i‖².

    values (m, d), or (trials, m, d) if every Monte Carlo trial has vectors of its own. ∇f_i(0) is
    −a_i, with which `hg.Consensus` starts.

    >>> average([[0.0, 1.0], [2.0, 4.0]]).solution()
    array([1. , 2.5])
    """
    is_many = np.ndim(values) == 3
    a = check_array("values", values, ("trials", "agents", "d")[not is_many :])
    return Problem(
        half_distance,
        {"a": a},
        dim=a.shape[-1],
        gradient=half_distance_gradient,
        solution=_average,
        smoothness=1.0,
        strong_convexity=1.0,
        hessian=half_distance_hessian,
        quadratic=True,
        per_trial=is_many,
        name="average",
    )


def _estimation(
    M: NDArray[np.float64], z: NDArray[np.float64], sigma: NDArray[np.float64]
) -> Problem:
    data = {"M": M, "z": z, "sigma": sigma}
    return _problem(data, M.shape[-1], solution=_estimate, per_trial=M.ndim == 4)


def _problem(data: Any, dim: int, *, solution: Any, per_trial: bool = False) -> Problem:
    return Problem(
        _misfit,
        data,
        dim=dim,
        gradient=misfit_gradient,
        solution=solution,
        smoothness=_misfit_smoothness,
        strong_convexity=_misfit_strong_convexity,
        hessian=_misfit_hessian,
        quadratic=True,
        per_trial=per_trial,
        name="estimation",
    )


def _misfit(theta: Any, data: Any) -> Any:
    residual = data["M"] @ theta - data["z"]
    return residual @ residual + data["sigma"] * (theta @ theta)


def misfit_gradient(theta: Any, data: Any) -> Any:
    M = data["M"]
    if M.size <= UNROLLED and not isinstance(theta, np.ndarray):
        return _unrolled_gradient(theta, data)
    return 2 * (M.T @ (M @ theta - data["z"]) + data["sigma"] * theta)


def _unrolled_gradient(theta: Any, data: Any) -> Any:
    """The product entry by entry: compilers fuse it with the next lines, but not small products."""
    M, z, sigma = data["M"], data["z"], data["sigma"]
    s, d = M.shape
    residual = [sum(M[a, c] * theta[c] for c in range(d)) - z[a] for a in range(s)]
    entries = [
        2 * (sum(M[a, c] * residual[a] for a in range(s)) + sigma * theta[c]) for c in range(d)
    ]
    return optional("jax.numpy", "sim").stack(entries)


def _misfit_hessian(theta: Any, data: Any) -> NDArray[np.float64]:
    M = data["M"]
    return 2 * (M.T @ M + data["sigma"] * np.eye(len(theta)))


def _estimate(data: Any) -> NDArray[np.float64]:
    M, d = data["M"], data["M"].shape[-1]
    return least_squares(M.reshape(-1, d), data["z"].ravel(), np.full(d, data["sigma"].sum()))


def _misfit_smoothness(data: Any) -> float:
    return float(2 * (largest_gram_eigenvalue(data["M"]) + data["sigma"]).max())


def _misfit_strong_convexity(data: Any) -> float:
    rows = data["M"].reshape(-1, data["M"].shape[-1])
    smallest = np.linalg.eigvalsh(rows.T @ rows)[0]
    return float(2 * max(smallest + data["sigma"].sum(), 0.0) / len(data["M"]))


def _distance(theta: Any, data: Any) -> Any:
    away = theta - data["p"]
    return away @ away


def _distance_gradient(theta: Any, data: Any) -> Any:
    return 2 * (theta - data["p"])


def _distance_hessian(theta: Any, data: Any) -> NDArray[np.float64]:
    del data
    return 2 * np.eye(len(theta))


def _mean(data: Any) -> NDArray[np.float64]:
    return data["p"].mean(axis=0)


def half_distance(theta: Any, data: Any) -> Any:
    away = theta - data["a"]
    return away @ away / 2


def half_distance_gradient(theta: Any, data: Any) -> Any:
    return theta - data["a"]


def half_distance_hessian(theta: Any, data: Any) -> NDArray[np.float64]:
    del data
    return np.eye(len(theta))


def _average(data: Any) -> NDArray[np.float64]:
    return data["a"].mean(axis=0)
