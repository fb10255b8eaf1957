"""Upgrades, and the processes that come of them."""

import contextlib
import os
import re
import select
import signal

from support.wait import until

STARTED = re.compile(r"starting another process process=(\d+)")
SERVES = "another process serves from now on"
GIVEN_UP = "the upgrade is given up"


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

    def has_ended(self, timeout_s=0.0):
        if self.handle is None:
            return True
        watch = select.poll()
        watch.register(self.handle, select.POLLIN)
        return bool(watch.poll(timeout_s * 1000))

    def wait(self, timeout_s=10.0):
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
    before = len(STARTED.findall(dwell.output()))
    (process or dwell).signal(signal.SIGUSR2)
    until(lambda: len(STARTED.findall(dwell.output())) > before, dwell.output)
    successor = Successor(int(STARTED.findall(dwell.output())[before]))
    cleanup.callback(successor.stop)
    return successor


def upgrade(dwell, cleanup, process=None):
    """As `begin`, and waits until the new process serves."""
    before, given_up = dwell.output().count(SERVES), dwell.output().count(GIVEN_UP)
    successor = begin(dwell, cleanup, process)

    def serves():
        assert dwell.output().count(GIVEN_UP) == given_up, dwell.output()
        return dwell.output().count(SERVES) > before

    until(serves, "the new process serves")
    return successor
