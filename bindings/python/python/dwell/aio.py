"""`AsyncManager`: a `Manager` on the running asyncio loop.

The loop waits for the manager's descriptor beside its own, so there is no thread and no polling at
intervals: handlers run on the loop's thread, as soon as there is something to tell.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from dwell._native import Connection, Manager, Timer, TlsOpts

if TYPE_CHECKING:
    from typing_extensions import Buffer

T = TypeVar("T")
EventHandler = Callable[[Connection, int, Any], object]


class AsyncManager:
    """A manager that asyncio polls.

    Every method may be called from handlers, from coroutines and from other threads. What a
    handler starts with `schedule` runs on the same loop.

    Args:
        handler: Called as `handler(conn, event, data)` for each event.
        poll_interval: Accepted for programs written for other packages; nothing is polled at
            intervals here.
        error_handler: Called with an exception that has left a handler.
        shutdown_timeout: Accepted likewise; leaving the context waits at most a second, for
            output that is queued.
        **limits: As of `Manager`.

    Example:
        >>> import asyncio
        >>> from dwell import AsyncManager, MG_EV_HTTP_MSG
        >>> def handler(conn, event, data):
        ...     if event == MG_EV_HTTP_MSG:
        ...         conn.reply(200, "hello\\n")
        >>> async def main():
        ...     async with AsyncManager(handler) as manager:
        ...         listener = manager.listen("http://127.0.0.1:0")
        ...         reader, writer = await asyncio.open_connection(*listener.local_addr[:2])
        ...         writer.write(b"GET / HTTP/1.0\\r\\n\\r\\n")
        ...         answer = await reader.read()
        ...         writer.close()
        ...         return answer.endswith(b"hello\\n")
        >>> asyncio.run(main())
        True
    """

    def __init__(
        self,
        handler: EventHandler | None = None,
        poll_interval: int = 100,
        error_handler: Callable[[Exception], object] | None = None,
        shutdown_timeout: float = 30,
        **limits: Any,
    ) -> None:
        self._handler = handler
        self._error_handler = error_handler
        self._poll_interval = poll_interval
        self._shutdown_timeout = shutdown_timeout
        self._limits = limits
        self._manager: Manager | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: int | None = None
        self._descriptor = -1
        self._due: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Future[Any]] = set()

    async def __aenter__(self) -> Self:
        if self._manager is not None:
            raise RuntimeError("AsyncManager is started already")
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        manager = Manager(self._handler, error_handler=self._error_handler, **self._limits)
        manager._wake_after_calls()
        self._descriptor = manager.fileno()
        self._manager = manager
        self._loop.add_reader(self._descriptor, self._poll)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop()

    @property
    def manager(self) -> Manager:
        """The manager beneath.

        Raises:
            RuntimeError: It is not started, or has ended.
        """
        if self._manager is None:
            raise RuntimeError("AsyncManager is not started")
        return self._manager

    @property
    def running(self) -> bool:
        """Whether it is started and has not ended."""
        return self._manager is not None

    def listen(
        self,
        url: str,
        handler: EventHandler | None = None,
        *,
        http: bool | None = None,
        tls: TlsOpts | None = None,
    ) -> Connection:
        """Listens, as `Manager.listen`."""
        manager = self.manager
        return self._on_loop(lambda: manager.listen(url, handler, http=http, tls=tls))

    def connect(
        self,
        url: str,
        handler: EventHandler | None = None,
        *,
        http: bool | None = None,
        tls: TlsOpts | None = None,
    ) -> Connection:
        """Connects, as `Manager.connect`."""
        manager = self.manager
        return self._on_loop(lambda: manager.connect(url, handler, http=http, tls=tls))

    def ws_connect(
        self, url: str, handler: EventHandler | None = None, *, tls: TlsOpts | None = None
    ) -> Connection:
        """Connects as a WebSocket, as `Manager.ws_connect`."""
        manager = self.manager
        return self._on_loop(lambda: manager.ws_connect(url, handler, tls=tls))

    def timer_add(
        self,
        milliseconds: int,
        callback: Callable[[], object],
        *,
        repeat: bool = False,
        run_now: bool = False,
    ) -> Timer:
        """Sets a timer, as `Manager.timer_add`."""
        manager = self.manager
        return self._on_loop(
            lambda: manager.timer_add(milliseconds, callback, repeat=repeat, run_now=run_now)
        )

    def wakeup(self, connection_id: int | None = None, data: Buffer | None = None) -> bool:
        """Wakes a connection, as `Manager.wakeup`."""
        return self.manager.wakeup(connection_id, data)

    def schedule(
        self, work: Coroutine[Any, Any, Any] | Callable[[], object]
    ) -> asyncio.Future[Any] | None:
        """Runs a coroutine, or calls a function, on the loop soon.

        Returns:
            The task of a coroutine when called on the loop's thread, otherwise nothing.
        """
        if self._loop is None:
            if asyncio.iscoroutine(work):
                work.close()
            raise RuntimeError("AsyncManager is not started")
        if not asyncio.iscoroutine(work):
            self._loop.call_soon_threadsafe(work)
            return None
        if threading.get_ident() == self._thread:
            return self._start(work)
        self._loop.call_soon_threadsafe(self._start, work)
        return None

    def _start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Future[Any]:
        task = asyncio.ensure_future(work, loop=self._loop)
        # The loop itself has only a weak reference.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _poll(self) -> None:
        manager = self._manager
        if manager is None:
            return
        try:
            manager.poll(0)
        finally:
            if manager.closed:
                self._stop()
            else:
                self._arm(manager)

    def _arm(self, manager: Manager) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
        wait = manager.wait_max()
        if wait is not None and self._loop is not None:
            self._due = self._loop.call_later(wait, self._poll)

    def _stop(self) -> None:
        manager, self._manager = self._manager, None
        if manager is None:
            return
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if self._loop is not None:
            self._loop.remove_reader(self._descriptor)
        manager.close()

    def _on_loop(self, call: Callable[[], T]) -> T:
        """Calls on the loop's thread, for which another thread waits."""
        if threading.get_ident() == self._thread:
            return call()
        if self._loop is None:
            raise RuntimeError("AsyncManager is not started")
        outcome: concurrent.futures.Future[T] = concurrent.futures.Future()

        def settle() -> None:
            try:
                outcome.set_result(call())
            except BaseException as error:
                outcome.set_exception(error)

        self._loop.call_soon_threadsafe(settle)
        return outcome.result()
