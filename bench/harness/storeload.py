"""Pipelined gets and sets over TCP, against the embedded store and memcached.

One Python process keeps eight connections busy with batches prepared beforehand. It knows how long
the replies to a batch are, so it only counts bytes while the clock runs, and the server is what
works.
"""

import itertools
import random
import socket
import time
from dataclasses import dataclass

from harness import accounting, memcached
from harness.contenders import Contender, Running
from harness.contenders.edge import start_edge
from harness.measure import Method, Row, Sample, in_turn
from harness.stage import HOST, SERVER_CORE, ContenderError, Stage

CONNECTIONS = 8
BATCHES = 64
OPERATIONS_PER_BATCH = 100
GETS_PER_SET = 9
KEYS = [f"key-{index:06}" for index in range(10_000)]
VALUE = b"v" * 100
RECEIVE_BYTES = 1 << 18
TIMEOUT_SECONDS = 10


class EmbeddedStore(Contender):
    """The store of `dwell serve`, over its memcached protocol."""

    name = "store_edge"
    label = "dwell edge, embedded store"
    ours = True

    def start(self, stage: Stage) -> Running:
        """Starts an edge nobody polls."""
        edge = start_edge(stage, [])
        return Running(edge.program, edge.store_port, "")


class Memcached(Contender):
    """memcached with one thread."""

    name = "store_memcached"
    label = "memcached -t 1"
    note = "writes to the socket once per get, where the edge writes once per read"

    def start(self, stage: Stage) -> Running:
        """Starts memcached on the server's core."""
        program, port = memcached.start_on(stage, SERVER_CORE)
        return Running(program, port, "")


@dataclass(frozen=True)
class Batch:
    """Requests that are sent at once, and the length of the replies."""

    requests: bytes
    reply_bytes: int


def make_batch(choice: random.Random) -> Batch:
    """A batch of gets and sets of keys that are all stored."""
    requests, reply_bytes = [], 0
    for number in range(OPERATIONS_PER_BATCH):
        key = choice.choice(KEYS)
        if number % (GETS_PER_SET + 1) == GETS_PER_SET:
            requests.append(memcached.set_command(key, VALUE))
            reply_bytes += len(b"STORED\r\n")
        else:
            requests.append(b"get %b\r\n" % key.encode())
            reply_bytes += len(b"VALUE %b 0 100\r\n%b\r\nEND\r\n" % (key.encode(), VALUE))
    return Batch(b"".join(requests), reply_bytes)


def load(port: int, seconds: float) -> int:
    """Keeps the server busy for a time and returns the operations it did.

    Raises:
        ContenderError: a reply is missing, or longer than it should be.
    """
    choice = random.Random(2009)
    batches = itertools.cycle([make_batch(choice) for _ in range(BATCHES)])
    sockets = [
        socket.create_connection((HOST, port), timeout=TIMEOUT_SECONDS) for _ in range(CONNECTIONS)
    ]
    try:
        return _rounds(sockets, batches, time.monotonic() + seconds)
    finally:
        for connection in sockets:
            connection.close()


def _rounds(sockets: list[socket.socket], batches: "itertools.cycle[Batch]", end: float) -> int:
    buffer = bytearray(RECEIVE_BYTES)
    waiting: list[Batch] = []
    for connection in sockets:
        waiting.append(next(batches))
        connection.sendall(waiting[-1].requests)
    operations = 0
    while time.monotonic() < end:
        for index, connection in enumerate(sockets):
            _take_replies(connection, waiting[index], buffer)
            operations += OPERATIONS_PER_BATCH
            waiting[index] = next(batches)
            connection.sendall(waiting[index].requests)
    for connection, batch in zip(sockets, waiting, strict=True):
        _take_replies(connection, batch, buffer)
    return operations + OPERATIONS_PER_BATCH * len(sockets)


def _take_replies(connection: socket.socket, batch: Batch, buffer: bytearray) -> None:
    left = batch.reply_bytes
    while left > 0:
        count = connection.recv_into(buffer)
        if count == 0:
            raise ContenderError("the store closed a connection")
        left -= count
    if left < 0:
        raise ContenderError(f"replies are {-left} bytes longer than they should be")


def sample(running: Running, method: Method) -> Sample:
    """One round; the CPU time of the server counts, as everywhere."""
    memcached.fill(running.port, KEYS, VALUE)
    load(running.port, method.warm_up_seconds)
    pid = running.program.pid
    cpu, start = accounting.cpu_seconds(pid), time.monotonic()
    operations = load(running.port, method.seconds)
    cpu = accounting.cpu_seconds(pid) - cpu
    elapsed = time.monotonic() - start
    return {
        "us_per_operation": cpu / operations * 1e6,
        "operations_per_cpu_second": operations / cpu,
        "operations_per_second": operations / elapsed,
        "operations": operations,
        "cpu_seconds": cpu,
    }


def run(method: Method) -> list[Row]:
    """Both stores in turn."""
    return in_turn(
        (EmbeddedStore(), Memcached()),
        method.rounds,
        lambda running, _: sample(running, method),
    )
