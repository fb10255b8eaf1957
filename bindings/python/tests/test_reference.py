"""Programs written for cymongoose: the same text, with another import.

Each program is a function of the package it runs on, and returns what its client saw. Where
cymongoose is installed they run on it too, and where it does what its documentation says, the same
has to come of them.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import multiprocessing
import socket
import threading
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

import dwell

REFERENCE = "cymongoose"


def polled(manager: Any, client: Callable[[], Any]) -> Any:
    """Runs a client in a thread while the manager is polled."""
    seen = []
    thread = threading.Thread(target=lambda: seen.append(client()))
    thread.start()
    while thread.is_alive():
        manager.poll(10)
    thread.join()
    manager.close()
    return seen[0]


def fetch(port: int, path: str, data: bytes | None = None) -> tuple[int, bytes, str | None]:
    """A request by the standard library."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", data, 10) as answer:
        return answer.status, answer.read(), answer.headers["Content-Type"]


def receive(sock: socket.socket, end: bytes) -> bytes:
    """Everything up to `end`."""
    data = b""
    while end not in data:
        piece = sock.recv(4096)
        if not piece:
            break
        data += piece
    return data


def rest_service(m: Any) -> Any:
    """Routes, JSON, query variables, posted bodies."""
    items: dict[str, str] = {}

    def handler(conn, ev, data):
        if ev == m.MG_EV_HTTP_MSG:
            if data.uri == "/items" and data.method == "POST":
                item = json.loads(data.body_text)
                items[item["name"]] = item["value"]
                conn.reply_json({"stored": item["name"]}, status_code=201)
            elif data.uri == "/item":
                conn.reply_json({"value": items.get(data.query_var("name"))})
            elif data.uri == "/agent":
                conn.reply(200, data.header("X-Missing", "nobody"), {"Content-Type": "text/x"})
            else:
                conn.reply(200, f"{data.method} {data.uri} {data.query}")

    manager = m.Manager(handler)
    listener = manager.listen("http://127.0.0.1:0")
    port = listener.local_addr[1]

    def client():
        posted = json.dumps({"name": "a b", "value": "1"}).encode()
        return [
            fetch(port, "/items", posted)[:2],
            fetch(port, "/item?name=a%20b")[:2],
            fetch(port, "/agent"),
            fetch(port, "/x/y?z=1")[:2],
        ]

    return polled(manager, client)


def websocket_echo(m: Any) -> Any:
    """An upgrade, messages, and a broadcast from a timer."""
    clients = []

    def handler(conn, ev, data):
        if ev == m.MG_EV_HTTP_MSG:
            conn.ws_upgrade(data)
        elif ev == m.MG_EV_WS_OPEN:
            clients.append(conn)
        elif ev == m.MG_EV_WS_MSG:
            conn.ws_send("echo: " + data.text, m.WEBSOCKET_OP_TEXT)
        elif ev == m.MG_EV_CLOSE and conn in clients:
            clients.remove(conn)

    def tick():
        for conn in clients:
            conn.ws_send(b"tick", m.WEBSOCKET_OP_BINARY)

    manager = m.Manager(handler)
    listener = manager.listen("http://127.0.0.1:0")
    port = listener.local_addr[1]

    def client():
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.sendall(
                b"GET /ws HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            )
            head = receive(sock, b"\r\n\r\n")
            sock.sendall(b"\x81\x82\0\0\0\0hi")
            echo = receive(sock, b"hi")
            manager.wakeup(listener.id, b"tick")
            return b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head, echo

    seen = polled(manager, client)
    tick()
    return seen


def event_stream(m: Any) -> Any:
    """Server-sent events in chunks, begun by bytes."""

    def handler(conn, ev, data):
        if ev == m.MG_EV_HTTP_MSG:
            conn.send(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n"
            )
            conn.http_sse("news", "first")
            conn.http_chunk("data: second\n\n")
            conn.http_chunk("")

    manager = m.Manager(handler)
    port = manager.listen("http://127.0.0.1:0").local_addr[1]
    return polled(manager, lambda: fetch(port, "/"))


def timers_and_wakeups(m: Any) -> Any:
    """Timers of every kind, and wake-ups from a thread, which a listener is told."""
    seen = []
    done = threading.Event()

    def handler(conn, ev, data):
        if ev == m.MG_EV_WAKEUP:
            seen.append(("woken", data, conn is listener))
            done.set()

    manager = m.Manager(handler, enable_wakeup=True)
    listener = manager.listen("tcp://127.0.0.1:0")
    timer = manager.timer_add(1, lambda: seen.append("never"), repeat=True)
    timer.cancel()
    manager.timer_add(5, lambda: seen.append("once"))
    manager.timer_add(60_000, lambda: seen.append("now"), repeat=True, run_now=True)

    def client():
        assert manager.wakeup(listener.id, b"from a thread")
        done.wait()
        return

    polled_once = threading.Event()
    thread = threading.Thread(target=lambda: (polled_once.wait(), client()))
    thread.start()
    while thread.is_alive() or "once" not in seen:
        manager.poll(5)
        polled_once.set()
    manager.close()
    return sorted(map(str, seen))


def answers_from_threads(m: Any) -> Any:
    """Work in threads, whose results come back by wake-ups."""

    def handler(conn, ev, data):
        if ev == m.MG_EV_HTTP_MSG:
            number, uri = conn.id, data.uri
            threading.Thread(target=lambda: manager.wakeup(number, f"did {uri}".encode())).start()
        elif ev == m.MG_EV_WAKEUP:
            conn.reply(200, data)

    manager = m.Manager(handler, enable_wakeup=True)
    port = manager.listen("http://127.0.0.1:0").local_addr[1]
    return polled(manager, lambda: [fetch(port, f"/{n}")[:2] for n in range(5)])


def state_on_connections(m: Any) -> Any:
    """User data, handlers of listeners, and what is left of a closed connection."""
    kept = []

    def counting(conn, ev, data):
        if ev == m.MG_EV_ACCEPT:
            conn.userdata = {"requests": 0}
        elif ev == m.MG_EV_HTTP_MSG:
            conn.userdata["requests"] += 1
            kept.append((conn, data))
            conn.reply(200, str(conn.userdata["requests"]), {"X-Id": "1"})

    manager = m.Manager()
    listener = manager.listen("http://127.0.0.1:0", handler=counting)
    port = listener.local_addr[1]

    def client():
        seen = []
        with socket.create_connection(("127.0.0.1", port)) as sock:
            for number in (b"1", b"2"):
                sock.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
                seen.append(receive(sock, b"\r\n\r\n" + number)[-1:])
        return seen

    seen = polled(manager, client)
    conn, message = kept[-1]
    try:
        conn.send("too late")
    except RuntimeError as error:
        seen.append("closed" in str(error))
    return [*seen, conn.id, conn.is_closing, bool(message), message.uri, message.headers()]


def bad_input(m: Any) -> Any:
    """Headers that would split an answer, and ports that are taken."""
    refused = []

    def handler(conn, ev, data):
        if ev == m.MG_EV_HTTP_MSG:
            for headers in ({"A\r\nB": "x"}, {"A": "x\r\nB: y"}):
                try:
                    conn.reply(200, "", headers)
                except ValueError as error:
                    refused.append("contains illegal character" in str(error))
            conn.reply(200, "fine")

    errors = []
    manager = m.Manager(handler, error_handler=errors.append)
    port = manager.listen("http://127.0.0.1:0").local_addr[1]
    try:
        manager.listen(f"http://127.0.0.1:{port}")
    except RuntimeError as error:
        refused.append(str(error).startswith("Failed to listen on 'http://127.0.0.1:"))
    seen = polled(manager, lambda: fetch(port, "/")[:2])
    for call in (
        lambda: manager.poll(0),
        lambda: manager.wakeup(1),
        lambda: manager.timer_add(1, int),
    ):
        try:
            call()
        except RuntimeError as error:
            refused.append(str(error))
    return seen, refused, errors


PROGRAMS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "rest_service": (
        rest_service,
        [
            (201, b'{"stored": "a b"}'),
            (200, b'{"value": "1"}'),
            (200, b"nobody", "text/x"),
            (200, b"GET /x/y z=1"),
        ],
    ),
    "websocket_echo": (websocket_echo, (True, b"\x81\x08echo: hi")),
    "event_stream": (
        event_stream,
        (200, b"event: news\ndata: first\n\ndata: second\n\n", "text/event-stream"),
    ),
    "timers_and_wakeups": (
        timers_and_wakeups,
        ["('woken', b'from a thread', True)", "now", "once"],
    ),
    "answers_from_threads": (
        answers_from_threads,
        [(200, f"did /{n}".encode()) for n in range(5)],
    ),
    "state_on_connections": (state_on_connections, [b"1", b"2", True, 0, True, False, "", []]),
    "bad_input": (
        bad_input,
        ((200, b"fine"), [True, True, True, *["Manager has been freed"] * 3], []),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_on_dwell(name):
    program, expected = PROGRAMS[name]
    assert program(dwell) == expected


def run_on_reference(name: str, results: Any) -> None:
    """Runs in a process of its own, as the reference may take that with it."""
    results.put(PROGRAMS[name][0](importlib.import_module(REFERENCE)))


@pytest.mark.skipif(not importlib.util.find_spec(REFERENCE), reason="cymongoose is not installed")
@pytest.mark.parametrize("name", PROGRAMS)
def test_on_the_reference(name):
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    process = context.Process(target=run_on_reference, args=(name, results))
    process.start()
    try:
        assert results.get(timeout=30) == PROGRAMS[name][1]
    finally:
        process.terminate()
        process.join()


@pytest.mark.skipif(not importlib.util.find_spec(REFERENCE), reason="cymongoose is not installed")
def test_every_name_of_the_reference_is_there():
    reference = importlib.import_module(REFERENCE)
    names = {name for name in dir(reference) if not name.startswith("_")} - {"aio"}
    assert names <= set(dir(dwell))
    for kind in ("Manager", "Connection", "HttpMessage", "WsMessage", "Timer", "AsyncManager"):
        theirs = {name for name in dir(getattr(reference, kind)) if not name.startswith("_")}
        assert theirs - {"mqtt_connect", "mqtt_listen", "sntp_connect"} <= set(
            dir(getattr(dwell, kind))
        ), kind
    for name in names:
        value = getattr(reference, name)
        if isinstance(value, int):
            assert getattr(dwell, name) == value, name
