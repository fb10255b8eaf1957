"""memcached itself, and the few words of its protocol the harness speaks."""

import os
import socket
from collections.abc import Iterable

from harness.stage import HOST, LOAD_CORE, ContenderError, Program, Stage

SETS_PER_WRITE = 500


def start_on(stage: Stage, core: int) -> tuple[Program, int]:
    """Starts a memcached with one thread on a core."""
    port = stage.free_port()
    arguments = ["memcached", "-l", HOST, "-p", str(port), "-U", "0", "-t", "1", "-c", "4096"]
    if os.geteuid() == 0:
        arguments += ["-u", "root"]
    return stage.start("memcached", arguments, core, [port]), port


def start(stage: Stage) -> int:
    """Starts a memcached on the load generator's core and returns its port.

    One thread is plenty there, and the server's core stays the server's.
    """
    _, port = start_on(stage, LOAD_CORE)
    return port


class Writer:
    """A connection that sets keys, to memcached or to anything else that speaks its protocol."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=10)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = self._socket.makefile("rb")

    def close(self) -> None:
        """Closes the connection."""
        self._reader.close()
        self._socket.close()

    def begin_set(self, key: str, value: bytes) -> None:
        """Sends one value without waiting for the reply."""
        self._socket.sendall(set_command(key, value))

    def finish_set(self, key: str) -> None:
        """Reads the reply to one value sent.

        Raises:
            ContenderError: it is not STORED.
        """
        reply = self._reader.readline()
        if reply != b"STORED\r\n":
            raise ContenderError(f"set {key} was answered {reply!r}")

    def set(self, key: str, value: bytes) -> None:
        """Stores one value.

        Raises:
            ContenderError: the server did not answer STORED.
        """
        self.begin_set(key, value)
        self.finish_set(key)

    def set_all(self, keys: Iterable[str], value: bytes) -> None:
        """Stores one value under many keys, pipelined.

        Raises:
            ContenderError: the server did not answer STORED to each.
        """
        keys = list(keys)
        for first in range(0, len(keys), SETS_PER_WRITE):
            some = keys[first : first + SETS_PER_WRITE]
            self._socket.sendall(b"".join(set_command(key, value) for key in some))
            for key in some:
                self.finish_set(key)


def set_command(key: str, value: bytes) -> bytes:
    """The bytes of a `set` without flags and expiry."""
    return b"set %b 0 0 %d\r\n%b\r\n" % (key.encode(), len(value), value)


def fill(port: int, keys: Iterable[str], value: bytes) -> None:
    """Stores one value under many keys on the server at `port`."""
    writer = Writer(port)
    try:
        writer.set_all(keys, value)
    finally:
        writer.close()


def flush(port: int) -> None:
    """Removes everything.

    Raises:
        ContenderError: the server did not answer OK.
    """
    with socket.create_connection((HOST, port), timeout=10) as connection:
        connection.sendall(b"flush_all\r\n")
        if connection.recv(100) != b"OK\r\n":
            raise ContenderError("flush_all was not answered OK")
