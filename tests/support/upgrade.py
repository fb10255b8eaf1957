"""Upgrades, and the processes that come of them."""

import contextlib
import os
import re
import select
import signal

from support.process import is_paused
from support.wait import PATIENCE_S, until

STARTED = re.compile(r"starting another process process=(\d+)")
SERVES = "another process serves from now on"
# An upgrade that is given up, or was not begun.
REFUSED = re.compile(r"the upgrade is given up|no upgrade: ")


class Successor:
    """A process that another one has started to be succeeded by it."""

    def __init__(self, pid):
        self.pid = pid
        # It is nobody's child here; the descriptor names it even after its end.
        try:
            self.handle = os.pidfd_open(pid)
        except ProcessLookupError:
            self.handle = None

    def signal(self, number):
        signal.pidfd_send_signal(self.handle, number)

    def pause(self):
        self.signal(signal.SIGSTOP)
        until(lambda: is_paused(self.pid), f"process {self.pid} stops")

    def resume(self):
        self.signal(signal.SIGCONT)

    def has_ended(self, timeout_s=0.0):
        if self.handle is None:
            return True
        watch = select.poll()
        watch.register(self.handle, select.POLLIN)
        return bool(watch.poll(timeout_s * 1000))

    def wait(self, timeout_s=PATIENCE_S):
        assert self.has_ended(timeout_s), f"process {self.pid} does not end"

    def stop(self):
        if self.handle is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self.signal(signal.SIGKILL)
        self.wait()
        os.close(self.handle)


def begin(dwell, cleanup, process=None):
    """Asks `process`, or the first one, for an upgrade; returns the process that it starts."""
    before, refused = len(STARTED.findall(dwell.output())), len(REFUSED.findall(dwell.output()))
    (process or dwell).signal(signal.SIGUSR2)

    def started():
        # One that fails at once has been started, too.
        output = dwell.output()
        pids = STARTED.findall(output)[before:]
        assert pids or len(REFUSED.findall(output)) == refused, output
        return pids

    successor = Successor(int(until(started, dwell.output)[0]))
    cleanup.callback(successor.stop)
    return successor


def upgrade(dwell, cleanup, process=None):
    """As `begin`, and waits until the new process serves."""
    before, refused = dwell.output().count(SERVES), len(REFUSED.findall(dwell.output()))
    successor = begin(dwell, cleanup, process)

    def serves():
        output = dwell.output()
        assert len(REFUSED.findall(output)) == refused, output
        return output.count(SERVES) > before

    until(serves, dwell.output)
    return successor
