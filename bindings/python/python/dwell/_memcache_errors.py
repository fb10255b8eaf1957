"""The exceptions of the memcached client, under the names that pymemcache gives them."""

from __future__ import annotations


class MemcacheError(Exception):
    """Any failure of an operation. A key that a server does not have is none.

    Attributes:
        server: The server, as it was given; empty where none had a part in it.
        operation: What it was asked for: ``get``, ``set`` and so on.
        elapsed: How long that had taken, in seconds.
        is_ambiguous: Whether the server may have done what it was asked nevertheless.
    """

    server: str = ""
    operation: str = ""
    elapsed: float = 0.0
    is_ambiguous: bool = False


class MemcacheClientError(MemcacheError):
    """What was asked for is wrong: the server says so, or it was not sent at all."""


class MemcacheUnknownCommandError(MemcacheClientError):
    """The server does not know the command."""


class MemcacheIllegalInputError(MemcacheClientError):
    """A key or a value that cannot be sent."""


class MemcacheServerError(MemcacheError):
    """The server has failed."""


class MemcacheUnexpectedCloseError(MemcacheServerError, ConnectionError):
    """The server ended the connection before its answer."""


class MemcacheTimeoutError(MemcacheError, TimeoutError):
    """The time was over."""


class MemcacheConnectError(MemcacheError, ConnectionError):
    """The server cannot be reached, or was left alone because it failed too often."""


class MemcacheUnknownError(MemcacheError):
    """The server sent something that is no answer."""
