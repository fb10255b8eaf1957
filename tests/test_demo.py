"""The demonstration: clients that wait by each transport, and get a value."""

import json
import os
import pathlib
import signal
import subprocess

import pytest

from support.dwell import BINARY
from support.process import Process
from support.wait import PATIENCE_S, until

TRANSPORTS = ["long-poll", "event-stream", "websocket"]
ENDS = {"INT": signal.SIGINT, "TERM": signal.SIGTERM, "KILL": signal.SIGKILL}


def once(*arguments, files=None):
    """Runs `dwell demo --once` to its end, with this limit of open files."""
    limit = [] if files is None else ["prlimit", f"--nofile={files}:{files}"]
    command = [*limit, BINARY, "demo", "--once", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)


def parts_of(pid, count=6):
    """Waits until a demonstration has its processes; returns the command of each by its pid."""

    def find():
        listed = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        commands = {int(child): command_of(child) for child in listed}
        parts = {child: part for child, part in commands.items() if "--part" in part}
        return parts if len(parts) == count else None

    return until(find, f"{count} processes are started")


def command_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except (FileNotFoundError, ProcessLookupError):
        return ""


@pytest.fixture
def demo(cleanup, tmp_path):
    """Starts `dwell demo --once` with more clients than are soon there."""
    process = Process([BINARY, "demo", "--once", "--clients", "2000"], tmp_path / "demo.log")
    cleanup.callback(process.stop)
    return process.start()


def test_every_client_waits_and_is_answered():
    result = once("--clients", 200, "--json")
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert (document["clients"], document["limit"]) == (200, None)
    assert [lane["transport"] for lane in document["transports"]] == TRANSPORTS
    for lane in document["transports"]:
        assert (lane["waiting"], lane["lost"]) == (200, 0)
        # Pages of the system, shared among few: what it must not be is a buffer for each.
        assert 0 <= lane["bytes_per_client"] < 4096
        assert lane["threads"] >= 1
        assert 0 <= lane["cpu_idle_percent"] < 100
        wave = lane["wave"]
        assert (wave["expected"], wave["answered"], wave["wrong"]) == (200, 200, 0)
        times = [wave[name] for name in ("first_ms", "p50_ms", "p99_ms", "last_ms")]
        assert times == sorted(times)
        assert times[0] > 0
        assert wave["server_cpu_ms"] > 0
        assert sum(wave["histogram"]) == 200
        # The times are rounded.
        assert wave["last_ms"] <= (len(wave["histogram"]) + 1) * wave["bucket_ms"]


def test_the_figures_are_a_table_for_people():
    result = once("--clients", 3)
    assert result.returncode == 0, result.stderr
    rows = {line[:26].strip(): line[26:].split() for line in result.stdout.splitlines()}
    assert rows[""] == TRANSPORTS
    assert rows["clients waiting"] == rows["answered"] == ["3"] * 3
    assert "share the processors" in result.stdout


def test_a_number_beyond_a_limit_is_cut_and_the_limit_named():
    result = once("--clients", 5000, "--json", files=300)
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert 100 < document["clients"] < 300
    assert "300 files" in document["limit"]
    for lane in document["transports"]:
        assert lane["waiting"] == lane["wave"]["answered"] == document["clients"]


def test_without_room_for_a_client_there_is_no_demonstration():
    result = once("--clients", 5, files=64)
    assert result.returncode == 1
    assert result.stderr.startswith("dwell demo: no clients can be started: ")
    assert "64 files" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [["--json"], ["--once", "--clients", "-1"], ["--once", "--clients", "many"], ["--part", "x"]],
)
def test_wrong_flags_are_refused(arguments):
    command = [BINARY, "demo", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 2


@pytest.mark.parametrize("part", ["server", "long-poll@", "websocket@"])
def test_a_process_that_is_killed_ends_the_demonstration(demo, part):
    parts = parts_of(demo.pid)
    killed = next(pid for pid, command in parts.items() if f"--part {part}" in command)
    os.kill(killed, signal.SIGKILL)
    assert demo.wait() == 1
    what = "server has ended" if part == "server" else f"{part[:-1]} clients has ended"
    assert what in demo.output()
    assert "signal: 9" in demo.output()
    assert_gone(parts)


@pytest.mark.parametrize("end", ENDS)
def test_no_process_outlives_the_demonstration(demo, end):
    parts = parts_of(demo.pid)
    demo.signal(ENDS[end])
    assert demo.wait() == -ENDS[end]
    assert_gone(parts)


def assert_gone(parts):
    """Waits until none of these processes is there; one that nobody waits for has no command."""
    until(lambda: not any(map(command_of, parts)), "the processes end", PATIENCE_S)
