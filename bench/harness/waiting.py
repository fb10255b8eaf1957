"""What waiting clients cost: memory each, CPU while nothing happens, and one wake-up of all."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from harness import accounting
from harness.boards import Board, EdgeBoard, FloorBoard, NchanBoard
from harness.contenders import Contender
from harness.contenders.edge import start_edge
from harness.measure import Method, Row, Step
from harness.pollers import Pollers
from harness.stage import Stage
from harness.transports import EventStreams, Transport, WebSockets

VALUE = b"Hello, World!"
WARM_PATH = "/poll/warm"
SHARED_PATH = "/poll/shared"
SETTLE_STEP_SECONDS = 0.25
SETTLE_STEPS_MAX = 20
SETTLED_CPU_SECONDS = 0.001
FAN_OUT_TIMEOUT_SECONDS = 20.0
NOTHING_ARMED = "nothing_armed"
# The dashboard takes a reading every 10 s until two are equal, and the first has the start in it.
HISTORY_RESTS_SECONDS = 21

Figures = dict[str, Any]


@dataclass(frozen=True)
class Crowd:
    """Clients that wait in one way, on a key each or all on one.

    Attributes:
        transport: None for long-polls, in the way of the board.
        is_shared: all on one key, and the time is taken that one write needs to reach them.
    """

    name: str
    label: str
    board: type[EdgeBoard | FloorBoard | NchanBoard]
    transport: Transport | None
    is_shared: bool


CROWDS = (
    Crowd("held_distinct", "dwell edge, long-polls on a key each", EdgeBoard, None, False),
    Crowd("held_floor", "bare loop of sends (the floor), long-polls", FloorBoard, None, True),
    Crowd("held_shared", "dwell edge, long-polls on one key", EdgeBoard, None, True),
    Crowd("held_nchan", "nginx with nchan, long-polls on one channel", NchanBoard, None, True),
    Crowd(
        "streams_distinct",
        "dwell edge, event streams on a key each",
        EdgeBoard,
        EventStreams(),
        False,
    ),
    Crowd(
        "streams_shared", "dwell edge, event streams on one key", EdgeBoard, EventStreams(), True
    ),
    Crowd(
        "streams_nchan",
        "nginx with nchan, event streams on one channel",
        NchanBoard,
        EventStreams(),
        True,
    ),
    Crowd(
        "websockets_distinct",
        "dwell edge, WebSockets on a key each",
        EdgeBoard,
        WebSockets(),
        False,
    ),
    Crowd("websockets_shared", "dwell edge, WebSockets on one key", EdgeBoard, WebSockets(), True),
)


def settle(pid: int) -> None:
    """Waits until the server has nothing left to do, for at most 5 s."""
    before = accounting.fine_cpu_seconds(pid)
    for _ in range(SETTLE_STEPS_MAX):
        time.sleep(SETTLE_STEP_SECONDS)
        now = accounting.fine_cpu_seconds(pid)
        if now - before < SETTLED_CPU_SECONDS:
            return
        before = now


def idle_connections(contender: Contender, method: Method) -> Figures:
    """User memory per keep-alive connection that has had one answer and waits for its next request.

    Raises:
        ContenderError: it did not start, answer, or keep all connections open.
    """
    with Stage() as stage:
        running = contender.start(stage)
        pid = running.program.pid
        with Pollers(running.port, [running.path]) as first:
            first.open()
        settle(pid)
        before = accounting.user_bytes(pid)
        with Pollers(running.port, [running.path] * method.waiting_clients) as clients:
            clients.open()
            settle(pid)
            grown = accounting.user_bytes(pid) - before
            clients.require_silence()
    return {"bytes_per_connection": grown / method.waiting_clients}


def held(
    make_board: Callable[[Stage], Board], paths: Sequence[str], method: Method, *, fan_out: bool
) -> Figures:
    """Memory, threads and idle CPU of a server that keeps one client waiting per path.

    With `fan_out`, also how long one write takes to reach them all; the paths are then the same.

    Raises:
        ContenderError: the server did not start, or did not keep everybody waiting.
    """
    with Stage() as stage:
        board = make_board(stage)
        stage.on_exit(board.close)
        pid = board.program.pid
        board.fill({*paths, WARM_PATH}, VALUE)
        _one_whole_wait(board)
        settle(pid)
        memory = accounting.user_bytes(pid)
        threads = accounting.thread_count(pid)
        with Pollers(board.port, paths, board.transport, board.wrap) as clients:
            clients.open()
            clients.hold()
            settle(pid)
            figures = {
                "bytes_per_client": (accounting.user_bytes(pid) - memory) / len(paths),
                "extra_threads": accounting.thread_count(pid) - threads,
                **idle_cost(pid, method.idle_seconds),
            }
            clients.require_silence()
            if fan_out:
                figures |= _fan_out(board, clients, paths[0], len(paths), method.fan_out_rounds)
    return figures


def idle_cost(pid: int, seconds: float) -> Figures:
    """CPU (percent of a core) and wake-ups per second of a process left alone for a time."""
    cpu, wakeups, start = (
        accounting.fine_cpu_seconds(pid),
        accounting.wakeups(pid),
        time.monotonic(),
    )
    time.sleep(seconds)
    cpu = accounting.fine_cpu_seconds(pid) - cpu
    wakeups = accounting.wakeups(pid) - wakeups
    elapsed = time.monotonic() - start
    return {"idle_cpu_percent": 100 * cpu / elapsed, "wakeups_per_second": wakeups / elapsed}


def nothing_armed(method: Method) -> Figures:
    """CPU and wake-ups of an edge nobody has talked to."""
    with Stage() as stage:
        pid = start_edge(stage, []).program.pid
        time.sleep(HISTORY_RESTS_SECONDS)
        return idle_cost(pid, method.idle_seconds)


def _one_whole_wait(board: Board) -> None:
    """One poll held and woken, so that what is made once is made before memory is counted."""
    with Pollers(board.port, [WARM_PATH], board.transport, board.wrap) as one:
        one.open()
        one.hold()
        settle(board.program.pid)
        board.fill([WARM_PATH], b"woken")
        one.take_answers(b"woken")


def _fan_out(board: Board, clients: Pollers, path: str, waiting: int, rounds: int) -> Figures:
    """One write to one key with everybody waiting for it, several times over."""
    samples = [_fan_out_sample(board, clients, path, waiting, number) for number in range(rounds)]
    medians = {
        f"fan_out_{name}": statistics.median(sample[name] for sample in samples)
        for name in samples[0]
    }
    return {**medians, "fan_out_samples": samples}


def _fan_out_sample(
    board: Board, clients: Pollers, path: str, waiting: int, number: int
) -> dict[str, float]:
    pid = board.program.pid
    value = f"version {number:05}".encode()
    clients.require_silence()
    arrivals = clients.arrivals()
    cpu = accounting.fine_cpu_seconds(pid)
    start = time.monotonic()
    board.begin_write(path, value)
    first, last = arrivals.wait_all(FAN_OUT_TIMEOUT_SECONDS)
    board.finish_write(path)
    arrivals.close()
    settle(pid)
    cpu = accounting.fine_cpu_seconds(pid) - cpu
    clients.take_answers(value)
    clients.hold()
    settle(pid)
    return {
        "first_ms": (first - start) * 1e3,
        "last_ms": (last - start) * 1e3,
        "cpu_us_per_waiter": cpu / waiting * 1e6,
    }


def idle_steps(contenders: Sequence[Contender], method: Method) -> list[Step]:
    """A row for each server that holds connections between two requests."""
    return [
        (
            Row(f"idle_{contender.name}", contender.label, contender.ours),
            partial(idle_connections, contender, method),
        )
        for contender in contenders
    ]


def held_steps(method: Method) -> list[Step]:
    """A row for each server and way of waiting."""
    steps: list[Step] = []
    for crowd in CROWDS:
        paths = [SHARED_PATH] * method.waiting_clients
        if not crowd.is_shared:
            paths = [f"/poll/k{index}" for index in range(method.waiting_clients)]
        row = Row(crowd.name, crowd.label, crowd.board is EdgeBoard)
        make_board = partial(crowd.board, transport=crowd.transport)
        steps.append((row, partial(held, make_board, paths, method, fan_out=crowd.is_shared)))
    row = Row(NOTHING_ARMED, "dwell edge, nobody connected", ours=True)
    return [*steps, (row, partial(nothing_armed, method))]


def names(contenders: Sequence[Contender]) -> list[str]:
    """The rows of both tables."""
    idle = [f"idle_{contender.name}" for contender in contenders]
    return [*idle, *(crowd.name for crowd in CROWDS), NOTHING_ARMED]
