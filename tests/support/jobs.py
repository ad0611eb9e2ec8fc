"""Jobs of several real processes on this machine: `hushgrad run --coordinator …`."""

import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager

LIMIT = 240  # seconds that any job of a test may take


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def environment(cache, devices=1):
    return os.environ | {
        "XDG_CACHE_HOME": str(cache),
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
    }


@contextmanager
def started(study, n, *options, cache, devices=1, studies=None):
    """The processes of a job; none of them outlives the block."""
    port = free_port()
    command = [sys.executable, "-m", "hushgrad", "run"]
    processes = [
        subprocess.Popen(
            [*command, str(studies[i] if studies else study), "--format", "json", *options,
             "--coordinator", f"127.0.0.1:{port}", "--processes", str(n),
             "--process", str(i)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=environment(cache, devices),
        )
        for i in range(n)
    ]  # fmt: skip
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()
            process.stdout.close()
            process.stderr.close()


def ended(processes, limit=LIMIT):
    """[(exit code, stdout, stderr)] when all processes have ended."""
    end = time.monotonic() + limit
    return [
        (p.returncode, *told)
        for p in processes
        for told in [p.communicate(timeout=max(1.0, end - time.monotonic()))]
    ]


def alone(study, *options, cache):
    """The output of the same command without a job."""
    done = subprocess.run(
        [sys.executable, "-m", "hushgrad", "run", str(study), "--format", "json", *options],
        capture_output=True, text=True, timeout=LIMIT, check=False, env=environment(cache),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout
