"""Signals while the manager is polled."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from dwell import Manager
from dwell._processes import Stop

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


@pytest.mark.skipif(not hasattr(select, "epoll"), reason="the order is made with epoll")
def test_ctrl_c_just_before_asyncio_waits_ends_the_program():
    program = """
        import asyncio, ctypes, operator, os, signal
        from functools import partial
        from dwell import AsyncManager

        interrupt = partial(ctypes.PyDLL(None).kill, os.getpid(), signal.SIGINT)

        class Interrupted:
            def __init__(self, epoll):
                self.epoll = epoll
                self.is_due = True

            def poll(self, timeout, most):
                wait = partial(self.epoll.poll, timeout, most)
                ready = self.epoll.poll(0, most)
                if ready or timeout != -1 or not self.is_due:
                    return ready or wait()
                self.is_due = False
                # All of it in C code, so that no handler runs between the signal and the wait.
                return list(map(operator.call, (interrupt, wait)))[1]

            def __getattr__(self, name):
                return getattr(self.epoll, name)

        async def main():
            async with AsyncManager() as manager:
                manager.listen("http://127.0.0.1:0")
                selector = asyncio.get_running_loop()._selector
                selector._selector = Interrupted(selector._selector)
                await asyncio.Event().wait()

        try:
            asyncio.run(main())
        except KeyboardInterrupt:
            print("interrupted", signal.set_wakeup_fd(-1))
    """
    command = [sys.executable, "-c", PREAMBLE + textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted -1\n", "", 0)


@pytest.mark.parametrize("gives_back", [False, True])
def test_another_ones_signals_are_passed_on(
    gives_back: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_wakeup_fd = signal.set_wakeup_fd
    read, write = socket.socketpair()
    read.setblocking(False)
    write.setblocking(False)
    raised: list[int] = []

    def signalled(descriptor: int, **keywords: bool) -> int:
        before = set_wakeup_fd(descriptor, **keywords)
        if descriptor != write.fileno():
            raised.append(signal.SIGUSR1)
            signal.raise_signal(signal.SIGUSR1)
        return before

    handler = signal.signal(signal.SIGUSR1, lambda *_: None)
    before = set_wakeup_fd(-1)
    try:
        with Manager() as manager:
            if gives_back:
                # It takes the signals, and another one does after it.
                manager.poll(1)
            set_wakeup_fd(write.fileno())
            monkeypatch.setattr(signal, "set_wakeup_fd", signalled)
            manager.poll(1)
        assert raised
        assert read.recv(64) == bytes(raised)
        assert set_wakeup_fd(write.fileno()) == write.fileno()
    finally:
        set_wakeup_fd(before)
        signal.signal(signal.SIGUSR1, handler)
        read.close()
        write.close()


def test_signals_of_others_go_on_without_a_descriptor_to_spare():
    program = """
        import os, resource, signal, socket
        from dwell import Manager
        read, write = socket.socketpair()
        write.setblocking(False)
        manager = Manager()
        signal.set_wakeup_fd(write.fileno())
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        spare = os.dup(0)
        os.close(spare)
        resource.setrlimit(resource.RLIMIT_NOFILE, (spare, most))
        manager.poll(1)
        manager.close()
        print(signal.set_wakeup_fd(-1) == write.fileno())
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.stderr, done.returncode) == ("True\n", "", 0)


@pytest.mark.parametrize("comes", ["during the wait", "at its end"])
def test_a_server_passes_on_the_signals_of_others(
    comes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_wakeup_fd, wait = signal.set_wakeup_fd, select.select
    read, write = socket.socketpair()
    read.setblocking(False)
    write.setblocking(False)
    stop = Stop()

    def waited(*arguments: Any) -> Any:
        if comes == "at its end":
            stop.ask()
        else:
            signal.raise_signal(signal.SIGUSR1)
        return wait(*arguments)

    def given_back(descriptor: int, **keywords: bool) -> int:
        if descriptor == write.fileno() and comes == "at its end":
            signal.raise_signal(signal.SIGUSR1)
        return set_wakeup_fd(descriptor, **keywords)

    handler = signal.signal(signal.SIGUSR1, lambda *_: stop.ask())
    before = set_wakeup_fd(write.fileno())
    monkeypatch.setattr(select, "select", waited)
    monkeypatch.setattr(signal, "set_wakeup_fd", given_back)
    try:
        stop.wait()
        assert read.recv(64) == bytes([signal.SIGUSR1])
        assert set_wakeup_fd(write.fileno()) == write.fileno()
    finally:
        set_wakeup_fd(before)
        signal.signal(signal.SIGUSR1, handler)
        stop.close()
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
