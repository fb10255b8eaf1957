"""Logs that are not read: they hold up neither clients nor the end."""

import contextlib
import fcntl
import os
import signal
import struct
import termios
import time

import pytest

from support.dwell import Dwell
from support.wait import PATIENCE_S, until

KEY = "/poll/alice"
PIPE_BYTES = 4096
EVENT = "no configuration is read again"
# Of signals that come at once the system passes on one, so there are far fewer events on a machine
# that does other things too.
EVENTS = 400
# Half as many again as the pipe holds: a line has about 100 bytes.
EVENTS_LEAST = 60


class Unread:
    """A pipe as both outputs of a process, which is read when the test says so."""

    def __init__(self, path):
        os.mkfifo(path)
        self.path = path
        self._end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        fcntl.fcntl(self._end, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self._text = b""

    def is_full(self):
        """True if hardly another line fits."""
        waiting = fcntl.ioctl(self._end, termios.FIONREAD, b"\0" * 4)
        return struct.unpack("i", waiting)[0] > PIPE_BYTES - 400

    def read(self):
        """The text that the process has written so far."""
        with contextlib.suppress(BlockingIOError):
            while piece := os.read(self._end, 65536):
                self._text += piece
        return self._text.decode()

    def close(self):
        os.close(self._end)


@pytest.fixture
def start_unread(cleanup, tmp_path):
    """Starts `dwell serve` of one loop with a pipe as its outputs that is not read."""

    def start(*flags):
        pipe = Unread(tmp_path / "pipe")
        cleanup.callback(pipe.close)
        dwell = Dwell(tmp_path)
        server, store = dwell.sections["server"], dwell.sections["store"]
        at = ["--listen", server["listen"], "--admin", server["admin"], "--store", store["listen"]]
        dwell.arguments = [dwell.arguments[0], "serve", "--pollers", "1", *at, *flags]
        dwell.log = pipe.path
        dwell.output = pipe.read
        cleanup.callback(dwell.stop)
        dwell.start_ready()
        dwell.store().set(KEY, b"value")
        return dwell, pipe

    return start


def log_much(dwell, pipe):
    """Has the loop log an event for each of many signals, and serve a client after each, until the
    pipe is full and far beyond."""

    def log():
        dwell.signal(signal.SIGHUP)
        assert dwell.get(KEY).body == b"value"

    until(lambda: log() or pipe.is_full(), "the pipe is full")
    for _ in range(EVENTS):
        log()
    assert pipe.is_full()


def ends(dwell):
    """True if the process ends in order, in about the time that its logs may take."""
    begun = time.monotonic()
    dwell.signal(signal.SIGTERM)
    return dwell.wait() == 0 and time.monotonic() - begun < PATIENCE_S


def test_a_log_that_nobody_reads_holds_no_client_up(start_unread):
    dwell, pipe = start_unread()
    log_much(dwell, pipe)
    assert dwell.metric("dwell_log_dropped_total") == 0
    # What did not fit is there once it is read.
    until(lambda: pipe.read().count(EVENT) > EVENTS_LEAST, "the events are written")
    # What is not written yet may be more than the pipe holds, so it is read while the process ends.
    dwell.signal(signal.SIGTERM)
    until(lambda: "ending" in pipe.read(), "the last event is written")
    assert dwell.wait() == 0


def test_the_end_waits_for_no_reader_of_a_log(start_unread):
    dwell, pipe = start_unread("--access-log", "-")
    log_much(dwell, pipe)
    assert ends(dwell)


def test_a_start_that_fails_says_why(cleanup, tmp_path):
    first = Dwell(tmp_path)
    cleanup.callback(first.stop)
    first.start_ready()
    (tmp_path / "second").mkdir()
    second = Dwell(tmp_path / "second", server={"listen": first.sections["server"]["listen"]})
    cleanup.callback(second.stop)
    second.start()
    assert second.wait() == 1
    assert "cannot listen on" in second.output()
