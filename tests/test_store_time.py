"""Lifetimes in the embedded store, where the wall clock is set while it serves."""

import pathlib
import signal
import socket
import time

import pytest

from support import ports
from support.dwell import BINARY
from support.process import Process
from support.wait import until

HOURS = 7200


class Clock:
    """A wall clock of one process, which can be set; the monotonic one stays the system's."""

    def __init__(self, folder):
        self.offset = 0
        self.file = folder / "clock"
        self.set(0)
        (library,) = pathlib.Path("/usr/lib").glob("*/faketime/libfaketime.so.1")
        self.command = [
            "env",
            f"LD_PRELOAD={library}",
            f"FAKETIME_TIMESTAMP_FILE={self.file}",
            "FAKETIME_NO_CACHE=1",
            "FAKETIME_DONT_FAKE_MONOTONIC=1",
        ]

    def set(self, offset):
        self.offset = offset
        self.file.write_text(f"{offset:+d}\n")

    def now(self):
        return int(time.time()) + self.offset


@pytest.fixture
def clock(tmp_path):
    return Clock(tmp_path)


@pytest.fixture
def start(cleanup, tmp_path, clock):
    def start():
        address = ports.free_address()
        command = [*clock.command, BINARY, "store", "-p", address[1], "--snapshot"]
        store = Process([*command, tmp_path / "items"], tmp_path / "log")
        cleanup.callback(store.stop)
        store.start_listening(address)
        return store, Remaining(address)

    return start


class Remaining:
    """Asks for lifetimes."""

    def __init__(self, address):
        self.socket = socket.create_connection(address, timeout=30)

    def ask(self, line):
        self.socket.sendall(line)
        return self.socket.recv(4096)

    def store(self, key, exptime):
        assert self.ask(b"set %s 0 %d 1\r\nv\r\n" % (key, exptime)) == b"STORED\r\n"

    def of(self, key):
        answer = self.ask(b"mg %s t\r\n" % key)
        return None if answer == b"EN\r\n" else int(answer.removeprefix(b"HD t"))


@pytest.mark.parametrize("offset", [HOURS, -HOURS])
def test_a_wall_clock_that_is_set_ends_and_keeps_nothing(start, clock, offset):
    store, remaining = start()
    remaining.store(b"before", 3600)
    clock.set(offset)

    def is_set():
        # By the clock before, this time is hours away, or is over.
        remaining.store(b"probe", clock.now() + 1800)
        return 1700 < (remaining.of(b"probe") or 0) <= 1801

    until(is_set, "the process sees the clock that was set")
    assert 3500 < remaining.of(b"before") <= 3600
    remaining.store(b"absolute", clock.now() + 600)
    assert 500 < remaining.of(b"absolute") <= 601
    store.signal(signal.SIGTERM)
    assert store.wait() == 0
    _, remaining = start()
    assert 3400 < remaining.of(b"before") <= 3600, "it goes on in the next process"
    assert 400 < remaining.of(b"absolute") <= 601
