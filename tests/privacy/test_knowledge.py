"""A view is what its adversary knows: all of it, and nothing more."""

import gc
import sys
import types
from collections import deque

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.draws import Stream, agent_keys, pair_keys, trial_keys
from hushgrad.errors import InputError, PrivacyError
from hushgrad.privacy import Curious, Eavesdropper, Knowledge, Truth
from hushgrad.privacy.replay import masks, replays, weights
from support import cases
from support.tables import some

M, D, N = cases.M, 3, 25
SEED = 987_654_321_012_345
NETWORK = cases.undirected()
PROBLEM = hg.problems.estimation(n_agents=M, s=2, d=D, seed=4)
X0 = np.random.default_rng(1).normal(size=(M, D))
MASKED = hg.PDGNDS(stepsize=hg.stepsizes.constant(0.002), masks=hg.masks.zero_sum())


def record(algorithm, network=NETWORK, engine="agents", **options):
    options = {"iterations": N, "seed": SEED, "x0": X0, "transcript": True,
               "accept_exposure": ["curvature"]} | options  # fmt: skip
    return hg.run(algorithm, PROBLEM, network, engine=engine, **options)


@pytest.fixture(scope="module")
def masked():
    """A run in which everything that can be secret is: λ, B, x^0, masks."""
    return record(MASKED)


def reachable(root):
    """Every object that code holding `root` could get at without help from a module's globals.

    Attributes, slots, containers, closures, defaults, bound objects and what arrays are views of;
    modules and classes are everybody's.
    """
    public = {id(vars(module)) for module in list(sys.modules.values()) if module is not None}
    seen, queue, found = set(), deque([root]), []
    while queue:
        thing = queue.popleft()
        if id(thing) in seen or id(thing) in public:
            continue
        seen.add(id(thing))
        if isinstance(thing, types.ModuleType | type | types.CodeType | types.FrameType):
            continue
        found.append(thing)
        if isinstance(thing, types.FunctionType):
            held = [thing.__closure__, thing.__defaults__, thing.__kwdefaults__, vars(thing)]
            queue.extend(part for part in held if part is not None)
            continue
        queue.extend(gc.get_referents(thing))
        queue.extend(getattr(thing, name, None) for name in ("__dict__", "base", "__wrapped__"))
    return found


def numbers(root):
    """The float64 and the integers of all arrays and numbers that are reachable."""
    floats, whole = set(), set()
    for thing in reachable(root):
        if isinstance(thing, float):
            floats.add(thing)
        elif isinstance(thing, int):
            whole.add(thing)
        elif isinstance(thing, np.ndarray | np.generic) or "ArrayImpl" in type(thing).__name__:
            array = np.asarray(thing)
            (floats if array.dtype.kind == "f" else whole).update(array.ravel().tolist())
    return floats, whole


def secrets(run, j):
    """What agent j keeps to itself, by name; numbers that nobody could have by chance."""
    truth, agent = Truth(run), replays(run, 0, [j])[j]
    data = PROBLEM.agent_data(j)
    return {
        "estimates": truth.x[:, j],
        "gradients": truth.gradients(j),
        "gradient at the optimum": truth.at_optimum[j],
        "steps": truth.h(j),
        "stepsizes": truth.lam(j)[:-1],
        "weights": np.concatenate(list(weights(agent, run.algorithm).values())),
        "data": np.concatenate([data["M"].ravel(), data["z"]]),
        "mask": np.concatenate([masks(run, 0)[j].c, masks(run, 0)[j].Q.ravel()]),
    }


def keys():
    """All words of the seeds and keys of the run."""
    trial = trial_keys(SEED, [0])
    words = {SEED, SEED & 0xFFFF_FFFF, SEED >> 32, *np.ravel(trial).tolist()}
    for stream in Stream:
        words.update(np.ravel(agent_keys(trial, np.arange(M), stream)).tolist())
    low, high = np.triu_indices(M, 1)
    words.update(np.ravel(pair_keys(trial, low, high)).tolist())
    return words


ADVERSARIES = [Eavesdropper(), Eavesdropper([(0, 1), (1, 0)]), Curious({2}), Curious({0, 5, 6})]


@pytest.mark.parametrize("adversary", ADVERSARIES, ids=lambda a: a.label)
def test_no_secret_of_another_agent_is_reachable_from_a_view(adversary, masked):
    floats, whole = numbers(Knowledge.of(masked, adversary))
    for j in set(range(M)) - adversary.members:
        for name, values in secrets(masked, j).items():
            leaked = floats & set(np.ravel(values).tolist())
            assert not leaked, f"{name} of agent {j}: {leaked}"
    assert not (floats | whole) & keys()


def test_the_walk_would_find_every_secret(masked):
    """The proof above means something: it finds what is there."""
    floats, whole = numbers(Truth(masked))
    for j in range(M):
        for name in ("estimates", "data"):
            assert set(secrets(masked, j)[name].ravel().tolist()) <= floats
    assert SEED in whole
    agent = replays(masked, 0, [3])[3]
    agent.uniform(Stream.STEPSIZE)
    key = agent_keys(trial_keys(SEED, [0]), [3], Stream.STEPSIZE)
    assert set(np.ravel(key).tolist()) <= numbers(agent)[1]
    view = Knowledge.of(masked, Curious({2}))
    floats, _ = numbers(view)
    for name, values in secrets(masked, 2).items():
        if name not in ("steps", "gradient at the optimum"):  # these it could compute
            assert set(values.ravel().tolist()) <= floats, name


@pytest.mark.parametrize("adversary", ADVERSARIES[1:], ids=lambda a: a.label)
def test_no_message_of_an_unheard_link_is_reachable(adversary, masked):
    floats, _ = numbers(Knowledge.of(masked, adversary))
    heard = Knowledge.of(masked, adversary).heard
    (channel,) = masked.transcript.channels
    for n, link in enumerate(zip(channel.senders, channel.receivers, strict=True)):
        sent = set(channel.values[0, :, channel.row[n]].ravel().tolist())
        assert (link in heard) == (sent <= floats)
        assert (link in heard) or not sent & floats


def test_no_other_trial_is_reachable():
    run = record(hg.PDGDS(), trials=2)
    floats, _ = numbers(Knowledge.of(run, Eavesdropper(), trial=1))
    other, mine = (set(run.transcript.channels[0].values[t].ravel().tolist()) for t in (0, 1))
    assert mine <= floats
    assert not other & floats


def test_curious_agents_hear_the_links_of_their_members(masked):
    view = Knowledge.of(masked, Curious({1, 6}))
    links = {*cases.UNDIRECTED, *((i, j) for j, i in cases.UNDIRECTED)}
    assert view.links == links
    assert view.heard == {(j, i) for j, i in links if {j, i} & {1, 6}}
    assert view.in_links(1) == view.out_links(1) == (0, 2, 6)


def test_in_and_out_links_of_a_directed_graph_differ():
    view = Knowledge.of(record(hg.PushPull(), cases.directed()), Eavesdropper([(0, 1), (5, 6)]))
    assert view.out_links(0) == (1, 3)
    assert view.in_links(0) == (6,)
    assert view.heard == {(0, 1), (5, 6)}
    assert view.hears(0, 1)
    assert not view.hears(1, 0)


def test_square_links_reach_two_hops():
    view = Knowledge.of(record(hg.PDGNDS(form="square")), Curious({6}))
    assert view.out_links(6) == (0, 1, 2)  # 1 and the neighbours of 1
    assert np.isnan(view.sent(0, 6)[0]).all()  # the first iteration goes one hop
    assert np.isfinite(view.sent(0, 6)[1:]).all()
    assert np.isfinite(view.sent(1, 6)).all()


ALGORITHMS = [
    hg.PDGDS(),
    hg.PDGNDS(form="square"),
    hg.EXTRA(),
    hg.DIGing(),
    hg.AB(),
    hg.ADDOPT(),
    hg.AsynDGM(),
]


STACKED = [hg.PDGNDS(form="square"), hg.AB(), hg.AsynDGM()]


@pytest.mark.parametrize(
    ("algorithm", "engine"),
    [*((a, "agents") for a in ALGORITHMS), *some([(a, "stacked") for a in STACKED])],
    ids=lambda v: getattr(v, "label", v),
)
def test_a_view_gives_every_message_that_was_sent(algorithm, engine):
    run = record(algorithm, engine=engine, iterations=12)
    everything = Knowledge.of(run, Eavesdropper())
    places = sorted({(c.round, c.exchange) for c in run.transcript.channels})
    for adversary in (Eavesdropper(), Curious({3})):
        view = Knowledge.of(run, adversary)
        for link in view.heard:
            sent = [view.sent(*link, round=r, exchange=e) for r, e in places]
            for k in range(12):
                told = [message[k] for message in sent if not np.isnan(message[k]).any()]
                for one, other in zip(told, run.transcript.messages(k, *link), strict=True):
                    np.testing.assert_array_equal(one, other)
        assert view.heard == {link for link in everything.heard if adversary.hears([link])}


ONCE = hg.PDGDS(
    stepsize=hg.stepsizes.diminishing(deviation=hg.stepsizes.geometric(0.9, drawn="once")),
    split=hg.splits.private_constant(),
)


@pytest.mark.parametrize("algorithm", [hg.PDGDS(), ONCE], ids=["each", "once"])
def test_a_member_knows_what_it_sent_and_why(algorithm):
    """v_ij = w_ij x_j − b_ij λ_j g_j from what a member knows of itself, against the wire."""
    run = record(algorithm)
    view, W = Knowledge.of(run, Curious({0})), NETWORK.matrix()
    own = view.own(0)
    np.testing.assert_allclose(sum(own.columns.values()), 1.0, rtol=1e-14)
    for i in view.out_links(0):
        h = own.lam[:, None] * own.gradients
        sent = W[i, 0] * own.x[:-1] - own.columns[i][:, None] * h
        np.testing.assert_allclose(view.sent(0, i), sent, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(own.gradient(own.x[7]), own.gradients[7], rtol=1e-12)
    np.testing.assert_array_equal(own.x[0], X0[0])


@pytest.mark.parametrize(
    ("form", "engine"), some([("square", "agents"), ("square", "stacked"), ("lazy", "agents")], 2)
)
def test_truth_is_what_the_agents_did(form, engine):
    """Columns sum to one, so flows and estimates give λg, masks included: h of the truth."""
    algorithm = hg.PDGNDS(
        form=form, stepsize=hg.stepsizes.constant(0.002), masks=hg.masks.zero_sum()
    )
    run = record(algorithm, engine=engine)
    view, truth = Knowledge.of(run, Eavesdropper()), Truth(run)
    for i in range(M):
        told = np.nansum([view.sent(j, i) for j in view.in_links(i)], axis=0)
        sent = np.nansum([view.sent(i, j) for j in view.out_links(i)], axis=0)
        h = np.cumsum(told - sent, axis=0) - np.diff(truth.x[:, i], axis=0)
        np.testing.assert_allclose(truth.h(i), h, rtol=1e-10, atol=1e-11)
        mask = masks(run, 0)[i]
        bare = truth.h(i) / truth.lam(i)[:, None] - mask.c - truth.x[:-1, i] @ mask.Q
        np.testing.assert_allclose(truth.gradients(i), bare, rtol=1e-9, atol=1e-9)


def test_truth_knows_optimum_and_objective():
    truth = Truth(record(hg.PDGDS()))
    np.testing.assert_allclose(truth.at_optimum.sum(0), 0, atol=1e-12)
    for i in range(M):
        data = PROBLEM.agent_data(i)
        H = 2 * (data["M"].T @ data["M"] + data["sigma"] * np.eye(D))
        q = -2 * data["M"].T @ data["z"]
        np.testing.assert_allclose(truth.hessian(i), H, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(truth.objective(i), np.column_stack([H, q]), atol=1e-13)
        np.testing.assert_allclose(
            truth.gradients(i), truth.x[:-1, i] @ H.T + q, rtol=1e-11, atol=1e-12
        )


def test_truth_of_a_trial_with_its_own_problem():
    problem = hg.problems.estimation(n_agents=M, s=2, d=D, trials=3)
    run = hg.run(
        hg.PDGDS(), problem, NETWORK, iterations=5, trials=[2, 0], transcript=True, engine="agents"
    )
    for row, number in enumerate([2, 0]):
        truth = Truth(run, trial=row)
        np.testing.assert_array_equal(truth.solution, problem.solution()[number])
        expected = problem.local_gradient(4, number)(run.trace[row, 3, 4])
        np.testing.assert_allclose(truth.gradients(4)[3], expected, rtol=1e-13)


def test_a_loss_that_is_not_quadratic_has_no_objective_matrix():
    rng = np.random.default_rng(0)
    problem = hg.problems.logistic(
        rng.normal(size=(M, 4, 2)), rng.integers(0, 2, size=(M, 4)), regularisation=0.1
    )
    run = hg.run(hg.PDGDS(), problem, NETWORK, iterations=3, transcript=True, engine="agents")
    assert Truth(run).objective(0) is None
    assert Truth(run).hessian(0) is not None  # at θ*: tests/privacy/test_verdict.py


def test_members_know_their_share_of_their_partners_masks(masked):
    """Σ over partners of what they share with 0 is the mask of 0: Σ_i c_i = 0, pair by pair."""
    shares = [
        Knowledge.of(masked, Curious({j})).own(j).shared[0]
        for j in range(1, M)
        if 0 in Knowledge.of(masked, Curious({j})).own(j).shared
    ]
    mask = masks(masked, 0)[0]
    assert 2 <= len(shares) < M - 1
    np.testing.assert_allclose(sum(s.c for s in shares), mask.c, rtol=1e-13)
    np.testing.assert_allclose(sum(s.Q for s in shares), mask.Q, rtol=1e-13)


REFUSED = {
    "secrets of a stranger": (
        lambda run: Knowledge.of(run, Curious({1})).own(0),
        PrivacyError,
        r"agent 0 is none: this one consists of agents \[1\]",
    ),
    "secrets for an eavesdropper": (
        lambda run: Knowledge.of(run, Eavesdropper()).own(0),
        PrivacyError,
        "consists of no agent",
    ),
    "an unheard link": (
        lambda run: Knowledge.of(run, Curious({6})).sent(2, 3),
        InputError,
        "the link from 2 to 3 is not heard",
    ),
    "a link that does not exist": (
        lambda run: Knowledge.of(run, Eavesdropper()).sent(0, 6),
        InputError,
        "the link from 0 to 6 does not exist",
    ),
    "an exchange that does not exist": (
        lambda run: Knowledge.of(run, Eavesdropper()).sent(0, 1, round=1),
        InputError,
        "no exchange 0 in round 1",
    ),
    "an eavesdropper beside the links": (
        lambda run: Knowledge.of(run, Eavesdropper([(0, 6)])),
        InputError,
        "none leads from 0 to 6",
    ),
    "a link that is no pair": (lambda run: Eavesdropper([3]), InputError, "got 3"),
    "an agent that does not exist": (
        lambda run: Knowledge.of(run, Curious({7})),
        InputError,
        "from 0 to 6, but one of them is 7",
    ),
    "nobody": (lambda run: Curious(set()), InputError, "at least one"),
    "a trial that does not exist": (
        lambda run: Knowledge.of(run, Eavesdropper(), trial=1),
        PrivacyError,
        "trials 0 to 0",
    ),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_what_is_not_known_is_refused_by_name(case, masked):
    ask, error, words = case
    with pytest.raises(error, match=words):
        ask(masked)


def test_a_run_without_messages_or_from_a_file_is_refused(masked, tmp_path):
    with pytest.raises(PrivacyError, match=r"kept no transcript.*transcript=True"):
        Knowledge.of(record(MASKED, transcript=False), Eavesdropper())
    loaded = hg.load_run(masked.save(tmp_path / "run.npz"))
    with pytest.raises(PrivacyError, match="was loaded from a file"):
        Truth(loaded)
