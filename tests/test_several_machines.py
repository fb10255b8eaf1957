"""The example of several machines on one: small, and ended too early."""

import re
import resource
import signal
import subprocess
import sys

import pytest

from support import ports
from support.dwell import BINARY, ROOT
from support.process import Process, accepts
from support.redis import REDIS, VALKEY, program
from support.wait import PATIENCE_S, until

EXAMPLE = ROOT / "examples/several-machines"


def command(server, waiters):
    options = ["--dwell", BINARY, "--server", program(server), "--waiters", str(waiters)]
    return [sys.executable, EXAMPLE, *options]


def started(text):
    """The addresses of what the example has started."""
    found = re.findall(rf"{re.escape(ports.HOST)}:(\d+)", text)
    return [(ports.HOST, int(port)) for port in found]


@pytest.mark.parametrize("server", [REDIS, VALKEY])
def test_what_is_written_on_one_edge_is_answered_on_both(server):
    ended = subprocess.run(
        command(server, 40), capture_output=True, text=True, timeout=3 * PATIENCE_S, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "40 clients wait on each edge" in ended.stdout
    assert "every client was answered by each write" in ended.stdout
    times = re.findall(r"(edge [12]) ([\d.]+) / ([\d.]+) / ([\d.]+)", ended.stdout)
    assert [edge for edge, *_ in times] == ["edge 1", "edge 2"] * 3
    for _, *of_edge in times:
        first, median, last = map(float, of_edge)
        assert 0 < first <= median <= last
    addresses = started(ended.stdout)
    assert len(addresses) == 3
    assert not any(accepts(address) for address in addresses)


def test_fewer_clients_than_asked_for_are_told():
    def few_descriptors():
        resource.setrlimit(resource.RLIMIT_NOFILE, (520, 520))

    ended = subprocess.run(
        command(REDIS, 1000), capture_output=True, text=True, timeout=3 * PATIENCE_S,
        check=False, preexec_fn=few_descriptors,
    )  # fmt: skip
    assert "20 clients instead of 1000 on each edge: a process may open 520 files" in ended.stdout
    assert "20 clients wait on each edge" in ended.stdout
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_what_was_started_ends_with_it(tmp_path, cleanup):
    example = Process(["env", "PYTHONUNBUFFERED=1", *command(REDIS, 500)], tmp_path / "log")
    cleanup.callback(example.stop)
    example.start()
    until(lambda: len(started(example.output())) == 3, "all are started")
    addresses = started(example.output())
    assert all(accepts(address) for address in addresses)
    example.signal(signal.SIGTERM)
    example.wait()
    assert not any(accepts(address) for address in addresses)
