"""A memcached client with pymemcache's methods, whose timeouts bound whole operations.

It may be used by any number of threads at once, and after a fork; the interpreter is let go for as
long as an operation takes.
"""

from __future__ import annotations

import json
import pickle
from typing import Any, Protocol

from dwell._memcache_aio import AsyncClient
from dwell._memcache_errors import (
    MemcacheClientError,
    MemcacheConnectError,
    MemcacheError,
    MemcacheIllegalInputError,
    MemcacheServerError,
    MemcacheTimeoutError,
    MemcacheUnexpectedCloseError,
    MemcacheUnknownCommandError,
    MemcacheUnknownError,
)
from dwell._native import MemcacheClient

__all__ = [
    "AsyncClient",
    "Client",
    "JsonSerde",
    "MemcacheClientError",
    "MemcacheConnectError",
    "MemcacheError",
    "MemcacheIllegalInputError",
    "MemcacheServerError",
    "MemcacheTimeoutError",
    "MemcacheUnexpectedCloseError",
    "MemcacheUnknownCommandError",
    "MemcacheUnknownError",
    "PickleSerde",
    "Serde",
]


class Serde(Protocol):
    """How values become bytes, and bytes values."""

    def serialize(self, key: Any, value: Any) -> tuple[Any, int]:
        """Returns what is stored, bytes or ASCII text, and its flags."""

    def deserialize(self, key: Any, value: bytes, flags: int) -> Any:
        """Returns the value that was stored with these flags."""


class Client(MemcacheClient):
    """A client for one server or several.

    Example:
        >>> client = Client(memcached)
        >>> client.set("greeting", "hello", expire=60)
        True
        >>> client.get("greeting")
        b'hello'
        >>> client.get("nothing", default=b"?")
        b'?'

    Args:
        servers: ``"host:port"``, ``"host:port=weight"``, ``"/path/of/a/socket"``, a tuple of host
            and port, or a list of these; keys are spread over them by ``distribution``.
        timeout: Seconds from the call of an operation to its return, whatever happens; ``None``
            waits for ever.
        connect_timeout: Of that, what connecting may take.
        serde: How values become bytes; without it they are bytes or ASCII text, and come back as
            bytes.
        key_prefix: Is put before every key.
        default_noreply: What ``noreply`` is where it is not given. The server is always asked to
            reply, so that errors are never lost; with ``noreply`` the outcome is not told.
        ignore_exc: Whether a read that fails is a miss.
        allow_unicode_keys: Whether keys may be text beyond ASCII; they are sent in UTF-8.
        max_pool_size: Idle connections that are kept for each server.
        max_value_bytes: The largest value that is stored or read.
        distribution: ``"ketama_weighted"``, ``"ketama"``, ``"modula"``, ``"modula_crc"``,
            ``"rendezvous"`` (pymemcache's ``HashClient``) or ``"dalli"``.
        failover: Whether the keys of a server that is down go to the next one.
        long_keys: ``"refuse"`` or ``"hash"``: what is done with keys that the protocol forbids.
        tls: Whether the servers are spoken to under TLS; their certificates are always verified.
        tls_ca: A PEM file with the certificates that are trusted; without it those of the system.
        tls_server_name: The name that the certificates are for, where that is not the host.
        tls_certificate: A PEM file with the certificate that is sent to servers that ask for one.
        tls_key: A PEM file with the key of that certificate.
        tls_context: Is refused: an ``ssl.SSLContext`` cannot be read. Use the options above.
    """

    def get_multi(self, keys: Any) -> dict[Any, Any]:
        """As :meth:`get_many`."""
        return self.get_many(keys)

    def set_multi(
        self,
        values: dict[Any, Any],
        expire: int = 0,
        noreply: bool | None = None,
        flags: int | None = None,
    ) -> list[Any]:
        """As :meth:`set_many`."""
        return self.set_many(values, expire, noreply, flags)

    def delete_multi(self, keys: Any, noreply: bool | None = None) -> bool:
        """As :meth:`delete_many`."""
        return self.delete_many(keys, noreply)

    def stats(self, *args: str) -> dict[str, str]:
        """What the server tells of itself.

        Raises:
            MemcacheClientError: Where there are several; use :meth:`stats_by_server`.
        """
        stats: dict[str, str] = _only(self.stats_by_server(*args), "stats_by_server")
        return stats

    def version(self) -> bytes:
        """The server's version.

        Raises:
            MemcacheClientError: Where there are several; use :meth:`version_by_server`.
        """
        version: str = _only(self.version_by_server(), "version_by_server")
        return version.encode()

    def quit(self) -> None:
        """Does nothing: connections are closed when the client is gone."""

    def close(self) -> None:
        """Does nothing: connections are closed when the client is gone."""

    disconnect_all = close


def _only(answers: dict[str, Any], instead: str) -> Any:
    if len(answers) != 1:
        raise MemcacheClientError(f"there are {len(answers)} servers; use {instead}")
    return next(iter(answers.values()))


class JsonSerde:
    """Values in JSON; bytes and text stay as they are.

    Example:
        >>> client = Client(memcached, serde=JsonSerde())
        >>> client.set("point", {"x": 1, "y": 2})
        True
        >>> client.get("point")
        {'x': 1, 'y': 2}
    """

    BYTES = 0
    JSON = 1
    TEXT = 16

    def serialize(self, key: Any, value: Any) -> tuple[bytes, int]:
        if isinstance(value, bytes):
            return value, self.BYTES
        if isinstance(value, str):
            return value.encode(), self.TEXT
        return json.dumps(value, separators=(",", ":")).encode(), self.JSON

    def deserialize(self, key: Any, value: bytes, flags: int) -> Any:
        if flags == self.JSON:
            return json.loads(value)
        return value.decode() if flags == self.TEXT else value


class PickleSerde:
    """Values pickled, with the flags of pymemcache's ``pickle_serde``.

    Whoever can write to the server can run code in the programs that read from it.
    """

    BYTES = 0
    PICKLE = 1
    INTEGER = 2
    TEXT = 16

    def serialize(self, key: Any, value: Any) -> tuple[bytes, int]:
        if type(value) is bytes:
            return value, self.BYTES
        if type(value) is str:
            return value.encode(), self.TEXT
        if type(value) is int:
            return str(value).encode(), self.INTEGER
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL), self.PICKLE

    def deserialize(self, key: Any, value: bytes, flags: int) -> Any:
        if flags == self.BYTES:
            return value
        if flags & self.TEXT:
            return value.decode()
        if flags & (self.INTEGER | 4):
            return int(value)
        if flags & self.PICKLE:
            return pickle.loads(value)
        return value
