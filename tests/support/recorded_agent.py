"""The command `hushgrad …` in a process that process_network.py forks, with a tape. The tape gets
every message before it is sent, and every iterate once it is durable; a line each, in one piece:

    S  receiver  round  digest of the frame
    X  k  θ̂ in hex

The disk may fail, too. $TORN = "n share": after that share of the n-th write to the journal, the
process kills itself by kill -9. $FULL = "n": from the n-th write on, every write fails, because no
space is left.
"""

import errno
import faulthandler
import itertools
import os
import signal
import sys

from hushgrad.__main__ import main
from hushgrad.files.digest import digest
from hushgrad.network import deployed  # noqa: F401  # so that a fork need not import it
from hushgrad.network.protocol.frames import HEADER, FrameKind
from hushgrad.network.rounds import Rounds
from hushgrad.network.transport.connection import Connection


def run(tape, log, arguments, environment):
    """The main function of a forked process; its output goes to a file."""
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    faulthandler.register(signal.SIGUSR1)
    os.environ.update(environment)
    break_disk()
    record(os.open(tape, os.O_WRONLY | os.O_CREAT | os.O_APPEND))
    sys.argv = ["hushgrad", *arguments]
    main()


def record(tape):
    def write(*words):
        os.write(tape, (" ".join(map(str, words)) + "\n").encode())

    def note_iterate(rounds):
        write("X", rounds.machine.k, rounds.machine.x.tobytes().hex())

    def send(link, frame, original=Connection.send):
        _, _, kind, _, round_, _, _ = HEADER.unpack_from(frame)
        if kind == FrameKind.DATA:
            write("S", link.peer.number, round_, digest(frame).hex())
        original(link, frame)

    def begin(rounds, original=Rounds.begin):
        original(rounds)
        note_iterate(rounds)

    def advance(rounds, inbox, original=Rounds.advance):
        has_ended = original(rounds, inbox)
        if has_ended:
            note_iterate(rounds)
        return has_ended

    Connection.send, Rounds.begin, Rounds.advance = send, begin, advance


def break_disk():
    if "TORN" in os.environ:
        n, share = os.environ["TORN"].split()
        _break_write(int(n), float(share), lambda: os.kill(os.getpid(), signal.SIGKILL))
    if "FULL" in os.environ:
        _break_write(int(os.environ["FULL"]), 0.5, _no_space)


def _break_write(at, share, fail, original=os.pwritev):
    """Let pwritev, and pwrite, which writes the rest of it, do their work up to the call number
    `at`, and of that a share.
    """
    calls = itertools.count(1)

    def pwritev(file, pieces, place):
        if (n := next(calls)) < at:
            return original(file, pieces, place)
        if n == at:
            content = b"".join(pieces)
            original(file, [content[: int(share * len(content))]], place)
        return fail()

    def pwrite(file, content, place):
        return pwritev(file, [content], place)

    os.pwritev, os.pwrite = pwritev, pwrite


def _no_space():
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
