"""Free ports on loopback."""

import fcntl
import itertools
import os
import socket
import tempfile

HOST = "127.0.0.1"

# Below the range from which the kernel takes the ports of outgoing connections, so that none of
# the thousands of clients started here can hold a port that a server is about to take.
_FIRST, _LAST = 12_000, 30_000
_places = itertools.count(os.getpid() * 7919)
# A byte a port: whoever has locked it may listen there, whichever runs there are beside this one.
# The system takes the locks back when the process ends.
_TAKEN = os.open(
    os.path.join(tempfile.gettempdir(), f"dwell-test-ports-{os.getuid()}"),
    os.O_RDWR | os.O_CREAT | os.O_CLOEXEC,
    0o600,
)


def free_address():
    """An address nobody listens at, not handed out before in this run nor in one beside it."""
    return free_neighbours(1)[0]


def free_neighbours(count):
    """As many addresses whose ports follow one another, each as of `free_address`."""
    row = []
    for _ in range(_LAST - _FIRST):
        port = _FIRST + next(_places) % (_LAST - _FIRST)
        if row and port != row[-1][1] + 1:
            row.clear()
        if not _is_free(port):
            row.clear()
            continue
        row.append((HOST, port))
        if len(row) == count:
            return row
    raise AssertionError("no free port")


def _is_free(port):
    """Whether the port is this run's from now on."""
    with socket.socket() as probe:
        try:
            fcntl.lockf(_TAKEN, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def text(address):
    """`host:port`."""
    return f"{address[0]}:{address[1]}"
