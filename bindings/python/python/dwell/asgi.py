"""Serves ASGI applications (ASGI 3): FastAPI, Starlette, and any other.

The loop that accepts, reads and writes is written in Rust and lives within asyncio's: its
descriptor is watched like a socket, so there is one thread and nothing is handed between threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

from dwell import _native
from dwell._lifespan import MOMENT, Application, Lifespan, Scope, cancel
from dwell._processes import BEATS, Stop, work_in, workers_for
from dwell._sockets import SOCKET_MODE, Address, Listening
from dwell._tls import read_again, reload_on_hangup, tls_of

__all__ = ["Server", "serve"]

logger = logging.getLogger("dwell")

GRACEFUL_TIMEOUT = 30.0

# Seconds that the application has for its shutdown, at least.
SHUTDOWN_TIMEOUT = 5.0

Tasks = dict[Any, "asyncio.Task[None]"]


class Server:
    """An ASGI server on the running loop of asyncio.

    Example:
        >>> import asyncio
        >>> async def app(scope, receive, send):
        ...     await send({"type": "http.response.start", "status": 200})
        ...     await send({"type": "http.response.body", "body": b"hello"})
        >>> async def main():
        ...     async with Server(app, "http://127.0.0.1:0") as server:
        ...         host, port = server.addresses[0]
        ...         reader, writer = await asyncio.open_connection(host, port)
        ...         writer.write(b"GET / HTTP/1.0\\r\\n\\r\\n")
        ...         answer = await reader.read()
        ...         writer.close()
        ...         return answer.split(b"\\r\\n\\r\\n")[1]
        >>> asyncio.run(main())
        b'hello'

    Args:
        app: The application.
        url: Where to listen: ``http://host:port``, ``unix:/path``, or several of them. Port 0 takes
            a free one.
        lifespan: Whether the application is told of the start and the end: ``"auto"`` if it wants
            to be, ``"on"``, or ``"off"``.
        socket_mode: Permissions of a unix socket: who may connect.
        **options: ``ssl_certfile`` and ``ssl_keyfile``, PEM files with a certificate and its key,
            put clients under TLS; one file may have both. ``ssl_ca_certs`` and ``ssl_cert_reqs``
            (``ssl.CERT_OPTIONAL`` or ``CERT_REQUIRED``) ask clients for a certificate that an
            authority in this file has issued. ``http2`` lets clients under TLS speak HTTP/2, and
            ``h2c`` those without. Limits and timeouts; see the documentation.
    """

    def __init__(
        self,
        app: Application,
        url: str | Iterable[str] = "http://127.0.0.1:8000",
        *,
        lifespan: str = "auto",
        socket_mode: int = SOCKET_MODE,
        **options: Any,
    ) -> None:
        self._app = app
        self._urls = [url] if isinstance(url, str) else list(url)
        self._socket_mode = socket_mode
        self._lifespan = lifespan
        self._tls = tls_of(options)
        self._options = options | {"tls": self._tls}
        self._listening: Listening | None = None
        self._running: _Running | None = None

    @property
    def url(self) -> str:
        """Where it listens; the first address, if there are several."""
        return str(self._open().addresses[0])

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of each address; the path and 0 of unix sockets."""
        return [(address.path or address.host, address.port) for address in self._open().addresses]

    def _open(self) -> Listening:
        if self._listening is None:
            raise RuntimeError("the server is not started")
        return self._listening

    async def start(self) -> None:
        """Starts the application, and then listens.

        Raises:
            RuntimeError: When it cannot listen, or the application refuses to start.
            TypeError, ValueError: For an option that is unknown or out of range.
        """
        addresses = [Address.parse(url, self._socket_mode) for url in self._urls]
        self._listening = Listening(addresses, 1, is_secure=self._tls is not None)
        running = _Running(self._app, self._lifespan, self._options)
        try:
            await running.start(self._listening, 0)
        except BaseException:
            self._listening.close()
            raise
        self._running = running

    def reload_tls(self) -> None:
        """Reads the certificate and its key again, for clients that connect from now on.

        Raises:
            ValueError: When they cannot be used, or there are none; those before are used still.
        """
        if self._tls is None:
            raise ValueError("the server has no ssl_certfile")
        self._tls.reload()

    async def stop(self, timeout: float = GRACEFUL_TIMEOUT) -> bool:
        """Stops accepting, lets requests under way finish, and ends the application.

        Returns:
            Whether everything had its end within ``timeout`` seconds; what is left is cut off.
        """
        running, self._running = self._running, None
        if self._listening is not None:
            self._listening.close()
        return running is None or await running.end(timeout)

    async def __aenter__(self) -> Server:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()


def serve(
    app: Application,
    url: str | Iterable[str] = "http://127.0.0.1:8000",
    *,
    workers: int | None = None,
    worker_timeout: float | None = None,
    limit_max_requests: int | None = None,
    graceful_timeout: float = GRACEFUL_TIMEOUT,
    lifespan: str = "auto",
    socket_mode: int = SOCKET_MODE,
    **options: Any,
) -> None:
    """Serves an application until SIGINT or SIGTERM, on uvloop if that is installed.

    Args:
        app: The application.
        url: Where to listen: ``http://host:port``, ``unix:/path``, or several of them.
        workers: How many processes serve, each with a loop, and a socket of its own on the same
            port; they are started anew when they die, and one by one on SIGHUP. Without it, this
            process serves.
        worker_timeout: Seconds after which a worker that hangs is ended, with the tracebacks of its
            threads, and replaced: the loop of asyncio has not turned (ASGI), or requests wait and
            no thread has taken one (WSGI). Without it, none is. Implies ``workers=1``.
        limit_max_requests: Requests after which a worker is replaced: its successor serves before
            it leaves. Implies ``workers=1``.
        graceful_timeout: Seconds that requests under way have to finish when the server stops.
        lifespan: Whether the application is told of the start and the end: ``"auto"`` if it wants
            to be, ``"on"``, or ``"off"``.
        socket_mode: Permissions of a unix socket: who may connect.
        **options: ``ssl_certfile`` and ``ssl_keyfile``, PEM files with a certificate and its key,
            put clients under TLS; one file may have both. ``ssl_ca_certs`` and ``ssl_cert_reqs``
            (``ssl.CERT_OPTIONAL`` or ``CERT_REQUIRED``) ask clients for a certificate that an
            authority in this file has issued. ``http2`` lets clients under TLS speak HTTP/2, and
            ``h2c`` those without. Limits and timeouts; see the documentation.

    Raises:
        RuntimeError: When it cannot listen, or the application refuses to start.
        TypeError, ValueError: For an option that is unknown or out of range.
    """
    urls = [url] if isinstance(url, str) else list(url)
    addresses = [Address.parse(url, socket_mode) for url in urls]
    run(
        lambda: app,
        addresses,
        workers,
        graceful_timeout,
        lifespan,
        options,
        worker_timeout=worker_timeout,
        limit_max_requests=limit_max_requests,
    )


def run(
    load: Callable[[], Application],
    addresses: list[Address],
    workers: int | None = None,
    graceful_timeout: float = GRACEFUL_TIMEOUT,
    lifespan: str = "auto",
    options: dict[str, Any] | None = None,
    started: Callable[[Listening], None] = lambda _: None,
    watch: Callable[[Stop], None] | None = None,
    is_program: bool = False,
    worker_timeout: float | None = None,
    limit_max_requests: int | None = None,
) -> int:
    """Serves the application that ``load`` gives in each process; returns the exit status.

    Args:
        is_program: Whether the process has nothing to do but this, so that it is ended where the
            application hangs.
        worker_timeout, limit_max_requests: As of `serve`.
    """
    workers = workers_for(workers, worker_timeout, limit_max_requests)
    options = dict(options or {})
    options["tls"] = tls = tls_of(options)
    listening = Listening(addresses, workers or 1, is_secure=tls is not None)

    made: list[_Running] = []

    async def main(app: Application, place: int, ready: Callable[[], None], stop: Stop) -> None:
        loop = asyncio.get_running_loop()
        asked = asyncio.Event()

        def tell() -> None:
            # The loop is closed where it has ended by itself.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(asked.set)

        stop.tell(tell)
        if threading.current_thread() is threading.main_thread():
            # Signals end the wait of the loop, whenever they come, and are heard at once where the
            # application does not let the loop turn. What comes between the two steps waits.
            blocked = signal.pthread_sigmask(signal.SIG_BLOCK, stop.signals)
            for number in stop.signals:
                loop.add_signal_handler(number, lambda: None)
            stop.on_signals()
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            if workers is None and tls is not None:
                loop.add_signal_handler(signal.SIGHUP, lambda: None)
                reload_on_hangup(tls)
        if tls is not None and workers is not None:
            # A worker that takes the place of another one may have new certificates. With files
            # that cannot be used it goes on with those of the supervisor.
            read_again(tls)
        given = dict(options)
        if limit_max_requests is not None:
            given["wear"] = stop.wear(limit_max_requests)
        running = _Running(app, lifespan, given)
        made.append(running)

        def serve() -> None:
            if watch is not None:
                watch(stop)
            ready()
            if worker_timeout is not None:
                _beat(loop, stop, worker_timeout)

        if not await running.start_unless(asked, listening, place, serve):
            return
        await asked.wait()
        if workers is None:
            # Whoever comes now is refused, and does not wait for a server that will not accept.
            listening.close()
        asked.clear()
        if stop.at_once:
            asked.set()
        end = asyncio.ensure_future(running.end(graceful_timeout))
        again = asyncio.ensure_future(asked.wait())
        await asyncio.wait({end, again}, return_when=asyncio.FIRST_COMPLETED)
        if not end.done():
            running.cut()
        await end
        again.cancel()

    def work(place: int, ready: Callable[[], None], stop: Stop) -> None:
        runner = asyncio.Runner(loop_factory=_loop_factory())
        try:
            runner.run(main(load(), place, ready, stop))
        finally:
            # It would wait for ever for tasks that ignore their cancellation.
            if all(running.has_ended() for running in made):
                runner.close()

    try:
        return work_in(
            workers,
            work,
            lambda: started(listening),
            graceful_timeout,
            is_program,
            lambda: read_again(tls),
        )
    finally:
        listening.close()


def _beat(loop: asyncio.AbstractEventLoop, stop: Stop, timeout: float) -> None:
    """Shows at intervals that the loop turns."""
    stop.beat(timeout)
    if not stop.asked.is_set():
        loop.call_later(timeout / BEATS, _beat, loop, stop, timeout)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """How a loop is made: uvloop's where it is installed."""
    try:
        uvloop = importlib.import_module("uvloop")
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


class _Running:
    """A server on the running loop."""

    def __init__(self, app: Application, lifespan: str, options: dict[str, Any]) -> None:
        if not callable(app):
            raise TypeError(f"not an ASGI application: {app!r}")
        self._app = app
        self._lifespan = Lifespan(app, lifespan)
        self._options = options
        # asyncio itself keeps no task alive. Each ends its own entry.
        self._tasks: Tasks = {}
        self._cut = asyncio.Event()

    async def start_unless(
        self, asked: asyncio.Event, listening: Listening, place: int, ready: Callable[[], None]
    ) -> bool:
        """Starts, but gives it up when the end is asked for meanwhile; whether it has started."""
        start = asyncio.ensure_future(self.start(listening, place, ready))
        end = asyncio.ensure_future(asked.wait())
        await asyncio.wait({start, end}, return_when=asyncio.FIRST_COMPLETED)
        end.cancel()
        if start.done():
            start.result()
            return True
        start.cancel()
        await self._lifespan.abandon(MOMENT)
        return False

    async def start(
        self, listening: Listening, place: int, ready: Callable[[], None] = lambda: None
    ) -> None:
        """Starts the application, calls ``ready``, and serves."""
        self._loop = asyncio.get_running_loop()
        state = await self._lifespan.start()
        scopes = _scopes(listening.addresses[0], self._options.get("root_path", ""))
        self._server = _native.AsgiServer(
            self._loop, self._begin(), listening.group(place), scopes, state, **self._options
        )
        # Before the first request, which may hold the loop up.
        ready()
        self._loop.add_reader(self._server.fileno(), self._server.turn)
        self._server.turn()

    def _begin(self) -> Callable[[Scope, Any], None]:
        """What the server calls with the scope of a request and its exchange."""
        loop, app, tasks = self._loop, self._app, self._tasks
        if loop.get_task_factory() is not None:

            def begin(scope: Scope, exchange: Any) -> None:
                tasks[exchange] = loop.create_task(_run(app, scope, exchange, tasks))

        elif sys.version_info >= (3, 12):

            def begin(scope: Scope, exchange: Any) -> None:
                work = _run(app, scope, exchange, tasks)
                # Most requests are answered before they wait for anything.
                task = asyncio.Task(work, loop=loop, name="request", eager_start=True)
                if not task.done():
                    tasks[exchange] = task

        else:

            def begin(scope: Scope, exchange: Any) -> None:
                work = _run(app, scope, exchange, tasks)
                tasks[exchange] = asyncio.Task(work, loop=loop, name="request")

        return begin

    def cut(self) -> None:
        """Ends a graceful end that takes too long."""
        self._cut.set()

    async def end(self, timeout: float) -> bool:
        """Ends in order within ``timeout``, or when it is cut short; whether it was in order."""
        deadline = self._loop.time() + timeout
        drained = self._loop.create_future()
        cut = asyncio.ensure_future(self._cut.wait())
        self._server.drain(drained)
        waits: set[asyncio.Future[Any]] = {drained, cut}
        await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        in_order = drained.done()
        self._loop.remove_reader(self._server.fileno())
        self._server.close()
        if self._tasks and not self._cut.is_set():
            # Work that goes on behind an answer has what is left of the time. Tasks whose clients
            # were cut off have a moment to notice.
            rest = max(1.0, deadline - self._loop.time())
            ended = asyncio.ensure_future(asyncio.wait(set(self._tasks.values())))
            await asyncio.wait({ended, cut}, timeout=rest, return_when=asyncio.FIRST_COMPLETED)
            ended.cancel()
        cut.cancel()
        await cancel(set(self._tasks.values()), MOMENT / 4 if self._cut.is_set() else MOMENT)
        if left := self._left():
            logger.error("%d requests ignore their cancellation", left)
        await self._end_lifespan(deadline)
        return in_order

    async def _end_lifespan(self, deadline: float) -> None:
        """Ends the application in what is left of the time, or at once when it is cut short."""
        seconds = max(SHUTDOWN_TIMEOUT, deadline - self._loop.time())
        end = asyncio.ensure_future(self._lifespan.end(seconds))
        cut = asyncio.ensure_future(self._cut.wait())
        await asyncio.wait({end, cut}, return_when=asyncio.FIRST_COMPLETED)
        if not end.done():
            await asyncio.wait({end}, timeout=MOMENT / 4)
        cut.cancel()
        if not end.done():
            end.cancel()
            await self._lifespan.abandon(MOMENT / 4)

    def has_ended(self) -> bool:
        """Whether no task of the application is left."""
        return self._lifespan.is_over() and not self._left()

    def _left(self) -> int:
        """Requests whose task goes on."""
        return sum(not task.done() for task in self._tasks.values())


async def _run(app: Application, scope: Scope, exchange: Any, tasks: Tasks) -> None:
    """Calls the application for one request, and answers for it where it fails to."""
    try:
        await app(scope, exchange.receive, exchange.send)
    except BaseException as error:
        is_gone = _end(exchange, scope, True)
        if isinstance(error, (asyncio.CancelledError, KeyboardInterrupt, SystemExit)):
            raise
        if not (is_gone and _is_of_leaving(error)):
            what = exchange.describe()
            logger.error("the application failed on %s", what, exc_info=error)
    else:
        if not _end(exchange, scope, False):
            logger.error("the application has not answered %s", exchange.describe())
    finally:
        tasks.pop(exchange, None)


def _is_of_leaving(error: BaseException) -> bool:
    """Whether an application raises it only because its client has left."""
    return isinstance(error, OSError) or type(error).__name__ == "ClientDisconnect"


def _end(exchange: Any, scope: Scope, failed: bool) -> bool:
    """Ends an exchange; whether nothing is to be said about that."""
    try:
        if scope["type"] == "http":
            return bool(exchange.end())
        return bool(exchange.end(failed)) or not failed
    except OSError:
        return True


def _scopes(address: Address, root_path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the scopes of all requests, and those of all WebSockets, have in common.

    What each request has of its own has its place already: a copy with all keys need not grow.
    """
    own = {"path": "", "raw_path": b"", "query_string": b"", "headers": []}
    common: dict[str, Any] = {
        **own,
        "http_version": "1.1",
        "server": (address.path or address.host, None if address.path else address.port),
        "client": None,
        "root_path": root_path.rstrip("/"),
    }
    http = {
        "type": "http",
        # From 2.4 on, applications rely on `send` alone to learn that a client has left: a stream
        # with nothing to send would never learn of it. With 2.3 they wait in `receive` as well.
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "method": "",
        "scheme": "http",
        "extensions": {
            "http.response.early_hint": {},
            "http.response.pathsend": {},
            "http.response.trailers": {},
        },
    }
    web_socket = {
        "type": "websocket",
        "asgi": {"version": "3.0", "spec_version": "2.5"},
        "subprotocols": [],
        "scheme": "ws",
        "extensions": {"websocket.http.response": {}},
    }
    return common | http, common | web_socket
