"""``python -m dwell`` ends, whatever the application does."""

from __future__ import annotations

import contextlib
import queue
import signal
import subprocess
import sys
import threading
import types
from pathlib import Path

import pytest

from dwell import _processes
from dwell._processes import SignalEvent, Stop
from programs import Start
from wire import TIMEOUT, Wire

HEAD = """
import asyncio, os, time
def say(text):
    os.write(1, text.encode() + b"\\n")
async def ignore():
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            say("ignored")
"""

SERVING = (
    HEAD
    + """
async def app(scope, receive, send):
    assert scope["type"] == "http"
    say("waiting")
    WAIT
"""
)
IGNORING = SERVING.replace("WAIT", "await ignore()")
BLOCKING = SERVING.replace("WAIT", "time.sleep(3600)")

STARTING = (
    HEAD
    + """
async def app(scope, receive, send):
    assert (await receive())["type"] == "lifespan.startup"
    say("waiting")
    WAIT
"""
)

STOPPING = (
    HEAD
    + """
async def app(scope, receive, send):
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    say("waiting")
    WAIT
"""
)

THREAD = (
    HEAD
    + """
import threading
def app(environ, start_response):
    threading.Thread(target=time.sleep, args=(3600,)).start()
    say("waiting")
    start_response("200 OK", [])
    return []
"""
)


def endless(source: str, *, stubborn: bool) -> str:
    return source.replace("WAIT", "await ignore()" if stubborn else "await asyncio.sleep(3600)")


@pytest.mark.parametrize("source", [IGNORING, BLOCKING, THREAD])
def test_a_second_signal_ends_a_request_that_does_not(
    start: Start, tmp_path: Path, source: str
) -> None:
    (tmp_path / "hang.py").write_text(source)
    program = start("hang", "--port", "0")
    with Wire(program.address()) as client:
        client.request("GET /")
        program.wait_for("waiting")
        # Two at once may be one to the process, and nothing shows when it has heard the first.
        while program.process.poll() is None:
            program.send(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                program.process.wait(0.5)
        program.end()


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_lifespan_that_hangs_at_its_start(start: Start, tmp_path: Path, stubborn: bool) -> None:
    (tmp_path / "hang.py").write_text(endless(STARTING, stubborn=stubborn))
    program = start("hang", "--port", "0")
    program.wait_for("waiting")
    program.send(signal.SIGTERM)
    if stubborn:
        program.wait_for("ignored")
        program.send(signal.SIGTERM)
        program.end()
    else:
        assert program.end() == 0
        assert not any("Traceback" in line for line in program.seen)


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_lifespan_that_hangs_at_its_shutdown(
    start: Start, tmp_path: Path, stubborn: bool
) -> None:
    (tmp_path / "hang.py").write_text(endless(STOPPING, stubborn=stubborn))
    program = start("hang", "--port", "0")
    program.address()
    program.send(signal.SIGTERM)
    program.wait_for("waiting")
    program.send(signal.SIGTERM)
    program.end()


@pytest.mark.parametrize("source", [IGNORING, STOPPING])
def test_one_signal_is_enough_in_time(start: Start, tmp_path: Path, source: str) -> None:
    (tmp_path / "hang.py").write_text(endless(source, stubborn=True))
    program = start("hang", "--port", "0", "--graceful-timeout", "0.1")
    with Wire(program.address()) as client:
        if source is IGNORING:
            client.request("GET /")
            program.wait_for("waiting")
        program.send(signal.SIGTERM)
        assert program.end() == 0
    message = "ignore their cancellation" if source is IGNORING else "has not ended within 5 s"
    assert any(message in line for line in program.seen)


def test_a_worker_that_leaves_ends_in_time(start: Start, tmp_path: Path) -> None:
    (tmp_path / "hang.py").write_text(BLOCKING)
    program = start("hang", "--port", "0", "--workers", "1", "--graceful-timeout", "0.1")
    with Wire(program.address()) as client:
        client.request("GET /")
        program.wait_for("waiting")
        program.send(signal.SIGHUP)
        # It hangs in the application: neither itself nor a signal could end it.
        assert client.is_closed()
        program.wait_for("in app")
    program.send(signal.SIGTERM)
    assert program.end() == 0


def test_a_failing_shutdown_is_told(start: Start, tmp_path: Path) -> None:
    (tmp_path / "hang.py").write_text(STOPPING.replace("WAIT", "raise KeyError('the pool')"))
    program = start("hang", "--port", "0")
    program.address()
    program.send(signal.SIGTERM)
    assert program.end() == 0
    assert any("KeyError: 'the pool'" in line for line in program.seen)


_SIGNALLED_AT_ONCE = """
import os, signal, sys
from dwell._processes import work_in

def work(place, ready, stop):
    ready()
    stop.wait()

def started():
    os.kill(os.getpid(), signal.SIGHUP)

def renew():
    os.kill(os.getpid(), signal.SIGTERM)
    return False

sys.exit(work_in(1, work, started, 5.0, True, renew))
"""


def test_a_supervisor_keeps_a_signal_that_comes_as_it_says_that_it_starts() -> None:
    ended = subprocess.run([sys.executable, "-c", _SIGNALLED_AT_ONCE], timeout=TIMEOUT)
    assert ended.returncode == 0


REPEATED = """
import signal, sys
from dwell._processes import Stop

def repeated(line):
    stop = Stop()
    signal.signal(signal.SIGTERM, stop.ask)
    left = line
    def trace(frame, event, argument):
        nonlocal left
        if event == "line":
            left -= 1
            if left == 0:
                signal.raise_signal(signal.SIGTERM)
        return trace
    sys.settrace(trace)
    stop.ask()
    sys.settrace(None)
    assert stop.asked.is_set()
    assert stop.at_once == (left <= 0)
    stop.close()
    return left <= 0

lines = 1
while repeated(lines):
    lines += 1
assert lines > 5, lines
"""


def test_a_repetition_may_interrupt_the_first_wish_at_any_line() -> None:
    program = [sys.executable, "-c", REPEATED]
    done = subprocess.run(program, capture_output=True, text=True, timeout=TIMEOUT)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_repetition_moves_no_end_to_a_later_time(monkeypatch: pytest.MonkeyPatch) -> None:
    armed: list[float] = []
    clock = types.SimpleNamespace(now=100.0, monotonic=lambda: clock.now)
    watchdog = types.SimpleNamespace(
        dump_traceback_later=lambda seconds, **_: armed.append(round(seconds, 3)),
        cancel_dump_traceback_later=lambda: None,
    )
    monkeypatch.setattr(_processes, "time", clock)
    monkeypatch.setattr(_processes, "faulthandler", watchdog)
    stop = Stop(patience=5.0)
    stop.ask()
    clock.now = 104.5
    stop.ask()
    stop.ask()
    assert armed == [5.0, 0.5]
    stop.beat(30.0)
    assert armed[2:] == [30.0, 0.5]
    clock.now = 106.0
    stop.beat(30.0)
    assert armed[4:] == [30.0, _processes.MOMENT]
    stop.close()
    patient = Stop(patience=60.0)
    patient.ask()
    patient.ask()
    assert armed[6:] == [60.0, _processes.AT_ONCE]
    patient.close()


def test_a_signal_event_wakes_all_who_wait() -> None:
    event = SignalEvent()
    assert not event.wait(0)
    woken = queue.Queue[bool]()
    for _ in range(4):
        threading.Thread(target=lambda: woken.put(event.wait(TIMEOUT)), daemon=True).start()
    event.set()
    event.set()
    assert [woken.get(timeout=TIMEOUT) for _ in range(4)] == [True] * 4
    assert event.wait()
