"""What only a process of its own shows: imports, streams, signals."""

import json
import signal
import subprocess
import sys
import time

import hushgrad as hg
from support.studies import study_text

STUDY = study_text({"DGD": 0.1}, iterations=5, engine="agents")


def entry(*arguments):
    code = "from hushgrad.cli import main; main()"
    return [sys.executable, "-c", code, *map(str, arguments)]


HELP = """
import sys
from hushgrad.cli import main
for arguments in (["--help"], ["--version"], ["run", "--help"]):
    sys.argv = ["hushgrad", *arguments]
    try:
        main()
    except SystemExit as end:
        assert not end.code, end.code
    heavy = {"jax", "matplotlib", "scipy", "sklearn", "networkx"} & set(sys.modules)
    assert not heavy, (arguments, heavy)
    print("ended", *arguments)
"""


def test_help_and_version_import_nothing_heavy():
    done = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for text in ("Usage: hushgrad run", f"hushgrad {hg.__version__}", "ended run --help"):
        assert text in done.stdout


def test_json_goes_to_stdout_alone_and_messages_to_stderr_alone(tmp_path):
    (tmp_path / "study.toml").write_text(STUDY)
    done = subprocess.run(
        entry("run", tmp_path / "study.toml", "--format", "json"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["results"][0]["algorithm"] == "DGD"
    assert done.stderr.startswith("warning: DGD with a constant stepsize")
    assert "\x1b" not in done.stdout + done.stderr


def test_an_error_is_one_line_without_a_traceback_and_exit_code_2(tmp_path):
    (tmp_path / "study.toml").write_text(STUDY.replace('"ring"', '"rign"'))
    done = subprocess.run(
        entry("run", tmp_path / "study.toml"), capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("error: ")
    assert 'study.toml:2: network.graph = "rign"' in done.stderr


def test_an_interrupt_is_exit_code_130_and_a_sentence(tmp_path):
    (tmp_path / "slow.py").write_text(
        "import time\ndef gap(x, problem):\n    print('running', flush=True)\n    time.sleep(60)\n"
    )
    (tmp_path / "study.toml").write_text(STUDY + 'metrics = { gap = "slow.py:gap" }\n')
    with subprocess.Popen(
        entry("run", tmp_path / "study.toml"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        while process.stderr.readline() != "running\n":
            assert process.poll() is None
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "interrupted" in stderr
    assert "Traceback" not in stderr
