"""The public names are a contract."""

import inspect

import pytest

import hushgrad as hg

CONTRACT = [
    "AB",
    "ADDOPT",
    "Algorithm",
    "AsynDGM",
    "AugDGM",
    "DGD",
    "DIGing",
    "EXTRA",
    "Network",
    "PDGDS",
    "PDGNDS",
    "Problem",
    "PushPull",
    "Run",
    "compare",
    "graphs",
    "load_run",
    "problems",
    "run",
    "splits",
    "stepsizes",
]


def test_all_is_sorted_and_complete():
    assert sorted(hg.__all__, key=lambda n: (not n.isupper(), not n[0].isupper(), n)) == hg.__all__
    assert set(CONTRACT) <= set(hg.__all__)
    for name in hg.__all__:
        assert hasattr(hg, name)


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("graphs", "ring path star complete grid erdos_renyi random_regular exponential "
                   "small_world paper from_edges from_networkx"),
        ("stepsizes", "constant diminishing harmonic geometric bursts none"),
        ("splits", "fresh private_constant isotropic identity"),
        ("problems", "estimation rendezvous ridge logistic huber"),
    ],
)  # fmt: skip
def test_builders_of_the_contract_are_there_and_say_what_they_do(module, names):
    for name in names.split():
        builder = getattr(getattr(hg, module), name)
        assert inspect.getdoc(builder), f"{module}.{name} has no docstring"


def test_every_public_name_is_documented():
    for name in hg.__all__:
        assert inspect.getdoc(getattr(hg, name)), name


@pytest.mark.parametrize("kind", hg.algorithms.ALL, ids=lambda k: k.__name__)
def test_an_algorithm_is_frozen_keyword_only_and_carries_its_facts(kind):
    algorithm = kind()
    with pytest.raises(TypeError):
        kind(hg.stepsizes.constant(0.1))
    with pytest.raises(AttributeError):
        algorithm.stepsize = None
    assert algorithm == kind()
    assert hash(algorithm) == hash(kind())
    assert kind.title
    assert kind.guarantee
    assert kind.cites
    assert "^" in inspect.getdoc(kind)  # its equation


def test_run_has_the_arguments_of_the_contract():
    parameters = inspect.signature(hg.run).parameters
    promised = (
        "algorithm problem network iterations trials seed record_every transcript x0 progress"
    )
    assert set(promised.split()) <= set(parameters)
    assert parameters["trials"].default == 1
    assert parameters["seed"].default == 0
    for name in [
        "error",
        "iterations",
        "consensus",
        "x",
        "status",
        "messages_per_link",
        "transcript",
        "plot",
        "save",
    ]:
        assert name in dir(hg.Run) or name in hg.Run.__dataclass_fields__
