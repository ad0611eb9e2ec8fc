"""Errors about TOML files name the file's kind and its mistakes, in the file's order."""

import pytest

from hushgrad.errors import ConfigError, ModelError, StudyError
from hushgrad.fitting import load_model
from hushgrad.network import load_config
from hushgrad.studies import load_study

STUDY = '[network]\ngraph = "ring"\nn_agents = 3\n[problem]\nkind = "estimation"\n'
AGENT = '[agent]\nname = "north"\nnumber = 0\n'
MODEL = '[model]\nkind = "linear"\noutcome = "y"\ncolumns = ["x"]\n'


@pytest.mark.parametrize(
    ("text", "load", "error", "said"),
    [
        (STUDY, load_config, ConfigError, "is a study, not an agent's file. `hushgrad run "),
        (STUDY, load_model, ModelError, "is a study, not a model file. `hushgrad run "),
        (AGENT, load_study, StudyError, "is an agent's file, not a study. `hushgrad doctor "),
        (MODEL, load_study, StudyError, "is a model file, not a study. `hushgrad contract "),
        (MODEL, load_config, ConfigError, "is a model file, not an agent's file."),
    ],
)
def test_a_file_of_another_kind_is_refused_in_one_sentence_with_its_command(
    text, load, error, said, tmp_path
):
    path = tmp_path / "file.toml"
    path.write_text(text)
    with pytest.raises(error) as caught:
        load(path)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_a_mixture_is_told_its_mistakes_in_the_order_of_the_file(tmp_path):
    path = tmp_path / "agent.toml"
    path.write_text(AGENT + "[zebra]\n[network]\n[apple]\n[problem]\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    lines = str(caught.value).splitlines()
    unknown = [line.split()[1] for line in lines if "is not a table of an agent's file" in line]
    assert unknown == ["zebra", "network", "apple", "problem"]
