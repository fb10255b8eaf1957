"""Connections of the asyncio client to one server.

An exchange has a connection to itself until its reply is whole: so what comes on a connection is
always the reply to the exchange that has it, and closing that connection ends the exchange and no
other. The coroutine of an exchange waits for one future, whatever happens in between.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dwell._native import MemcacheExchange, MemcacheOperations, MemcacheSecured

Address = tuple[str, int] | str


class Turn:
    """An exchange under way: its future, its end, and its connection while it has one."""

    __slots__ = ("began", "deadline", "exchange", "future", "link", "pool")

    def __init__(
        self,
        exchange: MemcacheExchange,
        future: asyncio.Future[None],
        began: float,
        deadline: float,
    ) -> None:
        self.exchange = exchange
        self.future = future
        self.began = began
        self.deadline = deadline
        self.link: Link | None = None
        self.pool: Pool | None = None

    def end(self) -> None:
        """Wakes its coroutine."""
        if not self.future.done():
            self.future.set_result(None)

    def leave(self) -> None:
        """Ends what is being done for it: a connection in the middle of its exchange is closed."""
        if self.link is not None:
            self.link.abort()
        elif self.pool is not None:
            self.pool.forget(self)


class HandshakeFailed(Exception):
    """A handshake of TLS has failed; `secured` has the reason."""

    def __init__(self, secured: MemcacheSecured) -> None:
        super().__init__()
        self.secured = secured


class Link(asyncio.Protocol):
    """A connection: idle in its pool, or with the exchange of one turn."""

    transport: asyncio.Transport

    def __init__(self, pool: Pool, secured: MemcacheSecured | None) -> None:
        self.pool = pool
        self.turn: Turn | None = None
        self.is_used = False
        # When its last exchange began.
        self.last_used = 0.0
        self.secured = secured
        # The handshake of TLS.
        self.handshake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # A failure may come when nothing waits for it any more.
        self.handshake.add_done_callback(lambda done: done.cancelled() or done.exception())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        if self.secured is None:
            self.handshake.set_result(None)
        else:
            self._transmit(self.secured)

    def ask(self, turn: Turn) -> None:
        """Begins an exchange."""
        self.turn = turn
        turn.link = self
        self.last_used = turn.began
        if self.secured is None:
            self.transport.write(turn.exchange.request)
        elif self.secured.seal(turn.exchange):
            self._transmit(self.secured)
        else:
            self._broken(self.secured)

    def data_received(self, data: bytes) -> None:
        if self.secured is None:
            self._take(data)
            return
        opened = self.secured.receive(data)
        self._transmit(self.secured)
        if opened is None:
            self._broken(self.secured)
            return
        if self.secured.is_ready and not self.handshake.done():
            self.handshake.set_result(None)
        if opened:
            self._take(opened)
        if self.secured.is_ended:
            self.end()

    def _take(self, data: bytes) -> None:
        turn = self.turn
        if turn is None:
            # Nothing was asked: whatever follows would be taken for the reply to something else.
            self.abort()
            return
        if turn.exchange.receive(data):
            return
        self.turn = turn.link = None
        is_ended = self.secured is not None and self.secured.is_ended
        if turn.exchange.keeps_connection and not is_ended:
            self.is_used = True
            self.pool.free(self)
        else:
            self.abort()
        self.pool.goes_on(turn)

    def connection_lost(self, error: Exception | None) -> None:
        turn = self.turn
        self.turn = None
        if not self.handshake.done():
            self.handshake.set_exception(ConnectionError("closed within the handshake of TLS"))
        self.pool.lost(self)
        if turn is not None:
            turn.link = None
            turn.exchange.close(self.is_used, True)
            self.pool.goes_on(turn)

    def abort(self) -> None:
        """Closes the connection at once; it is of no exchange any more."""
        if self.turn is not None:
            self.turn.link = None
            self.turn = None
        self.end()

    def end(self) -> None:
        """Closes the connection at once, and with it the exchange that it has."""
        if self.secured is not None:
            self.secured.close()
            self._transmit(self.secured)
        self.transport.abort()

    def _transmit(self, secured: MemcacheSecured) -> None:
        """Sends the records that are due."""
        output = secured.transmit()
        if output and not self.transport.is_closing():
            self.transport.write(output)

    def _broken(self, secured: MemcacheSecured) -> None:
        """Ends the connection after a fault of TLS, and what waits for it."""
        turn = self.turn
        self.abort()
        if not self.handshake.done():
            self.handshake.set_exception(HandshakeFailed(secured))
        if turn is not None:
            turn.exchange.fail(secured, True)
            self.pool.goes_on(turn)


class Pool:
    """The connections to one server, at most `limit`, and the turns that wait for one."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        native: MemcacheOperations,
        server: int,
        address: Address,
        limit: int,
        connect_timeout: float,
        submit: Callable[[Turn], None],
    ) -> None:
        self._loop = loop
        self._native = native
        self._server = server
        self._address = address
        self._limit = limit
        self._connect_timeout = connect_timeout
        self._submit = submit
        self._idle: list[Link] = []
        self._links: set[Link] = set()
        self._waiting: dict[Turn, None] = {}
        self._attempts: set[asyncio.Task[None]] = set()
        self._lookup: asyncio.Task[list[Any]] | None = None

    def submit(self, turn: Turn) -> None:
        """Begins an exchange on an idle connection, or as soon as there is one."""
        turn.pool = self
        while self._idle:
            link = self._idle.pop()
            is_fresh = turn.began - link.last_used <= IDLE_SECONDS_MAX
            if is_fresh and not link.transport.is_closing():
                link.ask(turn)
                return
            link.abort()
        self._waiting[turn] = None
        self._connect()

    def forget(self, turn: Turn) -> None:
        """Drops a turn that waits."""
        self._waiting.pop(turn, None)

    def goes_on(self, turn: Turn) -> None:
        """Ends a turn whose exchange is over, or begins it again."""
        if turn.exchange.is_over:
            turn.end()
        elif not turn.future.done():
            self._submit(turn)

    def free(self, link: Link) -> None:
        """Takes a connection that is in step: for the turn that has waited longest, if any."""
        if self._waiting:
            turn = next(iter(self._waiting))
            del self._waiting[turn]
            link.ask(turn)
        else:
            self._idle.append(link)

    def lost(self, link: Link) -> None:
        """Takes that a connection has ended; of one that was never here, its attempt does."""
        if link not in self._links:
            return
        self._links.remove(link)
        if link in self._idle:
            self._idle.remove(link)
        self._connect()

    async def close(self) -> None:
        """Closes every connection, and ends every turn."""
        self._fail(lambda exchange: exchange.refuse("client was closed", False))
        attempts = list(self._attempts)
        for attempt in attempts:
            attempt.cancel()
        for link in list(self._links):
            link.end()
        await asyncio.gather(*attempts, return_exceptions=True)
        while self._links:
            # Each ends in a callback of the loop that is due already.
            await asyncio.sleep(0)

    def _connect(self) -> None:
        """Starts as many attempts as there are turns that nothing is being done for."""
        while (
            len(self._attempts) < len(self._waiting)
            and len(self._attempts) + len(self._links) < self._limit
        ):
            attempt = self._loop.create_task(self._attempt())
            self._attempts.add(attempt)

    async def _attempt(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            link = await self._open()
        except (OSError, UnicodeError, HandshakeFailed) as error:
            self._attempts.discard(task)
            self._refused(error)
        except BaseException:
            self._attempts.discard(task)
            raise
        else:
            self._attempts.discard(task)
            self._links.add(link)
            link.last_used = self._loop.time()
            if link.transport.is_closing():
                self.lost(link)
            else:
                self.free(link)

    async def _open(self) -> Link:
        """Connects, and does the handshake of TLS where there is one, in the same time."""
        end = self._loop.time() + self._connect_timeout
        link = await self._connected(end)
        try:
            async with asyncio.timeout_at(end):
                await link.handshake
        except BaseException:
            link.abort()
            raise
        return link

    async def _connected(self, end: float) -> Link:
        """Connects, with an equal share of the time for each address that is left."""

        def link() -> Link:
            return Link(self, self._native.secure(self._server))

        if isinstance(self._address, str):
            async with asyncio.timeout_at(end):
                _, made = await self._loop.create_unix_connection(link, self._address)
            return made
        async with asyncio.timeout_at(end):
            addresses = await asyncio.shield(self._look_up(*self._address))
        failed: OSError = OSError("no address")
        for left in range(len(addresses), 0, -1):
            now = self._loop.time()
            host, port = addresses[-left][4][:2]
            try:
                async with asyncio.timeout_at(now + (end - now) / left):
                    _, made = await self._loop.create_connection(link, host, port)
                return made
            except OSError as error:
                failed = error
        raise failed

    def _look_up(self, host: str, port: int) -> asyncio.Future[list[Any]]:
        """Looks the host's name up. Nothing can end that, so there is one lookup at a time."""
        if self._lookup is None or self._lookup.done():
            lookup = self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            self._lookup = self._loop.create_task(lookup)
            # A failure may come when no attempt waits for it any more.
            self._lookup.add_done_callback(lambda done: done.cancelled() or done.exception())
        return self._lookup

    def _refused(self, error: Exception) -> None:
        """Takes that an attempt has failed.

        Where another connection is there or being made, the turns wait for that one.
        """
        self._native.could_not_connect(self._server)
        if self._links or self._attempts:
            return
        if isinstance(error, HandshakeFailed):
            secured = error.secured
            self._fail(lambda exchange: exchange.fail(secured, False))
        else:
            reason = str(error) or f"not made in {self._connect_timeout} s"
            is_lookup = isinstance(error, (socket.gaierror, UnicodeError))
            self._fail(lambda exchange: exchange.refuse(reason, is_lookup))

    def _fail(self, refuse: Callable[[MemcacheExchange], None]) -> None:
        waiting, self._waiting = self._waiting, {}
        for turn in waiting:
            refuse(turn.exchange)
            self.goes_on(turn)


# As the blocking client has it.
IDLE_SECONDS_MAX = 600.0
