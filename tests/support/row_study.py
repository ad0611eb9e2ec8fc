"""A study of attacks on rows: real data on random networks, runs in stages and runs without.

A case is a network with data. Its honest component is all agents but one, the member of the
adversary. Attacks are as strong as theory lets them be: Sum fit gets the sums over honest agents
themselves, which masks do not hide, and the number of rows; Row fit and Probes hear all neighbours
of their target.

A row counts as met if an estimate that the attack claims is within 10 % of the row, up to its sign,
and at most half as far as the nearest other row of the population. Estimates are also compared with
control rows: rows of the population that are in nobody's data. Whatever they meet there is chance.
"""

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits

import hushgrad as hg
from hushgrad.errors import PrivacyError
from hushgrad.privacy import Curious, Knowledge, Truth
from hushgrad.privacy.attacks.probes import Probes
from hushgrad.privacy.attacks.row_fit import RowFit
from hushgrad.privacy.attacks.sum_model import HonestSums, fit_sums
from hushgrad.privacy.row_matching import off
from hushgrad.privacy.stages import stage_runs
from hushgrad.problems.determined import largest_share, rows_of
from hushgrad.problems.effective import (
    RowWeights,
    effective_in_directions,
    effective_lengths,
    least_effective,
)
from hushgrad.theory.revealed import MOST_OF_ROW
from support.private_runs import recorded

DATA = ("cancer", "digits", "diabetes")
KINDS = ("tree", "star", "ring", "complete", "random")
NEAR, CLEAR, SURE = 0.1, 0.5, 0.2  # of a row's length; of the guess's error; predicted error
CLIPS = (None, 2.0, 1.4)
MOST_AGENTS, MOST_DRAWS = 60, 60
FAST = RowFit(effort=2e8, most=6)  # where there are no rows to find, more effort finds none


@cache
def population(name):
    """Standardised columns (n, columns) and labels ±1."""
    if name == "cancer":
        X, y = load_breast_cancer(return_X_y=True)
    elif name == "digits":
        X, y = load_digits(return_X_y=True)
        X, y = X[y < 2], y[y < 2]
    else:
        X, y = load_diabetes(return_X_y=True)
        y = y > np.median(y)
    X = X[:, X.std(axis=0) > 0]
    return (X - X.mean(axis=0)) / X.std(axis=0), np.where(y > 0, 1.0, -1.0)


@dataclass(frozen=True)
class Case:
    seed: int
    kind: str
    data: str
    dim: int
    per_agent: int
    n_agents: int
    stages: int
    curvature: str
    clip: float | None  # times √d: rows are no longer

    @property
    def honest_rows(self):
        return (self.n_agents - 1) * self.per_agent

    @property
    def is_counted(self):
        """Whether the numbers of a run are few enough for its effective rows, by length."""
        lengths = np.log((table(self)[: self.n_agents * self.per_agent] ** 2).sum(axis=1))
        agents = [RowWeights.of(own) for own in lengths.reshape(self.n_agents, -1)]
        told = hg.theory.Revealed(
            dim=self.dim,
            stages=self.stages,
            rows=least_effective(agents, self.n_agents - 1),
            curvature=self.curvature,
        )
        return told.objection() is None

    @property
    def is_admitted(self):
        """Whether a run whose stages are exact steps would be admitted."""
        if not self.is_counted:
            return False
        problem = problem_of(self, table(self))
        sums = newton_sums(table(self)[: self.n_agents * self.per_agent], self.penalty, self.stages)
        determined = largest_share(
            problem.row_loss,
            [rows_of(problem.agent_data(i)) for i in range(self.n_agents)],
            [stage.theta for stage in sums],
            is_fixed=self.curvature == "fixed",
            honest=self.n_agents - 1,
        )
        return determined <= MOST_OF_ROW

    @property
    def penalty(self):
        """Admitted runs have many rows, direct ones few."""
        return 0.1 * self.n_agents * self.per_agent if self.stages else 2.0


def admitted_run(seed):
    """A random case with about as few agents as the limit on sums admits, and its run.

    The seed decides about the data set, the kind of network, the curvature and the clipping. The
    program itself admits the run. None if no draw is admitted.
    """
    rng = np.random.default_rng([seed, 14])
    name, kind = DATA[seed % 3], KINDS[seed // 3 % 5]
    curvature, clip = ("newton", "fixed")[seed // 15 % 2], CLIPS[seed // 30 % 3]
    for _ in range(MOST_DRAWS):
        dim, per_agent = int(rng.integers(3, 11)), int(rng.integers(5, 31))
        stages, first = int(rng.integers(2, 4)), int(rng.integers(10**6))

        def of(m):
            return Case(first, kind, name, dim, per_agent, m, stages, curvature, clip)  # noqa: B023  # called at once

        # with more agents too few rows would be left to compare with
        most = min(MOST_AGENTS, int(0.85 * len(population(name)[1])) // per_agent)
        sizes = [m for m in range(4, most + 1) if m == most or m % 2 == 0]
        if most < 4 or not of(most).is_admitted:
            continue
        admitted = next(m for m in sizes if of(m).is_admitted)
        for m in (m for m in sizes if m >= admitted):
            with suppress(PrivacyError):  # refused at a stage: more agents
                return of(m), staged_run(of(m), accept_exposure=())
    return None


def refused_case(seed):
    """Three agents with few rows, and seven stages."""
    return Case(seed, "complete", DATA[seed % 3], 3 + seed % 2, 5, 3, 7, "newton", 2.0)


def table(case):
    """All rows z = y x of the population (n, d) in the case's columns, in a random order."""
    rng = np.random.default_rng([case.seed, 15])
    X, y = population(case.data)
    if rng.random() < 0.5:
        X = X[:, rng.permutation(X.shape[1])[: case.dim]]
    else:  # principal components
        X = X @ np.linalg.svd(X, full_matrices=False)[2][: case.dim].T
        X = X / X.std(axis=0)
    if case.clip is not None:
        longest = case.clip * np.sqrt(case.dim)
        X = X * np.minimum(1.0, longest / np.linalg.norm(X, axis=1))[:, None]
    return (X * y[:, None])[rng.permutation(len(y))]


def problem_of(case, rows):
    """The first rows, dealt to the agents, half of them as rows of the class −1."""
    rng = np.random.default_rng([case.seed, 16])
    parts = rows[: case.n_agents * case.per_agent].reshape(case.n_agents, case.per_agent, case.dim)
    y = rng.choice([-1.0, 1.0], size=parts.shape[:2])
    X = [part * sign[:, None] for part, sign in zip(parts, y, strict=True)]
    return hg.problems.logistic(X, list(y), regularisation=case.penalty)


def network_of(case):
    m, rng = case.n_agents, np.random.default_rng([case.seed, 17])
    if case.kind in ("star", "ring", "complete"):
        return hg.Network(getattr(hg.graphs, case.kind)(m))
    edges = {(int(rng.integers(i)), i) for i in range(1, m)}
    if case.kind == "random":
        edges |= {tuple(sorted(rng.choice(m, 2, replace=False).tolist())) for _ in range(m)}
    return hg.Network(hg.graphs.from_edges(sorted(edges), n_agents=m))


def step_of(problem, network):
    return 0.2 * (1 - network.eta) / problem.smoothness()


def staged_run(case, *, per_stage=40, **options):
    problem, network = problem_of(case, table(case)), network_of(case)
    algorithm = hg.PDGNDS(
        stepsize=hg.stepsizes.constant(step_of(problem, network)),
        design="recommended",
        stages=case.stages,
        curvature=case.curvature,
        masks=hg.masks.zero_sum(honest=case.n_agents - 1),
    )
    grows = sum(2**s if case.curvature == "newton" else s + 1 for s in range(case.stages))
    return recorded(
        algorithm, problem, network, iterations=per_stage * grows, seed=case.seed, **options
    )


def direct_run(case, iterations=200):
    """Masks, constant splits, a deviation drawn once, and no stages."""
    problem, network = problem_of(case, table(case)), network_of(case)
    once = hg.stepsizes.geometric(0.5, drawn="once")
    algorithm = hg.PDGNDS(
        stepsize=hg.stepsizes.constant(step_of(problem, network), deviation=once),
        split=hg.splits.private_constant(own=0.45),
        masks=hg.masks.zero_sum(),
    )
    return recorded(algorithm, problem, network, iterations=iterations, seed=case.seed)


def neighbours(network, i):
    graph = network.graph
    return frozenset(graph.senders[graph.receivers == i].tolist())


def target_of(network):
    """An agent with few neighbours, but not agent 0: a leaf if there is one."""
    return 1 + int(np.argmin(network.graph.in_degree[1:]))


def honest_sums(run, member):
    """What every stage tells of all agents but one."""
    found = []
    for stage in stage_runs(run, 0):
        honest = [i for i in range(run.network.n_agents) if i != member]
        truth = Truth(stage)
        total = sum(truth.objective(i) for i in honest)
        found.append(HonestSums(stage.x0[0, 0], total[:, :-1], total[:, -1]))
    return found


def newton_sums(rows, penalty, stages):
    """(θ_s, H, q) of a logistic sum along Newton's way from zero."""
    theta, found = np.zeros(rows.shape[1]), []
    for _ in range(stages):
        doubt = 1 / (1 + np.exp(rows @ theta))
        H = (rows.T * (doubt * (1 - doubt))) @ rows + penalty * np.eye(len(theta))
        g = penalty * theta - rows.T @ doubt
        found.append(HonestSums(theta, H, g - H @ theta))
        theta = theta - np.linalg.solve(H, g)
    return found


def square_and_met(seed):
    """Whether a sum of squares of two agents is admitted, rows met, and control rows met."""
    rng = np.random.default_rng([seed, 18])
    X, _ = population(DATA[seed % 3])
    per, dim = (10, 20, 40)[seed // 3 % 3], int(rng.integers(3, 7))
    X = X[rng.permutation(len(X))[: 4 * per], :][:, rng.permutation(X.shape[1])[:dim]]
    both = X[: 2 * per].reshape(2, per, dim)
    own = [{"X": x, "y": np.ones(per), "weight": 1.0, "penalty": 0} for x in both]
    lengths = least_effective([effective_lengths(data) for data in own], 2)
    rows = min(lengths, effective_in_directions(own, 2))
    is_admitted = hg.theory.Revealed(dim=dim, stages=1, rows=rows, is_quadratic=True).objection()
    G, axes = X[: 2 * per].T @ X[: 2 * per], np.eye(dim)
    pairs = [axes[a] + sign * axes[b] for a in range(dim) for b in range(a) for sign in (-1, 1)]
    ways = [v for v in [*axes, *np.linalg.eigh(G)[1].T, *pairs] if v @ G @ v > 1e-9]
    guesses = np.array([G @ v / np.sqrt(v @ G @ v) for v in ways])
    guesses = np.concatenate([guesses, -guesses])

    def met(rows):
        off = np.linalg.norm(guesses - rows[:, None], axis=2).min(axis=1)
        return int((off < NEAR * np.linalg.norm(rows, axis=1)).sum())

    return is_admitted is None, met(X[: 2 * per]), met(X[2 * per :])


def seven_stages(n, seed, starts, is_clipped):
    """Sum fit on seven stages of n tumours, d = 4: rows near, claimed, met, and control rows met.

    The stages are those of Newton's method, without any network.
    """
    rng = np.random.default_rng([seed, n])
    X, y = population("cancer")
    X = X[:, :4]
    if is_clipped:
        X = X * np.minimum(1.0, 4.0 / np.linalg.norm(X, axis=1))[:, None]
    rows = (X * y[:, None])[rng.permutation(len(y))]
    fit = fit_sums(newton_sums(rows[:n], 1.0, 7), n_rows=n, starts=starts, effort=1e12)
    sure = fit.rows[fit.error <= SURE]
    near = np.linalg.norm(fit.rows[:, None] - rows[:n], axis=2).min(axis=0)
    control = rows[n : 2 * n]
    return (
        int((near <= NEAR * np.linalg.norm(rows[:n], axis=1)).sum()),
        len(sure),
        int(met(sure, rows[:n], rows).sum()),
        int(met(sure, control, rows).sum()),
    )


def share_and_met(seed):
    """The largest share of a row that stages of random rows determine, and the rows met."""
    rng = np.random.default_rng([seed, 18])
    name, dim, stages = DATA[seed % 3], int(rng.integers(3, 8)), int(rng.integers(2, 4))
    numbers = hg.theory.numbers_revealed(dim, stages)
    most = int(0.7 * len(population(name)[1]))
    n = min(most, int(numbers / dim / np.exp(rng.uniform(np.log(0.03), np.log(0.6)))))
    case = Case(seed, "complete", name, dim, n, 1, stages, "newton", CLIPS[int(rng.integers(3))])
    rows = table(case)
    sums = newton_sums(rows[:n], n * 10 ** rng.uniform(-2, -0.5), stages)
    problem = problem_of(case, rows)
    share = largest_share(
        problem.row_loss, [rows_of(problem.agent_data(0))], [stage.theta for stage in sums]
    )
    fit = fit_sums(sums, n_rows=n, starts=6, effort=1e9)
    return share, int(met(fit.rows[fit.error <= SURE], rows[:n], rows).sum())


def met(estimates, true, others):
    """Which true rows an estimate has met, better than the nearest of the other rows."""
    if not len(estimates):
        return np.zeros(len(true), bool)
    distance = off(others, true)
    distance[distance == 0] = np.inf  # the row itself
    guess = distance.min(axis=0)
    return off(estimates, true).min(axis=0) <= np.minimum(NEAR, CLEAR * guess)


class Counts(Counter):
    """Numbers of rows, by attack and by what became of them."""

    def note(self, attack, rows, claimed, hit, control):
        self[attack, "runs"] += 1
        self[attack, "rows attacked"] += rows
        self[attack, "rows claimed"] += claimed
        self[attack, "rows met"] += hit
        self[attack, "control rows met"] += control

    def table(self):
        names = (
            "runs", "runs ended", "rows attacked", "rows claimed", "rows met", "control rows met",
        )  # fmt: skip
        attacks = dict.fromkeys(attack for attack, _ in self)
        lines = [f"{'attack':28}" + "".join(f"{name:>18}" for name in names)]
        lines += [
            f"{attack:28}" + "".join(f"{self[attack, name]:18d}" for name in names)
            for attack in attacks
        ]
        return "\n".join(lines)


def attack_sums(case, run, name, counts, *, starts=6, effort=2e9):
    """Sum fit on the sums themselves; the rows of agent 0 belong to the member."""
    rows = table(case)
    own = case.per_agent
    true, control = rows[own : own + case.honest_rows], rows[case.n_agents * own :]
    fit = fit_sums(
        honest_sums(run, 0),
        n_rows=case.honest_rows,
        curvature=case.curvature,
        starts=starts,
        effort=effort,
    )
    sure = fit.rows[fit.error <= SURE]
    hit = met(sure, true, rows)
    luck = met(sure, control, rows)
    counts.note(name, len(true), len(sure), int(hit.sum()), int(luck.sum()))
    # every row of the fit, guesses included: how many are near a row, and near as many control rows
    near = off(fit.rows, true).min(axis=0) <= NEAR
    counts[name, "near"] += int(near.sum())
    some = off(fit.rows, control).min(axis=0) <= NEAR
    counts[name, "near control"] += float(some.mean() * len(true))
    return true[hit]


def attack_agent(attack, case, run, adversary, target, name, counts):
    """Row fit or Probes on every stage of a run."""
    rows = table(case)
    true = rows[target * case.per_agent : (target + 1) * case.per_agent]
    estimates = [np.empty((0, case.dim))]
    for stage in stage_runs(run, 0):
        view = Knowledge.of(stage, adversary)
        if attack.applies(view, target) is None:
            estimates += [e.value for e in attack(view, target) if e.quantity == "rows"]
    found = np.concatenate(estimates)
    control = rows[case.n_agents * case.per_agent :]
    hit, luck = met(found, true, rows), met(found, control, rows)
    counts.note(name, len(true), len(found), int(hit.sum()), int(luck.sum()))


def attack_admitted(case, run, counts):
    """All attacks on one admitted run, passive and active; the rows that sums gave away."""
    kind = "as they are" if case.clip is None else "clipped"
    network, target = run.network, target_of(run.network)
    around = neighbours(network, target)
    attack_agent(FAST, case, run, Curious(around), target, f"Row fit, {kind}", counts)
    found = [attack_sums(case, run, f"Sum fit, {kind}", counts)]
    active = hg.Active(around, size=1.0, at=range(6, int(run.iterations[-1]) - 2, 4))
    try:
        moved = staged_run(case, tamper=active.tamper, accept_exposure=())
    except PrivacyError:  # the program ends the run that the neighbours steer
        counts[f"Probes, {kind}", "runs ended"] += 1
        return found[0]
    attack_agent(Probes(rows=FAST), case, moved, active, target, f"Probes, {kind}", counts)
    found.append(attack_sums(case, moved, f"Sum fit, active, {kind}", counts))
    return np.concatenate(found)
