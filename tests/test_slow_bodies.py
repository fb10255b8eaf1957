"""Clients that are slow with their bodies, or stop, beside others."""

import contextlib
import time

import pytest

from support.http import request
from support.raw_app import field
from support.wait import until

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def head(length, *fields, target=b"/up"):
    lines = [b"POST %s HTTP/1.1" % target, b"Host: a", b"Content-Length: %d" % length, *fields]
    return b"\r\n".join([*lines, b"", b""])


CHUNKED = b"POST /up HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_slow_bodies_take_no_connection_and_end_at_their_deadline(start_dwell, app, cleanup):
    dwell = start_dwell(
        upstream={"url": app.url, "queue_timeout": "1s"}, limits={"body_timeout": "3s"}
    )
    slow = [cleanup.enter_context(dwell.connect()) for _ in range(300)]
    for client in slow:
        client.send(head(100_000) + b"b")
    # In time for the last of them, or later: a byte more gives none.
    begun = time.monotonic()
    while time.monotonic() < begun + 2:
        assert dwell.get("/good").body == b"from the app"
        for client in slow:
            client.send(b"b")
    assert dwell.metric("dwell_upstream_connections_open") <= 2
    assert {client.answer().status for client in slow} == {408}
    assert all(client.is_ended() for client in slow)
    dwell.await_metric(300, "dwell_bad_requests_total", status="408")
    assert {request.target for request in app.requests} == {"/good"}
    dwell.await_metric(0, "dwell_gathered_bytes")


def test_a_body_behind_its_beginning_has_a_deadline_too(start_dwell, raw):
    limits = {"body_timeout": "1s"}
    dwell = start_dwell(upstream={"url": raw.url}, server={"pollers": 1}, limits=limits)
    with dwell.connect() as client:
        client.send(head(1_000_000) + b"b" * 100_000)
        with contextlib.closing(raw.accept()) as app:
            app.read_head()
            app.read(100_000)
            # However it drips.
            until(lambda: client.send(b"b") or not client.is_silent(), "it is answered")
            assert client.answer().status == 408
            # Behind what there was of it the application finds the end.
            with contextlib.suppress(ConnectionResetError):
                while app.socket.recv(65536):
                    pass
    dwell.await_metric(1, "dwell_client_timeouts_total", kind="request")


@pytest.mark.parametrize("pieces", [1, 7, 100])
def test_a_request_begins_when_its_body_is_there(start_dwell, raw, pieces):
    dwell = start_dwell(upstream={"url": raw.url}, server={"pollers": 1})
    body = bytes(range(256)) * 256
    size = len(body) // pieces + 1
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    for sent, framed in (
        ([head(len(body)), *parts], body),
        (
            [CHUNKED, *[b"%x\r\n%b\r\n" % (len(part), part) for part in parts[:-1]]]
            + [b"1\r\n!\r\n0\r\nDigest: x\r\n\r\n"],
            None,
        ),
    ):
        with dwell.connect() as client:
            for piece in sent[:-1]:
                client.send(piece)
                assert raw.is_alone()
            client.send(sent[-1])
            with contextlib.closing(raw.accept()) as app:
                seen = app.read_head()
                if framed is None:
                    whole = b"".join(parts[:-1]) + b"!"
                    framed = b"%x\r\n%b\r\n0\r\nDigest: x\r\n\r\n" % (len(whole), whole)
                    assert field(seen, "Transfer-Encoding") == b"chunked"
                else:
                    assert field(seen, "Content-Length") == b"65536"
                assert app.read(len(framed)) == framed
                app.send(OK)
                assert client.answer().body == b"ok"


def test_who_asks_before_the_body_is_told_to_send_it(start_dwell, raw):
    dwell = start_dwell(upstream={"url": raw.url}, server={"pollers": 1})
    with dwell.connect() as client:
        client.send(head(5, b"Expect: 100-continue"))
        assert client._head().status == 100
        assert raw.is_alone()
        client.send(b"hello")
        with contextlib.closing(raw.accept()) as app:
            assert field(app.read_head(), "Expect") is None
            assert app.read(5) == b"hello"
            app.send(OK)
            assert client.answer().body == b"ok"


def test_a_gathered_post_is_sent_once_whatever_becomes_of_it(start_dwell, raw):
    dwell = start_dwell(upstream={"url": raw.url}, server={"pollers": 1})
    for length in (5, 200_000):
        with dwell.connect() as client:
            client.send(head(length) + b"b" * length)
            with contextlib.closing(raw.accept()) as app:
                app.read_head()
                app.read(min(length, 65536))
            assert client.answer().status == 502
            assert raw.is_alone()


def test_bodies_that_are_gathered_have_a_bound_for_all(start_dwell, app, cleanup):
    dwell = start_dwell(upstream={"url": app.url}, limits={"gathered_bytes_max": "1MiB"})
    clients = [cleanup.enter_context(dwell.connect()) for _ in range(30)]
    for client in clients:
        client.send(head(65_100) + b"b" * 65_000)
    # There is room for sixteen.
    dwell.await_metric(14, "dwell_bad_requests_total", status="503")
    assert 16 * 65_000 < dwell.metric("dwell_gathered_bytes") <= 1 << 20
    assert dwell.get("/good").status == 200
    for client in clients:
        client.send(b"b" * 100)
    answers = [client.answer() for client in clients]
    assert sorted(answer.status for answer in answers) == [200] * 16 + [503] * 14
    for answer in answers:
        assert (answer.field("Retry-After") or "1") in ("1", "2", "3", "4", "5")
        assert (answer.status == 503) == (answer.field("Retry-After") is not None)
    dwell.await_metric(0, "dwell_gathered_bytes")


def test_a_long_upload_streams_and_is_not_held(start_dwell, raw):
    dwell = start_dwell(upstream={"url": raw.url}, server={"pollers": 1})
    length, piece = 256 << 20, b"u" * (1 << 20)
    with dwell.connect() as client:
        client.send(head(length))
        client.send(piece)
        with contextlib.closing(raw.accept()) as app:
            app.read_head()
            app.read(len(piece))
            before = dwell.resident_bytes()
            for _ in range(length // len(piece) - 1):
                client.send(piece)
                app.read(len(piece))
            assert dwell.resident_bytes() < before + (4 << 20)
            app.send(OK)
            assert client.answer().body == b"ok"
            client.send(request("/next"))
            assert app.read_head().startswith(b"GET /next ")


def test_one_client_that_pauses_in_many_bodies_shuts_nobody_out(start_dwell, app, cleanup):
    limits = {"gathered_bytes_max": "1MiB", "body_timeout": "16s"}
    dwell = start_dwell(upstream={"url": app.url}, limits=limits)
    for _ in range(16):
        client = cleanup.enter_context(dwell.connect())
        client.send(head(65_200) + b"b" * 65_000)
    until(lambda: dwell.metric("dwell_gathered_bytes") > 1_000_000, "there is no room left")

    def is_served():
        with dwell.connect() as client:
            client.send(head(100_000) + b"b" * 10_000)
            client.send(b"b" * 90_000)
            return client.answer().status == 200

    begun = time.monotonic()
    until(is_served, "there is room for others")
    # Long before the deadline of those that pause.
    assert time.monotonic() - begun < 12
