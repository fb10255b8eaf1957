"""Serves WSGI applications (PEP 3333): Flask, Django, and any other.

A loop written in Rust accepts, reads and writes without the interpreter; threads that Python has
made call the application. A slow client occupies no thread until its request is complete, or the
first MiB of its body has come; large bodies are streamed both ways, by half of the threads at most.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from dwell import _native
from dwell._native import FileWrapper
from dwell._processes import BEATS, Stop, work_in, workers_for
from dwell._sockets import SOCKET_MODE, Address, Listening
from dwell._tls import read_again, reload_on_hangup, tls_of

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

__all__ = ["FileWrapper", "Server", "serve"]

logger = logging.getLogger("dwell")

THREADS = 8
GRACEFUL_TIMEOUT = 30.0


class Server:
    """A WSGI server in this process, on threads of its own.

    Example:
        >>> import urllib.request
        >>> def app(environ, start_response):
        ...     start_response("200 OK", [("Content-Type", "text/plain")])
        ...     return [b"hello"]
        >>> with Server(app, "http://127.0.0.1:0") as server:
        ...     urllib.request.urlopen(server.url).read()
        b'hello'

    Args:
        app: The application.
        url: Where to listen: ``http://host:port``, ``unix:/path``, or several of them. Port 0 takes
            a free one.
        threads: How many requests are handled at once.
        socket_mode: Permissions of a unix socket: who may connect.
        **options: ``ssl_certfile`` and ``ssl_keyfile``, PEM files with a certificate and its key,
            put clients under TLS; one file may have both. ``ssl_ca_certs`` and ``ssl_cert_reqs``
            (``ssl.CERT_OPTIONAL`` or ``CERT_REQUIRED``) ask clients for a certificate that an
            authority in this file has issued. ``http2`` lets clients under TLS speak HTTP/2, and
            ``h2c`` those without. Limits and timeouts; see the documentation.

    Raises:
        RuntimeError: When it cannot listen; the cause has the errno.
        TypeError, ValueError: For an option that is unknown or out of range.
    """

    def __init__(
        self,
        app: WSGIApplication,
        url: str | Iterable[str] = "http://127.0.0.1:8000",
        *,
        threads: int = THREADS,
        socket_mode: int = SOCKET_MODE,
        **options: Any,
    ) -> None:
        self._tls = tls_of(options)
        is_secure = self._tls is not None
        self._listening = Listening(_addresses(url, socket_mode), 1, is_secure=is_secure)
        try:
            options["tls"] = self._tls
            self._running = _Running(app, self._listening, 0, threads, False, options)
            self._running.start()
        except BaseException:
            self._listening.close()
            raise

    @property
    def url(self) -> str:
        """Where it listens; the first address, if there are several."""
        return str(self._listening.addresses[0])

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of each address; the path and 0 of unix sockets."""
        return [(address.path or address.host, address.port) for address in self._addresses]

    @property
    def _addresses(self) -> list[Address]:
        return self._listening.addresses

    def reload_tls(self) -> None:
        """Reads the certificate and its key again, for clients that connect from now on.

        Raises:
            ValueError: When they cannot be used, or there are none; those before are used still.
        """
        if self._tls is None:
            raise ValueError("the server has no ssl_certfile")
        self._tls.reload()

    def stop(self, timeout: float = GRACEFUL_TIMEOUT) -> bool:
        """Stops accepting, lets requests under way finish, and ends.

        Returns:
            Whether everything had its end within ``timeout`` seconds; what is left is cut off.
        """
        self._listening.close()
        return self._running.end(timeout)

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def serve(
    app: WSGIApplication,
    url: str | Iterable[str] = "http://127.0.0.1:8000",
    *,
    threads: int = THREADS,
    workers: int | None = None,
    worker_timeout: float | None = None,
    limit_max_requests: int | None = None,
    graceful_timeout: float = GRACEFUL_TIMEOUT,
    socket_mode: int = SOCKET_MODE,
    **options: Any,
) -> None:
    """Serves an application until SIGINT or SIGTERM.

    Args:
        app: The application.
        url: Where to listen: ``http://host:port``, ``unix:/path``, or several of them.
        threads: How many requests each process handles at once.
        workers: How many processes serve, each with a socket of its own on the same port; they are
            started anew when they die, and one by one on SIGHUP. Without it, this process serves.
        worker_timeout: Seconds after which a worker that hangs is ended, with the tracebacks of its
            threads, and replaced: the loop of asyncio has not turned (ASGI), or requests wait and
            no thread has taken one (WSGI). Without it, none is. Implies ``workers=1``.
        limit_max_requests: Requests after which a worker is replaced: its successor serves before
            it leaves. Implies ``workers=1``.
        graceful_timeout: Seconds that requests under way have to finish when the server stops.
        socket_mode: Permissions of a unix socket: who may connect.
        **options: ``ssl_certfile`` and ``ssl_keyfile``, PEM files with a certificate and its key,
            put clients under TLS; one file may have both. ``ssl_ca_certs`` and ``ssl_cert_reqs``
            (``ssl.CERT_OPTIONAL`` or ``CERT_REQUIRED``) ask clients for a certificate that an
            authority in this file has issued. ``http2`` lets clients under TLS speak HTTP/2, and
            ``h2c`` those without. Limits and timeouts; see the documentation.

    Raises:
        RuntimeError: When it cannot listen; the cause has the errno.
        TypeError, ValueError: For an option that is unknown or out of range.
    """
    run(
        lambda: app,
        _addresses(url, socket_mode),
        threads,
        workers,
        graceful_timeout,
        options,
        worker_timeout=worker_timeout,
        limit_max_requests=limit_max_requests,
    )


def run(
    load: Callable[[], WSGIApplication],
    addresses: list[Address],
    threads: int = THREADS,
    workers: int | None = None,
    graceful_timeout: float = GRACEFUL_TIMEOUT,
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

    def work(place: int, ready: Callable[[], None], stop: Stop) -> None:
        many = (workers or 1) > 1
        given = dict(options)
        if tls is not None and workers is not None:
            # A worker that takes the place of another one may have new certificates. With files
            # that cannot be used it goes on with those of the supervisor.
            read_again(tls)
        app = load()
        if limit_max_requests is not None:
            given["wear"] = stop.wear(limit_max_requests)
        running = _Running(app, listening, place, threads, many, given)
        running.on_end(stop.end)
        if watch is not None:
            watch(stop)
        ready()
        running.start()
        if worker_timeout is not None:
            running.beat(stop, worker_timeout)
        stop.wait()
        if workers is None:
            # Whoever comes now is refused, and does not wait for a server that will not accept.
            listening.close()
        running.end(graceful_timeout, stop)

    restore = reload_on_hangup(None if workers else tls)
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
        restore()
        listening.close()


class _Running:
    """A server with its threads."""

    def __init__(
        self,
        app: WSGIApplication,
        listening: Listening,
        place: int,
        threads: int,
        many: bool,
        options: dict[str, Any],
    ) -> None:
        if not callable(app):
            raise TypeError(f"not a WSGI application: {app!r}")
        if not isinstance(threads, int):
            raise TypeError(f"threads must be an integer: {threads!r}")
        if threads < 1:
            raise ValueError(f"threads is out of range: {threads}")
        base = _base(listening.addresses[0], threads, many, options.get("root_path", ""))
        is_parallel = not getattr(sys, "_is_gil_enabled", lambda: True)()
        self._server = _native.WsgiServer(
            app, listening.group(place), base, _report, parallel=is_parallel, **options
        )
        self._threads = [
            threading.Thread(target=self._server.work, name=f"dwell-{number}", daemon=True)
            for number in range(threads)
        ]

    def start(self) -> None:
        """Begins to call the application; clients are accepted already."""
        for thread in self._threads:
            thread.start()

    def on_end(self, tell: Callable[[], None]) -> None:
        """Calls ``tell`` when the loop has ended, whoever has ended it."""

        def watch() -> None:
            while not self._server.wait(3600):
                pass
            tell()

        threading.Thread(target=watch, name="dwell-watch", daemon=True).start()

    def beat(self, stop: Stop, timeout: float) -> None:
        """Shows at intervals that requests are taken; no more once they wait for the threads."""

        def watch() -> None:
            before = None
            while not stop.asked.is_set():
                waiting, taken = self._server.progress()
                if not waiting or taken != before:
                    stop.beat(timeout)
                before = taken
                stop.asked.wait(timeout / BEATS)

        threading.Thread(target=watch, name="dwell-beat", daemon=True).start()

    def end(self, timeout: float, stop: Stop | None = None) -> bool:
        """Ends in order within ``timeout``, at once when ``stop`` is asked again."""
        deadline = time.monotonic() + timeout
        self._server.drain()
        in_order = False
        while not in_order and time.monotonic() < deadline and not (stop and stop.at_once):
            step = min(0.1 if stop else timeout, deadline - time.monotonic())
            in_order = self._server.wait(step)
        if not in_order:
            self._server.stop()
            self._server.wait(1)
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()) if in_order else 0.1)
        left = sum(thread.is_alive() for thread in self._threads)
        if left:
            logger.warning("%d threads are still in the application", left)
        return in_order


def _addresses(url: str | Iterable[str], socket_mode: int) -> list[Address]:
    urls = [url] if isinstance(url, str) else list(url)
    if not urls:
        raise ValueError("no address to listen on")
    return [Address.parse(url, socket_mode) for url in urls]


def _base(address: Address, threads: int, many: bool, root_path: str) -> dict[str, Any]:
    """What the environments of all requests have in common.

    What each request has of its own has its place already.
    """
    own = dict.fromkeys(("REQUEST_METHOD", "PATH_INFO", "QUERY_STRING", "REQUEST_URI", "RAW_URI"))
    return own | {
        "wsgi.input": None,
        "REMOTE_PORT": "",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": threads > 1,
        "wsgi.multiprocess": many,
        "wsgi.run_once": False,
        "wsgi.file_wrapper": FileWrapper,
        "wsgi.input_terminated": True,
        "SCRIPT_NAME": root_path.rstrip("/"),
        "SERVER_NAME": address.host or "localhost",
        "SERVER_PORT": str(address.port or (443 if address.is_secure else 80)),
        "SERVER_PROTOCOL": "HTTP/1.1",
        "SERVER_SOFTWARE": f"dwell/{_native.__version__}",
        "REMOTE_ADDR": "",
    }


def _report(error: BaseException, environ: dict[str, Any] | None) -> None:
    """Logs what an application has raised."""
    what = "a request"
    if environ is not None:
        what = f"{environ['REQUEST_METHOD']} {environ['REQUEST_URI']}"
    logger.error("the application failed on %s (process %d)", what, os.getpid(), exc_info=error)
