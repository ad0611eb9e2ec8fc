"""Deployed agents fit: the bits of the programme in one process, also after kills."""

import json
import random
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.errors import FitError, StateError
from hushgrad.network.config.fits import run_of_fit
from hushgrad.network.ops.result import Status
from hushgrad.network.programme import Programme
from hushgrad.network.protocol.frames import HEADER, FrameKind
from hushgrad.network.state.journal import Slot
from hushgrad.network.state.stages import write_stage
from hushgrad.network.transport import in_memory
from support import fit_network, fits
from support.tables import some

COLUMNS = {"columns": ("age", "stage"), "factors": {"stage": fits.LEVELS}}
LOGISTIC = fits.model("logistic", **COLUMNS)
THREE = fits.synthetic((25, 40, 60))
FOUR = fits.synthetic((25, 40, 60, 35))
NETWORKS = {3: hg.Network(hg.graphs.complete(3)), 4: hg.Network(hg.graphs.ring(4))}


def ended(setting):
    agents, results, deaths = fit_network.run(setting)
    assert {r.status for r in results} == {Status.DONE}, [r.summary for r in results]
    return [agent.fitted for agent in agents], results, deaths


@pytest.mark.parametrize("sites", [THREE, FOUR], ids=["three linked", "a ring of four"])
def test_agents_end_with_the_bits_of_plain_sums(tmp_path, sites):
    setting = fit_network.configs(tmp_path, LOGISTIC, sites, NETWORKS[len(sites)], seed=3)
    found, results, _ = ended(setting)
    plain = fits.fit(LOGISTIC, sites)
    assert {fit_network.bits(result) for result in found} == {fit_network.bits(plain)}
    each = setting[0].run.lengths[0]
    assert {r.rounds for r in results} == {each * plain.n_averages}
    assert each == 1 or len(sites) == 4
    X, columns = fits.design(LOGISTIC, sites), fits.pooled_columns(sites)
    b, _, _ = fits.reweighted("logistic", X, columns["death"])
    assert np.abs(results[0].theta / b - 1).max() < 1e-9


# ---- kills


@pytest.fixture(scope="module")
def calm():
    return {fit_network.bits(fits.fit(LOGISTIC, THREE))}


def once(original, key_of, *, after):
    """A function that is killed once for each key, before or after it does its work."""
    seen = set()

    def killed(*given, **named):
        key = key_of(*given, **named)
        is_due = key is not None and key not in seen
        seen.add(key)
        if is_due and not after:
            raise fit_network.KilledError
        done = original(*given, **named)
        if is_due:
            raise fit_network.KilledError
        return done

    return killed


def slot_key(slot, section, *, afresh):
    return str(slot._path), section.k, section.round, len(section.arrays)


@pytest.mark.parametrize("after", some([True, False]))
def test_killed_at_every_write_of_every_stage_the_bits_are_the_same(
    tmp_path, calm, monkeypatch, after
):
    """At every section of the sums and of the journal, and at every file of a stage."""
    killed = once(Slot.write, slot_key, after=after)
    monkeypatch.setattr(Slot, "write", lambda *given, **named: killed(*given, **named))
    stage = once(write_stage, lambda directory, begun: (directory, begun.stage), after=after)
    monkeypatch.setattr("hushgrad.network.staging.write_stage", stage)
    setting = fit_network.configs(tmp_path, LOGISTIC, THREE, NETWORKS[3], seed=3)
    found, _, deaths = ended(setting)
    assert {fit_network.bits(result) for result in found} == calm
    assert deaths > 3 * 3 * found[0].n_averages


@pytest.mark.parametrize(
    ("part", "least"), [(0.01, 10), pytest.param(0.12, 100, marks=pytest.mark.slow)]
)
def test_killed_at_random_the_bits_are_the_same(tmp_path, monkeypatch, part, least):
    """On a ring, where an average has many rounds."""
    rng, original = random.Random(0), Slot.write

    def killed(slot, section, *, afresh):
        if rng.random() < part:
            raise fit_network.KilledError
        original(slot, section, afresh=afresh)
        if rng.random() < part:
            raise fit_network.KilledError

    monkeypatch.setattr(Slot, "write", killed)
    setting = fit_network.configs(tmp_path, LOGISTIC, FOUR, NETWORKS[4], seed=3)
    found, _, deaths = ended(setting)
    plain = fits.fit(LOGISTIC, FOUR)
    assert {fit_network.bits(result) for result in found} == {fit_network.bits(plain)}
    assert deaths >= least


def test_an_agent_that_has_ended_tells_its_result_again(tmp_path, calm):
    setting = fit_network.configs(tmp_path, LOGISTIC, THREE, NETWORKS[3], seed=3)
    ended(setting)
    again, results, _ = ended(setting)
    assert {fit_network.bits(result) for result in again} == calm
    assert {r.incarnation for r in results} == {2}


def half_way(directory, monkeypatch, **options):
    """Three agents that all ended after their third average, and may go on."""
    setting = fit_network.configs(directory, LOGISTIC, THREE, NETWORKS[3], seed=3, **options)
    original = Programme.pool

    def pool(stages, stage, average):
        original(stages, stage, average)
        if stage == 2:
            raise StateError("enough")

    with monkeypatch.context() as patch:
        patch.setattr(Programme, "pool", pool)
        _, results, _ = fit_network.run(setting)
    assert "enough" in {r.detail for r in results}
    for result in results:
        assert result.detail == "enough" or ": it failed (failed)" in result.detail
    return setting


def test_an_agent_whose_rows_have_changed_does_not_go_on(tmp_path, monkeypatch):
    setting = half_way(tmp_path, monkeypatch, max_wait=2.0)
    text = setting[1].objective.file.read_text()
    setting[1].objective.file.write_text(text.replace("\n", "\n", 1).rsplit("\n", 2)[0] + "\n")
    _, results, _ = fit_network.run(setting)
    assert results[1].status is Status.REFUSED
    assert "the fit began with other rows" in results[1].detail
    assert {results[0].status, results[2].status} == {Status.PEER_ENDED}


def test_a_torn_sum_is_pooled_again_and_a_lost_one_is_named(tmp_path, calm, monkeypatch):
    setting = half_way(tmp_path, monkeypatch, max_wait=2.0)
    torn, lost = (config.state / "sums" for config in setting[:2])
    torn.write_bytes(torn.read_bytes()[:-3])
    found, _, _ = ended(setting)
    assert {fit_network.bits(result) for result in found} == calm
    lost.write_bytes(lost.read_bytes()[: lost.stat().st_size // 3])
    _, results, _ = fit_network.run(setting)
    assert "lacks pooled sums" in results[1].detail


# ---- what a message depends on


def frames(stream):
    """What a stream tells: its frames but for signs of life, each once, but for clock and process.

    Tokens that meet on their way share a frame, so each counts by itself.
    """
    found, place = set(), 0
    while place < len(stream):
        _, _, kind, _, round_, length, flags = HEADER.unpack_from(stream, place)
        body = bytes(stream[place + HEADER.size : (place := place + HEADER.size + length)])
        parts = [body]
        if kind == FrameKind.HELLO:
            document = json.loads(body)
            parts = [json.dumps(document | {"clock": 0, "life": ""})]  # the process draws its life
        elif kind == FrameKind.CONFIRM:
            parts = [body[n : n + 32] for n in range(0, length, 32)]
        if kind != FrameKind.HEARTBEAT:
            found |= {(FrameKind(kind).name, round_, flags, part) for part in parts}
    return found


def wire_of(directory, sites, masked, patch, leak):
    """All frames between agents whose masked vectors are those of `masked`, or become them."""
    streams = defaultdict(bytearray)

    def write(end, data, original=in_memory._End.write):
        streams[end.of, end.to] += data
        original(end, data)

    def statistic(stages, stage, start, own, original=Programme._masked):
        made = original(stages, stage, start, own)
        kept = masked.setdefault((stages.config.number, stage), made)
        return kept._replace(q=kept.q + stages._rows.n_rows) if leak and stage == 2 else kept

    patch.setattr(in_memory._End, "write", write)
    patch.setattr(Programme, "_masked", statistic)
    setting = fit_network.configs(directory, LOGISTIC, sites, NETWORKS[3], seed=3, id="same")
    _, results, _ = fit_network.run(setting)
    assert leak or {r.status for r in results} == {Status.DONE}
    return {way: frames(stream) for way, stream in streams.items()}


@pytest.mark.parametrize("leak", [False, True])
def test_other_rows_with_the_same_masked_vectors_send_the_same_bits(tmp_path, monkeypatch, leak):
    """Nothing that a site sends, in frames of any kind, depends on its rows but through the masked
    vectors. `leak`: one vector has the number of rows beside its mask, so this test can fail.
    """
    masked, (first, second, third) = {}, THREE.values()
    others = {"north": second, "middle": third, "south": first}  # every site has other rows
    told = []
    for name, sites in (("one", THREE), ("two", others)):
        with monkeypatch.context() as patch:
            told.append(wire_of(tmp_path / name, sites, masked, patch, leak))
    kinds = {kind for sent in told[0].values() for kind, *_ in sent}
    assert {"HELLO", "DATA"} < kinds
    assert leak or {"CONFIRM", "FIN"} < kinds
    assert len(told[0]) == 6
    assert (told[0] == told[1]) is not leak


# ---- fits that end otherwise


def test_a_fit_without_a_result_ends_so_at_every_site_and_says_so_again(tmp_path):
    sites = {
        name: {"x": np.arange(12.0) + n, "y": (np.arange(12) + n > 6).astype(float)}
        for n, name in enumerate(THREE)
    }
    separated = hg.Model(kind="logistic", outcome="y", columns=["x"])
    setting = fit_network.configs(tmp_path, separated, sites, NETWORKS[3], seed=3)
    for incarnation in (1, 2):
        agents, results, _ = fit_network.run(setting)
        assert {r.status for r in results} == {Status.FAILED}
        assert all("separate the outcomes" in r.detail for r in results)
        assert {r.incarnation for r in results} == {incarnation}
        assert {r.exit_code for r in results} == {1}
        assert [agent.fitted for agent in agents] == [None] * 3


def test_an_eta_below_that_of_the_network_is_refused_by_name(tmp_path):
    setting = fit_network.configs(tmp_path, LOGISTIC, FOUR, NETWORKS[4], seed=3)
    eta = 0.2  # of a ring of four it is 1/3
    run = run_of_fit(LOGISTIC, id=setting[0].run.id, n_agents=4, eta=eta, seed=3)
    _, results, _ = fit_network.run([replace(config, run=run) for config in setting])
    assert {r.status for r in results} == {Status.REFUSED}
    assert all("eta in [run] is smaller than η of the network" in r.detail for r in results)


def test_a_programme_that_does_not_end_is_named(tmp_path, monkeypatch):
    def endless(model, rows, progress):
        while True:
            yield np.ones(3)

    monkeypatch.setattr("hushgrad.network.programme.programme_of", endless)
    setting = fit_network.configs(tmp_path, LOGISTIC, THREE, NETWORKS[3], seed=3)
    _, results, _ = fit_network.run(setting)
    assert {r.status for r in results} == {Status.REFUSED}
    assert all(r.detail.startswith("a fit ends within 60 averages") for r in results)
    assert {r.rounds for r in results} == {60}


# With all thirty columns a plane separates the outcomes, so that only a penalty gives a fit; with
# twenty-nine none does, but nearly. test_kinds.py decides both by linear programming.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_columns", "penalty", "graph", "most"),
    [
        (30, 1.0, hg.graphs.complete(3), 30),
        (30, 1.0, hg.graphs.ring(8), 900),
        (30, 1e-3, hg.graphs.ring(8), 900),
        (29, 0.0, hg.graphs.complete(3), 30),
    ],
)
def test_thirty_raw_columns_take_few_rounds(tmp_path, n_columns, penalty, graph, most):
    from support import judge  # skips without mpmath

    sizes = (60, 150, 359) if graph.n_agents == 3 else (60, 30, 100, 59, 80, 70, 90, 80)
    names, sites = fits.cancer(n_columns, sizes)
    declared = fits.model("logistic", outcome="benign", columns=names, factors={}, penalty=penalty)
    setting = fit_network.configs(tmp_path, declared, sites, hg.Network(graph), seed=3)
    found, results, _ = ended(setting)
    plain = fits.fit(declared, sites)
    assert {fit_network.bits(r) for r in found} == {fit_network.bits(plain)}
    assert results[0].rounds <= most
    X, y = fits.design(declared, sites), fits.pooled_columns(sites)["benign"]
    penalties = (penalty * X.var(axis=0)).tolist()  # that of the intercept is 0
    exact = judge.coefficients("logistic", X, y, start=plain.estimate, penalties=penalties)
    print(f"{results[0].rounds} rounds, {judge.off(plain.estimate, exact):.1e} from forty digits")
    assert judge.off(plain.estimate, exact) < 1e-9


def test_a_site_whose_fit_ends_early_is_noticed_at_once(tmp_path, monkeypatch):
    """Its neighbours go on, and neither waits for the other up to `max_wait`."""
    setting = fit_network.configs(tmp_path, LOGISTIC, THREE, NETWORKS[3], seed=3)
    setting = [replace(config, max_wait=300.0) for config in setting]
    original = Programme._advance

    def accident(programme, pooled):
        if programme.config.number == 1 and len(programme._sums) == 3:
            programme._own, programme._outcome = None, FitError("an accident.")
            return
        original(programme, pooled)

    monkeypatch.setattr(Programme, "_advance", accident)
    _, results, _ = fit_network.run(setting, seconds=20)
    assert results[1].status is Status.REFUSED
    assert "ended here after 3 averages, but" in results[1].detail
    assert "goes on, so there is no table" in results[1].detail
    assert "Here it ended with: an accident." in results[1].detail
    assert {results[0].status, results[2].status} <= {Status.REFUSED, Status.PEER_ENDED}
    assert "ended the run" in results[0].detail
