"""Sums of an agent's other runs on the same data count, whatever their ids and masks."""

from dataclasses import replace

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.errors import ExposureError, PrivacyError
from hushgrad.network.admission import admit
from hushgrad.network.ledgers import told_before
from hushgrad.network.objective.objectives import ObjectiveSpec, load_objective
from hushgrad.network.ops.doctor.exposure import verdicts
from hushgrad.network.staging import Stages
from hushgrad.network.state.journal import StateDirectory
from hushgrad.network.state.ledger import ledger_of, runs_of
from hushgrad.theory import WEAKNESSES
from support import agent_network

NETWORK = hg.Network(hg.graphs.complete(3))
ROWS = 120  # two stages tell 2 · 5 numbers about 240 entries: 4.2 %
ALGORITHM = hg.PDGNDS(stepsize=hg.stepsizes.constant(0.01), design="recommended", stages=2)


@pytest.fixture
def agent(tmp_path):
    """One agent with rows of one length in a file; it accepts all but `sums` and `changes`."""
    config = agent_network.configs(
        tmp_path, ALGORITHM, NETWORK, dim=2, iterations=60, eta=NETWORK.eta, stages=2,
        accept_exposure=frozenset(WEAKNESSES) - {"sums", "changes"},
    )[0]  # fmt: skip
    return replace(config, objective=spec(tmp_path / "rows.csv", seed=0))


def spec(file, seed):
    angle = np.random.default_rng(seed).uniform(0, 2 * np.pi, ROWS)
    signs = np.where(np.arange(ROWS) % 3 == 0, -1, 1)
    table = np.column_stack([signs, np.cos(angle), np.sin(angle)])
    np.savetxt(file, table, delimiter=",", header="y,a,b", comments="", fmt="%.17g")
    return ObjectiveSpec(
        kind="logistic", n_agents=3, file=file, columns=("a", "b"), target="y", regularisation=9.0
    )


def again(config, n, **changes):
    run = replace(config.run, id=f"run-{n}")
    return replace(config, run=run, state=config.state.parent / f"state-{n}", **changes)


def begin(config, *, is_quadratic=False):
    """The agent up to its first stage, without a connection."""
    objective = load_objective(config.objective, 2)
    admission = admit(config, objective, is_quadratic=is_quadratic, is_given=False)
    state = StateDirectory(config.state, run=config.run.id, agent=config.name, durability="process")
    admission.begin(state)
    state.close()
    return Stages(config, objective)


def stages(config, *starts):
    """Enter the stages with these starts, as far as they are judged and noted."""
    run = begin(config)
    for stage, start in enumerate(starts):
        run._earlier = lambda stage: list(starts[:stage])
        run._check(stage, np.asarray(start, np.float64))


def test_every_stage_is_a_line_that_only_other_runs_count(agent):
    stages(agent, [0, 0], [0.5, 0.1])
    lines = ledger_of(agent.key).lines()
    assert [line.status for line in lines] == ["opened", "begun", "told", "told"]
    assert [line.facts["numbers"] for line in lines[2:]] == [5, 5]
    assert lines[3].facts["start"] == [0.5, 0.1]
    assert "start" not in lines[3].to_json()
    assert runs_of(lines)[0].status == "begun"
    assert told_before(agent).numbers == 0  # its own stages are counted by the run itself
    before = told_before(again(agent, 1))
    assert (before.runs, before.numbers, len(before.chains)) == (1, 10, 1)
    assert [start.tolist() for start in before.chains[0].starts] == [[0, 0], [0.5, 0.1]]


def test_runs_with_other_columns_are_counted_and_runs_of_other_data_are_not(agent, tmp_path):
    stages(agent, [0, 0], [0.5, 0.1])
    turned = replace(agent.objective, columns=("b", "a"))
    before = told_before(again(agent, 1, objective=turned))
    assert (before.numbers, before.chains) == (10, ())
    elsewhere = spec(tmp_path / "others.csv", seed=1)
    assert told_before(again(agent, 1, objective=elsewhere)).numbers == 0
    copied = spec(tmp_path / "copy.csv", seed=0)
    assert told_before(again(agent, 1, objective=copied)).numbers == 10
    lesser = replace(agent.objective, regularisation=1.0)
    assert len(told_before(again(agent, 1, objective=lesser)).chains) == 1


def test_runs_are_admitted_until_all_of_them_have_revealed_a_tenth(agent):
    """10 numbers a run: two runs reveal 8.3 % of 240 entries, three 12.5 %."""
    for n in range(2):
        stages(again(agent, n), [0, 0], [0.5, 0.1])
    third = again(agent, 2)
    said = "2 stages reveal 10 numbers and earlier runs 20 about 120 effective honest rows"
    with pytest.raises(PrivacyError, match=said):
        begin(third)
    sums = [v for v in verdicts(third, load_objective(third.objective, 2)) if v.name == "sums"]
    assert [(v.verdict, said in v.text) for v in sums] == [("refused", True)]
    begin(replace(third, accept_exposure=frozenset(WEAKNESSES)))


def test_a_stage_is_refused_if_all_runs_together_determine_a_row(agent):
    """Sums at two long θ_s differ by the rows between them: each run has one of the two."""
    objective, none = load_objective(agent.objective, 2), np.zeros(2)
    far = [50 * np.array([np.cos(angle), np.sin(angle)]) for angle in (3.2205, 3.2505)]
    for start in far:
        assert objective.determined([none, start], False, 1.0, ()) < 0.6
    stages(again(agent, 0), none, far[0])
    with pytest.raises(ExposureError, match="earlier runs have told much about the same rows"):
        stages(again(agent, 1), none, far[1])
    assert [line.status for line in ledger_of(agent.key).lines()].count("told") == 3


def with_rows(config, n, keep, add=0):
    """The next run on the first `keep` rows of the file and some new ones."""
    file = config.objective.file
    head, *rows = file.read_text().splitlines()
    new = [f"1,{np.cos(a)},{np.sin(a)}" for a in np.arange(1, add + 1)]
    other = file.with_name(f"rows-{n}.csv")
    other.write_text("\n".join([head, *rows[:keep], *new]))
    return again(config, n, objective=replace(config.objective, file=other))


@pytest.mark.parametrize("kind", ["logistic", "ridge"])
@pytest.mark.parametrize(("keep", "add"), [(ROWS - 1, 0), (ROWS, 1), (ROWS - 1, 1)])
def test_a_run_is_refused_if_a_row_has_joined_or_left_since_an_earlier_one(agent, kind, keep, add):
    """The sums of both differ by that row, whatever the masks: the difference has rank one."""
    agent = replace(agent, objective=replace(agent.objective, kind=kind))
    begin(again(agent, 0), is_quadratic=kind == "ridge")
    later = with_rows(agent, 1, keep, add)
    with pytest.raises(PrivacyError, match="changes: the sums of two runs differ by the rows"):
        begin(later, is_quadratic=kind == "ridge")
    said = [v for v in verdicts(later, load_objective(later.objective, 2)) if v.name == "changes"]
    assert [v.verdict for v in said] == ["refused"]
    begin(replace(later, accept_exposure=frozenset(WEAKNESSES)), is_quadratic=kind == "ridge")


@pytest.mark.parametrize(
    ("kind", "rules"),
    [("ridge", {"clip": 0.5}), ("logistic", {"clip": 0.5}), ("huber", {"delta": 2.0})],
)
def test_a_run_is_refused_if_another_rule_treats_single_rows_differently(agent, kind, rules):
    """The same rows, one of which a clip shortens or a delta turns: sums differ by that row."""
    agent = replace(agent, objective=replace(agent.objective, kind=kind))
    begin(again(agent, 0), is_quadratic=kind == "ridge")
    begin(again(agent, 1), is_quadratic=kind == "ridge")
    later = again(agent, 2, objective=replace(agent.objective, **rules))
    with pytest.raises(PrivacyError, match="about 1 row of this agent changed, or its clip"):
        begin(later, is_quadratic=kind == "ridge")
    begin(replace(later, accept_exposure=frozenset(WEAKNESSES)), is_quadratic=kind == "ridge")


def test_of_two_runs_that_begin_at_once_one_is_refused(agent):
    """Both are admitted before either is in the ledger."""
    runs = again(agent, 0), with_rows(agent, 1, ROWS - 1)
    objectives = [load_objective(run.objective, 2) for run in runs]
    admitted = [
        admit(run, objective, is_quadratic=False, is_given=False)
        for run, objective in zip(runs, objectives, strict=True)
    ]
    states = [
        StateDirectory(run.state, run=run.run.id, agent=run.name, durability="process")
        for run in runs
    ]
    admitted[0].begin(states[0])
    with pytest.raises(PrivacyError, match="changes: "):
        admitted[1].begin(states[1])
    assert [line.status for line in ledger_of(agent.key).lines()] == ["opened", "begun"]
    for state in states:
        state.close()


def test_the_same_rows_again_or_many_others_are_no_change_of_few_rows(agent):
    begin(again(agent, 0))
    begin(again(agent, 1))
    begin(with_rows(agent, 2, ROWS))
    with pytest.raises(PrivacyError, match="about 49 rows of this agent changed"):
        begin(with_rows(agent, 3, 71))
    begin(with_rows(agent, 4, 70))  # 50 rows have left, as many as the sums of a run need
