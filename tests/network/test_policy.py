"""A site's policy holds before anything is sent, and no rule of it can be got around."""

import asyncio
import os
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

import hushgrad as hg
from hushgrad.errors import ConfigError, ExposureError, LedgerError, PolicyError, ReplayError
from hushgrad.network import budgets
from hushgrad.network import policy as policies
from hushgrad.network.admission import admit
from hushgrad.network.deployed import Agent
from hushgrad.network.keys.identity import load_certificate, mint
from hushgrad.network.objective.objectives import load_objective
from hushgrad.network.policy import load_policy
from hushgrad.network.spending import spend
from hushgrad.network.state import ledger as ledgers
from hushgrad.network.state.journal import StateDirectory
from hushgrad.network.state.ledger import LedgerFile, runs_of
from hushgrad.schema.toml import to_toml
from support import fit_network, fits

LOGISTIC = fits.model("logistic", columns=("age", "stage"), factors={"stage": fits.LEVELS})
SITES = fits.synthetic((60, 70, 80))
COMPLETE = hg.Network(hg.graphs.complete(3))


@pytest.fixture
def site(tmp_path, monkeypatch):
    """One agent of a fit of three, with keys; the machine's own policies are out of the way."""
    monkeypatch.setattr(policies, "SYSTEM", tmp_path / "etc" / "policy.toml")
    monkeypatch.delenv(policies.VARIABLE, raising=False)
    return fit_network.configs(tmp_path / "net", LOGISTIC, SITES, COMPLETE, tls=True)[0]


@pytest.fixture
def ledger(tmp_path):
    """A ledger for policies, and the two keys that name it."""
    file = LedgerFile(tmp_path / "ledger")
    first = file.create()
    return file, {"ledger": str(file.path), "ledger_start": first.digest}


def ruled(config, tmp_path, **rules):
    """The agent with a policy of these rules."""
    file = tmp_path / "policy.toml"
    file.write_text(to_toml({"policy": rules}))
    return replace(config, policy=file)


def start(config):
    """What a starting agent does before it has a connection: its admission, then its line."""
    objective = load_objective(config.objective, config.run.dim)
    given = {"is_quadratic": objective.is_quadratic, "is_given": False}
    admission = admit(config, objective, **given)
    state = StateDirectory(config.state, run=config.run.id, agent=config.name, durability="process")
    try:
        admission.begin(state)
    finally:
        state.close()
    return admission


def again(config, n, **changes):
    """The same agent in a new run: another id, another state directory."""
    run = replace(config.run, id=f"run-{n}")
    return replace(config, run=run, state=config.state.parent / f"state-{n}", **changes)


class Silent:
    """A transport that notes every use of it."""

    def __init__(self):
        self.used = []

    def __getattr__(self, name):
        self.used.append(name)
        raise AssertionError(f"{name}: something would be sent")

    def close(self):
        pass


# ---- rules about one run


N_EVENTS = int(min(SITES["north"]["death"].sum(), 60 - SITES["north"]["death"].sum()))
N_NUMBERS = 10 + 2 * 4 + 8 * (4 * 7 // 2 + 1)  # four coefficients, eight steps
BROKEN = [
    ({"min_rows": 61}, "min_rows = 61, and there are 60 rows"),
    ({"min_events": N_EVENTS + 1}, f"min_events = {N_EVENTS + 1}, and there are {N_EVENTS} events"),
    ({"min_participants": 4}, "min_participants = 4, and there are 3 sites"),
    ({"max_parameters_per_row": 0.066}, "coefficients per row of this site: 0.06667"),
    ({"kinds": ["linear", "cox"]}, r"kinds = \['linear', 'cox'\], and this run has 'logistic'"),
    ({"designs": ["recommended"]}, "and this run has 'fit'"),
    ({"peers": ["00:" * 32]}, r"peers lists 1 certificates, but not that of agent-1 \(.*agent-2"),
    ({"data": ["other.csv"]}, "data lists 1 files, and this run reads '.*agent-0.csv'"),
    ({"exposure": []}, "Take cells, changes, curvature, .* out of accept_exposure"),
    ({"max_share_revealed": 0.57}, f"site's rows: {N_NUMBERS / 240:.4g}"),
]
KEPT = {
    "min_rows": 60, "min_events": N_EVENTS, "min_participants": 3, "kinds": ["logistic"],
    "max_parameters_per_row": 0.0667, "designs": ["fit"], "max_share_revealed": 0.58,
}  # fmt: skip


@pytest.mark.parametrize(("rules", "said"), BROKEN, ids=[next(iter(r)) for r, _ in BROKEN])
def test_a_broken_rule_is_named_and_nothing_is_used(site, tmp_path, rules, said):
    config = ruled(site, tmp_path, **rules)
    transport = Silent()
    with pytest.raises(PolicyError, match=said) as error:
        asyncio.run(Agent(config, transport=transport).run())
    assert str(error.value).startswith("agent-0 does not start: the policy")
    assert transport.used == []
    assert not config.state.exists()
    assert not config.key.with_suffix(".ledger").exists()


def test_a_run_that_keeps_every_rule_at_its_limit_starts(site, tmp_path):
    peers = [load_certificate(n.certificate).fingerprint for n in site.neighbours]
    data = [os.path.relpath(site.objective.file, tmp_path)]
    exposure = sorted(site.accept_exposure)
    start(ruled(site, tmp_path, **KEPT, peers=peers, data=data, exposure=exposure))
    plain = [peer.replace(":", "").upper() for peer in peers]
    start(ruled(site, tmp_path, peers=plain))


def test_what_is_not_known_keeps_no_rule(site, tmp_path):
    """An agent with a function of its own tells neither rows nor events nor a file."""
    rules = {"min_rows": 1, "min_events": 1, "kinds": ["logistic"], "data": ["x"]}
    agent = Agent(ruled(site, tmp_path, **rules), gradient=lambda theta: theta, transport=Silent())
    with pytest.raises(PolicyError) as error:
        asyncio.run(agent.run())
    assert [line.split(":")[0].strip() for line in str(error.value).splitlines()[1:]] == list(rules)


def test_a_symlink_to_listed_data_passes_and_one_to_other_data_does_not(site, tmp_path):
    file = site.objective.file
    link = tmp_path / "link.csv"
    link.symlink_to(file)
    listed = ruled(site, tmp_path, data=[str(file)])
    start(replace(listed, objective=replace(site.objective, file=link)))
    copy = tmp_path / "copy.csv"
    copy.write_bytes(file.read_bytes())
    link.unlink()
    link.symlink_to(copy)
    with pytest.raises(PolicyError, match=r"copy\.csv"):
        start(replace(again(listed, 2), objective=replace(site.objective, file=link)))


def test_a_later_average_past_the_share_is_not_sent(site, tmp_path):
    config = ruled(site, tmp_path, max_share_revealed=0.3)
    ledgers.ledger_of(config.key).create()
    objective = load_objective(config.objective, config.run.dim)
    numbers = [18 + 15 * steps for steps in range(8)]
    for stage, count in enumerate(numbers):
        if count / 240 <= 0.3:
            spend(config, objective, stage, count, None)
        else:
            with pytest.raises(ExposureError, match=f"would reveal {count / 240:.4g} of"):
                spend(config, objective, stage, count, None)


# ---- rules that count runs


def test_the_count_of_runs_survives_every_disguise(site, tmp_path, ledger):
    config = ruled(site, tmp_path, max_runs=1, **ledger[1])
    start(config)
    file = site.objective.file
    header, *rows = file.read_text().splitlines(keepends=True)
    fit_network.write_rows(tmp_path / "others.csv", fits.synthetic((600,))["north"])
    others = (tmp_path / "others.csv").read_text()
    copies = {
        "moved.csv": "".join([header, rows[-1], *rows[:-1]]),
        "fewer.csv": "".join([header, *rows[:-3]]),
        "part.csv": "".join([header, *rows[::6]]),
        "among.csv": others + "".join(rows),
        "reversed.dat": "".join([header, *rows[::-1]]),
        "bars.csv": "".join([header, *rows]).replace(",", "|"),
        "semicolons.csv": "".join([header.replace("weight", 20 * ";"), *rows]),
    }
    for name, text in copies.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "link.csv").symlink_to(file)
    mint(tmp_path / "new", "agent-0")
    relative = type(file)(os.path.relpath(file))
    disguises = {
        "another id": {},
        "another key": {
            "key": tmp_path / "new" / "agent-0.key",
            "certificate": tmp_path / "new" / "agent-0.crt",
        },
        "a relative path": {"objective": replace(site.objective, file=relative)},
        "a seed": {"run": replace(site.run, id="seeded", seed=3)},
    }  # fmt: skip
    for name in ("link.csv", *copies):
        between = "|" if name == "bars.csv" else None
        spec = replace(site.objective, file=tmp_path / name, delimiter=between)
        disguises[name] = {"objective": spec}
    for n, (name, changes) in enumerate(disguises.items()):
        with pytest.raises(PolicyError, match="max_runs = 1, and this would be run 2") as error:
            start(replace(again(config, n), **changes))
        assert "Nothing was sent" in str(error.value), name
    other = tmp_path / "other.csv"
    fit_network.write_rows(other, SITES["south"])
    start(replace(again(config, "other"), objective=replace(site.objective, file=other)))


def test_the_same_run_goes_on_and_a_second_one_with_its_id_does_not(site, tmp_path, ledger):
    config = ruled(site, tmp_path, max_runs=1, **ledger[1])
    for _ in range(3):
        start(config)
    assert [line.status for line in ledger[0].lines()] == ["opened", "begun", "resumed", "resumed"]
    elsewhere = replace(config, state=tmp_path / "elsewhere")
    with pytest.raises(PolicyError, match="would be run 2"):  # no state: it counts as new
        start(elsewhere)
    StateDirectory(elsewhere.state, run=config.run.id, agent=config.name).close()
    with pytest.raises(PolicyError, match="with another state directory"):
        start(elsewhere)
    fit_network.write_rows(site.objective.file, SITES["south"])
    with pytest.raises(ReplayError, match="has this run with other data"):
        start(config)


def test_runs_in_a_period_are_counted_by_the_ledger_not_by_the_clock(
    site, tmp_path, ledger, monkeypatch
):
    config = ruled(site, tmp_path, max_runs_in_period=2, period_days=30, **ledger[1])
    real = datetime.now(UTC)

    def clock(days):
        class Moved(datetime):
            @classmethod
            def now(cls, tz=None):
                return real + timedelta(days=days)

        for module in (budgets, ledgers):
            monkeypatch.setattr(module, "datetime", Moved)

    start(again(config, 1))
    start(again(config, 2))
    for days in (0, 29.9):
        clock(days)
        with pytest.raises(PolicyError, match="would be run 3 within 30 days"):
            start(again(config, 3))
    clock(-400)  # set back: earlier runs are in the future, and count
    with pytest.raises(PolicyError, match=r"(?s)clock: the last line.*max_runs_in_period = 2"):
        start(again(config, 3))
    clock(31)
    start(again(config, 3))
    clock(0)  # whoever set the clock ahead finds that run ahead of all clocks
    with pytest.raises(PolicyError, match="Set the clock, and ask who had set it"):
        start(again(config, 4))


def test_two_runs_at_once_do_not_both_take_the_last_place(site, tmp_path, ledger):
    config = ruled(site, tmp_path, max_runs=1, **ledger[1])
    objective = load_objective(config.objective, config.run.dim)
    both, ends = [again(config, n) for n in (1, 2)], []
    admitted = [
        admit(one, objective, is_quadratic=False, is_given=False) for one in both
    ]  # both see an empty ledger

    def begin(one, admission):
        state = StateDirectory(one.state, run=one.run.id, agent=one.name, durability="process")
        try:
            admission.begin(state)
            ends.append("begun")
        except PolicyError as error:
            ends.append(str(error))
        finally:
            state.close()

    threads = [
        threading.Thread(target=begin, args=pair) for pair in zip(both, admitted, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(end[:5] for end in ends) == ["agent", "begun"]
    assert len(runs_of(ledger[0].lines())) == 1


@pytest.mark.parametrize(
    ("spoil", "error", "said"),
    [
        (lambda file: file.write_text(file.read_text().replace('"begun"', '"ended"')),
         LedgerError, "its seal"),
        (lambda file: file.write_text(file.read_text().partition("\n")[0] + "\n"),
         LedgerError, "its end is lost"),
        (lambda file: file.unlink(), PolicyError, "which is not there. Restore it"),
    ],
    ids=["edited", "cut", "deleted"],
)  # fmt: skip
def test_a_ledger_that_was_spoilt_lets_no_run_begin(site, tmp_path, ledger, spoil, error, said):
    config = ruled(site, tmp_path, max_runs=1, **ledger[1])
    start(config)
    spoil(ledger[0].path)
    with pytest.raises(error, match=said):
        start(again(config, 2))


def test_a_ledger_that_was_begun_anew_is_not_that_of_the_policy(site, tmp_path, ledger):
    config = ruled(site, tmp_path, max_runs=1, **ledger[1])
    start(config)
    for file in tmp_path.glob("ledger*"):
        file.unlink()
    ledger[0].create()
    with pytest.raises(PolicyError, match=r"but '.*ledger' began with"):
        start(again(config, 2))


def test_a_budget_adds_mu_of_the_runs_of_these_data(site, tmp_path, ledger, monkeypatch):
    spends = {"mu": 0.6}
    monkeypatch.setattr("hushgrad.network.admission.mu_of", lambda config, rows=None: spends["mu"])
    config = ruled(site, tmp_path, max_mu=1.0, **ledger[1])
    start(again(config, 1))
    start(again(config, 2))  # √0.72 = 0.849
    with pytest.raises(PolicyError, match=r"max_mu = 1, and with this run 1\.039 is spent"):
        start(again(config, 3))
    spends["mu"] = 0.52  # √(0.72 + 0.2704) = 0.995
    start(again(config, 3))
    spends["mu"] = None
    with pytest.raises(PolicyError, match="max_mu = 1, but μ of this run is not known"):
        start(again(config, 4))
    spends["mu"] = 1e-3
    epsilon = hg.theory.epsilon(1e-6, (2 * 0.36 + 0.2704 + 1e-6) ** 0.5)
    low = ruled(config, tmp_path, max_epsilon=round(epsilon - 0.01, 6), **ledger[1])
    with pytest.raises(PolicyError, match=f"max_epsilon = .* {epsilon:.4g} is spent"):
        start(again(low, 4))
    start(again(ruled(config, tmp_path, max_epsilon=epsilon + 0.01, **ledger[1]), 4))


def test_an_earlier_run_without_mu_leaves_no_budget(site, tmp_path, ledger, monkeypatch):
    start(ruled(site, tmp_path, max_runs=9, **ledger[1]))
    monkeypatch.setattr("hushgrad.network.admission.mu_of", lambda config, rows=None: 0.1)
    with pytest.raises(PolicyError, match=f"μ of run {site.run.id} is not known"):
        start(again(ruled(site, tmp_path, max_mu=1.0, **ledger[1]), 2))


def test_runs_of_the_same_data_share_what_their_sums_may_reveal(site, tmp_path, ledger):
    """One model cut into two runs: 138 numbers each, of 240 entries."""
    share = N_NUMBERS / 240
    config = ruled(site, tmp_path, max_share_revealed=1.9 * share, **ledger[1])
    start(again(config, 1))
    with pytest.raises(PolicyError, match=f"with 1 earlier runs of these data: {2 * share:.4g}"):
        start(again(config, 2))
    larger = ruled(site, tmp_path, max_share_revealed=2.5 * share, **ledger[1])
    start(again(larger, 2))
    objective = load_objective(site.objective, site.run.dim)
    second = again(larger, 2)
    spend(second, objective, 9, int(1.5 * N_NUMBERS) - 1, None)
    assert [line.status for line in ledger[0].lines()] == ["opened", "begun", "begun", "spent"]
    with pytest.raises(ExposureError, match=r"sends nothing of stage 11.*max_share_revealed"):
        spend(second, objective, 10, int(1.5 * N_NUMBERS) + 2, None)
    assert len(ledger[0].lines()) == 4


def test_a_fit_that_outgrows_its_budget_sends_no_other_average(site, tmp_path, ledger, monkeypatch):
    """How much a row weighs follows from pooled sums, which other sites can make small."""
    monkeypatch.setattr("hushgrad.network.admission.mu_of", lambda config, rows=None: 0.1)
    monkeypatch.setattr("hushgrad.network.admission.missing", lambda config: None)
    config = ruled(site, tmp_path, max_mu=0.5, **ledger[1])
    objective = load_objective(site.objective, site.run.dim)
    first, second = again(config, 1), again(config, 2)
    start(first)
    spend(first, objective, 1, 33, 0.4)
    start(second)
    spend(second, objective, 1, 33, 0.29)  # √(0.16 + 0.0841) = 0.494
    with pytest.raises(ExposureError, match=r"max_mu = 0.5, and with this run 0\.5024 is spent"):
        spend(second, objective, 2, 48, 0.304)
    with pytest.raises(ExposureError, match=r"max_mu = 0\.5, but μ of this run is not known"):
        spend(second, objective, 2, 48, None)
    assert [run.mu for run in runs_of(ledger[0].lines())] == [0.4, 0.29]


# ---- where policies lie, and who may change them


def test_an_agents_file_cannot_leave_the_systems_policy_out(site, tmp_path, monkeypatch):
    system = policies.SYSTEM
    system.parent.mkdir()
    system.write_text("[policy]\nmin_rows = 61\n")
    for config in (site, ruled(site, tmp_path, min_rows=1)):
        with pytest.raises(PolicyError, match="min_rows = 61"):
            start(config)
    monkeypatch.setenv(policies.VARIABLE, str(tmp_path / "policy.toml"))  # another one adds to it
    with pytest.raises(PolicyError, match="min_rows = 61"):
        start(site)
    system.write_text("")
    start(site)
    (tmp_path / "env.toml").write_text("[policy]\nmin_participants = 4\n")
    monkeypatch.setenv(policies.VARIABLE, str(tmp_path / "env.toml"))
    with pytest.raises(PolicyError, match="min_participants = 4"):
        start(again(site, 2))
    monkeypatch.setenv(policies.VARIABLE, str(tmp_path / "gone.toml"))
    with pytest.raises(PolicyError, match="there is no policy at"):
        start(again(site, 2))
    monkeypatch.delenv(policies.VARIABLE)
    system.unlink()
    system.symlink_to(tmp_path / "nowhere.toml")
    with pytest.raises(PolicyError, match="there is no policy at"):
        start(again(site, 2))


def test_a_policy_that_cannot_be_looked_at_lets_no_agent_start(site, monkeypatch):
    """As in a directory of root's that other accounts may not enter."""

    class Closed(type(policies.SYSTEM)):
        def lstat(self):
            raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(policies, "SYSTEM", Closed(policies.SYSTEM))
    with pytest.raises(PolicyError, match=r"cannot be told: Permission denied\. Let the agent's"):
        start(site)


@pytest.mark.parametrize("writable", ["file", "directory"])
def test_a_policy_that_others_may_change_is_refused(site, tmp_path, writable):
    home = tmp_path / "it"
    home.mkdir(mode=0o755)
    config = ruled(site, home, min_rows=1)
    start(config)
    place = config.policy if writable == "file" else home
    place.chmod(0o777)
    with pytest.raises(PolicyError, match=f"chmod go-w '{place}'"):
        start(again(config, 2))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[policy]\nmin_row = 5", r"(?s)min_row.*min_rows"),
        ("[policy]\nmin_rows = 0", "= 0 is not above 0"),
        ('[policy]\nmin_rows = "many"', "min_rows"),
        ("[rules]\nmin_rows = 5", "rules"),
        ("policy = 3", r"is a table: write \[policy\]"),
        ("[policy]\nmax_runs = 3", "(?s)needs the key ledger:.*needs the key ledger_start"),
        ("[policy]\nperiod_days = 3", "max_runs_in_period and period_days together"),
        ('[policy]\nexposure = ["all"]', "a weakness"),
        ("[policy", "cannot be read"),
    ],
)
def test_a_mistake_in_a_policy_is_named(tmp_path, text, said):
    (tmp_path / "policy.toml").write_text(text)
    with pytest.raises(PolicyError, match=said):
        load_policy(tmp_path / "policy.toml")


# ---- whole runs


def test_a_whole_fit_is_in_every_ledger_from_its_beginning_to_its_end(site, tmp_path, ledger):
    """Three agents over TLS: the first has a policy with a ledger of its own."""
    setting = fit_network.configs(
        tmp_path / "tls", LOGISTIC, SITES, COMPLETE, tls=True, keys=site.key.parent
    )
    setting[0] = ruled(setting[0], tmp_path, max_runs=1, **KEPT, **ledger[1])
    agents = [Agent(config) for config in setting]

    async def together():
        async with asyncio.timeout(60):
            return await asyncio.gather(*(agent.run() for agent in agents))

    assert [str(result.status) for result in asyncio.run(together())] == ["done"] * 3
    for file in (ledger[0], ledgers.ledger_of(setting[0].key)):
        lines = file.lines()
        assert [line.status for line in lines] == ["opened", "begun", "done"]
        facts = lines[1].facts
        assert facts["contract"] == agents[0].fitted.contract
        assert facts["key"] == load_certificate(setting[0].certificate).fingerprint
        assert facts["data_rows"] == 60
        assert facts["participants"] == 3
    used = replace(setting[0], state=tmp_path / "anew", policy=None)
    with pytest.raises(ConfigError, match=r"was used before .*Choose a new id"):
        asyncio.run(Agent(used).run())
