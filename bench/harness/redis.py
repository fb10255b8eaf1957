"""Redis itself, and the few commands of its protocol the harness sends."""

import socket
from collections.abc import Iterable

from harness.stage import HOST, LOAD_CORE, ContenderError, Stage


def start(stage: Stage) -> int:
    """Starts a Redis on the load generator's core and returns its port.

    It keeps nothing on disk.
    """
    port = stage.free_port()
    arguments = ["redis-server", "--bind", HOST, "--port", str(port), "--dir", str(stage.directory)]
    arguments += ["--save", "", "--appendonly", "no"]
    stage.start("redis", arguments, LOAD_CORE, [port])
    return port


class Client:
    """A connection to Redis that sends commands in RESP and reads simple replies."""

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
        self._socket.sendall(command(b"SET", key.encode(), value))

    def finish_set(self, key: str) -> None:
        """Reads the reply to one value sent.

        Raises:
            ContenderError: it is not OK.
        """
        reply = self._reader.readline()
        if reply != b"+OK\r\n":
            raise ContenderError(f"SET {key} was answered {reply!r}")

    def set_all(self, keys: Iterable[str], value: bytes) -> None:
        """Stores one value under many keys."""
        for key in keys:
            self.begin_set(key, value)
            self.finish_set(key)

    def info(self, section: str) -> dict[str, str]:
        """The fields of a section of `INFO`."""
        self._socket.sendall(command(b"INFO", section.encode()))
        size = int(self._reader.readline()[1:])
        lines = self._reader.read(size + 2).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def gets(self) -> int:
        """How many `GET`s the server has executed."""
        found = self.info("commandstats").get("cmdstat_get", "calls=0,")
        return int(found.removeprefix("calls=").partition(",")[0])


def command(*words: bytes) -> bytes:
    """A command as an array of bulk strings."""
    parts = [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
    return b"*%d\r\n%b" % (len(parts), b"".join(parts))
