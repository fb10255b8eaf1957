"""Measures what the timeout of `Manager.poll` changes, on this machine.

    python -m dwell.bench poll-timeout
    python -m dwell.bench poll-timeout --package cymongoose

For each timeout a server is started as `while not stopped: manager.poll(timeout)`, and asked for
requests a second over several connections, the latency of one client, its CPU time while nobody
asks, how soon a signal ends it, how late a timer is and how long a wake-up takes.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import selectors
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

TIMEOUTS_MS = (0, 50, 100, 500, 1000, 5000)
CONNECTIONS = 32
TIMER_MS = 20
WAKEUPS = 50
SHUTDOWNS = 3
REQUEST = b"GET / HTTP/1.1\r\nHost: bench\r\n\r\n"
PATIENCE_S = 30


@dataclass
class Figures:
    """What was measured with one timeout."""

    timeout_ms: int
    requests_per_s: float
    latency_p50_us: float
    latency_p99_us: float
    idle_cpu_percent: float
    shutdown_ms: float
    timer_late_ms: float
    wakeup_us: float


COLUMNS = {
    "timeout_ms": ("poll(ms)", "{:.0f}"),
    "requests_per_s": ("requests/s", "{:,.0f}"),
    "latency_p50_us": ("latency p50 (µs)", "{:.0f}"),
    "latency_p99_us": ("p99 (µs)", "{:.0f}"),
    "idle_cpu_percent": ("idle CPU (%)", "{:.2f}"),
    "shutdown_ms": ("signal to end of loop (ms)", "{:.1f}"),
    "timer_late_ms": (f"{TIMER_MS} ms timer late by (ms)", "{:.1f}"),
    "wakeup_us": ("wake-up to handler (µs)", "{:.0f}"),
}


def serve(package: str, timeout_ms: int) -> None:
    """The server that is measured; prints its port, and ends by SIGTERM."""
    m: Any = importlib.import_module(package)
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    woken: list[float] = []

    def handler(conn: Any, event: int, data: Any) -> None:
        if event == m.MG_EV_HTTP_MSG:
            conn.reply(200, extras[data.uri]() if data.uri in extras else b"Hello, World!")
        elif event == m.MG_EV_WAKEUP:
            woken.append(time.perf_counter() - float(data))

    def wake() -> None:
        # Spread over time, so that most of them find the manager waiting.
        for _ in range(WAKEUPS):
            time.sleep(0.005)
            manager.wakeup(listener.id, repr(time.perf_counter()).encode())

    def start_wakeups() -> str:
        threading.Thread(target=wake, daemon=True).start()
        return "started"

    def start_timer() -> str:
        rung.clear()
        due = time.perf_counter() + TIMER_MS / 1000
        manager.timer_add(TIMER_MS, lambda: rung.append(time.perf_counter() - due))
        return "started"

    rung: list[float] = []
    extras: dict[str, Callable[[], str]] = {
        "/cpu": lambda: repr(time.process_time()),
        "/timer": start_timer,
        "/rung": lambda: json.dumps(rung),
        "/wakeups": start_wakeups,
        "/woken": lambda: json.dumps(woken),
    }
    manager = m.Manager(handler, enable_wakeup=True)
    listener = manager.listen("http://127.0.0.1:0")
    print(listener.local_addr[1], flush=True)
    while not stopped:
        manager.poll(timeout_ms)
    print("stopped", flush=True)
    manager.close()


class Client:
    """A client with one connection at a time, kept for as long as the server keeps it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.socket = self._connected()

    def _connected(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE_S)

    def ask(self, target: str = "/") -> bytes:
        """The body of the answer to a GET."""
        self.socket.sendall(REQUEST.replace(b"/", target.encode(), 1))
        answer = b""
        while True:
            piece = self.socket.recv(1 << 16)
            if not piece:
                raise ConnectionError(f"the server closed the connection at {target}: {answer!r}")
            answer += piece
            head, end, body = answer.partition(b"\r\n\r\n")
            if end and len(body) >= length_of(head):
                if b"\r\nconnection: close" in head.lower():
                    # A connection has so many answers and no more.
                    self.socket.close()
                    self.socket = self._connected()
                return body


def length_of(head: bytes) -> int:
    """The Content-Length of an answer's head."""
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


def throughput(port: int, seconds: float) -> float:
    """Answers a second to connections that each ask again when they have their answer."""
    selector = selectors.DefaultSelector()
    by_number = {}
    clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(CONNECTIONS)]
    for client in clients:
        selector.register(client, selectors.EVENT_READ)
        by_number[client.fileno()] = client
        client.sendall(REQUEST)
    answers, began = 0, time.perf_counter()
    while (now := time.perf_counter()) - began < seconds:
        for key, _ in selector.select(1):
            client = by_number[key.fd]
            if client.recv(4096):
                answers += 1
                client.sendall(REQUEST)
    for client in clients:
        client.close()
    selector.close()
    return answers / (now - began)


def latencies(client: Client, seconds: float) -> tuple[float, float]:
    """The median and the 99th percentile of one client's waits, in microseconds."""
    waits: list[float] = []
    end = time.perf_counter() + seconds
    while (began := time.perf_counter()) < end:
        client.ask()
        waits.append(time.perf_counter() - began)
    waits.sort()
    return statistics.median(waits) * 1e6, waits[len(waits) * 99 // 100] * 1e6


def start(package: str, timeout_ms: int) -> tuple[subprocess.Popen[str], int]:
    """Starts a server; its process and port."""
    command = [sys.executable, "-m", "dwell.bench", "serve", package, str(timeout_ms)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    return server, int(server.stdout.readline())


def stop(server: subprocess.Popen[str]) -> float:
    """Ends a server; the milliseconds until its loop had ended."""
    assert server.stdout is not None
    began = time.perf_counter()
    server.send_signal(signal.SIGTERM)
    # What the interpreter does on its way out is not the poll's.
    server.stdout.readline()
    took = time.perf_counter() - began
    server.wait(PATIENCE_S)
    return took * 1e3


def measure(package: str, timeout_ms: int, seconds: float) -> Figures:
    """All figures for one timeout."""
    server, port = start(package, timeout_ms)
    try:
        client = Client(port)
        latencies(client, seconds / 10)
        rate = throughput(port, seconds)
        p50, p99 = latencies(client, seconds)
        before = float(client.ask("/cpu"))
        began = time.perf_counter()
        time.sleep(seconds)
        idle = time.perf_counter() - began
        cpu = float(client.ask("/cpu")) - before
        client.ask("/timer")
        # Nobody speaks to the server meanwhile, so only the timer can end its wait.
        time.sleep(timeout_ms / 1000 + 2 * TIMER_MS / 1000 + 0.1)
        rung = json.loads(client.ask("/rung"))
        client.ask("/wakeups")
        time.sleep(WAKEUPS * 0.005 + 0.2)
        woken = json.loads(client.ask("/woken"))
        shutdowns = [stop(server)]
    finally:
        server.kill()
        server.wait()
    for _ in range(SHUTDOWNS - 1):
        server, _ = start(package, timeout_ms)
        time.sleep(0.2)
        shutdowns.append(stop(server))
    return Figures(
        timeout_ms=timeout_ms,
        requests_per_s=rate,
        latency_p50_us=p50,
        latency_p99_us=p99,
        idle_cpu_percent=100 * cpu / idle,
        shutdown_ms=statistics.median(shutdowns),
        timer_late_ms=rung[0] * 1e3 if rung else float("nan"),
        wakeup_us=statistics.median(woken) * 1e6 if woken else float("nan"),
    )


def table(rows: Sequence[Figures]) -> str:
    """The figures as a table in Markdown."""
    lines = [
        "| " + " | ".join(head for head, _ in COLUMNS.values()) + " |",
        "|" + "---:|" * len(COLUMNS),
    ]
    for row in rows:
        values = asdict(row)
        cells = [form.format(values[name]) for name, (_, form) in COLUMNS.items()]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def plot(series: dict[str, Sequence[Figures]]) -> str:
    """The figures as a picture in SVG: a panel for each, a bar for each timeout and package."""
    panels = [name for name in COLUMNS if name not in ("timeout_ms", "latency_p99_us")]
    width, height, left = 640, 120, 10
    colours = ("#1d6f8a", "#d1893b")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" '
        f'height="{height * len(panels) + 30}" font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for place, package in enumerate(series):
        x = left + 140 * place
        parts.append(f'<rect x="{x}" y="8" width="10" height="10" fill="{colours[place % 2]}"/>')
        parts.append(f'<text x="{x + 14}" y="17">{package}</text>')
    for panel, name in enumerate(panels):
        top = 30 + panel * height
        head, form = COLUMNS[name]
        most = max(getattr(row, name) for rows in series.values() for row in rows) or 1.0
        parts.append(f'<text x="{left}" y="{top + 12}" font-weight="bold">{head}</text>')
        for place, rows in enumerate(series.values()):
            for column, row in enumerate(rows):
                value = getattr(row, name)
                bar = max(1.0, 70 * value / most)
                x = left + column * 104 + place * 44
                parts.append(
                    f'<rect x="{x}" y="{top + 98 - bar:.1f}" width="36" height="{bar:.1f}" '
                    f'fill="{colours[place % 2]}"/>'
                    f'<text x="{x}" y="{top + 94 - bar:.1f}">{form.format(value)}</text>'
                )
                if place == 0:
                    parts.append(
                        f'<text x="{x}" y="{top + 110}" fill="#555">{row.timeout_ms} ms</text>'
                    )
    return "\n".join([*parts, "</svg>\n"])


def run(arguments: argparse.Namespace) -> int:
    """Measures, prints the tables, and keeps what was asked for."""
    series: dict[str, Sequence[Figures]] = {}
    for package in arguments.package or ["dwell"]:
        rows: list[Figures] = []
        for timeout_ms in arguments.timeouts:
            print(f"{package}: poll({timeout_ms}) ...", file=sys.stderr)
            rows.append(measure(package, timeout_ms, arguments.seconds))
        series[package] = rows
        print(f"\n{package}\n\n{table(rows)}\n")
    system = (
        f"{platform.python_implementation()} {platform.python_version()}, {os.cpu_count()} cores"
    )
    print(system)
    if arguments.json:
        kept = {package: [asdict(row) for row in rows] for package, rows in series.items()}
        arguments.json.write_text(json.dumps({"system": system, "series": kept}, indent=1) + "\n")
    if arguments.svg:
        arguments.svg.write_text(plot(series))
    return 0


def run_server(arguments: argparse.Namespace) -> int:
    """Serves until a signal comes."""
    serve(arguments.package, arguments.timeout_ms)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m dwell.bench", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(required=True)
    poll = commands.add_parser("poll-timeout", help="what the timeout of a poll changes")
    poll.add_argument("--package", action="append", help="one that is installed; dwell by default")
    poll.add_argument("--seconds", type=float, default=3.0, help="for each figure (default 3)")
    poll.add_argument(
        "--timeouts",
        type=lambda text: [int(part) for part in text.split(",")],
        default=list(TIMEOUTS_MS),
        help="milliseconds, separated by commas",
    )
    poll.add_argument("--json", type=Path, help="a file for the figures")
    poll.add_argument("--svg", type=Path, help="a file for a plot")
    poll.set_defaults(run=run)
    server = commands.add_parser("serve", help="the server that is measured")
    server.add_argument("package")
    server.add_argument("timeout_ms", type=int)
    server.set_defaults(run=run_server)
    given = parser.parse_args(arguments)
    return int(given.run(given))


if __name__ == "__main__":
    sys.exit(main())
