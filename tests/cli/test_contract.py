"""`hushgrad contract`: one document and one digest for equal models, a named field for others."""

import json

import pytest
from typer.testing import CliRunner

import hushgrad as hg
from hushgrad.cli import app
from hushgrad.fitting import contract, contract_digest

MODEL = """[model]
kind = "linear"
outcome = "y"
columns = ["a", "b"]
"""


@pytest.fixture
def files(tmp_path):
    ours, theirs = tmp_path / "ours.toml", tmp_path / "theirs.toml"
    ours.write_text(MODEL, "utf-8")
    theirs.write_text(MODEL.replace('"a", "b"', '"b", "a"'), "utf-8")
    return ours, theirs


def call(*arguments, code=0):
    result = CliRunner().invoke(app, ["contract", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.output


def test_the_document_is_the_contract_of_the_model_and_its_digest(files):
    document = contract(hg.Model(kind="linear", outcome="y", columns=["a", "b"]))
    text, _, digest = call(files[0]).rpartition("digest ")
    assert json.loads(text) == json.loads(json.dumps(document))
    assert digest.strip() == contract_digest(document)
    told = json.loads(call(files[0], "--format", "json"))
    assert (told["digest"], told["difference"]) == (digest.strip(), None)


def test_two_files_are_compared_field_by_field(files):
    ours, theirs = files
    assert "digest" in call(ours, ours)
    said = call(ours, theirs, code=1)
    assert said == f"columns[0] is 'a' in {ours} and 'b' in {theirs}\n"
    told = json.loads(call(ours, theirs, "--format", "json", code=1))["difference"]
    assert told == {"field": "columns[0]", "ours": "a", "theirs": "b"}


def test_a_file_that_is_no_model_is_bad_input(files):
    files[0].write_text(MODEL.replace("linear", "linea"), "utf-8")
    call(files[0], code=2)
