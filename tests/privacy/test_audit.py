"""The audit says who learns what: exposed where theory says so, not recovered where it says so."""

import itertools
import json
import re
import time
from dataclasses import dataclass, replace

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.errors import DivergedError, InputError, PrivacyError
from hushgrad.privacy import Truth
from hushgrad.privacy.attacks import ALL, Attack, Estimate
from hushgrad.privacy.attacks.flow import Flow
from hushgrad.privacy.page import page
from hushgrad.privacy.result import Audit
from hushgrad.privacy.verdict import Evidence, verdict
from hushgrad.simulate.run import driver_of
from support import cases
from support.tables import some

STEP = hg.stepsizes.constant(0.1)
BASELINES = [
    hg.DGD(stepsize=hg.stepsizes.diminishing(0.3)),
    *(a(stepsize=STEP) for a in (hg.EXTRA, hg.DIGing, hg.AugDGM, hg.AsynDGM)),
    *(a(stepsize=STEP) for a in (hg.AB, hg.PushPull, hg.ADDOPT)),
]
PAPER = [hg.PDGDS(stepsize=hg.stepsizes.diminishing(0.5)), hg.PDGNDS(stepsize=STEP)]
QUICK = 1  # random designs; the long study has
MANY = 60
LONG = 1600  # iterations after which a recommended design has five digits of the optimum


def record(algorithm, network=None, problem=None, iterations=60, **options):
    network = network or cases.undirected()
    m = network.n_agents
    problem = problem or cases.Quadratics(m, d=3, by_hand=True).problem
    options = {"transcript": True, "engine": "agents", "seed": 3} | options
    return hg.run(algorithm, problem, network, iterations=iterations, **options)


def recommended(network, problem, *, part=1.0):
    """The recommended design with quadratic masks as large as L, and a run to its end."""
    gap = 0.1 * (1.0 - network.eta)
    step = hg.stepsizes.constant(part * gap / problem.smoothness())
    return hg.PDGNDS(stepsize=step, design="recommended")


def verdicts(audit, kind):
    return {f.verdict for f in audit.findings if f.kind == kind}


@pytest.mark.parametrize("algorithm", some(BASELINES, 2), ids=lambda a: a.title)
def test_every_baseline_is_exposed(algorithm):
    iterations = 300 if algorithm.title == "AsynDGM" else 60
    audit = hg.audit(record(algorithm, iterations=iterations), coalitions=False)
    assert audit.kinds == ("eavesdropper", "neighbour", "neighbours")
    assert verdicts(audit, "eavesdropper") == verdicts(audit, "neighbours") == {"exposed"}
    for finding in audit.findings:
        if finding.exposure == "exposed":
            assert finding.best.error <= 0.5 * finding.best.guess
            assert finding.best.error < 1e-3


@pytest.mark.parametrize("algorithm", PAPER, ids=lambda a: a.title)
def test_the_papers_design_is_exposed_to_whoever_hears_all_links(algorithm):
    run = record(algorithm, hg.Network(hg.graphs.paper()), iterations=300)
    audit = hg.audit(run, ["eavesdropper", "neighbours"], coalitions=False)
    assert verdicts(audit, "eavesdropper") == verdicts(audit, "neighbours") == {"exposed"}
    attacks = {e.attack for f in audit.findings for e in f.evidence if e.counts}
    assert {"span", "objective-fit"} <= attacks


def test_bursts_do_not_help():
    step = replace(STEP, deviation=hg.stepsizes.bursts(5, 2.0, within=100))
    run = record(hg.PDGNDS(stepsize=step), iterations=300)
    audit = hg.audit(run, "eavesdropper", coalitions=False)
    assert verdicts(audit, "eavesdropper") == {"exposed"}


def test_without_one_neighbours_links_only_a_first_direction_is_recovered_and_the_audit_says_why():
    """Agent 4 has two neighbours; whoever hears only one of them can add up no flow."""
    step = replace(STEP, deviation=hg.stepsizes.geometric(0.5, drawn="once"))
    run = record(hg.PDGNDS(stepsize=step, split=hg.splits.private_constant()), iterations=300)
    ears = {(4, 3), (3, 4)}
    audit = hg.audit(run, hg.Eavesdropper(ears), agents=[4], coalitions=False)
    (finding,) = audit.findings
    assert finding.verdict == "direction exposed"
    assert finding.tried == ("first-message",)
    assert finding.refused["flow"] == "hears 2 of the 4 links of agent 4"
    later = hg.audit(run, hg.Eavesdropper(ears), agents=[4], at=[1, 2], coalitions=False)
    assert later.findings[0].exposure == "not recovered"
    others = [attack for attack in ALL if attack.name != "first-message"]
    rest = hg.audit(run, hg.Eavesdropper(ears), agents=[4], attacks=others, coalitions=False)
    assert rest.findings[0].verdict == "no attack applies"
    assert rest.findings[0].best is None
    assert "0 of 1 exposed (no attack applies)" in str(rest)
    assert "no attack applies" in page([rest])
    whole = hg.audit(run, hg.Eavesdropper({*ears, (4, 5), (5, 4)}), agents=[4], coalitions=False)
    assert whole.findings[0].verdict == "exposed"


def test_two_neighbours_have_the_direction_in_pdg_ds_and_not_the_size():
    run = record(PAPER[0], iterations=60)
    audit = hg.audit(run, hg.Curious({1, 2}), agents=[0], coalitions=False)
    assert audit.findings[0].verdict == "direction exposed"
    assert audit.findings[0].best.attack == "span"


@pytest.mark.slow  # examples/07_audit.py and docs/privacy.md show it in every run of the tests
def test_the_recommended_design_withstands_all_neighbours_and_an_eavesdropper():
    network, problem = cases.undirected(), cases.Quadratics(d=3, by_hand=True).problem
    run = record(recommended(network, problem), network, problem, iterations=LONG)
    audit = hg.audit(run, coalitions=False, agents=[0, 3])
    assert {f.exposure for f in audit.findings} == {"not recovered"}
    assert any(len(f.tried) >= 3 for f in audit.findings)
    (coalition,) = hg.audit(run, "eavesdropper", agents=[0]).coalitions
    assert set(coalition.members) == {*neighbours(network, 0), *partners(run, 0)}
    assert coalition.is_smallest


def neighbours(network, i):
    return {int(j) for j in network.graph.senders[network.graph.receivers == i]}


def partners(run, i):
    return set(run.algorithm.masking.partners(i, run.network.n_agents))


def test_one_honest_partner_beyond_the_neighbours_is_what_keeps_a_mask():
    network, problem = hg.Network(hg.graphs.ring(6)), cases.Quadratics(6, d=2, by_hand=True).problem
    run = record(recommended(network, problem), network, problem, iterations=LONG // 2)
    all_of_them = {*neighbours(network, 0), *partners(run, 0)}
    beyond = sorted(all_of_them - neighbours(network, 0))
    assert beyond
    coalitions = [hg.Curious(all_of_them - {one}) for one in beyond]
    audit = hg.audit(run, [hg.Curious(all_of_them), *coalitions], agents=[0], coalitions=False)
    assert [f.exposure for f in audit.findings] == ["exposed", *["not recovered"] * len(beyond)]


def test_linear_masks_alone_let_the_hessian_out():
    network, problem = cases.undirected(), cases.Quadratics(d=3, by_hand=True).problem
    algorithm = replace(recommended(network, problem), masks=hg.masks.zero_sum(quadratic=0))
    run = record(algorithm, network, problem, iterations=LONG // 2, accept_exposure=["curvature"])
    audit = hg.audit(run, "neighbours", coalitions=False)
    counting = {e.quantity for f in audit.findings for e in f.evidence if e.counts}
    assert counting - {"position"} == {"curvature"}


def random_design(seed):
    """A random connected network, a random problem, and the recommended design on them."""
    rng = np.random.default_rng(seed)
    m, d = int(rng.integers(5, 11)), int(rng.integers(1, 5))
    tree = {(int(rng.integers(i)), i) for i in range(1, m)}
    more = {tuple(sorted(rng.choice(m, 2, replace=False).tolist())) for _ in range(m)}
    network = hg.Network(hg.graphs.from_edges(sorted(tree | more), n_agents=m))
    problem = hg.problems.estimation(n_agents=m, s=d + 1, d=d, noise=1.0, seed=seed)
    return network, problem, recommended(network, problem)


def against_guessing(seed):
    """Errors over those of the guess, of all attacks on all agents with an honest partner left;
    None if the sums of the design would tell a row, so that it is refused.
    """
    network, problem, algorithm = random_design(seed)
    try:
        run = record(algorithm, network, problem, iterations=800, seed=seed)
    except hg.errors.PrivacyError:
        return None
    audit = hg.audit(run, coalitions=False)
    ratios = {"gradient": [], "curvature": [], "membership": []}
    for finding in audit.findings:
        near = neighbours(network, finding.agent)
        if finding.kind == "neighbours" and partners(run, finding.agent) <= near:
            continue  # no honest partner is left
        # membership and curvature are judged over all runs: with d = 1 the mask of a curvature is
        # one number, which may be small by accident
        judged_alone = [
            e for e in finding.evidence if e.quantity not in ("membership", "curvature")
        ]
        said = verdict(judged_alone)
        assert said == "not recovered", (seed, finding)
        for e in finding.evidence:
            kind = "gradient" if e.quantity.startswith("gradient") else e.quantity
            if kind in ratios:
                ratios[kind].append(e.error / e.guess)
    return ratios


def check_no_attack_is_better_than_guessing(seeds, least):
    every = [found for seed in seeds if (found := against_guessing(seed)) is not None]
    assert len(every) >= 0.8 * len(seeds)
    gradient, curvature, bits = (np.concatenate([r[kind] for r in every]) for kind in every[0])
    print(
        f"membership: {len(bits)} tests, advantage: median {1 - np.median(bits):.2f}, "
        f"largest {1 - bits.min():.2f}"
    )
    assert np.median(bits) > 0.7  # a row is as large as its mask: a test is better than a coin
    assert bits.min() > 0.3
    for name, ratio in (("gradients", gradient), ("Hessians", curvature)):
        print(
            f"{name}: {len(ratio)} estimates, {(ratio < 1).sum()} nearer than the guess, error "
            f"over the guess's: least {ratio.min():.2f}, median {np.median(ratio):.0f}"
        )
    assert len(gradient) >= least
    assert len(curvature) >= least / 4
    assert gradient.min() > 1.0  # no estimate of a gradient is as good as the guess
    assert np.median(curvature) > 2.0
    assert (curvature < 1.0).mean() < 0.02  # a share of a mask may be small by accident


@pytest.mark.filterwarnings("ignore::hushgrad.errors.RiskWarning")
def test_no_attack_is_better_than_guessing_on_a_few_random_recommended_designs():
    check_no_attack_is_better_than_guessing(range(QUICK), 60)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::hushgrad.errors.RiskWarning")
def test_no_attack_is_better_than_guessing_on_many_random_recommended_designs():
    """60 random networks of 5 to 10 agents and problems of 1 to 4 dimensions."""
    check_no_attack_is_better_than_guessing(range(100, 100 + MANY), 1500)


def test_verdicts_never_call_an_agent_safe():
    audit = hg.audit(record(recommended_small()[2], *recommended_small()[:2], iterations=100))
    said = str(audit) + audit.to_json()
    assert "not recovered (" in said
    assert not re.search(r"safe|hidden|secure|protected", said)


def recommended_small():
    network, problem = hg.Network(hg.graphs.ring(5)), cases.Quadratics(5, d=2, by_hand=True).problem
    return network, problem, recommended(network, problem)


def test_a_sole_neighbour_is_the_smallest_coalition_and_inner_agents_need_both():
    network = hg.Network(hg.graphs.path(5))
    audit = hg.audit(record(PAPER[1], network, iterations=400), "eavesdropper")
    members = {c.agent: c.members for c in audit.coalitions}
    assert members == {0: (1,), 1: (0, 2), 2: (1, 3), 3: (2, 4), 4: (3,)}
    assert all(c.is_smallest for c in audit.coalitions)


@pytest.mark.parametrize("seed", range(4))
def test_the_smallest_coalition_against_extra_covers_whom_the_agent_listens_to(seed):
    """EXTRA says the same to all, so i is exposed if of i and each neighbour somebody hears."""
    rng = np.random.default_rng(seed)
    tree = [(int(rng.integers(i)), i) for i in range(1, 7)]
    more = [tuple(sorted(rng.choice(7, 2, replace=False).tolist())) for _ in range(3)]
    network = hg.Network(hg.graphs.from_edges(sorted({*tree, *more}), n_agents=7))
    audit = hg.audit(record(BASELINES[1], network, iterations=30), "eavesdropper")
    near = {i: neighbours(network, i) for i in range(7)}
    for coalition in audit.coalitions:
        i = coalition.agent
        sizes = [
            len(S)
            for n in range(1, len(near[i]) + 1)
            for S in itertools.combinations(near[i], n)
            if all(near[j] & set(S) or j in S for j in (i, *near[i]))
        ]
        assert len(coalition.members) == min(sizes)
        assert coalition.is_smallest


def test_a_search_that_is_cut_off_says_so():
    """On the complete graph every agent but one of EXTRA's can be spared: many sets to look at."""
    run = record(hg.PDGNDS(stepsize=STEP), hg.Network(hg.graphs.paper()), iterations=300)
    whole = hg.audit(run, "eavesdropper", agents=[0]).coalitions[0]
    assert str(whole) == "agents 1, 2, 4"
    extra = record(BASELINES[1], hg.Network(hg.graphs.paper()), iterations=30)
    cut = hg.audit(extra, "eavesdropper", agents=[0], most_coalitions=1).coalitions[0]
    assert str(cut) == "agents 1, 2, 4, or fewer"
    assert str(hg.audit(extra, "eavesdropper", agents=[0]).coalitions[0]) == "agents 1, 4"


def test_everyone_else_always_knows_and_in_a_complete_graph_they_are_the_neighbours():
    network, problem = hg.Network(hg.graphs.complete(4)), cases.Quadratics(4, by_hand=True).problem
    run = record(recommended(network, problem), network, problem, iterations=LONG // 4)
    audit = hg.audit(run)
    assert verdicts(audit, "neighbours") == {"exposed"}
    assert verdicts(audit, "neighbour") == {"no attack applies"}
    assert {"optimum"} <= {e.attack for f in audit.findings for e in f.evidence if e.counts}
    assert [c.members for c in audit.coalitions] == [(1, 2, 3), (0, 2, 3), (0, 1, 3), (0, 1, 2)]


def test_json_says_everything_and_comes_back_as_it_was():
    audit = hg.audit(record(PAPER[0], iterations=40))
    assert Audit.from_json(audit.to_json()) == audit
    said = json.loads(audit.to_json())
    assert said["findings"][0]["verdict"] == audit.findings[0].verdict
    lost = Evidence(attack="flow", quantity="gradient", k=(0, 3), error=np.inf, guess=1.0)
    broken = replace(audit, findings=(replace(audit.findings[0], evidence=(lost,)),))
    assert Audit.from_json(broken.to_json()) == broken


def test_a_run_without_transcript_is_run_again_with_the_same_result():
    options = {"trials": [4, 7], "x0": cases.Quadratics(d=3).x0}
    with_it = hg.audit(record(BASELINES[1], **options), trial=1)
    without = hg.audit(record(BASELINES[1], transcript=False, **options), trial=1)
    assert with_it == without
    assert without.trial == 7


class Elsewhere:
    """A driver of one's own: agents alone, moved by something afterwards."""

    def __init__(self, moved=0.0):
        self.moved = moved

    def __call__(self, order):
        outcome = driver_of("agents")(order)
        return replace(outcome, x=outcome.x + self.moved)


def test_a_run_of_a_driver_is_run_again_by_agents_with_the_same_result():
    options = {"transcript": False, "trials": [2, 5]}
    by_agents = hg.audit(record(PAPER[1], **options), trial=1, agents=[0, 6])
    driven = record(PAPER[1], **options, driver=Elsewhere())
    assert driven.config["engine"] == "elsewhere"
    assert hg.audit(driven, trial=1, agents=[0, 6]) == by_agents
    assert by_agents.trial == 5


def test_a_run_of_a_driver_that_does_something_else_is_refused_with_the_way_out():
    driven = record(PAPER[1], transcript=False, driver=Elsewhere(moved=0.01))
    with pytest.raises(PrivacyError, match=r"'elsewhere', ends 1\.0e-02 away .* transcript=True"):
        hg.audit(driven)


def test_accuracy_and_speed_are_those_of_the_run():
    run = record(BASELINES[1], iterations=400, record_every=1)
    audit = hg.audit(run, "eavesdropper", coalitions=False)
    assert audit.accuracy == pytest.approx(run.error[0, -1] / run.error[0, 0])
    assert audit.iterations_to_1e_6 == np.flatnonzero(run.error[0] <= 1e-6 * run.error[0, 0])[0]


def test_adversaries_attacks_and_agents_can_be_chosen():
    run = record(PAPER[1], iterations=100)
    chosen = [hg.Curious({1, 2}), "neighbour", hg.Eavesdropper()]
    audit = hg.audit(run, chosen, agents=[0, 1], attacks=[Flow()], coalitions=False)
    assert audit.kinds == ("curious agents 1, 2", "neighbour", "eavesdropper")
    asked = [(f.agent, f.kind) for f in audit.findings]
    singles = [(0, "neighbour")] * 4 + [(1, "neighbour")] * 3
    assert asked == [
        (0, "curious agents 1, 2"), *singles, (0, "eavesdropper"), (1, "eavesdropper"),
    ]  # fmt: skip
    assert {name for f in audit.findings for name in (*f.tried, *f.refused)} == {"flow"}
    assert audit.coalitions == ()


def test_the_table_shows_the_worst_of_each_kind():
    audit = hg.audit(record(BASELINES[0]), agents=[6])
    lines = [line for line in audit.table().splitlines() if line.startswith("6 ")]
    who = ["eavesdropper", "curious agent 1", "curious agent 1"]
    for line, name in zip(lines, who, strict=True):
        assert re.match(rf"6 +{name} +exposed  +inversion of DGD: g at k = 0…58, < 1e-9 off", line)
    assert "agent 6: agent 1" in audit.table()
    assert "all neighbours: 1 of 1 exposed" in audit.table()


def test_progress_counts_every_question():
    ticks = []
    hg.audit(record(BASELINES[0]), agents=[0, 6], progress=lambda n, of: ticks.append((n, of)))
    assert ticks == [(n, 11) for n in range(1, 12)]  # 2 + (4 + 1) + 2 findings, 2 coalitions


def test_what_cannot_be_audited_is_refused_with_the_way_out(tmp_path):
    run = record(BASELINES[0], iterations=5)
    with pytest.raises(PrivacyError, match=r"loaded from a file.*Run it again"):
        hg.audit(hg.load_run(run.save(tmp_path / "run.npz")))
    with pytest.raises(InputError, match="trials 0 to 0"):
        hg.audit(run, trial=1)
    with pytest.raises(InputError, match="agent 7 is asked for"):
        hg.audit(run, agents=[7])
    with pytest.raises(InputError, match=r"hg.Eavesdropper\(\).*but got 'spy'"):
        hg.audit(run, "spy")
    with pytest.raises(InputError, match="but got 3"):
        hg.audit(run, [3])
    with pytest.raises(InputError, match="an agent outside"):
        hg.audit(run, hg.Curious(range(7)))
    wild = hg.EXTRA(stepsize=hg.stepsizes.constant(50.0))
    with pytest.raises(DivergedError, match="diverged at"):
        hg.audit(record(wild, iterations=2000))


def test_every_attack_of_the_lab_has_a_name_of_its_own_and_says_what_it_does():
    assert len({a.name for a in ALL}) == len({a.title for a in ALL}) == len(ALL)
    for attack in ALL:
        assert attack.__doc__


@dataclass(frozen=True, kw_only=True)
class Stumbling(Attack):
    """Raises where it is told to, and else finds nothing."""

    error: Exception
    place: str  # applies, call, or judge: an estimate that nobody can judge

    name = "stumbling"
    title = "Stumbling <b>"

    def applies(self, view, target):
        if self.place == "applies":
            raise self.error
        return

    def __call__(self, view, target):
        if self.place == "call":
            raise self.error
        wrong = np.ones((2, 7))
        return (Estimate(attack=self.name, target=target, quantity="gradient", k=[0], value=wrong),)


@pytest.fixture(scope="module")
def short():
    """A short run, and what Flow alone finds in it."""
    run = record(PAPER[1], hg.Network(hg.graphs.paper()), iterations=60)
    return run, hg.audit(run, attacks=[Flow()], agents=[0, 1])


@pytest.mark.parametrize("place", ["applies", "call", "judge"])
@pytest.mark.parametrize(
    "error",
    [np.linalg.LinAlgError("Singular\nmatrix"), FloatingPointError("x"), ValueError(), KeyError(3)],
    ids=lambda e: type(e).__name__,
)
def test_an_attack_that_raises_ends_nothing_and_is_not_tried(place, error, short):
    run, without = short
    audit = hg.audit(run, attacks=[Stumbling(error=error, place=place), Flow()], agents=[0, 1])
    assert audit.coalitions == without.coalitions
    for finding, same in zip(audit.findings, without.findings, strict=True):
        assert list(finding.failed) == ["stumbling"]
        assert replace(finding, failed={}) == same
        if finding.exposure == "not recovered":
            assert finding.verdict.endswith("tried, 1 failed)")
    if place != "judge":
        reason = {"LinAlgError": "LinAlgError: Singular", "ValueError": "ValueError"}
        said = reason.get(type(error).__name__, f"{type(error).__name__}: {error}")
        assert {f.failed["stumbling"] for f in audit.findings} == {said}
        assert f"  stumbling: {said} (9 of 9 findings)" in audit.table()
        assert f"stumbling: failed, {said}" in page([audit])
    assert Audit.from_json(audit.to_json()) == audit


def test_errors_of_numpy_in_an_attack_of_the_lab_fail_this_attack_only(monkeypatch):
    """Singular values that do not converge, in the middle of Span and Objective fit."""
    run = record(PAPER[1], hg.Network(hg.graphs.paper()), iterations=200)
    before = hg.audit(run, "eavesdropper", coalitions=False)

    def qr(*args, **options):
        raise np.linalg.LinAlgError("Incorrect argument found in QR")

    by_qr = {"span", "objective-fit", "structured-hessian"}
    monkeypatch.setattr(np.linalg, "qr", qr)
    after = hg.audit(run, "eavesdropper", coalitions=False)
    assert not any(f.failed for f in before.findings)
    for was, finding in zip(before.findings, after.findings, strict=True):
        assert by_qr <= set(was.tried)
        assert set(finding.tried) == set(was.tried) - by_qr
        assert set(finding.failed) == by_qr
        assert finding.refused == was.refused
        assert {e.attack for e in finding.evidence} == {"first-message", "flow"}


@dataclass(frozen=True, kw_only=True)
class Silent(Attack):
    """Applies, and has nothing to say."""

    name = title = "silent"

    def applies(self, view, target):
        return None

    def __call__(self, view, target):
        return ()


def test_an_attack_that_gave_no_estimate_is_not_counted_as_tried():
    run = record(PAPER[1], iterations=20)
    (finding,) = hg.audit(run, "eavesdropper", agents=[0], attacks=[Silent()]).findings
    assert finding.tried == ()
    assert finding.verdict == "no attack applies"
    assert "gave no estimate" in finding.refused["silent"]


@dataclass(frozen=True, kw_only=True)
class OfFew(Attack):
    """Knows everything of agent 0; two colluders are one too many for it."""

    truth: Truth

    name = title = "of few"

    def applies(self, view, target):
        return None

    def __call__(self, view, target):
        if len(view.members) < 3:
            raise ZeroDivisionError
        g = self.truth.at_optimum[target]
        of = {"attack": self.name, "target": target, "quantity": "gradient at optimum"}
        return (Estimate(**of, value=g),)


def test_a_coalition_is_not_called_the_smallest_where_an_attack_of_a_smaller_one_failed(short):
    run, _ = short
    attacks = [OfFew(truth=Truth(run))]
    (coalition,) = hg.audit(run, attacks=attacks, agents=[0]).coalitions
    assert str(coalition) == "agents 1, 2, 4, or fewer"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::hushgrad.errors.RiskWarning")
@pytest.mark.parametrize("d", [2, 5])
@pytest.mark.parametrize(
    "algorithm",
    [
        hg.PDGNDS(stepsize=hg.stepsizes.constant(0.02)),
        hg.PDGDS(),
        hg.PDGNDS(stepsize=hg.stepsizes.constant(0.02), design="recommended"),
    ],
    ids=["PDG-NDS", "PDG-DS", "recommended"],
)
def test_twenty_agents_and_5000_iterations_are_audited_in_less_than_a_minute(
    algorithm, d, tmp_path
):
    """Run, audit and page, on one core: in processor time, which others on the machine spare."""
    network = hg.Network(hg.graphs.random_regular(20, 4, seed=0))
    problem = hg.problems.estimation(n_agents=20, s=d + 1, d=d, seed=0)
    started = time.process_time()
    audit = hg.audit(hg.run(algorithm, problem, network, iterations=5000))
    audit.html(tmp_path / "page.html")
    taken = time.process_time() - started
    print(f"audit of 20 agents, {algorithm.title}, {algorithm.design}, d = {d}: {taken:.0f} s")
    assert taken < 60
