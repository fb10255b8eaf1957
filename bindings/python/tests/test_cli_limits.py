"""Bounds of ``python -m dwell`` on requests, its log of them, and early hints."""

from __future__ import annotations

import asyncio
import re
import signal
import threading
from typing import Any

import pytest

from dwell import asgi
from programs import Start
from servers import RunAsgi, RunWsgi, respond, text, wire
from wire import Wire


@pytest.mark.parametrize("module", ["web", "aweb"])
@pytest.mark.parametrize("workers", [[], ["--workers", "2"]])
def test_a_worker_is_replaced_after_its_requests(
    start: Start, module: str, workers: list[str]
) -> None:
    program = start(module, "--port", "0", "--limit-max-requests", "3", *workers)
    address = program.address()
    seen: dict[str, int] = {}
    # Nobody is refused, and no worker goes on for long.
    while len(seen) < 4:
        with Wire(address) as client:
            answer = client.ask("GET /", "Connection: close")
        assert answer.status == 200
        pid = str(answer.header("X-Pid"))
        seen[pid] = seen.get(pid, 0) + 1
    assert max(seen.values()) >= 3
    program.send(signal.SIGTERM)
    assert program.end() == 0
    assert not any("another one is started" in line for line in program.seen)


def test_concurrency_of_asgi(run_asgi: RunAsgi) -> None:
    gates: list[Any] = []
    entered = threading.Semaphore(0)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/hold":
            gates.append(asyncio.Event())
            entered.release()
            await gates[-1].wait()
        await respond(send, b"done")

    running = run_asgi(app, lifespan="off", limit_concurrency=2)
    with running.wire() as one, running.wire() as two, running.wire() as three:
        one.request("GET /hold")
        two.request("GET /hold")
        assert entered.acquire(timeout=30)
        assert entered.acquire(timeout=30)
        answer = three.ask("GET /")
        assert (answer.status, answer.header("Retry-After")) == (503, "1")
        running.loop.call_soon_threadsafe(gates[0].set)
        assert one.answer().body == b"done"
        assert three.ask("GET /").status == 200


def test_concurrency_of_wsgi(run_wsgi: RunWsgi) -> None:
    gate, entered = threading.Event(), threading.Semaphore(0)

    def app(environ: Any, start: Any) -> Any:
        if environ["PATH_INFO"] == "/hold":
            entered.release()
            gate.wait(30)
        return text(start, b"done")

    server = run_wsgi(app, threads=4, limit_concurrency=2)
    with wire(server) as one, wire(server) as two, wire(server) as three:
        one.request("GET /hold")
        two.request("GET /hold")
        assert entered.acquire(timeout=30)
        assert entered.acquire(timeout=30)
        answer = three.ask("GET /")
        assert (answer.status, answer.header("Retry-After")) == (503, "1")
        gate.set()
        assert one.answer().body == b"done"
        assert two.answer().body == b"done"
        # A thread is idle a moment after its answer.
        while three.ask("GET /").status == 503:
            pass


FORMAT = '%(h)s %(l)s %(u)s %(t)s "%(r)s" %(s)s %(b)s "%(f)s" "%(a)s" %(m)s %(U)s %(q)s %(L)s %%'
LINE = (
    r'127\.0\.0\.1 - ann \[\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d \+0000\] "GET /path\?x=1 '
    r'HTTP/1\.1" 200 (4|16) "-" "test \\" agent" GET /path x=1 \d+\.\d{6} %'
)


@pytest.mark.parametrize("module", ["web", "aweb"])
def test_the_format_of_the_access_log(start: Start, module: str) -> None:
    program = start(module, "--port", "0", "--access-log-format", FORMAT)
    with Wire(program.address()) as client:
        client.ask("GET /path?x=1", 'User-Agent: test " agent', "Authorization: Basic YW5uOng=")
    assert re.fullmatch(LINE, program.wait_for("/path"))


def test_parts_of_the_access_log(start: Start) -> None:
    parts = "%(T)d %(M)d %(D)s %(p)s %(B)s %(H)s %({x-request-id}i)s"
    program = start("aweb", "--port", "0", "--access-log-format", "line: " + parts)
    with Wire(program.address()) as client:
        client.ask("GET /", "X-Request-Id: 77")
    line = program.wait_for("line: ")
    pid = program.process.pid
    assert re.fullmatch(rf"line: 0 \d+ \d+ <{pid}> 4 HTTP/1\.1 77", line)


@pytest.mark.parametrize("wrong", ["%(z)s", "%h", "%(h)x", "%({x}o)s"])
def test_a_wrong_format_of_the_access_log(start: Start, wrong: str) -> None:
    program = start("web", "--port", "0", "--access-log-format", wrong)
    assert program.end() == 1
    assert "access_log_format has no such part" in "\n".join(program.seen)


LINKS = ("</style.css>; rel=preload; as=style", "</app.js>; rel=preload; as=script")


def hinted(client: Wire) -> None:
    """Checks the hints of an answer, and the answer behind them."""
    hint = client.head()
    assert hint.status == 103
    assert hint.all("Link") == list(LINKS)
    assert client.answer().body == b"done"


def test_early_hints_of_asgi(run_asgi: RunAsgi) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert "http.response.early_hint" in scope["extensions"]
        message = {
            "type": "http.response.early_hint",
            "links": [link.encode() for link in LINKS],
        }
        await send(message)
        await respond(send, b"done")
        with pytest.raises(RuntimeError, match="early_hint"):
            await send(message)

    running = run_asgi(app, lifespan="off")
    with running.wire() as client:
        for _ in range(2):
            client.request("GET /")
            hinted(client)
        # HTTP/1.0 has no answers before the answer.
        client.send(b"GET / HTTP/1.0\r\n\r\n")
        assert client.head().status == 200


def test_early_hints_of_wsgi(run_wsgi: RunWsgi) -> None:
    kept: list[Any] = []

    def app(environ: Any, start: Any) -> Any:
        hints = environ["wsgi.early_hints"]
        hints([("Link", link) for link in LINKS])
        with pytest.raises(ValueError, match="header value is not allowed"):
            hints([("Link", "a\r\nb: c")])
        kept.append(hints)
        return text(start, b"done")

    server = run_wsgi(app)
    with wire(server) as client:
        for _ in range(2):
            client.request("GET /")
            hinted(client)
    # Another thread has no request of its own.
    with pytest.raises(RuntimeError, match="by the thread of the request"):
        kept[0]([])


@pytest.mark.parametrize("name", ["limit_concurrency"])
def test_bounds_that_are_out_of_range(run_wsgi: RunWsgi, name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is out of range: 0"):
        run_wsgi(lambda environ, start: [], **{name: 0})


def test_a_number_of_requests_that_is_out_of_range(start: Start) -> None:
    program = start("web", "--port", "0", "--limit-max-requests", "0")
    assert program.end() == 1
    assert "limit_max_requests is out of range: 0" in program.seen[-1]


def test_idle_clients_are_closed_though_timers_are_early() -> None:
    """As those of uvloop, which counts in milliseconds."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await respond(send, b"done")

    async def main() -> None:
        url = "http://127.0.0.1:0"
        async with asgi.Server(app, url, lifespan="off", keep_alive_timeout=0.3) as server:
            for _ in range(8):
                reader, writer = await asyncio.open_connection(*server.addresses[0])
                writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                answer = await asyncio.wait_for(reader.read(), 20)
                assert answer.endswith(b"done")
                writer.close()

    loop = asyncio.new_event_loop()
    plain = loop.call_later

    def call_later(delay: float, *arguments: Any, **named: Any) -> asyncio.TimerHandle:
        return plain(max(0.0, delay - 0.02), *arguments, **named)

    loop.call_later = call_later  # type: ignore[assignment,method-assign]
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
