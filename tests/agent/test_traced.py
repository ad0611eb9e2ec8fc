"""Steps that are traced once, then run number by number or in passes, are the steps bit for bit."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hushgrad as hg
from hushgrad.agent import long, passes
from hushgrad.agent.few import FewSteps
from hushgrad.agent.many import ManySteps
from hushgrad.agent.passes import Pass
from hushgrad.agent.single import AgentDriver, OneAgent
from hushgrad.agent.trace import NotTraceableError, Number, Vector, in_order, trace
from hushgrad.draws import Stream
from hushgrad.exchange import Push
from hushgrad.simulate.in_memory import local_agents
from support import cases

CONSTANT, ROOM = hg.stepsizes.constant(0.05), 5
DEVIATING = hg.stepsizes.diminishing(0.5, offset=2.0, deviation=hg.stepsizes.geometric(0.9))
TRACED = {
    "PDGDS": hg.PDGDS(),
    "PDGDS geometric": hg.PDGDS(stepsize=DEVIATING),
    "PDGDS B = I": hg.PDGDS(split=hg.splits.identity()),
    "PDGNDS": hg.PDGNDS(stepsize=CONSTANT),
    "PDGNDS square": hg.PDGNDS(stepsize=CONSTANT, form="square"),
    "PDGNDS recommended": hg.PDGNDS(stepsize=CONSTANT, design="recommended"),
    "DGD": hg.DGD(stepsize=DEVIATING),
    "EXTRA": hg.EXTRA(),
}
OTHERS = {
    "two exchanges": hg.DIGing(),
    "links that take turns": hg.AsynDGM(),
    "shares that are vectors": hg.PDGDS(split=hg.splits.isotropic()),
    "numbers that are looked at": hg.PDGNDS(
        stepsize=hg.stepsizes.constant(0.05, deviation=hg.stepsizes.bursts(2, 0.5))
    ),
}


def team_of(algorithm, network, quadratics):
    locals_ = local_agents(algorithm, quadratics.problem, network, seed=5, trial=0)
    return [
        AgentDriver(algorithm, local, x0) for local, x0 in zip(locals_, quadratics.x0, strict=True)
    ]


def deliver(team):
    """Every agent's box, in an order of arrival that is not that of the senders' numbers."""
    boxes = [{} for _ in team]
    for j, agent in reversed(list(enumerate(team))):
        for i, payload in agent.send().items():
            boxes[i][j] = payload
    return boxes


def messages_of(sent):
    """{receiver: message}, however they go out."""
    few, letters, mail, _, _ = sent
    if few is not None:
        return dict(zip(*few, strict=True))
    if letters is not None:
        return {i: row[ROOM:] for i, row in zip(*letters, strict=True)}
    return {i: payload[0] for i, payload in mail.items()}


def bits(vectors):
    return [np.array(u, np.float64).ravel().tobytes() for u in vectors]


def steps_of(kind, found, view, dim):
    exact = view.local.gradient
    if kind is ManySteps:
        return ManySteps(found, view, dim, exact, room=ROOM)
    return FewSteps(found, view, dim, lambda x: exact(np.array(x)).tolist())


def follow(algorithm, network, quadratics, kind, iterations=30):
    """Run agents as they are, and traced steps beside them, from the same states."""
    team = team_of(algorithm, network, quadratics)
    beside = []
    for agent in team:
        view = OneAgent(agent.local)
        found = trace(algorithm, view, type(agent.state))
        beside.append((view, steps_of(kind, found, view, quadratics.x0.shape[1])))
    for k in range(iterations):
        is_first = k == 0 and algorithm.first_differs
        boxes = deliver(team)
        for (view, steps), agent in zip(beside, team, strict=True):
            if not is_first:
                view.bind(k)
                sent = steps.send(k, tuple(steps.of(u[0, :, 0]) for u in agent.state))
                mine, theirs = messages_of(sent), agent.send()
                assert tuple(mine) == tuple(theirs)
                assert bits(mine.values()) == bits([payload[0] for payload in theirs.values()])
                assert bits([sent[3]]) == bits(agent._own)
                assert sent[4]
        for (_, steps), agent, box in zip(beside, team, boxes, strict=True):
            agent.receive(box)
            if k == 0 and kind is ManySteps:  # the first sending is done in NumPy
                is_pull = steps._trace.row is not None
                steps.prepare((*box, 10_000) if is_pull else tuple(box))  # who cannot send does not
            if not is_first:
                came = [steps.of(payload[0]) for payload in box.values()]
                before = vars(steps).copy()
                total, state = steps.receive(tuple(box), came)
                assert bits(state) == bits(agent.state)
                vars(steps).update(before)  # as if it were rerun from a journal
                assert bits(steps.answer(total)) == bits(state)


@pytest.fixture(params=["few", "many", "many, in NumPy"])
def kind(request, monkeypatch):
    if request.param == "few":
        return FewSteps
    if request.param.endswith("NumPy"):
        monkeypatch.setattr(passes, "_compiled", lambda text: None)
        for module in (long, passes):
            monkeypatch.setattr(module, "PIECE", 3)
    elif passes._compiled(passes._CHECK) is None:
        pytest.skip("no compiler")
    return ManySteps


def rows():
    """Every algorithm with every network that it takes."""
    networks = {"undirected": cases.undirected(), "nonsymmetric": cases.nonsymmetric()}
    for name, algorithm in TRACED.items():
        for where, network in networks.items():
            try:
                algorithm.check(network)
            except hg.HushgradError:
                continue
            yield pytest.param(algorithm, network, id=f"{name}-{where}")


@pytest.mark.parametrize(("algorithm", "network"), list(rows()))
def test_traced_steps_are_the_steps(algorithm, network, kind):
    follow(algorithm, network, cases.Quadratics(), kind)


def test_an_agent_with_many_neighbours_is_traced_too(kind):
    network = hg.Network(hg.graphs.star(600))
    follow(TRACED["PDGNDS"], network, cases.Quadratics(m=600, d=2), kind, iterations=2)


def test_vectors_longer_than_a_piece():
    follow(TRACED["PDGNDS"], cases.undirected(), cases.Quadratics(d=1100), ManySteps, iterations=3)


@pytest.mark.parametrize("algorithm", OTHERS.values(), ids=OTHERS)
def test_other_steps_are_not_traced(algorithm):
    (agent, *_) = team_of(algorithm, cases.undirected(), cases.Quadratics())
    with pytest.raises((NotTraceableError, TypeError, AttributeError)):
        trace(algorithm, OneAgent(agent.local), type(agent.state))


class Curious(hg.DGD):
    """Looks at what it should only compute with."""

    look = staticmethod(bool)

    def step(self, agent, s):
        self.look(agent, s)
        x = yield Push(agent.W @ s.x)
        return type(s)(x=x)


@pytest.mark.parametrize(
    "look",
    [
        lambda agent, s: agent.k < 3,
        lambda agent, s: agent.k == 3,
        lambda agent, s: agent.k != 3,
        lambda agent, s: agent.counter == 3,
        lambda agent, s: agent.counter + 1,
        lambda agent, s: int(agent.k),
        lambda agent, s: math.sqrt(agent.k),
        lambda agent, s: np.sqrt(s.x),
        lambda agent, s: np.asarray(s.x),
        lambda agent, s: s.x[0],
        lambda agent, s: s.x.shape,
        lambda agent, s: s.x**2,
        lambda agent, s: list(s.x),
        lambda agent, s: np.ones(3) * s.x,
        lambda agent, s: agent.coin(),
        lambda agent, s: agent.gradient(agent.k),
        lambda agent, s: math.inf * s.x,
        lambda agent, s: s.x / s.x,
        lambda agent, s: s.x / agent.k,
        lambda agent, s: s.x / 0.0,
        lambda agent, s: 1.0 / s.x,
        lambda agent, s: agent.ones * agent.k,
        lambda agent, s: agent.W @ s.x + agent.link_uniforms(Stream.SPLIT)[0] @ s.x,
    ],
)
def test_what_looks_at_numbers_is_not_traced(look):
    algorithm = Curious()
    object.__setattr__(algorithm, "look", look)
    (agent, *_) = team_of(hg.DGD(), cases.undirected(), cases.Quadratics())
    with pytest.raises((NotTraceableError, TypeError, AttributeError)):
        trace(algorithm, OneAgent(agent.local), type(agent.state))
    object.__setattr__(algorithm, "look", lambda agent, s: None)
    trace(algorithm, OneAgent(agent.local), type(agent.state))


class Drawing(hg.DGD):
    """Draws on its own, or counts: every call is another step."""

    def step(self, agent, s):
        x = yield Push(agent.W @ (next(SOURCE) * s.x))
        return type(s)(x=x)


SOURCE = itertools.count(1)


def test_a_step_that_is_another_one_every_time_is_not_traced():
    (agent, *_) = team_of(hg.DGD(), cases.undirected(), cases.Quadratics())
    with pytest.raises(NotTraceableError, match="another one every time"):
        trace(Drawing(), OneAgent(agent.local), type(agent.state))


def test_passes_refuse_vectors_of_other_lengths_and_kinds():
    a, b = Vector(source=("a",)), Vector(source=("b",))
    todo = Pass([a + b], {a, b})
    with pytest.raises(ValueError, match="of 4 numbers"):
        todo.run([np.ones(4), np.ones(1)], [np.empty(4)], [])
    with pytest.raises(ValueError, match="of 4 numbers"):
        todo.run([np.ones(4), np.ones(4, np.int64)], [np.empty(4)], [])


# ---- passes

OPERATIONS = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "-u": np.negative
}  # fmt: skip


@st.composite
def sums(draw):
    """Vectors that are given, and some that are computed of these and of one another."""
    given = [Vector(source=("given", n)) for n in range(draw(st.integers(1, 4)))]
    every = list(given)
    for _ in range(draw(st.integers(1, 25))):
        a, b = (draw(st.sampled_from(every)) for _ in range(2))
        number = draw(st.floats(-4, 4).filter(bool))
        operation = draw(st.sampled_from(list(OPERATIONS)))
        operands = draw(st.sampled_from([(a, b), (a, number), (number, b)]))
        every.append(Vector(operation, (a,) if operation == "-u" else operands))
    wanted = draw(st.lists(st.sampled_from(every), min_size=1, max_size=5))
    return given, wanted, draw(st.sampled_from([1, 2, 511, 512, 513, 1030]))


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Somewhere else than the user's, for code that nobody needs again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("in_numpy", [False, True], ids=["in C", "in NumPy"])
@settings(max_examples=60)
@given(case=sums())
def test_a_pass_is_one_operation_after_the_other(in_numpy, case):
    inputs, wanted, dim = case
    given_ = dict.fromkeys(inputs)
    rng = np.random.default_rng(dim)
    values = {u: rng.normal(size=dim) for u in given_}
    todo = Pass(wanted, given_)
    if not in_numpy:
        todo.prepare()
    with np.errstate(all="ignore"):
        for u in in_order(wanted, given_):
            operands = [values[v] if isinstance(v, Vector) else v for v in u.given]
            values[u] = OPERATIONS[u.operation](*operands)
        found = [np.empty(dim) for _ in todo.wanted]
        used = [values[u] for u in todo.given]
        is_finite = todo.run(used, found, todo.numbers)
    for u, got in zip(todo.wanted, found, strict=True):
        np.testing.assert_array_equal(got, values[u])
    assert is_finite == (not found or bool(np.isfinite(found[-1]).all()))


@given(st.integers(0, 1100), st.sampled_from([math.nan, math.inf, -math.inf, 1e308]), st.data())
def test_finite_is_what_numpy_calls_so(size, odd, data):
    vector = np.full(size, 1e308)
    if size and data.draw(st.booleans()):
        vector[data.draw(st.integers(0, size - 1))] = odd
    assert passes.is_finite(vector) == np.isfinite(vector).all()
    assert passes.is_finite(vector[::2]) == np.isfinite(vector[::2]).all()


def test_what_is_prepared_is_not_compiled_when_messages_come(monkeypatch):
    if passes._compiled(passes._CHECK) is None:
        pytest.skip("no compiler")
    quadratics = cases.Quadratics()
    team = team_of(TRACED["PDGNDS"], cases.undirected(), quadratics)
    view = OneAgent(team[0].local)
    found = trace(TRACED["PDGNDS"], view, type(team[0].state))
    steps = steps_of(ManySteps, found, view, quadratics.x0.shape[1])
    box = deliver(team)[0]
    came = {j: steps.of(payload[0]) for j, payload in box.items()}
    steps.prepare(tuple(box))
    monkeypatch.setattr(passes, "_compiled", lambda text: pytest.fail("compiled"))
    monkeypatch.setattr(Pass, "_run_in_numpy", lambda *_: pytest.fail("in NumPy"))
    state = tuple(steps.of(u[0, :, 0]) for u in team[0].state)
    steps.send(0, state)
    steps.receive(tuple(came), came.values())
    steps.send(0, state)
    del came[next(iter(came))]
    with pytest.raises(pytest.fail.Exception, match="in NumPy"):  # others are not compiled for
        steps.receive(tuple(came), came.values())


@pytest.mark.usefixtures("cache")
def test_a_pass_that_is_too_long_to_be_compiled_is_done_in_numpy(monkeypatch):
    texts = []
    compiled = passes._compiled
    monkeypatch.setattr(passes, "_compiled", lambda text: texts.append(text) or compiled(text))
    x = Vector(source=("x",))
    for n in (passes._MOST, passes._MOST + 1):
        last = x
        for _ in range(n):
            last = last + x
        found = np.empty(5)
        todo = Pass([last], {x})
        todo.prepare()
        assert todo.run([np.ones(5)], [found], [])
        np.testing.assert_array_equal(found, n + 1.0)
    assert len(texts) == 1


def test_order_is_kept_and_what_is_known_is_left():
    a, b = Vector(source=("a",)), Number(source=("k",))
    c = a * b
    d = c + a
    e = d - c
    other = Vector(source=("other",))
    for found, expected in (
        (in_order([e]), (a, b, c, d, e)),
        (in_order([e], {a, b, c}), (d, e)),
        (in_order([e], {a, b, other}, {c: other}), (d, e)),
    ):
        assert [id(u) for u in found] == [id(u) for u in expected]
