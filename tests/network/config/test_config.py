"""`agent.toml` becomes a config, or one error lists everything that is wrong."""

import inspect
import re
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hushgrad as hg
from hushgrad.cli.new import AGENT_EXAMPLE
from hushgrad.errors import ConfigError
from hushgrad.network.config import tables as agentfile
from hushgrad.network.config.file import load_config, parse_config, write_config
from hushgrad.network.config.model import AgentConfig, Neighbour, RunConfig, parse_address
from hushgrad.network.objective.units import Standardise
from hushgrad.network.protocol.hello import differences, public_parts
from hushgrad.schema.toml import to_toml


def example():
    return tomllib.loads(AGENT_EXAMPLE)


def said(text, **options):
    with pytest.raises(ConfigError) as caught:
        parse_config(text, source="agent.toml", **options)
    return str(caught.value)


def changed(*path, **values):
    """The example with keys of one table set, or taken out if the value is ..."""
    tables = example()
    table = tables
    for key in path:
        table = table[key]
    for key, value in values.items():
        if value is ...:
            del table[key]
        else:
            table[key] = value
    return tables


def test_the_example_is_read_as_it_says(tmp_path):
    (tmp_path / "agent.toml").write_text(AGENT_EXAMPLE, encoding="utf-8")
    config = load_config(tmp_path / "agent.toml")
    assert (config.name, config.number, config.listen) == ("north", 0, ("0.0.0.0", 7440))
    assert config.key == tmp_path / "north.key"
    assert config.certificate == tmp_path / "north.crt"
    assert (config.state, config.result) == (tmp_path / "state", tmp_path / "state/result")
    assert (config.durability, config.max_wait, config.metrics) == ("power", 300.0, None)
    south, west = config.neighbours
    assert south == Neighbour(
        name="south",
        number=1,
        address=("south.example.org", 7440),
        certificate=tmp_path / "trusted/south.crt",
    )
    assert west.address is None
    assert [partner.name for partner in config.partners] == ["south", "west"]
    assert isinstance(config.run.algorithm, hg.PDGNDS)
    assert config.run.is_auto
    assert config.run.algorithm.design == "recommended"
    assert (config.run.id, config.run.dim, config.run.seed) == ("trial-2026", 3, None)
    assert config.objective.file == tmp_path / "patients.csv"
    assert config.objective.n_agents == 3
    assert config.objective.standardise == Standardise(mean=(60.0, 5.0), scale=(15.0, 2.0))


def test_the_file_accepts_weaknesses_by_name_and_other_agents_never_see_the_names():
    accepting = parse_config(changed("agent", accept_exposure=["sums", "degree"]))
    assert accepting.accept_exposure == {"sums", "degree"}
    assert public_parts(accepting.run) == public_parts(parse_config(example()).run)
    text = said(changed("agent", accept_exposure=["sum"]))
    assert "accept_exposure" in text
    assert '"sums"' in text
    assert "curvature, degree, design" in text


def test_honest_rows_are_part_of_what_all_agents_agree_on():
    here, there = (parse_config(changed("run", honest_rows=n)).run for n in (300, 301))
    assert here.honest_rows == 300
    assert differences(public_parts(here), public_parts(there)) != ""
    assert "honest_rows" in said(changed("run", honest_rows=0))


def test_without_a_diameter_it_is_the_number_of_other_agents():
    assert parse_config(example()).run.diameter == 2
    assert parse_config(changed("run", diameter=1)).run.diameter == 1
    assert parse_config(changed("run", tolerance=...)).run.diameter is None


def test_text_and_tables_give_the_same_config():
    assert parse_config(AGENT_EXAMPLE).run == parse_config(example()).run
    assert parse_config(to_toml(example())).neighbours == parse_config(example()).neighbours


def test_a_written_config_is_read_back(tmp_path):
    tables = changed("agent", x0=[1.0, 2.0, 3.0])
    written = write_config(tmp_path / "a.toml", tables)
    assert load_config(tmp_path / "a.toml").run == written.run
    assert written.run.x0 == (1.0, 2.0, 3.0)
    assert written.key.parent == tmp_path
    with pytest.raises(ConfigError):
        write_config(tmp_path / "b.toml", changed("run", dim=0))
    assert not (tmp_path / "b.toml").exists()


def test_every_finding_comes_at_once_with_its_line_and_key():
    text = (
        AGENT_EXAMPLE.replace('name = "north"', 'name = "North"')
        .replace('listen = "0.0.0.0:7440"', 'listen = "0.0.0.0"')
        .replace("durability", "durabilty")
        .replace("dim = 3", "dim = 3.5")
        .replace('kind = "logistic"', 'kind = "logistc"')
        .replace('name = "west"\nnumber = 2 ', 'name = "west"\nnumber = 7 ')
    )
    lines = said(text).splitlines()
    where = {line.split(" ")[1]: line for line in lines}
    assert set(where) == {
        "agent.name", "agent.listen", "agent.durabilty", "run.dim", "objective.kind",
        "neighbour[1].number", "partner[1].number",
    }  # fmt: skip
    assert "agent's name has" in where["agent.name"]
    assert 'is not an address "host:port"' in where["agent.listen"]
    assert 'Did you mean "durability"?' in where["agent.durabilty"]
    assert "= 3.5 is not a whole number" in where["run.dim"]
    assert 'Did you mean "logistic"?' in where["objective.kind"]
    assert "not from 0 to 2" in where["neighbour[1].number"]
    for line in lines:
        file, number, _ = line.split(":", 2)
        key = line.split(" ")[1].rpartition(".")[2]
        assert file == "agent.toml"
        assert text.splitlines()[int(number) - 1].startswith(key)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        (changed(agnet={}), 'agnet is not a table of an agent\'s file. Did you mean "agent"?'),
        (changed(run=...), "run is missing: an agent's file needs the table [run]"),
        (changed(run=3), "run = 3 is not a table"),
        (changed(neighbour={"name": "x"}), "neighbour is a table of its own. Write [[neighbour]]"),
        (changed(neighbour=[]), "neighbour is missing: an agent has at least one"),
        (changed(neighbour=[3]), "neighbour[0] = 3 is not a table"),
        (changed("run", iterations=0), "run.iterations = 0 is not a number of at least 1"),
        (changed("run", n_agents=1), "run.n_agents = 1 is not a number of at least 2"),
        (changed("run", tolerance=0), "run.tolerance = 0 is not a number above 0"),
        (changed("run", tolerance=float("inf")), "run.tolerance = Infinity is not a number above"),
        (changed("run", seed=-1), "run.seed = -1 is not a number of at least 0"),
        (changed("run", diameter=3), "run.diameter = 3 is more than the 2 hops"),
        (changed("run", id="a b"), 'run.id = "a b" is not a name'),
        (changed("run", mixing="metropolos"), 'Did you mean "metropolis"?'),
        (changed("run", mixing="max_degree"), "needs the key max_degree"),
        (changed("agent", max_wait=-1.0), "agent.max_wait = -1.0 is not a number above 0"),
        (changed("agent", heartbeat=200), "leaves no room for a second heartbeat"),
        (changed("agent", metrics="0.0.0.0:9"), "0.0.0.0 is not loopback"),
        (changed("agent", listen="a:70000"), "is not an address"),
        (changed("agent", listen=...), "neighbour[1] needs the key address"),
        (changed("agent", x0=[1.0]), "agent.x0 has 1 entries, but dim = 3"),
        (changed("agent", durability="disk"), 'is not one of "process", "power"'),
        (changed("neighbour", 0, name="west"), 'neighbour[1].name = "west" is taken already'),
        (changed("neighbour", 0, name="north"), 'neighbour[0].name = "north" is taken already'),
        (changed("neighbour", 1, number=1), "number = 1 is the number of south already"),
        (changed("partner", 0, number=2), "partner[0].number = 2, but south has the number 1"),
        (changed("partner", 0, name="north", number=0), 'partner[0].name = "north" is taken'),
        (changed("neighbour", 0, address="south"), "neighbour[0].address"),
        (changed("objective", kind=...), "objective needs either kind or function"),
        (changed("objective", function="a:b"), "objective needs either kind or function"),
        (changed("objective", target=...), "objective needs the key target"),
        (changed("objective", columns=["age", "age"]), "names 'age' twice"),
        (changed("objective", columns=["age", "outcome"]), "has the target 'outcome'"),
        (changed("objective", columns=[]), "needs at least one column"),
        (changed("objective", delimiter=";;"), "is not one character"),
        (changed("objective", regularisation=-1.0), "is not a number of at least 0"),
        (changed("objective", standardise=3), "is not a table such as"),
        (changed("objective", "standardise", scale=[0.0, 1.0]), "a scale that is not above 0"),
        (changed("objective", "standardise", mean=...), "needs the key mean"),
        (changed(objective={"kind": "rendezvous"}), "needs either position or file"),
        (changed(objective={"function": "gradient"}), 'is not of the form "file.py:name"'),
        (changed("algorithm", name="PDGND"), 'Did you mean "PDGNDS"?'),
        (changed("algorithm", stepsize={"kind": "constant", "value": -1}), "algorithm.stepsize"),
        (changed("neighbour", 0, direction="in"), "PDGNDS needs both directions"),
        (changed("neighbour", 0, two_hop=True), "has no links over two hops"),
        (changed(algorithm={"name": "AsynDGM"}), "run needs the key n_links"),
        (changed("run", eta=1.0), "run.eta = 1.0 is not a number from 0 to below 1"),
        (changed(partner=[]), "partner lacks numbers 1, 2: the masks of PDGNDS pair agent 0 with"),
        (changed("algorithm", design="paper"), "partner has numbers 1, 2, with whom"),
        (changed(algorithm={"name": "AsynDGM"}), "neighbour[1] needs the key link"),
    ],
)  # fmt: skip
def test_each_mistake_is_named(tables, message):
    assert message in said(tables)


def test_keys_that_other_algorithms_need_are_accepted():
    two_hop = changed("neighbour", 0, two_hop=True)
    two_hop["algorithm"] |= {"form": "square", "stepsize": {"kind": "constant", "value": 0.001}}
    assert parse_config(two_hop).neighbours[0].two_hop
    directed = changed("neighbour", 0, direction="in")
    directed["algorithm"] = {"name": "PushPull"}
    directed["run"]["mixing"] = "uniform"
    del directed["partner"]  # PushPull has no masks
    assert parse_config(directed).neighbours[0].direction == "in"
    paper = changed("algorithm", design="paper")
    del paper["partner"]
    assert parse_config(paper).run.algorithm.design == "paper"
    exposed = changed("agent", metrics="0.0.0.0:9464", expose_metrics=True)
    assert parse_config(exposed).metrics == ("0.0.0.0", 9464)
    dialling = changed("agent", listen=...)
    dialling["neighbour"][1]["address"] = "[::1]:7440"
    config = parse_config(dialling)
    assert config.listen is None
    assert config.neighbours[1].address == ("::1", 7440)


def test_objectives_of_every_kind_are_read(tmp_path):
    kinds = {
        "least_squares": {"file": "a.csv", "columns": ["a", "b", "c"], "target": "y"},
        "rendezvous": {"position": [1, 2, 3]},
    }
    for kind, keys in kinds.items():
        config = parse_config(changed(objective={"kind": kind, **keys}), directory=tmp_path)
        assert config.objective.kind == kind
        assert config.objective.regularisation == 0.0
    assert config.objective.position == (1.0, 2.0, 3.0)
    own = parse_config(changed(objective={"function": "m.py:f", "jax": True}))
    assert (own.objective.kind, own.objective.function, own.objective.jax) == (
        "function", "m.py:f", True,
    )  # fmt: skip


def test_files_that_are_not_there_or_not_toml_are_named(tmp_path):
    with pytest.raises(ConfigError, match=r"hushgrad new --agent a\.toml"):
        load_config(tmp_path / "a.toml")
    assert "this is not TOML" in said("[agent")


def test_every_field_of_a_config_has_a_key_in_the_file():
    """The tables and the dataclasses do not drift apart."""
    in_agent = set(inspect.signature(agentfile.agent).parameters)
    in_run = set(inspect.signature(agentfile.run).parameters)
    not_keys = {"run", "neighbours", "partners", "objective", "log"}
    assert {f.name for f in fields(AgentConfig)} - not_keys <= in_agent
    assert {f.name for f in fields(RunConfig)} - {
        "algorithm",
        "x0",
        "stages",
        "model",
        "is_auto",
    } == in_run
    in_neighbour = set(inspect.signature(agentfile.neighbour).parameters)
    assert {f.name for f in fields(Neighbour)} == in_neighbour


def test_every_key_is_in_the_documentation():
    docs = (Path(__file__).parents[3] / "docs" / "agents.md").read_text(encoding="utf-8")
    tables = {
        "[agent]": [agentfile.agent],
        "[objective]": [*agentfile.KINDS.values(), agentfile.function],
        "[[neighbour]]": [agentfile.neighbour],
        "[[partner]]": [agentfile.partner],
        "[run]": [agentfile.run],
        "[fit]": [agentfile.fit],
    }
    for table, builders in tables.items():
        section = docs.partition(f"### `{table}`")[2].partition("\n### ")[0]
        first_cells = " ".join(re.findall(r"^\| (.*?) \|", section, re.MULTILINE))
        for key in {key for builder in builders for key in inspect.signature(builder).parameters}:
            assert f"`{key}`" in first_cells, (table, key)
    for kind in agentfile.KINDS:
        assert f'| `"{kind}"` |' in docs


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
        ),
        max_leaves=6,
    ),
    st.data(),
)
def test_any_value_in_any_place_gives_a_config_or_a_config_error(value, data):
    tables = example()
    table = data.draw(st.sampled_from([*tables]))
    target = tables[table][0] if isinstance(tables[table], list) else tables[table]
    key = data.draw(st.sampled_from([*target, None]))
    if key is None:
        tables[table] = value
    else:
        target[key] = value
    try:
        assert isinstance(parse_config(tables), AgentConfig)
    except ConfigError as error:
        said = str(error)
    else:
        said = "agent: nothing"
    assert said.startswith("agent: ")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("a:1", ("a", 1)),
        ("1.2.3.4:65535", ("1.2.3.4", 65535)),
        ("[fe80::1%eth0]:7", ("fe80::1%eth0", 7)),
    ],
)
def test_addresses_are_host_and_port(text, address):
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", "a", ":1", "a:", "a:0", "a:65536", "::1:7", "a b:1", "a:1:2"])
def test_other_addresses_are_refused(text):
    with pytest.raises(ValueError, match="is not an address"):
        parse_address(text)


def test_paths_start_at_the_files_directory():
    tables = changed("agent", key="/etc/keys/n.key", certificate="keys/n.crt")
    config = parse_config(tables, directory="/srv/agent")
    assert config.key == Path("/etc/keys/n.key")
    assert config.certificate == Path("/srv/agent/keys/n.crt")


# ---- proxies and the largest number


def test_a_proxy_is_for_every_neighbour_that_is_dialled_unless_it_has_its_own():
    tables = changed("agent", proxy="http://proxy.example.org:3128")
    tables["neighbour"][0]["address"] = "south.example.org:7440"
    tables["neighbour"][1]["address"] = "west.example.org:7440"
    proxies = lambda: [n.proxy for n in parse_config(tables).neighbours]  # noqa: E731  # one line, used here
    assert proxies() == [("proxy.example.org", 3128)] * 2
    tables["neighbour"][1]["proxy"] = "http://[2001:db8::1]:8080/"
    assert proxies() == [("proxy.example.org", 3128), ("2001:db8::1", 8080)]
    tables["neighbour"][1]["proxy"] = "none"
    assert proxies() == [("proxy.example.org", 3128), None]
    del tables["neighbour"][1]["address"], tables["neighbour"][1]["proxy"]
    assert proxies() == [("proxy.example.org", 3128), None]  # it is not dialled


@pytest.mark.parametrize(
    "proxy", ["https://proxy:3128", "proxy:3128", "http://proxy", "http://me:secret@proxy:1", ""]
)
def test_a_proxy_that_is_none_is_named(proxy):
    text = said(changed("agent", proxy=proxy))
    assert "[agent]" in text or "proxy" in text
    assert 'is not a proxy "http://host:port"' in text


def test_a_proxy_without_an_address_and_a_largest_number_that_is_none_are_named():
    tables = changed("run", largest=0.0)
    tables["neighbour"][0].pop("address", None)
    tables["neighbour"][0]["proxy"] = "http://proxy:3128"
    text = said(tables)
    assert "needs the key address: this agent dials through the proxy" in text
    assert "largest" in text
    assert parse_config(changed("run", largest=5)).run.bound == 5.0


def test_agents_compare_the_largest_number():
    one, other = (parse_config(changed("run", largest=n)).run for n in (5.0, 6.0))
    assert differences(public_parts(one), public_parts(other)) == "largest: 5.0 here, 6.0 there"
