"""Signals while the manager is polled."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from dwell import Manager

# A program that was started in the background of a shell script ignores SIGINT, and so do those
# that it starts.
PREAMBLE = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"


def interrupted(text: str, number: int) -> tuple[float, subprocess.CompletedProcess[str]]:
    """Runs a program, sends it a signal when it says so, and takes the time until it ends."""
    program = subprocess.Popen(
        [sys.executable, "-c", PREAMBLE + textwrap.dedent(text)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    wait_until_asleep(program.pid)
    began = time.monotonic()
    program.send_signal(number)
    out, err = program.communicate(timeout=30)
    return time.monotonic() - began, subprocess.CompletedProcess([], program.returncode, out, err)


def wait_until_asleep(pid: int) -> None:
    """Waits until a process waits, where the system tells."""
    try:
        while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "S":
            os.sched_yield()
    except FileNotFoundError:
        pass


def test_ctrl_c_ends_a_long_poll():
    took, done = interrupted(
        """
        from dwell import Manager
        with Manager() as manager:
            manager.listen("http://127.0.0.1:0")
            print("ready", flush=True)
            try:
                manager.poll(60_000)
            except KeyboardInterrupt:
                print("interrupted")
        """,
        signal.SIGINT,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted\n", "", 0)
    assert took < 20


def test_ctrl_c_before_the_first_wait_ends_the_poll():
    program = """
        import os
        import signal
        from dwell import Manager
        set_wakeup_fd = signal.set_wakeup_fd
        def interrupted(*arguments, **keywords):
            os.kill(os.getpid(), signal.SIGINT)
            return set_wakeup_fd(*arguments, **keywords)
        signal.set_wakeup_fd = interrupted
        with Manager() as manager:
            try:
                manager.poll(60_000)
            except KeyboardInterrupt:
                print("interrupted")
    """
    command = [sys.executable, "-c", PREAMBLE + textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted\n", "", 0)


def test_a_signal_handler_runs_and_the_poll_returns():
    took, done = interrupted(
        """
        import signal
        from dwell import Manager
        stopped = []
        signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
        with Manager() as manager:
            print("ready", flush=True)
            while not stopped:
                manager.poll(60_000)
            print("stopped")
        """,
        signal.SIGTERM,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("stopped\n", "", 0)
    assert took < 20


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_run_ends_in_order_and_gives_the_signals_back(number):
    took, done = interrupted(
        f"""
        import signal
        from dwell import Manager
        before = signal.getsignal({int(number)})
        manager = Manager()
        manager.listen("http://127.0.0.1:0")
        manager.timer_add(0, lambda: print("ready", flush=True))
        manager.run(60_000)
        print(manager.closed, signal.getsignal({int(number)}) == before, signal.set_wakeup_fd(-1))
        """,
        number,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("True True -1\n", "", 0)
    assert took < 20


def test_another_ones_wakeup_descriptor_is_left_alone():
    read, write = socket.socketpair()
    write.setblocking(False)
    before = signal.set_wakeup_fd(write.fileno())
    try:
        with Manager() as manager:
            manager.poll(1)
            assert signal.set_wakeup_fd(write.fileno()) == write.fileno()
    finally:
        signal.set_wakeup_fd(before)
        read.close()
        write.close()


def test_run_ends_when_a_handler_closes_the_manager():
    manager = Manager()
    manager.timer_add(0, manager.close)
    manager.run()
    assert manager.closed


def test_the_first_poll_of_a_second_manager_waits():
    with Manager() as first, Manager() as second:
        first.poll(1)
        began = time.monotonic()
        second.poll(200)
        assert time.monotonic() - began >= 0.19
        # Signals go on ending the waits of the first.
        assert signal.set_wakeup_fd(-1) != -1
