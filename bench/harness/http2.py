"""What HTTP/2 costs: a request beside HTTP/1.1 and nginx, idle connections, and held polls.

Requests are h2load's, a hundred at once: on ten connections, or on a hundred of HTTP/1.1. Polls
are held by a client of the harness's own, a hundred on each connection or one on each.
"""

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from harness import accounting, h2load, http, memcached
from harness.boards import WAIT_SECONDS, EdgeBoard
from harness.contenders import BODY, Contender, Running
from harness.contenders.base import HIT_PATH
from harness.contenders.edge import start_edge
from harness.contenders.nginx import start_nginx
from harness.frames import Streams
from harness.measure import Method, Row, Step, check_answer
from harness.pollers import Pollers
from harness.stage import HOST, ContenderError, Stage
from harness.tls import SUITE, edge_options, nginx_directives
from harness.waiting import (
    FAN_OUT_TIMEOUT_SECONDS,
    SHARED_PATH,
    VALUE,
    WARM_PATH,
    settle,
)

TITLE = "HTTP/2: 100 requests at once on 10 connections, by h2load"
HELD_TITLE = "HTTP/2 without TLS: idle connections, and polls held on streams"
H2C = ("--set", "server.h2c=true")
OVER_TLS = ("--set", "tls.http2=true")
# As `keepalive_requests` of nginx: ten connections come to the default within a round, and h2load
# opens no others.
UNBOUNDED = ("--set", "limits.requests_per_connection_max=1000000000")
STREAMS = 100

Figures = dict[str, Any]


class Speaker(Contender):
    """A server that answers one value to h2load.

    Attributes:
        protocol: what h2load is to have spoken with it.
        secure_port: where it speaks TLS, once it is started, if it does.
    """

    protocol = "h2c"
    secure_port: int | None = None

    def url(self, running: Running) -> str:
        """The address for h2load."""
        if self.secure_port is None:
            return running.url
        return f"https://{HOST}:{self.secure_port}{running.path}"


class EdgeSpeaker(Speaker):
    """`dwell serve` on its embedded store."""

    ours = True

    def __init__(self, name: str, label: str, protocol: str) -> None:
        self.name = name
        self.label = label
        self.protocol = protocol

    def start(self, stage: Stage) -> Running:
        """Starts the edge and stores the value."""
        options = [*H2C, *UNBOUNDED]
        if self.protocol == "h2":
            self.secure_port = stage.free_port()
            options += [*OVER_TLS, *edge_options(stage, self.secure_port)]
        edge = start_edge(stage, [], options=options)
        memcached.fill(edge.store_port, [HIT_PATH], BODY)
        return Running(edge.program, edge.port, HIT_PATH)


class NginxSpeaker(Speaker):
    """nginx with a constant answer."""

    def __init__(self, name: str, label: str, protocol: str) -> None:
        self.name = name
        self.label = label
        self.protocol = protocol

    def start(self, stage: Stage) -> Running:
        """Starts nginx with the answer in its configuration."""
        port = stage.free_port()
        directives = f"listen {HOST}:{port} http2 backlog=4096;"
        if self.protocol == "h2":
            directives = nginx_directives(stage, port).replace(" ssl ", " ssl http2 ")
        answer = f'location / {{ return 200 "{BODY.decode()}"; }}'
        program, plain_port = start_nginx(stage, "", directives + answer)
        self.secure_port = port if self.protocol == "h2" else None
        self._port = port
        return Running(program, plain_port, HIT_PATH)

    def url(self, running: Running) -> str:
        """The port of nginx that speaks HTTP/2 speaks nothing else."""
        scheme = "http" if self.secure_port is None else "https"
        return f"{scheme}://{HOST}:{self._port}{running.path}"


CONTENDERS: tuple[Speaker, ...] = (
    EdgeSpeaker("h2_edge", "dwell edge, embedded store", "h2c"),
    EdgeSpeaker("h2_edge_http1", "the same by HTTP/1.1, 100 connections", "http/1.1"),
    NginxSpeaker("h2_nginx", "nginx, return 200", "h2c"),
    EdgeSpeaker("h2_tls_edge", "dwell edge, embedded store, TLS", "h2"),
    NginxSpeaker("h2_tls_nginx", "nginx, return 200, TLS", "h2"),
)


def sample(contender: Speaker, running: Running, method: Method, row: Row) -> Figures:
    """One round of one server.

    Raises:
        ContenderError: another protocol was spoken, or another suite.
    """
    check_answer(running)
    pid, url = running.program.pid, contender.url(running)
    load = partial(h2load.run, url, is_http1=contender.protocol == "http/1.1")
    if method.warm_up_seconds:
        load(method.warm_up_seconds)
    cpu = accounting.fine_cpu_seconds(pid)
    report = load(method.seconds)
    cpu = accounting.fine_cpu_seconds(pid) - cpu
    if report.protocol != contender.protocol:
        raise ContenderError(f"h2load spoke {report.protocol}, not {contender.protocol}")
    if report.suite not in ("", SUITE):
        raise ContenderError(f"the suite is {report.suite}, not {SUITE}")
    if report.failures:
        row.problem(f"errors: {report.failures}")
    return {
        "us_per_request": cpu / report.requests * 1e6,
        "requests_per_second": report.requests / report.seconds,
        "requests": report.requests,
        "cpu_seconds": cpu,
    }


def idle(clients: int) -> Figures:
    """User memory of a connection that has had one answer."""
    with Stage() as stage:
        board = _board(stage)
        pid = board.program.pid
        with Streams(board.port, 1, 1) as first:
            first.open(SHARED_PATH)
        settle(pid)
        before = accounting.user_bytes(pid)
        with Streams(board.port, clients, 1) as streams:
            streams.open(SHARED_PATH)
            settle(pid)
            grown = accounting.user_bytes(pid) - before
            streams.require_silence()
    return {"bytes_per_client": grown / clients}


def held(connections: int, streams: int, method: Method) -> Figures:
    """Polls held on streams: user memory beyond that of the connections, and one write to all."""
    clients = connections * streams
    with Stage() as stage:
        board = _board(stage)
        pid = board.program.pid
        with Streams(board.port, connections, streams) as waiting:
            waiting.open(SHARED_PATH)
            before = _settled_bytes(pid)
            waiting.hold(SHARED_PATH, _newer_than_now(board))
            grown = _settled_bytes(pid) - before
            waiting.require_silence()
            figures = _fan_outs(board, waiting, clients, method.fan_out_rounds)
    record = _record_bytes(clients)
    return {
        "bytes_per_client": grown / clients,
        "record_bytes": record,
        "above_bytes": grown / clients - record,
        **figures,
    }


def _board(stage: Stage) -> EdgeBoard:
    """An edge that has one value, and has held a poll for another and woken it."""
    board = EdgeBoard(stage, options=H2C)
    stage.on_exit(board.close)
    board.fill([SHARED_PATH, WARM_PATH], VALUE)
    with Streams(board.port, 1, 1) as one:
        one.open(WARM_PATH)
        one.hold(WARM_PATH, _newer_than_now(board, WARM_PATH))
        settle(board.program.pid)
        board.fill([WARM_PATH], b"woken")
        one.take_answers(b"woken")
    settle(board.program.pid)
    return board


def _record_bytes(clients: int) -> float:
    """User memory by which a connection of HTTP/1.1 grows when its poll is held."""
    with Stage() as stage:
        board = _board(stage)
        pid = board.program.pid
        with Pollers(board.port, [SHARED_PATH] * clients, board.transport) as waiting:
            waiting.open()
            before = _settled_bytes(pid)
            waiting.hold()
            grown = _settled_bytes(pid) - before
            waiting.require_silence()
    return grown / clients


def _settled_bytes(pid: int) -> int:
    settle(pid)
    return accounting.user_bytes(pid)


def _newer_than_now(board: EdgeBoard, path: str = SHARED_PATH) -> dict[str, str]:
    """The fields of a poll that has the present value of a key, and waits."""
    etag = http.fetch(f"http://{HOST}:{board.port}{path}").fields["etag"]
    return {"if-none-match": etag, "prefer": f"wait={WAIT_SECONDS}"}


def _fan_outs(board: EdgeBoard, streams: Streams, clients: int, rounds: int) -> Figures:
    """One write with everybody waiting, several times; the first shows how large answers are."""
    pid = board.program.pid
    samples = []
    size = 0
    for number in range(rounds + 1):
        value = f"version {number:05}".encode()
        streams.require_silence()
        arrivals = streams.arrivals(size)
        settle(pid)
        cpu = accounting.fine_cpu_seconds(pid)
        start = time.monotonic()
        board.begin_write(SHARED_PATH, value)
        first, last = arrivals.wait_all(FAN_OUT_TIMEOUT_SECONDS)
        board.finish_write(SHARED_PATH)
        arrivals.close()
        settle(pid)
        cpu = accounting.fine_cpu_seconds(pid) - cpu
        size = streams.take_answers(value)
        streams.hold(SHARED_PATH, _newer_than_now(board))
        settle(pid)
        if number:
            figures = {
                "first_ms": (first - start) * 1e3,
                "last_ms": (last - start) * 1e3,
                "cpu_us_per_waiter": cpu / clients * 1e6,
            }
            samples.append(figures)
    medians = {
        f"fan_out_{name}": statistics.median(each[name] for each in samples) for name in samples[0]
    }
    return {**medians, "fan_out_samples": samples}


def held_steps(method: Method) -> list[Step]:
    """A row for each crowd."""
    clients = method.waiting_clients
    crowds: tuple[tuple[str, str, Callable[[], Figures]], ...] = (
        ("h2_idle", f"{clients:,} idle connections", partial(idle, clients)),
        (
            "h2_held_streams",
            f"{clients:,} polls on one key, {STREAMS} on each connection",
            partial(held, clients // STREAMS, STREAMS, method),
        ),
        (
            "h2_held_connections",
            f"{clients:,} polls on one key, a connection each",
            partial(held, clients, 1, method),
        ),
    )
    return [(Row(name, f"dwell edge, {label}", ours=True), step) for name, label, step in crowds]
