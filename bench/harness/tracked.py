"""The wait for a write to Redis: its time, what Redis is asked, and one wake-up of many."""

import math
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from harness.boards import NchanRedisBoard, RedisBoard, RedisFloorBoard, RedisWritten
from harness.contenders import BODY
from harness.measure import Method, Row, Step
from harness.pollers import Pollers
from harness.stage import Stage
from harness.transports import EventStreams, Transport
from harness.waiting import SHARED_PATH, held, settle

TITLE = "Clients waiting for a write to Redis (on the load generator's core)"
WOKEN_TIMEOUT_SECONDS = 5.0
# Changes of one key, and the seconds between two of them.
OFTEN = (250, 0.02)
SELDOM_SECONDS = 1.0
KEEP = ["--set", "redis.kept_bytes_max=16MiB"]
KEPT_POLLS = 1000

Figures = dict[str, Any]


class Woken:
    """One client that is woken again and again, and the times that took."""

    def __init__(self, board: RedisWritten) -> None:
        self._board = board
        board.fill([SHARED_PATH], BODY)
        self._poller = Pollers(board.port, [SHARED_PATH], board.transport)
        self._poller.open()
        self._poller.hold()
        settle(board.program.pid)
        self._times: list[float] = []

    def close(self) -> None:
        """Closes the connection of the client."""
        self._poller.close()

    def wake(self, value: bytes) -> None:
        """Writes a value, and has the client wait again after it was told.

        Raises:
            ContenderError: the change was not told, or something else was.
        """
        arrivals = self._poller.arrivals()
        start = time.monotonic()
        self._board.begin_write(SHARED_PATH, value)
        _, last = arrivals.wait_all(WOKEN_TIMEOUT_SECONDS)
        self._board.finish_write(SHARED_PATH)
        arrivals.close()
        self._poller.take_answers(value)
        self._poller.hold()
        self._times.append((last - start) * 1e3)

    def forget(self) -> None:
        """Forgets the times so far."""
        self._times.clear()

    def times(self, prefix: str) -> Figures:
        """Their median, and the one that a hundredth of them exceeds."""
        p99 = sorted(self._times)[math.ceil(len(self._times) * 0.99) - 1]
        return {f"{prefix}_p50_ms": statistics.median(self._times), f"{prefix}_p99_ms": p99}


def woken(transport: Transport | None, changes: int, pause: float) -> Figures:
    """The time from a `SET` to what one client is told, and what Redis is asked meanwhile.

    Long-polls of the bare loop are woken in between, so that both meet the same minutes of the
    machine: each has its own Redis and so many changes.

    Raises:
        ContenderError: a change was not told, or something else was.
    """
    with Stage() as stage:
        board = RedisBoard(stage, transport)
        stage.on_exit(board.close)
        edge = Woken(board)
        stage.on_exit(edge.close)
        both = [edge]
        if transport is None:
            floor_board = RedisFloorBoard(stage)
            stage.on_exit(floor_board.close)
            floor = Woken(floor_board)
            stage.on_exit(floor.close)
            both.append(floor)
        for number in range(changes + 1):
            if number == 1:
                gets = board.client.gets()
                for one in both:
                    one.forget()
            for one in both:
                time.sleep(pause / len(both))
                one.wake(b"change %d" % number)
        settle(board.program.pid)
        gets = board.client.gets() - gets
        figures = {**edge.times("woken"), "gets_per_change": gets / changes}
        if transport is None:
            figures |= floor.times("floor_woken")
    return figures


def kept(polls: int) -> Figures:
    """What Redis is asked by polls for a key that another poll waits for.

    Raises:
        ContenderError: a client was not kept waiting.
    """
    with Stage() as stage:
        board = RedisBoard(stage, options=KEEP)
        stage.on_exit(board.close)
        board.fill([SHARED_PATH], BODY)
        with Pollers(board.port, [SHARED_PATH], board.transport) as poller:
            poller.open()
            poller.hold()
            settle(board.program.pid)
            gets = board.client.gets()
            with Pollers(board.port, [SHARED_PATH] * polls) as others:
                others.open()
            gets = board.client.gets() - gets
            poller.require_silence()
    return {"gets_per_poll": gets / polls}


def armed(keys: int) -> Figures:
    """The memory that Redis takes for each key that is waited for.

    Raises:
        ContenderError: a client was not kept waiting.
    """
    with Stage() as stage:
        board = RedisBoard(stage)
        stage.on_exit(board.close)
        paths = [f"/poll/k{index}" for index in range(keys)]
        board.fill(paths, BODY)
        with Pollers(board.port, paths, board.transport) as pollers:
            pollers.open()
            settle(board.program.pid)
            before = int(board.client.info("memory")["used_memory"])
            pollers.hold()
            settle(board.program.pid)
            grown = int(board.client.info("memory")["used_memory"]) - before
            pollers.require_silence()
    return {"server_bytes_per_key": grown / keys}


def steps(method: Method) -> list[Step]:
    """A row for each server and way of writing."""
    clients = method.waiting_clients
    shared = [SHARED_PATH] * clients
    ours: tuple[tuple[str, str, Callable[[], Figures]], ...] = (
        ("redis_often", "one poll, 50 writes a second", partial(woken, None, *OFTEN)),
        (
            "redis_seldom",
            "one poll, a write a second",
            partial(woken, None, method.seldom_writes, SELDOM_SECONDS),
        ),
        (
            "redis_stream",
            "one event stream, 50 writes a second",
            partial(woken, EventStreams(), *OFTEN),
        ),
        ("redis_kept", "polls of a key that one waits for", partial(kept, KEPT_POLLS)),
        ("redis_armed", f"{clients:,} long-polls on a key each", partial(armed, clients)),
        (
            "redis_shared",
            f"{clients:,} long-polls on one key",
            partial(held, RedisBoard, shared, method, fan_out=True),
        ),
    )
    steps: list[Step] = [
        (Row(name, f"dwell edge, Redis, {label}", ours=True), step) for name, label, step in ours
    ]
    label = f"nginx with nchan, Redis, {clients:,} long-polls on one channel"
    nchan = partial(held, NchanRedisBoard, shared, method, fan_out=True)
    steps.append((Row("redis_nchan", label, ours=False), nchan))
    label = f"bare loop that tracks (the floor), {clients:,} long-polls on one key"
    floor = partial(held, RedisFloorBoard, shared, method, fan_out=True)
    return [*steps, (Row("redis_floor", label, ours=False), floor)]
