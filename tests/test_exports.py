"""The public names are a contract: each is here, has a docstring, and stands on docs/api.md."""

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

import hushgrad as hg

ROOT = Path(__file__).parents[1]

PACKAGES = {
    "hushgrad":
        "AB ADDOPT Active Agent Algorithm AsynDGM Audit AugDGM Comparison Consensus "
        "Curious DGD DIGing EXTRA Eavesdropper FitPlan HushgradError Model Network PDGDS PDGNDS "
        "PooledTables Problem PushPull Run RunCertificate Tuning algorithms audit audit_repeated "
        "certify compare draws errors fit fitting graphs guarantee "
        "load_run load_study masks network paper privacy problems run simulate splits stepsizes "
        "studies sweep theory tune witness",
    "hushgrad.algorithms":
        "AB ADDOPT ADDOPTState ALL Algorithm AsynDGM AugDGM Consensus ConsensusState DGD DGDState "
        "DIGing EXTRA EXTRAState Kind Lazy Masked PDGDS PDGDSState PDGNDS PDGNDSState Private Pull "
        "Push PushPull Square Stepping Tracker TrackerState",
    "hushgrad.fitting":
        "CheckGroup FitPlan FitResult FitStage Model PlanResult PooledTables Rows SiteCheck "
        "SiteTable TablesResult contract contract_digest first_difference load_model programme "
        "read_table rows_of table_of",
    "hushgrad.network":
        "Agent AgentConfig AgentResult Certificate FitSpec Identity LogConfig Neighbour "
        "ObjectiveSpec Partner Processes RunConfig Standardise Status load_certificate load_config "
        "load_identity mint parse_config read_result read_samples write_config",
    "hushgrad.privacy":
        "Active Adversary Attack Audit Coalition Curious Eavesdropper Estimate Evidence Finding "
        "Knowledge Own Truth Witness attacks",
    "hushgrad.privacy.attacks": "ALL Attack Estimate",
    "hushgrad.problems":
        "AgentData AgentRows Group Problem average dataset estimation estimation_from huber "
        "logistic rendezvous ridge rows_from_files",
    "hushgrad.simulate": "Channel Comparison Outcome Run RunRequest Traffic Transcript load_run",
    "hushgrad.studies":
        "Built Gathered Study SweepRow Table Unfinished gather load_study parse_study record",
    "hushgrad.theory":
        "CertificateLine Choice Exposure Guarantee Held Ledger OwnNumbers Revealed "
        "RowBound RunCertificate Setting WEAKNESSES Weakness advantage certify check_revealed "
        "choose delta epsilon guarantee huber_row judge logistic_row mean_row "
        "numbers_revealed resistances ridge_row share_revealed tradeoff weaknesses",
}  # fmt: skip

# Modules have no __all__: a user writes hg.graphs.ring, and the rest of the module is its own.
MODULES = {
    "hushgrad.draws": "SeededDraws Stream agent_keys pair_keys threefry trial_keys uniforms",
    "hushgrad.errors":
        "AgentError AlgorithmError ConfigError DiameterError DivergedError ExposureError FitError "
        "GraphError HushgradError IdentityError InputError JumpError LedgerError MaskError "
        "MissingExtra MixingError ModelError PeerEndedError PeerLostError PolicyError PrivacyError "
        "ProblemError ReplayError RiskWarning StageError StaleCopyError StateError StepsizeError "
        "StudyError WireError",
    "hushgrad.graphs":
        "Graph RuleGraph complete erdos_renyi exponential from_edges from_file from_networkx "
        "geometric grid paper path random_directed random_regular ring small_world star torus",
    "hushgrad.masks": "Mask Sizes ZeroSum zero_sum",
    "hushgrad.paper": "claims demo extras fig2 fig3",
    "hushgrad.splits": "Split fresh identity isotropic private_constant",
    "hushgrad.stepsizes":
        "Deviation Schedule bursts constant diminishing geometric harmonic none",
}  # fmt: skip

PUBLIC = {module: names.split() for module, names in (PACKAGES | MODULES).items()}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_exports_exactly_the_names_of_the_contract(package):
    module = import_module(package)
    assert sorted(module.__all__) == sorted(PUBLIC[package])
    order = sorted(module.__all__, key=lambda n: (not n.isupper(), not n[0].isupper(), n))
    assert module.__all__ == order
    assert set(PUBLIC[package]) <= set(dir(module))


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_there_and_has_a_docstring(module):
    for name in PUBLIC[module]:
        value = getattr(import_module(module), name)
        assert name == "ALL" or inspect.getdoc(value), f"{module}.{name}"


def test_no_exception_and_no_builder_of_graphs_is_left_out():
    for module, is_kind in ((hg.errors, inspect.isclass), (hg.graphs, inspect.isfunction)):
        for name, value in vars(module).items():
            if is_kind(value) and value.__module__.startswith(module.__name__) and name[0] != "_":
                assert name in PUBLIC[module.__name__] or name == "Graph"


def type_checked_exports(path):
    """(name, home) of the imports that stand under `if TYPE_CHECKING` in a package's file."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.If):
            for line in node.body:
                yield from ((alias.name, line.module) for alias in line.names)


@pytest.mark.parametrize("package", [p for p in PACKAGES if p != "hushgrad.privacy.attacks"])
def test_type_checkers_and_python_load_a_name_from_the_same_place(package):
    module = import_module(package)
    for name, home in type_checked_exports(Path(module.__file__)):
        assert getattr(module, name) is getattr(import_module(home), name), name
    named = {name for name, _ in type_checked_exports(Path(module.__file__))}
    assert named == set(module.__all__) or package == "hushgrad.algorithms"  # which is not lazy


def test_an_unknown_name_is_an_attribute_error_that_names_the_package():
    with pytest.raises(AttributeError, match=r"'hushgrad\.network' has no attribute 'parse'"):
        hg.network.parse  # noqa: B018  # reading raises


def api_sections():
    """The names that docs/api.md lists in the section of each module."""
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    for section in text.split("\n## ")[1:]:
        title = re.match(r"`([\w.]+)`", section)
        if title:
            yield title[1], re.findall(r"^- `(\w+)", section, re.MULTILINE)


def test_the_api_page_lists_every_public_name_once_and_no_other():
    sections = dict(api_sections())
    assert sections.keys() == PUBLIC.keys()
    for module, names in sections.items():
        assert sorted(names) == sorted(PUBLIC[module]), module


def test_the_api_page_names_every_argument_of_run_and_problem():
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    for function in (hg.run, hg.Problem):
        for argument in inspect.signature(function).parameters:
            assert argument in text, argument


IMPORT = re.compile(
    r"^[> ]*(?:from (hushgrad[\w.]*) import (?:\(([^)]*)\)|(.+))|import (hushgrad[\w.]*))",
    re.MULTILINE,
)
EXAMPLES = ROOT / "examples"
TEXTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted(EXAMPLES.rglob("*.md"))]
TEXTS += sorted(EXAMPLES.rglob("*.py"))


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_docs_and_examples_import_public_names_only(path):
    for module, in_brackets, on_line, plain in IMPORT.findall(path.read_text(encoding="utf-8")):
        assert (module or plain) in PUBLIC, f"{path.name} imports {module or plain}"
        for name in re.findall(r"(?:^|,)\s*(\w+)", in_brackets or on_line):
            assert name in PUBLIC[module], f"{path.name} imports {module}.{name}"


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
