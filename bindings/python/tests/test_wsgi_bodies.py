"""WSGI over the wire: bodies that are read and sent, and clients that leave meanwhile."""

from __future__ import annotations

import contextlib
import io
import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from servers import Environ, RunWsgi, Start, resident, text, wire
from wire import TIMEOUT, Wire


@pytest.mark.parametrize("chunked", [False, True])
def test_reading_the_body(run_wsgi: RunWsgi, chunked: bool) -> None:
    lines = [b"first\n", b"second\n", b"x" * 100_000 + b"\n", b"last"]
    sent = b"".join(lines)

    def app(environ: Environ, start: Start) -> list[bytes]:
        stream = environ["wsgi.input"]
        how = environ["PATH_INFO"]
        if how == "/all":
            got = stream.read()
        elif how == "/sizes":
            got = b"".join(iter(lambda: stream.read(7777), b""))
        elif how == "/lines":
            got = b"".join(iter(stream.readline, b""))
        elif how == "/iterate":
            read = list(stream)
            assert read == lines
            got = b"".join(read)
        elif how == "/readlines":
            got = b"".join(stream.readlines())
        else:
            assert stream.readline(3) == b"fir"
            assert stream.readline(99) == b"st\n"
            assert stream.read(0) == b""
            assert stream.read(3) == b"sec"
            assert stream.readlines(1) == [b"ond\n"]
            got = b"first\nsecond\n" + stream.read()
        assert stream.read() == b""
        return text(start, str(got == sent).encode())

    with wire(run_wsgi(app)) as client:
        for path in ("/all", "/sizes", "/lines", "/iterate", "/readlines", "/mixed"):
            if chunked:
                body = b"%x\r\n%b\r\n" % (len(sent), sent) + b"0\r\n\r\n"
                answer = client.ask(f"POST {path}", "Transfer-Encoding: chunked", body=body)
            else:
                answer = client.ask(f"POST {path}", f"Content-Length: {len(sent)}", body=sent)
            assert answer.body == b"True", path


def test_a_body_that_is_echoed_piece_by_piece(run_wsgi: RunWsgi) -> None:
    def app(environ: Environ, start: Start) -> Iterator[bytes]:
        start("200 OK", [])
        while piece := environ["wsgi.input"].read(4):
            yield piece.upper()

    with wire(run_wsgi(app)) as client:
        client.request("POST /", "Transfer-Encoding: chunked")
        client.send(b"4\r\nabcd\r\n")
        client.head()
        assert client.chunk() == b"ABCD"
        client.send(b"4\r\nefgh\r\n")
        assert client.chunk() == b"EFGH"
        client.send(b"0\r\n\r\n")
        assert client.chunk() == b""


def test_a_body_that_is_left_alone(run_wsgi: RunWsgi) -> None:
    server = run_wsgi(lambda environ, start: text(start, b"ignored"))
    with wire(server) as client:
        assert client.ask("POST /", "Content-Length: 100000", body=b"x" * 100_000).status == 200
        assert client.ask("GET /").status == 200


def test_expect_continue_waits_for_the_first_read(run_wsgi: RunWsgi) -> None:
    gate = threading.Event()

    def app(environ: Environ, start: Start) -> list[bytes]:
        if environ["PATH_INFO"] == "/refuse":
            return text(start, b"no", "413 Content Too Large")
        assert gate.wait(TIMEOUT)
        return text(start, environ["wsgi.input"].read())

    server = run_wsgi(app)
    with wire(server) as client:
        client.request("POST /", "Content-Length: 2", "Expect: 100-continue")
        gate.set()
        assert client.head().status == 100
        client.send(b"hi")
        assert client.answer().body == b"hi"
    with wire(server) as client:
        answer = client.ask("POST /refuse", "Content-Length: 2", "Expect: 100-continue")
        assert answer.status == 413
        assert client.is_closed()


def test_a_client_that_leaves_within_its_body(run_wsgi: RunWsgi) -> None:
    seen: list[BaseException] = []
    done = threading.Event()

    def app(environ: Environ, start: Start) -> list[bytes]:
        try:
            environ["wsgi.input"].read()
        except ConnectionError as error:
            seen.append(error)
        done.set()
        return text(start, b"nobody reads this")

    with wire(run_wsgi(app)) as client:
        client.request("POST /", "Content-Length: 3000000")
        client.send(b"x" * 1_200_000)
    assert done.wait(TIMEOUT)
    assert "left" in str(seen[0])


def test_a_client_that_ends_its_side_is_answered(run_wsgi: RunWsgi) -> None:
    with wire(run_wsgi(lambda environ, start: text(start, b"still here"))) as client:
        client.request("GET /")
        client.socket.shutdown(socket.SHUT_WR)
        assert client.answer().body == b"still here"


def test_a_client_that_leaves_stops_the_answer(run_wsgi: RunWsgi) -> None:
    made = 0
    closed = threading.Event()

    class Body:
        def __iter__(self) -> Iterator[bytes]:
            nonlocal made
            while True:
                made += 1
                yield b"x" * 65536

        def close(self) -> None:
            closed.set()

    def app(environ: Environ, start: Start) -> Body:
        start("200 OK", [])
        return Body()

    with wire(run_wsgi(app)) as client:
        client.request("GET /")
        client.head()
        client.chunk()
    assert closed.wait(TIMEOUT)
    # The server holds some, the kernel a few megabytes.
    assert made < 2000


def test_huge_bodies_take_no_memory(run_wsgi: RunWsgi) -> None:
    total = 200_000_000
    piece = b"x" * 1_000_000

    def app(environ: Environ, start: Start) -> Iterator[bytes]:
        stream = environ["wsgi.input"]
        count = 0
        while data := stream.read(65536):
            count += len(data)
        start("200 OK", [("X-Count", str(count))])
        for _ in range(total // len(piece)):
            yield piece

    with wire(run_wsgi(app)) as client:
        before = resident()
        client.request("POST /", f"Content-Length: {total}")
        for _ in range(total // len(piece)):
            client.send(piece)
        answer = client.head()
        assert answer.header("X-Count") == str(total)
        received = 0
        peak = 0
        while chunk := client.chunk():
            received += len(chunk)
            peak = max(peak, resident())
        assert received == total
        assert peak - before < 30_000_000


THREADS = 4
KINDS: dict[str, tuple[int, list[str]]] = {
    "short": (100_000, []),
    "long": (3_000_000, []),
    "expected": (100_000, ["Expect: 100-continue"]),
    "chunked": (100_000, ["Transfer-Encoding: chunked"]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_slow_bodies_leave_threads_to_others(run_wsgi: RunWsgi, kind: str) -> None:
    length, headers = KINDS[kind]
    called = threading.Semaphore(0)

    def app(environ: Environ, start: Start) -> list[bytes]:
        called.release()
        return text(start, str(len(environ["wsgi.input"].read())).encode())

    server = run_wsgi(app, threads=THREADS)
    slow = [wire(server) for _ in range(3 * THREADS)]
    body = bytes(length)
    if kind == "chunked":
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (length, body)
    else:
        headers = [*headers, f"Content-Length: {length}"]
    sent = 0 if kind == "expected" else len(body) // 2
    for client in slow:
        client.request("POST /", *headers)
        client.send(body[:sent])
    if kind != "short":
        # Half of the threads wait for a body.
        for _ in range(THREADS // 2):
            assert called.acquire(timeout=TIMEOUT)
    for _ in range(2 * THREADS):
        with wire(server) as client:
            assert client.ask("GET /").body == b"0"
        with wire(server) as client:
            assert client.ask("POST /", "Content-Length: 3", body=b"abc").body == b"3"
    # Those that leave make room for the others, which are all answered in the end.
    slow.pop().close()
    slow.pop(0).close()

    def finish(client: Wire) -> None:
        if kind == "expected":
            assert client.head().status == 100
        client.send(body[sent:])
        assert client.answer().body == str(length).encode()

    with ThreadPoolExecutor(len(slow)) as pool:
        for done in [pool.submit(finish, client) for client in slow]:
            done.result(TIMEOUT)
    for client in slow:
        client.close()


def test_a_body_is_gathered_before_the_application_is_called(run_wsgi: RunWsgi) -> None:
    called: list[str] = []

    def app(environ: Environ, start: Start) -> list[bytes]:
        called.append(environ["PATH_INFO"])
        return text(start, environ["wsgi.input"].read()[-3:])

    server = run_wsgi(app, threads=1)
    with wire(server) as client, wire(server) as left:
        left.request("POST /left", "Content-Length: 200000")
        left.send(bytes(100_000))
        client.request("POST /slow", "Content-Length: 200000")
        client.send(bytes(100_000))
        left.close()
        with wire(server) as other:
            assert other.ask("GET /other").status == 200
        client.send(bytes(99_997) + b"end")
        assert client.answer().body == b"end"
        assert client.ask("GET /again").status == 200
    assert called == ["/other", "/slow", "/again"]


def test_gathered_bodies_have_a_bound(run_wsgi: RunWsgi) -> None:
    called = threading.Semaphore(0)

    def app(environ: Environ, start: Start) -> list[bytes]:
        called.release()
        return text(start, str(len(environ["wsgi.input"].read())).encode())

    server = run_wsgi(app, threads=4, max_gathered_bytes=200_000)
    clients = [wire(server) for _ in range(4)]
    for client in clients:
        client.request("POST /", "Content-Length: 100000")
        client.send(bytes(70_000))
    # There is no room for all of them, so two have a thread.
    for _ in range(2):
        assert called.acquire(timeout=TIMEOUT)
    for client in clients:
        client.send(bytes(30_000))
    for client in clients:
        assert client.answer().body == b"100000"
        assert client.ask("POST /", "Content-Length: 100000", body=bytes(100_000)).status == 200
        client.close()


@pytest.mark.parametrize(("rate", "status"), [(512, 408), (1, 200)])
def test_a_body_has_the_time_of_its_bytes_at_the_lowest_rate(
    run_wsgi: RunWsgi, rate: int, status: int
) -> None:
    def app(environ: Environ, start: Start) -> list[bytes]:
        return text(start, environ["wsgi.input"].read())

    timeout = 2.0
    with wire(run_wsgi(app, read_timeout=timeout, min_body_rate=rate)) as client:
        client.request("POST /", "Content-Length: 30")
        # Half as long again as a body of no bytes may take.
        with contextlib.suppress(ConnectionError):
            for _ in range(30):
                time.sleep(timeout / 20)
                client.send(b"b")
        assert client.answer().status == status


def test_time_in_which_the_application_does_not_read_is_not_the_clients(
    run_wsgi: RunWsgi,
) -> None:
    timeout = 1.0
    seen: Queue[bytes] = Queue()

    def app(environ: Environ, start: Start) -> list[bytes]:
        for _ in range(2):
            seen.put(environ["wsgi.input"].read(3))
            time.sleep(1.5 * timeout)
            seen.put(b"awake")
        return text(start, environ["wsgi.input"].read())

    with wire(run_wsgi(app, read_timeout=timeout)) as client:
        client.request("POST /", "Transfer-Encoding: chunked")
        for piece in (b"abc", b"def"):
            client.send(b"3\r\n" + piece + b"\r\n")
            assert seen.get(timeout=TIMEOUT) == piece
            assert seen.get(timeout=TIMEOUT) == b"awake"
        # The application waits for more now, but not for ever.
        assert client.answer().status == 408


def test_files_are_sent_by_the_kernel(run_wsgi: RunWsgi, tmp_path: Path) -> None:
    path = tmp_path / "file"
    content = os.urandom(3_000_000)
    path.write_bytes(content)
    opened: list[Any] = []

    def app(environ: Environ, start: Start) -> Any:
        how = environ["PATH_INFO"]
        if how == "/memory":
            start("200 OK", [])
            return environ["wsgi.file_wrapper"](io.BytesIO(content), 65536)
        file = path.open("rb")
        opened.append(file)
        if how == "/offset":
            file.read(1000)
        start("200 OK", [("Content-Length", "500")] if how == "/part" else [])
        return environ["wsgi.file_wrapper"](file)

    with wire(run_wsgi(app)) as client:
        answer = client.ask("GET /")
        assert answer.body == content
        assert answer.header("Content-Length") == str(len(content))
        assert client.ask("GET /offset").body == content[1000:]
        assert client.ask("GET /part").body == content[:500]
        assert client.ask("HEAD /").header("Content-Length") == str(len(content))
        assert client.ask("GET /memory").body == content
    assert all(file.closed for file in opened)
