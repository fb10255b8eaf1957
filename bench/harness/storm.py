"""A storm of misses: many clients ask for one key that nobody has stored, all before the answer.

The application behind is here: it counts what it is asked and answers when it is told to, which is
once every client has asked. So it is no matter of speed whether a request could have been shared.
"""

import selectors
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Self

from harness import accounting, http, memcached
from harness.contenders.base import BODY
from harness.contenders.edge import start_edge
from harness.contenders.nginx import start_nginx, upstream
from harness.measure import Method, Row, Sample, Step
from harness.pollers import Pollers
from harness.stage import HOST, ContenderError, Program, Stage
from harness.transports import LongPolls
from harness.waiting import settle

PATH = "/poll/absent"
ANSWERED_TIMEOUT_SECONDS = 20.0
BACKLOG = 4096
ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
)
CACHED_LOCATION = """
        location / {
            proxy_pass http://application;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_cache answers;
            proxy_cache_lock on;
        }
"""

Start = Callable[[Stage, int], tuple[Program, int]]


class Application:
    """What the server has behind it: a thread that holds every request until `release`."""

    def __init__(self) -> None:
        self._listener = socket.create_server((HOST, 0), backlog=BACKLOG)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._ending, self._end = socket.socketpair()
        self._selector.register(self._ending, selectors.EVENT_READ)
        self._changed = threading.Condition()
        self._held: list[socket.socket] = []
        self._is_released = False
        self._heard: dict[socket.socket, bytes] = {}
        self._thread = threading.Thread(target=self._serve)
        self.port = int(self._listener.getsockname()[1])
        self.requests = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end.close()
        self._thread.join()
        for connection in (*self._heard, self._listener, self._ending):
            connection.close()
        self._selector.close()

    def await_requests(self, count: int, timeout_seconds: float) -> None:
        """Waits until it was asked `count` times.

        Raises:
            ContenderError: it was not.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self.requests >= count, timeout_seconds):
                raise ContenderError(f"the application was asked {self.requests} times")

    def release(self) -> None:
        """Answers everything that was asked, and from now on whatever comes."""
        with self._changed:
            self._is_released = True
            for connection in self._held:
                connection.sendall(ANSWER)
            self._held.clear()

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                ready = key.fileobj
                if ready is self._ending:
                    return
                if ready is self._listener:
                    connection, _ = self._listener.accept()
                    self._heard[connection] = b""
                    self._selector.register(connection, selectors.EVENT_READ)
                elif isinstance(ready, socket.socket):
                    self._hear(ready)

    def _hear(self, connection: socket.socket) -> None:
        received = connection.recv(http.RECEIVE_BYTES)
        if not received:
            self._selector.unregister(connection)
            connection.close()
            del self._heard[connection]
            return
        *requests, rest = (self._heard[connection] + received).split(http.HEAD_END)
        self._heard[connection] = rest
        with self._changed:
            self.requests += len(requests)
            self._changed.notify_all()
            if self._is_released:
                connection.sendall(ANSWER * len(requests))
            elif requests:
                self._held.append(connection)


def storm(start: Start, method: Method) -> Sample:
    """What the application is asked while everybody asks for one key, and when they are answered.

    Raises:
        ContenderError: the server did not start, or did not answer everybody.
    """
    clients = method.storm_clients
    with Application() as application, Stage() as stage:
        program, port = start(stage, application.port)
        with Pollers(port, [PATH] * clients, LongPolls()) as pollers:
            pollers.connect()
            settle(program.pid)
            cpu = accounting.fine_cpu_seconds(program.pid)
            pollers.hold()
            application.await_requests(1, ANSWERED_TIMEOUT_SECONDS)
            settle(program.pid)
            pollers.require_silence()
            arrivals = pollers.arrivals()
            released = time.monotonic()
            application.release()
            first, last = arrivals.wait_all(ANSWERED_TIMEOUT_SECONDS)
            arrivals.close()
            cpu = accounting.fine_cpu_seconds(program.pid) - cpu
            pollers.take_answers(BODY)
        return {
            "upstream_requests": application.requests,
            "first_ms": (first - released) * 1e3,
            "last_ms": (last - released) * 1e3,
            "cpu_us_per_client": cpu / clients * 1e6,
            "clients": clients,
        }


def start_embedded(stage: Stage, application: int) -> tuple[Program, int]:
    """The edge on its embedded store."""
    edge = start_edge(stage, [], application)
    return edge.program, edge.port


def start_before_memcached(stage: Stage, application: int) -> tuple[Program, int]:
    """The edge before a memcached that has nothing."""
    edge = start_edge(stage, [memcached.start(stage)], application)
    return edge.program, edge.port


def start_nginx_cache(stage: Stage, application: int) -> tuple[Program, int]:
    """nginx with a cache of its own, which lets one request of a key through at a time."""
    cache = f"proxy_cache_path {stage.directory}/cache keys_zone=answers:1m;"
    parts = cache + upstream("application", [application], keepalive=True)
    return start_nginx(stage, parts, CACHED_LOCATION)


SERVERS: tuple[tuple[str, str, Start], ...] = (
    ("storm_edge", "dwell edge, miss in the embedded store", start_embedded),
    ("storm_edge_memcached", "dwell edge, miss in memcached", start_before_memcached),
    ("storm_nginx", "nginx, proxy_cache with proxy_cache_lock", start_nginx_cache),
)


def steps(method: Method) -> list[Step]:
    """A row for each server."""
    return [
        (Row(name, label, name != "storm_nginx"), partial(storm, start, method))
        for name, label, start in SERVERS
    ]
