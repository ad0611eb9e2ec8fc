"""`hushgrad …` in a process that is forked from one that has imported everything, so that its
start costs milliseconds. Its output goes to two files.
"""

import os
import sys
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

from hushgrad.__main__ import main
from support.process_network import FORKS


def _run(arguments, out, err):
    for path, stream in ((out, 1), (err, 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    sys.argv = ["hushgrad", *arguments]
    main()


@dataclass
class Forked:
    """The process, and the files of its output."""

    process: BaseProcess
    out: Path
    err: Path

    @classmethod
    def start(cls, directory, *arguments):
        """Start `hushgrad …` and go on; the files of its output are in the directory."""
        n = len(list(directory.glob("*.out")))
        out, err = directory / f"{n}.out", directory / f"{n}.err"
        out.touch()
        given = [str(a) for a in arguments], out, err
        made = cls(FORKS.Process(target=_run, args=given, daemon=True), out, err)
        made.process.start()
        return made

    def end(self, timeout=60):
        """(exit code, stdout, stderr)."""
        self.process.join(timeout)
        assert not self.is_running, self.err.read_text()
        return self.process.exitcode, self.out.read_text(), self.err.read_text()

    @property
    def is_running(self):
        return self.process.is_alive()

    def signal(self, number):
        os.kill(self.process.pid, number)
