"""SIGUSR2 with idle connections under TLS: what it costs for each, and how long a client waits.

Each process is succeeded by the next one. A client asks for a value again and again over plain
HTTP meanwhile, and the longest time between two of its answers is how long the service stood still.
No peer hands connections under TLS over, so there is none beside it.
"""

import contextlib
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Self

from harness import accounting, http, memcached
from harness.contenders import BODY
from harness.contenders.base import HIT_PATH
from harness.contenders.edge import start_edge
from harness.measure import Method, Row, Sample, Step
from harness.pollers import SOCKET_TIMEOUT_SECONDS, Pollers
from harness.stage import HOST, ContenderError, Stage
from harness.tls import Client, edge_options
from harness.waiting import settle

TITLE = "SIGUSR2 with idle connections under TLS, each of them handed to the next process"
STARTED = re.compile(r"starting another process process=(\d+)")
ENDED = "the process before this one has ended"
REFUSED = re.compile(r"the upgrade is given up|no upgrade: ")
UPGRADES = 3
TAKEN_TIMEOUT_SECONDS = 30.0
LOOK_SECONDS = 0.002
# Longer than anything here takes, so that only an upgrade ends a connection.
PATIENCE = ("--set", "limits.idle_timeout=10m", "--set", "limits.drain_timeout=30s")


class Asker:
    """A client that asks again as soon as it has its answer, in a thread of its own."""

    def __init__(self, port: int) -> None:
        self._connection = socket.create_connection((HOST, port), SOCKET_TIMEOUT_SECONDS)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self._error: ContenderError | OSError | None = None
        self.longest = 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._connection.close()
        if self._error is not None and kind is None:
            raise ContenderError(f"the client that asked was not answered: {self._error}")

    def _ask(self) -> None:
        answered = time.perf_counter()
        try:
            while not self._is_over.is_set():
                self._connection.sendall(http.request(HIT_PATH))
                if http.receive(self._connection).body != BODY:
                    raise ContenderError("another value")
                now = time.perf_counter()
                self.longest, answered = max(self.longest, now - answered), now
        except (ContenderError, OSError) as error:
            self._error = error


def upgraded(method: Method) -> Sample:
    """What some upgrades in a row cost, with clients that are idle under TLS.

    Raises:
        ContenderError: the server did not start, or an upgrade was given up.
    """
    count = method.tls_upgraded
    with Stage() as stage:
        secure_port = stage.free_port()
        options = [*edge_options(stage, secure_port), *PATIENCE]
        edge = start_edge(stage, [], options=options)
        memcached.fill(edge.store_port, [HIT_PATH], BODY)
        with Pollers(secure_port, [HIT_PATH] * count, wrap=Client().wrap) as clients:
            clients.open()
            settle(edge.program.pid)
            served, costs, longest = edge.program.pid, [], 0.0
            for nth in range(UPGRADES):
                with Asker(edge.port) as asker:
                    cost, served = _upgrade(served, nth, edge.program.log.read_text)
                stage.on_exit(partial(_end, served))
                costs.append(cost)
                longest = max(longest, asker.longest)
            lost = clients.disturbed()
    seconds, cpu = (sum(figures) / UPGRADES for figures in zip(*costs, strict=True))
    return {
        "handed": count,
        "lost": lost,
        "upgrade_ms": seconds * 1e3,
        "us_per_connection": seconds / count * 1e6,
        "cpu_us_per_connection": cpu / count * 1e6,
        "stall_ms": longest * 1e3,
    }


def _upgrade(pid: int, nth: int, log: Callable[[], str]) -> tuple[tuple[float, float], int]:
    """Seconds and CPU of one upgrade, up to the end of the process before, and the next one."""
    before, began = accounting.process_cpu_seconds(pid), time.perf_counter()
    spent = before
    os.kill(pid, signal.SIGUSR2)
    give_up = began + TAKEN_TIMEOUT_SECONDS
    while (text := log()).count(ENDED) <= nth:
        if REFUSED.search(text) or time.perf_counter() > give_up:
            raise ContenderError(f"no upgrade: {text[-300:]}")
        spent = max(spent, accounting.process_cpu_seconds(pid))
        time.sleep(LOOK_SECONDS)
    seconds = time.perf_counter() - began
    successor = int(STARTED.findall(text)[nth])
    cpu = spent - before + accounting.process_cpu_seconds(successor)
    return (seconds, cpu), successor


def _end(pid: int) -> None:
    """Ends a process that is nobody's child here."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def steps(method: Method) -> list[Step]:
    """The row of the edge."""
    label = "dwell edge, SIGUSR2, idle connections under TLS"
    return [(Row("tls_upgrade_edge", label, ours=True), partial(upgraded, method))]
