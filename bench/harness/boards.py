"""Servers that keep clients waiting for a key, and let somebody write to it.

The edge and the floor are written to over the memcached protocol, both before a Redis by `SET`,
nchan by POST. Their long-polls differ in the fields a client sends to say what it has already seen,
their event streams in nothing.
"""

import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from harness import http, memcached, redis
from harness.contenders.edge import start_edge
from harness.contenders.nginx import start_nginx
from harness.paths import release_directory
from harness.stage import HOST, SERVER_CORE, ContenderError, Program, Stage
from harness.transports import EventStreams, Fields, LongPolls, Transport

WAIT_SECONDS = 50
NCHAN_MODULE = Path("/usr/lib/nginx/modules/ngx_nchan_module.so")
# While nothing is written nobody is told anything: not even that a stream is alive.
QUIET = ["--set", "limits.stream_heartbeat=1h"]
NCHAN_UPSTREAM = """
    upstream redis {{
        nchan_redis_server redis://{host}:{port};
    }}
"""
NCHAN_LOCATIONS = """
        location ~ ^/poll/(.+)$ {
            %(channels)s
            nchan_subscriber %(kind)s;
            nchan_channel_id $1;
            nchan_message_buffer_length 1;
            nchan_message_timeout 1h;
        }
        location ~ ^/publish/poll/(.+)$ {
            %(channels)s
            nchan_publisher;
            nchan_channel_id $1;
            nchan_message_buffer_length 1;
            nchan_message_timeout 1h;
        }
"""


class Board(ABC):
    """A started server, and a connection to write to it.

    Attributes:
        program: the process that is accounted for.
        port: where its clients poll.
        transport: how they wait.
        wrap: puts TLS on a connection of theirs, if they have it.
    """

    program: Program
    port: int
    transport: Transport
    wrap: Callable[[socket.socket], socket.socket] | None = None

    @abstractmethod
    def begin_write(self, path: str, value: bytes) -> None:
        """Sends a new value for a path."""

    @abstractmethod
    def finish_write(self, path: str) -> None:
        """Reads the reply to it.

        Raises:
            ContenderError: the value was not taken.
        """

    def fill(self, paths: Iterable[str], value: bytes) -> None:
        """Writes one value to many paths."""
        for path in paths:
            self.begin_write(path, value)
            self.finish_write(path)

    @abstractmethod
    def close(self) -> None:
        """Closes the connection for writing."""


class StoreBoard(Board):
    """A server that is written to as memcached is.

    Shape: a class of it makes its writer before anything is written.
    """

    _writer: memcached.Writer

    def begin_write(self, path: str, value: bytes) -> None:
        """Sends a `set`; the key is the path."""
        self._writer.begin_set(path, value)

    def finish_write(self, path: str) -> None:
        """Reads STORED."""
        self._writer.finish_set(path)

    def close(self) -> None:
        """Closes the connection to the store."""
        self._writer.close()


class EdgeBoard(StoreBoard):
    """`dwell serve` on its embedded store."""

    def __init__(
        self, stage: Stage, transport: Transport | None = None, options: Sequence[str] = ()
    ) -> None:
        self.transport = transport or LongPolls(waiting_fields)
        edge = start_edge(stage, [], options=[*QUIET, *options])
        self.program, self.port = edge.program, edge.port
        self._writer = memcached.Writer(edge.store_port)


class FloorBoard(StoreBoard):
    """The bare loop of sends of bench/floor, which has one value for all paths."""

    def __init__(self, stage: Stage, transport: Transport | None = None) -> None:
        self.transport = transport or LongPolls(waiting_fields)
        self.port, store_port = stage.free_port(), stage.free_port()
        program = str(release_directory() / "dwell-bench-fan-out")
        arguments = [program, str(self.port), str(store_port)]
        self.program = stage.start("fan-out", arguments, SERVER_CORE, [self.port, store_port])
        self._writer = memcached.Writer(store_port)


class RedisWritten(Board):
    """A server before a Redis, which is written to.

    Shape: a class of it makes the client before anything is written.
    """

    client: redis.Client

    def begin_write(self, path: str, value: bytes) -> None:
        """Sends a `SET`; the key is the path."""
        self.client.begin_set(path, value)

    def finish_write(self, path: str) -> None:
        """Reads OK."""
        self.client.finish_set(path)

    def close(self) -> None:
        """Closes the connection to Redis."""
        self.client.close()


class RedisBoard(RedisWritten):
    """`dwell serve` before a Redis of its own."""

    def __init__(
        self, stage: Stage, transport: Transport | None = None, options: Sequence[str] = ()
    ) -> None:
        self.transport = transport or LongPolls(waiting_fields)
        port = redis.start(stage)
        edge = start_edge(stage, [], options=[*QUIET, *options], redis_port=port)
        self.program, self.port = edge.program, edge.port
        self.client = redis.Client(port)


class RedisFloorBoard(RedisWritten):
    """The bare loop of bench/floor that tracks, before a Redis of its own."""

    def __init__(self, stage: Stage) -> None:
        self.transport = LongPolls(waiting_fields)
        redis_port, self.port = redis.start(stage), stage.free_port()
        program = str(release_directory() / "dwell-bench-tracked")
        arguments = [program, str(self.port), str(redis_port)]
        self.program = stage.start("tracked", arguments, SERVER_CORE, [self.port])
        self.client = redis.Client(redis_port)


def waiting_fields(seen: http.Answer) -> Fields:
    """The cursor as an entity tag, and RFC 7240's `wait`."""
    if "etag" not in seen.fields:
        raise ContenderError("a poll was answered without an ETag")
    return {"If-None-Match": seen.fields["etag"], "Prefer": f"wait={WAIT_SECONDS}"}


class NchanBoard(Board):
    """nginx with nchan, one message kept per channel."""

    def __init__(
        self,
        stage: Stage,
        transport: Transport | None = None,
        directives: str = "",
        channels: str = "",
        upstreams: str = "",
    ) -> None:
        if not NCHAN_MODULE.exists():
            raise ContenderError("libnginx-mod-nchan is not installed")
        self.transport = transport or LongPolls(_nchan_waiting_fields)
        kind = "eventsource" if isinstance(transport, EventStreams) else "longpoll"
        locations = directives + NCHAN_LOCATIONS % {"kind": kind, "channels": channels}
        self.program, self.port = start_nginx(stage, upstreams, locations, [NCHAN_MODULE])
        self._writer = socket.create_connection((HOST, self.port), timeout=10)

    def begin_write(self, path: str, value: bytes) -> None:
        """POSTs a message to the channel of the path."""
        head = f"POST /publish{path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {len(value)}"
        self._writer.sendall(head.encode() + http.HEAD_END + value)

    def finish_write(self, path: str) -> None:
        """Reads 201 (somebody waited or had been there) or 202."""
        answer = http.receive(self._writer)
        if answer.status not in (201, 202):
            raise ContenderError(f"publishing to {path} was answered {answer.status}")

    def close(self) -> None:
        """Closes the connection for publishing."""
        self._writer.close()


class NchanRedisBoard(NchanBoard):
    """nginx with nchan, whose channels are in a Redis."""

    def __init__(self, stage: Stage, transport: Transport | None = None) -> None:
        upstreams = NCHAN_UPSTREAM.format(host=HOST, port=redis.start(stage))
        super().__init__(stage, transport, channels="nchan_redis_pass redis;", upstreams=upstreams)


def _nchan_waiting_fields(seen: http.Answer) -> Fields:
    """nchan's message id: a time and a number within it."""
    return {
        "If-Modified-Since": seen.fields.get("last-modified", ""),
        "If-None-Match": seen.fields.get("etag", ""),
    }
