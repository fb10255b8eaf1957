"""`AsyncClient`: the memcached client on the running asyncio loop.

What is sent, what the replies mean, where keys belong and which server is left alone are decided by
the same code as in the blocking client; asyncio carries the bytes. There is no thread, no task for
an operation and no timer for one: an operation is a future, and one timer has the nearest end of
all of them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from dwell._memcache_pool import Pool, Turn
from dwell._native import MemcacheClient, MemcacheOperations

if TYPE_CHECKING:
    from dwell._native import MemcacheExchange, MemcacheOperation

Key = str | bytes


class AsyncClient:
    """A client for one server or several, for coroutines.

    It has the operations, options and errors of :class:`dwell.memcache.Client`, and finds keys
    where that one does. A cancelled operation may have happened or not; its connection is closed.

    Example:
        >>> import asyncio
        >>> async def main():
        ...     async with AsyncClient(memcached) as client:
        ...         await client.set("greeting", "hello", expire=60)
        ...         return await asyncio.gather(client.get("greeting"), client.get("nothing"))
        >>> asyncio.run(main())
        [b'hello', None]

    Args:
        servers: As of :class:`dwell.memcache.Client`.
        timeout: Seconds from the call of an operation to its return, the wait for a connection
            included; ``None`` waits for ever.
        connect_timeout: What an attempt to connect may take.
        serde: As of :class:`dwell.memcache.Client`, as are the options that follow.
        key_prefix: Is put before every key.
        default_noreply: What ``noreply`` is where it is not given.
        ignore_exc: Whether a read that fails is a miss.
        allow_unicode_keys: Whether keys may be text beyond ASCII.
        max_pool_size: Connections to each server; operations beyond wait for one, in their order.
        max_value_bytes: The largest value that is stored or read.
        distribution: Where keys belong.
        failover: Whether the keys of a server that is down go to the next one.
        long_keys: ``"refuse"`` or ``"hash"``.
        tls: Whether connections are under TLS; their handshakes count to ``connect_timeout``.
        tls_ca: PEM file with the certificates that are trusted; those of the system without it.
        tls_server_name: Name that the certificates are for, where it is not the host's.
        tls_certificate: PEM file with the certificate for servers that ask for one.
        tls_key: PEM file with its key.
        tls_context: Refused, as of :class:`dwell.memcache.Client`.

    Raises:
        ValueError: An option is out of range, or a file has no certificate.
        OSError: A file cannot be read.
    """

    def __init__(
        self,
        servers: str | tuple[str, int] | list[str | tuple[str, int]],
        *,
        timeout: float | None = 0.5,
        connect_timeout: float = 0.25,
        serde: Any | None = None,
        key_prefix: bytes | str | None = None,
        default_noreply: bool = False,
        ignore_exc: bool = False,
        allow_unicode_keys: bool = False,
        max_pool_size: int = 8,
        max_value_bytes: int = 1_048_576,
        distribution: str = "ketama_weighted",
        failover: bool = False,
        long_keys: str = "refuse",
        tls: bool = False,
        tls_ca: str | os.PathLike[str] | None = None,
        tls_server_name: str | None = None,
        tls_certificate: str | os.PathLike[str] | None = None,
        tls_key: str | os.PathLike[str] | None = None,
        tls_context: Any | None = None,
    ) -> None:
        if max_pool_size < 1:
            raise ValueError(f"max_pool_size is less than 1: {max_pool_size}")
        self._client = MemcacheClient(
            servers,
            timeout=timeout,
            connect_timeout=connect_timeout,
            serde=serde,
            key_prefix=key_prefix,
            default_noreply=default_noreply,
            ignore_exc=ignore_exc,
            allow_unicode_keys=allow_unicode_keys,
            max_pool_size=max_pool_size,
            max_value_bytes=max_value_bytes,
            distribution=distribution,
            failover=failover,
            long_keys=long_keys,
            tls=tls,
            tls_ca=tls_ca,
            tls_server_name=tls_server_name,
            tls_certificate=tls_certificate,
            tls_key=tls_key,
            tls_context=tls_context,
        )
        self._native = MemcacheOperations(self._client)
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._max_pool_size = max_pool_size
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = 0
        self._pools: list[Pool] = []
        self._turns: dict[Turn, None] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def __aenter__(self) -> Self:
        self._running_loop()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes every connection; operations that wait fail, and later ones are refused."""
        self._is_closed = True
        pools, self._pools = self._pools, []
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if asyncio.get_running_loop() is self._loop:
            for pool in pools:
                await pool.close()

    async def get(self, key: Key, default: Any = None) -> Any:
        """The value of a key, or ``default``."""
        return await self._run(self._native.get(key, default))

    async def gets(
        self, key: Key, default: Any = None, cas_default: int | None = None
    ) -> tuple[Any, int | None]:
        """The value of a key and its cas unique, for :meth:`cas`."""
        operation = self._native.gets(key, default, cas_default)
        pair: tuple[Any, int | None] = await self._run(operation)
        return pair

    async def gat(self, key: Key, expire: int = 0, default: Any = None) -> Any:
        """The value of a key, which expires anew."""
        return await self._run(self._native.gat(key, expire, default))

    async def gats(
        self, key: Key, expire: int = 0, default: Any = None, cas_default: int | None = None
    ) -> tuple[Any, int | None]:
        """As :meth:`gat`, with the cas unique; needs memcached 1.6."""
        operation = self._native.gats(key, expire, default, cas_default)
        pair: tuple[Any, int | None] = await self._run(operation)
        return pair

    async def get_many(self, keys: Iterable[Any]) -> dict[Any, Any]:
        """The values of those keys that are there."""
        found: dict[Any, Any] = await self._run(self._native.get_many(keys, False))
        return found

    async def gets_many(self, keys: Iterable[Any]) -> dict[Any, tuple[Any, int]]:
        """As :meth:`get_many`, with cas uniques."""
        operation = self._native.get_many(keys, True)
        found: dict[Any, tuple[Any, int]] = await self._run(operation)
        return found

    async def set(
        self,
        key: Key,
        value: Any,
        expire: int = 0,
        noreply: bool | None = None,
        flags: int | None = None,
    ) -> bool:
        """Stores a value; ``expire`` are seconds, or a Unix time beyond 30 days, or 0 for never."""
        return await self._store("set", key, value, expire, noreply, flags)

    async def set_many(
        self,
        values: dict[Any, Any],
        expire: int = 0,
        noreply: bool | None = None,
        flags: int | None = None,
    ) -> list[Any]:
        """Stores many values in one go; returns the keys for which that failed."""
        failed: list[Any] = await self._run(self._native.set_many(values, expire, flags))
        return failed

    async def add(
        self,
        key: Key,
        value: Any,
        expire: int = 0,
        noreply: bool | None = None,
        flags: int | None = None,
    ) -> bool:
        """Stores a value where there is none."""
        return await self._store("add", key, value, expire, noreply, flags)

    async def replace(
        self,
        key: Key,
        value: Any,
        expire: int = 0,
        noreply: bool | None = None,
        flags: int | None = None,
    ) -> bool:
        """Stores a value where there is one."""
        return await self._store("replace", key, value, expire, noreply, flags)

    async def append(
        self,
        key: Key,
        value: Any,
        expire: int = 0,
        noreply: bool | None = None,
        flags: int | None = None,
    ) -> bool:
        """Adds to the end of a value."""
        return await self._store("append", key, value, expire, noreply, flags)

    async def prepend(
        self,
        key: Key,
        value: Any,
        expire: int = 0,
        noreply: bool | None = None,
        flags: int | None = None,
    ) -> bool:
        """Adds to the beginning of a value."""
        return await self._store("prepend", key, value, expire, noreply, flags)

    async def cas(
        self,
        key: Key,
        value: Any,
        cas: int | str | bytes,
        expire: int = 0,
        noreply: bool = False,
        flags: int | None = None,
    ) -> bool | None:
        """Stores a value if it has not changed since :meth:`gets`; ``None`` if it is gone."""
        operation = self._native.cas(key, value, cas, expire, noreply, flags)
        stored: bool | None = await self._run(operation)
        return stored

    async def delete(self, key: Key, noreply: bool | None = None) -> bool:
        """Deletes a key; whether there was one."""
        deleted: bool = await self._run(self._native.delete(key, noreply))
        return deleted

    async def delete_many(self, keys: Iterable[Any], noreply: bool | None = None) -> bool:
        """Deletes many keys in one go."""
        deleted: bool = await self._run(self._native.delete_many(keys))
        return deleted

    async def incr(self, key: Key, value: int, noreply: bool = False) -> int | None:
        """Counts up; ``None`` if there is no such key."""
        number: int | None = await self._run(self._native.count(key, value, False, noreply))
        return number

    async def decr(self, key: Key, value: int, noreply: bool = False) -> int | None:
        """Counts down, not below 0; ``None`` if there is no such key."""
        number: int | None = await self._run(self._native.count(key, value, True, noreply))
        return number

    async def touch(self, key: Key, expire: int = 0, noreply: bool | None = None) -> bool:
        """Lets a key expire anew; whether there is one."""
        touched: bool = await self._run(self._native.touch(key, expire, noreply))
        return touched

    async def stats(self, *args: str) -> dict[str, str]:
        """What the server tells of itself.

        Raises:
            MemcacheClientError: Where there are several; use :meth:`stats_by_server`.
        """
        from dwell.memcache import _only

        stats: dict[str, str] = _only(await self.stats_by_server(*args), "stats_by_server")
        return stats

    async def stats_by_server(self, argument: str | None = None) -> dict[str, dict[str, str]]:
        """What each server tells of itself."""
        operation = self._native.stats_by_server(argument)
        stats: dict[str, dict[str, str]] = await self._run(operation)
        return stats

    async def version(self) -> bytes:
        """The server's version.

        Raises:
            MemcacheClientError: Where there are several; use :meth:`version_by_server`.
        """
        from dwell.memcache import _only

        version: str = _only(await self.version_by_server(), "version_by_server")
        return version.encode()

    async def version_by_server(self) -> dict[str, str]:
        """The version of each server."""
        versions: dict[str, str] = await self._run(self._native.version_by_server())
        return versions

    async def flush_all(self, delay: int = 0, noreply: bool | None = None) -> bool:
        """Deletes everything on every server, after ``delay`` seconds."""
        flushed: bool = await self._run(self._native.flush_all(delay))
        return flushed

    async def raw_command(self, command: str | bytes, end_tokens: str | bytes = b"\r\n") -> bytes:
        """Sends a command line; returns the reply up to ``end_tokens``, without them.

        Raises:
            MemcacheClientError: There are several servers, or the server answered an error line.
        """
        reply: bytes = await self._run(self._native.raw_command(command, end_tokens))
        return reply

    def server_of(self, key: Key) -> int:
        """The server that has the place of a key, as its number in the list."""
        return self._client.server_of(key)

    get_multi = get_many
    set_multi = set_many
    delete_multi = delete_many

    async def _store(
        self,
        verb: str,
        key: Key,
        value: Any,
        expire: int,
        noreply: bool | None,
        flags: int | None,
    ) -> bool:
        operation = self._native.store(verb, key, value, expire, noreply, flags)
        stored: bool = await self._run(operation)
        return stored

    async def _run(self, operation: MemcacheOperation) -> Any:
        """Carries out every exchange of an operation at the same time; returns its result."""
        loop = self._running_loop()
        turns = [self._begin(loop, exchange) for exchange in operation.exchanges]
        try:
            for turn in turns:
                await turn.future
        except BaseException:
            for turn in turns:
                turn.leave()
            raise
        finally:
            for turn in turns:
                self._turns.pop(turn, None)
        return operation.result()

    def _begin(self, loop: asyncio.AbstractEventLoop, exchange: MemcacheExchange) -> Turn:
        began = loop.time()
        turn = Turn(exchange, loop.create_future(), began, began + (self._timeout or 0))
        if self._timeout is not None:
            # All have the same time, so the first that began is the first to end.
            self._turns[turn] = None
            if self._alarm is None:
                self._alarm = loop.call_at(turn.deadline, self._ring)
        self._submit(turn)
        return turn

    def _submit(self, turn: Turn) -> None:
        """Has an exchange begun on a connection to its server."""
        if self._is_closed:
            turn.exchange.refuse("client was closed", False)
            turn.end()
        else:
            self._pools[turn.exchange.server].submit(turn)

    def _ring(self) -> None:
        """Ends the turns whose time is over, and waits for the end of the next one."""
        assert self._loop is not None
        self._alarm = None
        now = self._loop.time()
        for turn in list(self._turns):
            if turn.deadline > now:
                self._alarm = self._loop.call_at(turn.deadline, self._ring)
                break
            del self._turns[turn]
            turn.exchange.time_out(turn.link is not None)
            turn.leave()
            turn.end()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()
        if self._is_closed:
            raise RuntimeError("client is closed")
        if loop is not self._loop:
            self._bind(loop)
        return loop

    def _bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begins on a loop, without what belonged to another.

        In a forked process those connections are its parent's, which go on without it.
        """
        is_elsewhere = self._process == os.getpid() and self._loop is not None
        if is_elsewhere and self._loop is not None and not self._loop.is_closed():
            raise RuntimeError("client is in use on another event loop")
        self._loop = loop
        self._process = os.getpid()
        self._turns = {}
        self._alarm = None
        addresses = self._native.addresses()
        self._pools = [
            Pool(
                loop,
                self._native,
                server,
                address,
                self._max_pool_size,
                self._connect_timeout,
                self._submit,
            )
            for server, address in enumerate(addresses)
        ]
