"""Waiting for a condition, always with an end."""

import os
import socket
import time

PAUSE_S = 0.005
# Only a failure takes this long, so it may be more than the busiest machine needs.
PATIENCE_S = 30.0


def until(condition, what, timeout_s=PATIENCE_S):
    """Calls `condition` until it returns something true, and returns that.

    `what` is said of a failure; it may be a function, called when there is one.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            said = what() if callable(what) else what
            raise AssertionError(f"not within {timeout_s} s: {said}")
        time.sleep(PAUSE_S)


def accepts(address):
    """Whether something accepts connections at `address`: host and port, or a path."""
    try:
        if not isinstance(address, (str, os.PathLike)):
            socket.create_connection(address, timeout=PATIENCE_S).close()
        else:
            # The file is there a moment before somebody listens.
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(PATIENCE_S)
                client.connect(str(address))
    except OSError:
        return False
    return True


class Stopwatch:
    """Measures the seconds spent in a `with` block."""

    def __enter__(self):
        self.start = time.monotonic()
        return self

    def __exit__(self, *_):
        self.seconds = time.monotonic() - self.start
