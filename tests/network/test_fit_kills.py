"""Real processes of `hushgrad fit` under real SIGKILLs: at boundaries of averages, at random."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from itertools import combinations

import pytest

import hushgrad as hg
from hushgrad.files.strict_json import strict_json
from hushgrad.network.config.file import write_config
from hushgrad.network.keys.identity import mint
from hushgrad.network.programme import SUMS
from hushgrad.schema.toml import to_toml
from support import fit_network, fits
from support.process_network import ports

SITES = fits.synthetic((40, 60, 80))
NAMES = list(SITES)
FITS = {
    "deaths": {"kind": "logistic", "outcome": "death", "columns": ["age", "year"]},
    "visits": {"kind": "poisson", "outcome": "visits", "columns": ["age"],
               "offset": "log_exposure"},
}  # fmt: skip
OF_NETWORK = ("rounds", "masks", "mu", "mu_of_all_stages", "stages", "contract", "contract_digest")


def settle(directory):
    """Keys, rows and files of three sites that run a plan of one table and two fits."""
    stages = [{"name": "who", "kind": "sum", "means": ["age"]}]
    stages += [{"name": name, "kind": "fit", "model": model} for name, model in FITS.items()]
    directory.mkdir()
    (directory / "model.toml").write_text(to_toml({"stage": stages}))
    for name in NAMES:
        mint(directory / name, name)
        fit_network.write_rows(directory / name / "rows.csv", SITES[name])
    for a, b in (*combinations(NAMES, 2), *combinations(NAMES[::-1], 2)):
        (directory / a / "trusted").mkdir(exist_ok=True)
        shutil.copy(directory / b / f"{b}.crt", directory / a / "trusted")
    free = ports(3)
    for j, name in enumerate(NAMES):
        others = [{"name": other, "number": i} for i, other in enumerate(NAMES) if i != j]
        write_config(directory / name / "agent.toml", {
            "agent": {
                "name": name, "number": j, "listen": f"127.0.0.1:{free[j]}",
                "accept_exposure": ["sums", "cells"], "durability": "process",
                "max_wait": 20.0,  # for sites that ended while this one was killed
            },
            "fit": {"model": "../model.toml", "file": "rows.csv"},
            "run": {"id": directory.name, "n_agents": 3},
            "neighbour": [
                o | ({"address": f"127.0.0.1:{free[o['number']]}"} if o["number"] > j else {})
                for o in others
            ],
            "partner": others,
        })  # fmt: skip


class Sites:
    """The processes of one run."""

    def __init__(self, directory):
        self.directory, self.kills = directory, 0
        settle(directory)
        self.processes = {name: self._start(name) for name in NAMES}

    def _start(self, name):
        home = self.directory / name
        with (home / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "hushgrad", "fit", "agent.toml", "--quiet"], cwd=home,
                stdout=log, stderr=log, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            )  # fmt: skip

    def kill(self, name):
        """SIGKILL, and a new process; False if the agent had ended before."""
        process = self.processes[name]
        process.send_signal(signal.SIGKILL)
        if process.wait() != -signal.SIGKILL:
            return False
        self.kills += 1
        self.processes[name] = self._start(name)
        return True

    def pooled(self, name):
        """The bytes of pooled sums that an agent has kept."""
        with contextlib.suppress(FileNotFoundError):
            return (self.directory / name / "state" / SUMS).stat().st_size
        return 0

    def results(self):
        for name, process in self.processes.items():
            log = self.directory / name / "log"
            assert process.wait(timeout=120) == 0, log.read_text()[-3000:]
        return [json.loads((self.directory / n / "state" / "result.json").read_text())["fit"]
                for n in NAMES]  # fmt: skip

    def end(self):
        for process in self.processes.values():
            process.kill()
            process.wait()


def plain():
    """The same plan on pooled rows in one place."""
    models = {name: hg.Model(**model) for name, model in FITS.items()}
    plan = hg.FitPlan(stages={"who": hg.PooledTables(means=["age"]), **models})
    return json.loads(strict_json(hg.fit(plan, SITES).to_json()))


def bits(document):
    """JSON has every digit of a float."""
    found = {name: {k: v for k, v in of.items() if k not in OF_NETWORK}
             for name, of in document["results"].items()}  # fmt: skip
    return json.dumps(found, sort_keys=True)


def at_boundaries(sites, rng, _):
    """Kill an agent each time when it has kept one more pooled sum, the three in turn."""
    n_boundaries = 0
    while all(process.poll() is None for process in sites.processes.values()):
        name = NAMES[n_boundaries % 3]
        before = sites.pooled(name)
        while sites.pooled(name) == before:
            if any(process.poll() is not None for process in sites.processes.values()):
                return n_boundaries
            time.sleep(0.0005)
        time.sleep(rng.choice([0.0, 0.001, 0.003]))
        if not sites.kill(name):
            break
        n_boundaries += 1
    return n_boundaries


def at_random(sites, rng, whole):
    """Kill agents at random, in their start, in averages, while they wait for one another.

    whole    seconds of a run without a kill
    """
    for _ in range(25):
        time.sleep(rng.uniform(0.0, 0.7 * whole))
        if not sites.kill(rng.choice(NAMES)):
            break


@pytest.mark.slow
@pytest.mark.parametrize("how", [at_boundaries, at_random])
def test_sites_that_are_killed_end_with_the_same_bits(tmp_path, how):
    """Over 50 SIGKILLs at boundaries and over 50 at random, over several runs of each."""
    expected, rng, kills, run = bits(plain()), random.Random(5), 0, 0
    assert "deaths" in expected
    whole = -time.monotonic()
    sites = Sites(tmp_path / "undisturbed")
    assert {bits(document) for document in sites.results()} == {expected}
    whole += time.monotonic()
    while kills < 52:
        sites = Sites(tmp_path / f"{how.__name__}-{run}")
        try:
            how(sites, rng, whole)
            found = sites.results()
        finally:
            sites.end()
        assert {bits(document) for document in found} == {expected}
        kills, run = kills + sites.kills, run + 1
        print(f"run {run}: {sites.kills} kills, {kills} in all")
        assert run < 40
