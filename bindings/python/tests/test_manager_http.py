"""HTTP through `Manager`."""

from __future__ import annotations

import errno
import json
import logging
import socket
from pathlib import Path

import pytest

import dwell
from dwell import Event, HttpMessage
from support import Loop, body_of, fields_of


def answering(*arguments, **keywords):
    """A handler that gives each request the same answer."""

    def handler(conn, event, data):
        if event == Event.HTTP_MSG:
            conn.reply(*arguments, **keywords)

    return handler


def test_events_of_two_requests_on_one_connection():
    with Loop(answering(200, b"hello")) as loop:
        listener = loop.listen()
        with loop.client(listener) as client:
            assert client.get().startswith(b"HTTP/1.1 200 OK\r\n")
            client.get()
        loop.until_told(Event.CLOSE)
        request = ["HTTP_HDRS", "HTTP_MSG", "READ", "WRITE"]
        assert loop.events(2) == ["OPEN", "ACCEPT", *request, *request, "CLOSE"]
        assert loop.events(listener.id) == ["OPEN"]
    assert loop.told[-1] == (1, Event.CLOSE)


def test_an_event_is_a_number_and_a_member():
    told = []
    with Loop(lambda conn, event, data: told.append(event)) as loop:
        loop.listen()
    assert told == [1, 9]
    assert told[0] is Event.OPEN is dwell.MG_EV_OPEN
    assert {1: "open"}[told[0]] == "open"


def test_what_a_request_says():
    seen = {}

    def handler(conn, event, message):
        if event != Event.HTTP_MSG:
            return
        seen.update(
            method=message.method,
            uri=message.uri,
            query=message.query,
            proto=message.proto,
            body=message.body_bytes,
            text=message.body_text,
            agent=message.header("user-agent"),
            absent=message.header("X-Absent"),
            default=message.header("X-Absent", "none"),
            headers=message.headers(),
            q=message.query_var("q"),
            empty=message.query_var("e"),
            no=message.query_var("no"),
            charset=message.header_var("Content-Type", "charset"),
            status=message.status(),
            true=bool(message),
            text_of=repr(message),
        )
        conn.reply(200)

    with Loop(handler) as loop:
        loop.ask(
            loop.listen(),
            b"POST /a/b?q=x%20y+z&e= HTTP/1.1\r\nHost: h\r\nUser-Agent: t\r\nX-D: 1\r\nX-D: 2\r\n"
            b'X-Odd: \xff\r\nContent-Type: text/plain; charset="utf-8"\r\n'
            b"Content-Length: 5\r\n\r\na\0b\xffc",
        )
    assert seen == {
        "method": "POST",
        "uri": "/a/b",
        "query": "q=x%20y+z&e=",
        "proto": "HTTP/1.1",
        "body": b"a\0b\xffc",
        "text": "a\0b\udcffc",
        "agent": "t",
        "absent": None,
        "default": "none",
        "headers": [
            ("Host", "h"),
            ("User-Agent", "t"),
            ("X-D", "1"),
            ("X-D", "2"),
            ("X-Odd", "\udcff"),
            ("Content-Type", 'text/plain; charset="utf-8"'),
            ("Content-Length", "5"),
        ],
        "q": "x y z",
        "empty": None,
        "no": None,
        "charset": "utf-8",
        "status": 0,
        "true": True,
        "text_of": "<HttpMessage POST /a/b>",
    }


def test_a_long_query_variable_is_refused():
    refused = []

    def handler(conn, event, message):
        if event == Event.HTTP_MSG:
            with pytest.raises(ValueError, match="2048 bytes: 2049"):
                message.query_var("q")
            refused.append(message.query_var("p"))
            conn.reply(200)

    with Loop(handler) as loop:
        target = b"/?p=" + b"x" * 2048 + b"&q=" + b"y" * 2049
        loop.ask(loop.listen(), b"GET " + target + b" HTTP/1.1\r\nHost: h\r\n\r\n")
    assert refused == ["x" * 2048]


def test_a_message_is_empty_when_its_handler_has_returned():
    kept = []

    def handler(conn, event, message):
        if event == Event.HTTP_MSG:
            kept.append(message)
            conn.reply(200, message.uri)

    with Loop(handler) as loop:
        with loop.client(loop.listen()) as client:
            first, second = client.get("/1"), client.get("/2")
        assert (body_of(first), body_of(second)) == (b"/1", b"/2")
    assert len(set(map(id, kept))) == 2
    for message in [*kept, HttpMessage.__new__(HttpMessage), HttpMessage()]:
        assert not message
        assert (message.method, message.uri, message.query, message.proto) == ("", "", "", "")
        assert (message.body_bytes, message.body_text, message.headers()) == (b"", "", [])
        assert message.header("Host") is None
        assert message.header("Host", "x") == "x"
        assert message.query_var("a") is message.header_var("a", "b") is message.status() is None
        assert repr(message) == "<HttpMessage (no longer valid)>"


def test_a_message_is_never_a_later_one():
    kept = []

    def handler(conn, event, message):
        if event == Event.HTTP_MSG:
            kept.append(message)
            assert [kept.index(each) for each in kept if each] == [len(kept) - 1]
            conn.reply(200, message.uri)

    # More than the manager numbers at a time.
    count = 1100
    with Loop(handler) as loop, loop.client(loop.listen()) as client:
        requests = (f"GET /{number} HTTP/1.1\r\nHost: h\r\n\r\n" for number in range(count))
        client.send("".join(requests).encode())
        answers = [client.answer() for _ in range(count)]
    assert [body_of(each) for each in answers] == [b"/%d" % each for each in range(count)]


def test_an_answer_is_framed():
    with Loop(answering(200, b"a\0b")) as loop:
        answer = loop.ask(loop.listen(), b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    head = fields_of(answer)
    assert head["content-length"] == "3"
    assert head["content-type"] == "text/plain; charset=utf-8"
    assert "date" in head
    assert body_of(answer) == b"a\0b"


@pytest.mark.parametrize(
    "body", ["é", "é".encode(), bytearray("é".encode()), memoryview("é".encode())]
)
def test_a_body_is_text_or_bytes(body):
    with Loop(answering(200, body)) as loop:
        answer = loop.ask(loop.listen(), b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    assert body_of(answer) == "é".encode()


def test_head_has_no_body_and_close_is_honoured():
    with Loop(answering(200, b"hello")) as loop:
        listener = loop.listen()
        with loop.client(listener) as client:
            client.send(b"HEAD / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
            answer = client.rest()
        assert body_of(answer) == b""
        assert fields_of(answer)["content-length"] == "5"
        with loop.client(listener) as client:
            client.send(b"GET / HTTP/1.0\r\n\r\n")
            assert client.rest().endswith(b"\r\n\r\nhello")


@pytest.mark.parametrize(
    ("headers", "values"),
    [
        ({"Content-Type": "text/html", "X-A": "1"}, {"content-type": "text/html", "x-a": "1"}),
        ([("X-A", b"1"), ("X-B", "2")], {"x-a": "1", "x-b": "2"}),
        ({"content-length": "99", "Date": "never"}, {"content-length": "2"}),
        (None, {"content-type": "text/plain; charset=utf-8"}),
    ],
)
def test_headers_of_an_answer(headers, values):
    with Loop(answering(200, "ok", headers)) as loop:
        head = fields_of(loop.ask(loop.listen(), b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"))
    assert values.items() <= head.items()


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        ((200, "", {"A\r\nB": "x"}), ValueError, "Header name contains illegal character"),
        ((200, "", {"A B": "x"}), ValueError, "Header name contains illegal character"),
        ((200, "", {"": "x"}), ValueError, "Header name contains illegal character"),
        ((200, "", {"A": "x\r\nSet-Cookie: y"}), ValueError, r"Header value .*Set-Cookie"),
        ((200, "", {"A": "x\0"}), ValueError, "Header value contains illegal character"),
        ((200, "", {"A": 1}), TypeError, "str.*'int'"),
        ((200, "", 5), TypeError, "'int'"),
        ((99,), ValueError, "status code is not from 200 to 599: 99"),
        ((1000,), ValueError, "1000"),
        ((-1,), ValueError, "-1"),
        (("200",), TypeError, "str"),
        ((200, 5), TypeError, "str or a bytes-like object is required, not 'int'"),
        ((200, "\ud800"), UnicodeEncodeError, "surrogates"),
    ],
)
def test_bad_answers_are_refused_and_nothing_is_sent(arguments, kind, text):
    def handler(conn, event, data):
        if event == Event.HTTP_MSG:
            with pytest.raises(kind, match=text):
                conn.reply(*arguments)
            conn.reply(200, "after all")

    with Loop(handler, error_handler=print) as loop:
        answer = loop.ask(loop.listen(), b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    assert body_of(answer) == b"after all"


def test_json():
    def handler(conn, event, message):
        if event == Event.HTTP_MSG:
            conn.reply_json({"a": [1, None]}, 201, headers={"content-type": "x/y", "X-A": "1"})

    with Loop(handler) as loop:
        answer = loop.ask(loop.listen(), b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 201 ")
    assert json.loads(body_of(answer)) == {"a": [1, None]}
    assert fields_of(answer)["content-type"] == "application/json"


@pytest.mark.parametrize(
    "begin",
    [
        lambda conn: conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
        lambda conn: conn.reply(200, "", {"Transfer-Encoding": "chunked"}),
        lambda conn: conn.http_begin(),
    ],
)
def test_an_answer_in_chunks(begin):
    def handler(conn, event, message):
        if event == Event.HTTP_MSG:
            begin(conn)
            conn.http_chunk("one")
            conn.http_chunk(b"two\0")
            conn.http_chunk("")

    with Loop(handler) as loop, loop.client(loop.listen()) as client:
        for _ in range(2):
            client.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            head = fields_of(client.take_until(b"\r\n\r\n"))
            assert head["transfer-encoding"] == "chunked"
            assert "content-length" not in head
            chunks = client.take_until(b"0\r\n\r\n")
            assert chunks == b"3\r\none\r\n4\r\ntwo\0\r\n0\r\n\r\n"


def test_an_answer_of_a_known_length_in_pieces():
    def handler(conn, event, message):
        if event == Event.HTTP_MSG:
            conn.http_begin(200, {"Content-Type": "text/csv"}, 6)
            conn.http_chunk("abc")
            with pytest.raises(ValueError, match="exceeds 3 bytes"):
                conn.http_chunk("defg")
            conn.http_chunk("def")

    with Loop(handler) as loop:
        answer = loop.ask(loop.listen(), b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    assert body_of(answer) == b"abcdef"


@pytest.mark.parametrize("begins", [True, False])
def test_server_sent_events(begins):
    def handler(conn, event, message):
        if event == Event.HTTP_MSG:
            if begins:
                conn.reply(
                    200, "", {"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
                )
            conn.http_sse("tick", "one\ntwo")
            conn.http_sse("", "plain", id="7", retry=500)

    with Loop(handler) as loop, loop.client(loop.listen()) as client:
        client.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        head = fields_of(client.take_until(b"\r\n\r\n"))
        assert head["content-type"].startswith("text/event-stream")
        assert "content-length" not in head
        stream = b""
        while b"data: plain" not in stream:
            size = int(client.take_until(b"\r\n"), 16)
            stream += client.take(size + 2)[:-2]
    assert b"event: tick\ndata: one\ndata: two\n\n" in stream
    assert b"id: 7\n" in stream
    assert b"retry: 500\n" in stream


def test_an_answer_that_is_given_later_from_another_event():
    waiting = []

    def handler(conn, event, data):
        if event == Event.HTTP_MSG:
            waiting.append(conn)
        elif event == Event.WAKEUP:
            conn.reply(200, data)

    with Loop(handler) as loop, loop.client(loop.listen()) as client:
        client.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        loop.until(lambda: waiting)
        assert loop.manager.wakeup(waiting[0].id, b"later")
        assert body_of(client.answer()) == b"later"
        client.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        loop.until(lambda: len(waiting) == 2)
        assert waiting[0] is waiting[1]
        waiting[1].reply(200, "from outside of any handler")
        assert body_of(client.answer()).startswith(b"from outside")


def test_pipelined_requests_are_answered_in_order():
    held = []

    def handler(conn, event, message):
        if event == Event.HTTP_MSG:
            if message.uri == "/slow":
                held.append(conn)
            else:
                conn.reply(200, message.uri)

    with Loop(handler) as loop, loop.client(loop.listen()) as client:
        client.send(
            b"".join(b"GET /%s HTTP/1.1\r\nHost: h\r\n\r\n" % p for p in [b"slow", b"2", b"3"])
        )
        loop.until(lambda: held)
        held[0].reply(200, "/slow")
        assert [body_of(client.answer()) for _ in range(3)] == [b"/slow", b"/2", b"/3"]


def test_a_request_that_comes_byte_by_byte_has_one_head():
    with Loop(answering(200, "ok")) as loop, loop.client(loop.listen()) as client:
        for byte in b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody":
            client.send(bytes([byte]))
            loop.manager.poll(0)
        client.answer()
        loop.until_told(Event.WRITE)
        kinds = loop.events(2)
        assert kinds.count("HTTP_HDRS") == kinds.count("HTTP_MSG") == 1


def test_a_client_that_has_shut_its_side_gets_its_answer():
    with Loop(answering(200, "still")) as loop, loop.client(loop.listen()) as client:
        client.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        client.socket.shutdown(socket.SHUT_WR)
        assert b"still" in client.rest()


def test_a_client_that_leaves_while_it_waits_is_told():
    held = []

    def handler(conn, event, message):
        if event == Event.HTTP_MSG:
            held.append(conn)

    with Loop(handler) as loop:
        with loop.client(loop.listen()) as client:
            client.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            loop.until(lambda: held)
        loop.until_told(Event.CLOSE)
        with pytest.raises(RuntimeError, match="closed"):
            held[0].reply(200)


def test_a_huge_body_in_pieces():
    total = 32 << 20
    seen = []

    def handler(conn, event, data):
        if event == Event.HTTP_HDRS:
            conn.stream_body(1 << 30)
        elif event == Event.HTTP_BODY:
            seen.append(len(data))
            if not data:
                conn.reply(200, str(sum(seen)))

    with Loop(handler) as loop, loop.client(loop.listen()) as client:
        client.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % total)
        client.send(bytes(total))
        assert body_of(client.answer()) == str(total).encode()
    assert max(seen) <= 1 << 18


def test_a_body_that_is_too_long_is_refused():
    with Loop(answering(200)) as loop, loop.client(loop.listen()) as client:
        client.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999\r\n\r\n")
        assert client.answer().startswith(b"HTTP/1.1 413 ")


def test_a_large_answer_to_a_slow_client():
    body = bytes(range(256)) * (8 << 12)
    with Loop(answering(200, body)) as loop, loop.client(loop.listen()) as client:
        client.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        loop.until_told(Event.HTTP_MSG)
        for _ in range(5):
            loop.manager.poll(0)
        assert body_of(client.answer()) == body


def test_output_has_a_bound_and_drained_tells_when_to_go_on():
    refused = []

    def handler(conn, event, data):
        if event == Event.HTTP_MSG:
            conn.http_begin()
            while not conn.is_full:
                conn.http_chunk(bytes(1 << 16))
            with pytest.raises(BlockingIOError) as caught:
                conn.http_chunk("more")
            refused.append((caught.value.errno, conn.is_full, conn.send_len > 0))
        elif event == Event.DRAINED:
            conn.http_chunk("")

    with Loop(handler) as loop, loop.client(loop.listen()) as client:
        client.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        client.take_until(b"0\r\n\r\n")
    assert refused == [(errno.EAGAIN, True, True)]


def test_an_exception_is_told_and_the_client_gets_500():
    errors = []

    def handler(conn, event, message):
        if event == Event.HTTP_MSG:
            raise KeyError("oops")

    with Loop(handler, error_handler=errors.append) as loop:
        answer = loop.ask(loop.listen(), b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 500 ")
    assert [repr(error) for error in errors] == ["KeyError('oops')"]


def test_an_exception_after_the_answer_leaves_the_answer():
    def handler(conn, event, message):
        if event == Event.HTTP_MSG:
            conn.reply(200, "fine")
            raise KeyError

    with Loop(handler, error_handler=lambda error: None) as loop:
        answer = loop.ask(loop.listen(), b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    assert body_of(answer) == b"fine"


@pytest.mark.parametrize("error_handler", [None, lambda error: 1 / 0])
def test_an_exception_is_logged_with_its_traceback(error_handler, caplog):
    def handler(conn, event, message):
        if event == Event.OPEN:
            raise KeyError("oops")

    with (
        caplog.at_level(logging.ERROR, "dwell"),
        Loop(handler, error_handler=error_handler) as loop,
    ):
        loop.listen()
    [record] = caplog.records
    wanted = KeyError if error_handler is None else ZeroDivisionError
    assert record.exc_info[0] is wanted
    assert record.exc_info[2] is not None


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_what_is_no_exception_leaves_the_poll(kind):
    def handler(conn, event, message):
        if event == Event.HTTP_MSG:
            raise kind

    with Loop(handler) as loop, loop.client(loop.listen()) as client:
        client.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        with pytest.raises(kind):
            loop.until(lambda: False)


def test_drain_lets_the_answer_out_and_serves_nothing_more():
    def handler(conn, event, message):
        if event == Event.HTTP_MSG:
            conn.drain()
            assert conn.is_draining
            conn.reply(200, message.uri)

    with Loop(handler) as loop, loop.client(loop.listen()) as client:
        client.send(b"GET /1 HTTP/1.1\r\nHost: h\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n")
        answer = client.rest()
    assert answer.endswith(b"/1")
    assert answer.count(b"HTTP/1.1") == 1


def test_close_in_a_handler_sends_what_was_replied():
    def handler(conn, event, message):
        if event == Event.HTTP_MSG:
            conn.reply(200, "bye")
            conn.close()

    with Loop(handler) as loop, loop.client(loop.listen()) as client:
        client.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        assert client.rest().endswith(b"bye")
        loop.until_told(Event.CLOSE)


def test_files(tmp_path: Path):
    (tmp_path / "a.txt").write_bytes(b"text\0")
    (tmp_path / "b.foo").write_bytes(b"foo")
    (tmp_path / "gone.html").write_bytes(b"<p>gone")
    stale = []

    def handler(conn, event, message):
        if event != Event.HTTP_MSG:
            return
        stale.append((conn, message))
        if message.uri == "/file":
            conn.serve_file(message, str(tmp_path / "a.txt"), "X-A: 1\r\nX-B: 2\r\n")
        elif message.uri.startswith("/bare"):
            conn.serve_dir(message, str(tmp_path))
        else:
            page = str(tmp_path / "gone.html")
            conn.serve_dir(message, str(tmp_path), "X-A: 1\r\n", "foo=application/x-foo", page)

    with Loop(handler) as loop, loop.client(loop.listen()) as client:
        answer = client.get("/file")
        assert body_of(answer) == b"text\0"
        fields = fields_of(answer)
        assert {"x-a": "1", "x-b": "2"}.items() <= fields.items()
        assert fields["content-type"].startswith("text/plain")
        assert "etag" in fields
        client.send(b"GET /a.txt HTTP/1.1\r\nHost: h\r\nRange: bytes=1-2\r\n\r\n")
        part = client.answer()
        assert part.startswith(b"HTTP/1.1 206 ")
        assert body_of(part) == b"ex"
        assert fields_of(client.get("/b.foo"))["content-type"] == "application/x-foo"
        lost = client.get("/nothing")
        assert lost.startswith(b"HTTP/1.1 404 ")
        assert body_of(lost) == b"<p>gone"
        assert client.get("/bare/nothing").startswith(b"HTTP/1.1 404 ")
        assert b"gone.html" in client.get("/")
        assert client.get("/../a.txt").startswith(b"HTTP/1.1 40")
        conn, message = stale[-1]
        for serve in (conn.serve_file, conn.serve_dir):
            with pytest.raises(ValueError, match="no longer valid"):
                serve(message, str(tmp_path))


def test_a_unix_socket(tmp_path: Path):
    path = tmp_path / "socket"
    with Loop(answering(200, "unix")) as loop:
        listener = loop.listen(f"http+unix://{path}")
        assert listener.local_addr is None
        client = socket.socket(socket.AF_UNIX)
        with client:
            client.connect(str(path))
            client.send(b"GET / HTTP/1.0\r\n\r\n")
            loop.until_told(Event.WRITE)
            assert client.recv(1000).endswith(b"unix")
