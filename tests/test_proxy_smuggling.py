"""Nothing is forwarded that two parsers of HTTP could read differently.

The application is played by hand, so that every byte which reaches it is seen.
"""

import contextlib
import socket
import struct

import pytest

from support.http import request
from support.raw_app import field

SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.fixture
def edge(start_dwell, raw):
    route = {"prefix": "/poll/", "identity_headers": "X-Api-Key"}
    upstream = {"url": raw.url, "request_buffer_bytes": "0"}
    return start_dwell(upstream=upstream, server={"pollers": 1}, route=[route])


def post(*fields, body=b"0\r\n\r\n"):
    return b"\r\n".join([b"POST / HTTP/1.1", b"Host: a", *fields, b"", body])


REFUSED = {
    "both": post(b"Content-Length: 5", b"Transfer-Encoding: chunked"),
    "both, the other way round": post(b"Transfer-Encoding: chunked", b"Content-Length: 5"),
    "two lengths": post(b"Content-Length: 5", b"Content-Length: 6"),
    "one length twice": post(b"Content-Length: 5", b"Content-Length: 5"),
    "list of lengths": post(b"Content-Length: 5, 5"),
    "signed length": post(b"Content-Length: +5"),
    "negative length": post(b"Content-Length: -5"),
    "hexadecimal length": post(b"Content-Length: 0x5"),
    "length with a space": post(b"Content-Length: 5 5"),
    "empty length": post(b"Content-Length:"),
    "length beyond 64 bits": post(b"Content-Length: 18446744073709551621"),
    "length in other digits": post("Content-Length: ٥".encode()),
    "coding with a space before": post(b"Transfer-Encoding : chunked"),
    "length with a space before": post(b"Content-Length : 5"),
    "length with a tab before": post(b"Content-Length\t: 5"),
    "coding with a vertical tab": post(b"Transfer-Encoding: \x0bchunked"),
    "coding with a form feed": post(b"Transfer-Encoding: chunked\x0c"),
    "coding with a null": post(b"Transfer-Encoding: chunked\x00"),
    "coding in quotes": post(b'Transfer-Encoding: "chunked"'),
    "xchunked": post(b"Transfer-Encoding: xchunked"),
    "identity": post(b"Transfer-Encoding: identity"),
    "chunked, identity": post(b"Transfer-Encoding: chunked, identity"),
    "chunked twice": post(b"Transfer-Encoding: chunked, chunked"),
    "chunked in two fields": post(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"),
    "a field and an empty one": post(b"Transfer-Encoding:", b"Transfer-Encoding: chunked"),
    "gzip, chunked": post(b"Transfer-Encoding: gzip, chunked"),
    "chunked with a parameter": post(b"Transfer-Encoding: chunked;q=1"),
    "folded coding": post(b"Transfer-Encoding:\r\n chunked"),
    "folded field": post(b"X-A: b", b" Content-Length: 5", b"Transfer-Encoding: chunked"),
    "chunked of HTTP/1.0": post(b"Transfer-Encoding: chunked").replace(b"HTTP/1.1", b"HTTP/1.0"),
    "bare line feed after the request line": b"GET / HTTP/1.1\nHost: a\r\n\r\n",
    "bare line feed after a field": b"GET / HTTP/1.1\r\nHost: a\nX-A: b\r\n\r\n",
    "bare line feeds at the end": b"GET / HTTP/1.1\r\nHost: a\n\n",
    "bare carriage return in a value": b"GET / HTTP/1.1\r\nHost: a\r\nX-A: b\rX-B: c\r\n\r\n",
    "bare carriage return at the end": b"GET / HTTP/1.1\r\nHost: a\r\r\n\r\n",
    "null in a value": b"GET / HTTP/1.1\r\nHost: a\r\nX-A: b\x00c\r\n\r\n",
    "null in a name": b"GET / HTTP/1.1\r\nHost: a\r\nX\x00A: b\r\n\r\n",
    "name with bytes beyond ASCII": "GET / HTTP/1.1\r\nHost: a\r\nX-Ä: b\r\n\r\n".encode(),
    "name in brackets": b"GET / HTTP/1.1\r\nHost: a\r\n(X-A): b\r\n\r\n",
    "empty name": b"GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n",
    "no colon": b"GET / HTTP/1.1\r\nHost: a\r\nX-A\r\n\r\n",
    "a space before the first field": b"GET / HTTP/1.1\r\n Host: a\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "the same host twice": b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\nX-A: b\r\n\r\n",
    "host with a path": b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
    "host with a user": b"GET / HTTP/1.1\r\nHost: a@b\r\n\r\n",
    "host with a comma": b"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n",
    "host with bytes beyond ASCII": "GET / HTTP/1.1\r\nHost: ä\r\n\r\n".encode(),
    "tab in the request line": b"GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n",
    "two spaces in the request line": b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
    "space in the target": b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
    "space behind the version": b"GET / HTTP/1.1 \r\nHost: a\r\n\r\n",
    "no version": b"GET /\r\nHost: a\r\n\r\n",
    "version 2.0": b"GET / HTTP/2.0\r\nHost: a\r\n\r\n",
    "lower-case version": b"GET / http/1.1\r\nHost: a\r\n\r\n",
    "method with a colon": b"GET: / HTTP/1.1\r\nHost: a\r\n\r\n",
    "CONNECT": b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n",
    "target without a slash": b"GET a HTTP/1.1\r\nHost: a\r\n\r\n",
    "target with a null": b"GET /\x00 HTTP/1.1\r\nHost: a\r\n\r\n",
}

CHUNKED = post(b"Transfer-Encoding: chunked", body=b"")
BAD_CHUNKS = {
    "no size": b"\r\nhello\r\n0\r\n\r\n",
    "size with a sign": b"+5\r\nhello\r\n0\r\n\r\n",
    "size with 0x": b"0x5\r\nhello\r\n0\r\n\r\n",
    "size with a space before": b" 5\r\nhello\r\n0\r\n\r\n",
    "size beyond 64 bits": b"10000000000000005\r\nhello\r\n0\r\n\r\n",
    "size in words": b"five\r\nhello\r\n0\r\n\r\n",
    "bare line feed behind the size": b"5\nhello\r\n0\r\n\r\n",
    "bare carriage return behind the size": b"5\rhello\r\n0\r\n\r\n",
    "bare line feed in an extension": b"5;a\nb\r\nhello\r\n0\r\n\r\n",
    "extension without a name": b"5;\r\nhello\r\n0\r\n\r\n",
    "extension that is no token": b"5;a{b}\r\nhello\r\n0\r\n\r\n",
    "bare line feed behind the data": b"5\r\nhello\n0\r\n\r\n",
    "more data than the size": b"5\r\nhello!\r\n0\r\n\r\n",
    "folded trailer": b"0\r\nX-A: b\r\n c\r\n\r\n",
    "trailer with a space before the colon": b"0\r\nX-A : b\r\n\r\n",
    "bare line feed in the trailers": b"0\r\nX-A: b\n\r\n\r\n",
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_ambiguous_head_is_refused_and_not_forwarded(edge, raw, name):
    with edge.connect() as client:
        client.send(REFUSED[name] + SMUGGLED)
        response = client.answer()
        assert response.status in (400, 501, 505)
        assert response.closes
        assert client.is_ended()
    assert raw.is_alone()


@pytest.mark.parametrize("name", BAD_CHUNKS)
def test_an_ambiguous_body_is_refused_and_its_request_never_whole(edge, raw, name):
    with edge.connect() as client:
        client.send(CHUNKED + BAD_CHUNKS[name] + SMUGGLED)
        with contextlib.closing(raw.accept()) as app:
            app.read_head()
            response = client.answer()
            assert (response.status, response.closes) == (400, True)
            assert client.is_ended()
            seen = b""
            while chunk := app.socket.recv(65536):
                seen += chunk
            # At most what was whole before it, and never an end.
            assert (app.buffer + seen).removeprefix(b"5\r\nhello\r\n") == b""
    assert raw.is_alone()


PASSED = {
    "chunks are framed anew": (
        CHUNKED + b"005;x=y;z\r\nhello\r\n00\r\n\r\n",
        b"5\r\nhello\r\n0\r\n\r\n",
    ),
    "upper-case digits": (
        CHUNKED + b"A\r\n0123456789\r\n0\r\n\r\n",
        b"a\r\n0123456789\r\n0\r\n\r\n",
    ),
    "trailers that frame are dropped": (
        CHUNKED + b"0\r\nContent-Length: 5\r\nTransfer-Encoding: x\r\nHost: b\r\nX-A: b\r\n\r\n",
        b"0\r\nX-A: b\r\n\r\n",
    ),
    "trailers that tell who asks are dropped": (
        CHUNKED
        + b"0\r\nX-Forwarded-For: 1.2.3.4\r\nx-forwarded-host: b\r\nForwarded: for=1.2.3.4\r\n"
        + b"X-Real-IP: 1.2.3.4\r\nCookie: a=b\r\nAuthorization: b\r\nX_Forwarded_For: 1.2.3.4\r\n"
        + b"X-Api-Key: b\r\nContent-Type: b\r\nIf-Match: b\r\nVia: b\r\nX-A: b\r\n\r\n",
        b"0\r\nX-A: b\r\n\r\n",
    ),
    "trailers of the connection are dropped": (
        post(b"Connection: X-Mine, close", b"Transfer-Encoding: chunked", body=b"")
        + b"0\r\nX-Mine: b\r\nX-A: b\r\n\r\n",
        b"0\r\nX-A: b\r\n\r\n",
    ),
    "a coding in capitals": (
        post(b"TRANSFER-encoding: CHUNKED", body=b"1\r\na\r\n0\r\n\r\n"),
        b"1\r\na\r\n0\r\n\r\n",
    ),
    "a length with zeros": (post(b"Content-Length: 00005", body=b"hello"), b"hello"),
    "nominated lengths": (
        post(b"Connection: Content-Length", b"Content-Length: 5", body=b"hello"),
        b"hello",
    ),
    "nominated codings": (
        post(b"Connection: Transfer-Encoding", b"Transfer-Encoding: chunked"),
        b"0\r\n\r\n",
    ),
    "lengths with an underscore": (
        post(
            b"Content_Length: 3", b"Transfer_Encoding: chunked", b"Content-Length: 5", body=b"hello"
        ),
        b"hello",
    ),
}


@pytest.mark.parametrize("name", PASSED)
def test_what_is_passed_is_written_anew(edge, raw, name):
    sent, expected = PASSED[name]
    with edge.connect() as client, contextlib.closing(connect(client, raw, sent)) as app:
        head = app.read_head()
        lengths = [line for line in head.lower().split(b"\r\n") if b"length" in line]
        codings = [line for line in head.lower().split(b"\r\n") if b"encoding" in line]
        assert sorted([*lengths, *codings]) in (
            [b"content-length: 5"],
            [b"transfer-encoding: chunked"],
        )
        assert app.read(len(expected)) == expected
        app.send(OK)
        assert client.answer().body == b"ok"
        if b"close" not in sent:
            client.send(request("/next"))
            assert app.read_head().startswith(b"GET /next ")


def connect(client, raw, sent):
    client.send(sent)
    return raw.accept()


def test_the_authority_of_an_absolute_target_wins(edge, raw):
    sent = b"GET http://one.test:80/path?q HTTP/1.1\r\nHost: two.test\r\n\r\n"
    with edge.connect() as client, contextlib.closing(connect(client, raw, sent)) as app:
        head = app.read_head()
        assert head.startswith(b"GET /path?q HTTP/1.1\r\n")
        assert field(head, "Host") == b"one.test:80"
        assert field(head, "X-Forwarded-Host") == b"one.test:80"


FOR_CLIENT = (
    b"X-Forwarded-Proto: https\r\nX-Forwarded-Host: other.test\r\nX-Forwarded-Port: 443\r\n"
    b"Forwarded: for=192.0.2.1\r\nX-Real-IP: 192.0.2.1\r\n"
)


@pytest.mark.parametrize("target", ["/", "/poll/a"])
@pytest.mark.parametrize("trusted", ["192.168.0.0/16", "127.0.0.0/8"])
def test_only_a_trusted_proxy_speaks_for_its_client(start_dwell, raw, target, trusted):
    dwell = start_dwell(upstream={"url": raw.url}, server={"trusted_proxies": trusted})
    sent = b"GET %s HTTP/1.1\r\nHost: a\r\n%s\r\n" % (target.encode(), FOR_CLIENT)
    with dwell.connect() as client, contextlib.closing(connect(client, raw, sent)) as app:
        head = app.read_head()
        told = {
            name: field(head, name)
            for name in (
                "X-Forwarded-Proto",
                "X-Forwarded-Host",
                "X-Forwarded-Port",
                "Forwarded",
                "X-Real-IP",
            )
        }
        if trusted.startswith("127") and target.startswith("/poll/"):
            # Others may share the answer, so nothing that the key does not have is told.
            expected = [b"https", b"other.test", None, None, None]
        elif trusted.startswith("127"):
            expected = [b"https", b"other.test", b"443", b"for=192.0.2.1", b"192.0.2.1"]
        else:
            expected = [b"http", b"a", None, None, None]
        assert list(told.values()) == expected


@pytest.mark.parametrize("target", ["/", "/poll/a"])
def test_a_request_without_a_host_does_not_get_that_of_the_application(start_dwell, raw, target):
    dwell = start_dwell(upstream={"url": raw.url, "default_host": "www.example.org"})
    sent = b"GET %s HTTP/1.0\r\n\r\n" % target.encode()
    with dwell.connect() as client, contextlib.closing(connect(client, raw, sent)) as app:
        head = app.read_head()
        assert field(head, "Host") == b"www.example.org"
        assert field(head, "X-Forwarded-Host") is None


def test_who_has_passed_a_request_on_is_named(edge, raw):
    sent = (
        b"GET / HTTP/1.0\r\nHost: a\r\nVia: 1.1 one, 1.0 two\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n"
    )
    with edge.connect() as client, contextlib.closing(connect(client, raw, sent)) as app:
        head = app.read_head()
        assert field(head, "Via") == b"1.1 one, 1.0 two, 1.0 dwell"
        assert field(head, "X-Forwarded-For") == b"192.0.2.1, 127.0.0.1"
        assert field(head, "X-Forwarded-Proto") == b"http"


@pytest.mark.parametrize("clients_before", [0, 1])
def test_a_client_that_resets_its_connection_is_named_all_the_same(
    start_dwell, app, clients_before
):
    dwell = start_dwell(upstream={"url": app.url}, server={"pollers": 1})
    told = {"X-Forwarded-For": "192.0.2.1"}
    for _ in range(clients_before):
        dwell.get("/first", fields=told)
    for _ in range(50):
        with dwell.connect() as client:
            client.send(request("/reset", "POST", fields=told))
            # The system knows no address of it from now on; what was sent is still read.
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    dwell.get("/last", fields=told)
    for asked in app.requests:
        assert asked.field("X-Forwarded-For") == "192.0.2.1, 127.0.0.1", asked.target


BAD_ANSWERS = {
    "both": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nok",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
    "signed length": b"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok",
    "folded": b"HTTP/1.1 200 OK\r\nX-A: b\r\n c\r\nContent-Length: 2\r\n\r\nok",
    "space before the colon": b"HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok",
    "bare line feed": b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
    "bare carriage return": b"HTTP/1.1 200 OK\r\nX-A: b\rc\r\nContent-Length: 2\r\n\r\nok",
    "null": b"HTTP/1.1 200 OK\r\nX-A: b\x00\r\nContent-Length: 2\r\n\r\nok",
    "other coding": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked twice": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "chunked of HTTP/1.0": b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "HTTP/2": b"HTTP/2 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "status of two digits": b"HTTP/1.1 20 OK\r\nContent-Length: 2\r\n\r\nok",
    "unasked protocol": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
}


@pytest.mark.parametrize("name", BAD_ANSWERS)
def test_an_ambiguous_answer_is_502(edge, raw, name):
    with edge.connect() as client:
        client.send(request("/"))
        with contextlib.closing(raw.accept()) as app:
            app.read_head()
            app.send(BAD_ANSWERS[name])
            assert client.answer().status == 502
            assert app.is_cut()


@pytest.mark.parametrize("target", ["/", "/poll/a"])
def test_what_comes_behind_an_answer_is_nobodys(edge, raw, target):
    with edge.connect() as client:
        client.send(request(target))
        with contextlib.closing(raw.accept()) as app:
            app.read_head()
            app.send(OK + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
            assert client.answer().body == b"ok"
            assert app.is_cut()
        client.send(request(target))
        with contextlib.closing(raw.accept()) as app:
            app.read_head()
            app.send(OK)
            assert client.answer().body == b"ok"


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"),
        ("GET", b"HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\n"),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\n\r\n"),
    ],
)
def test_an_answer_without_a_body_has_none(edge, raw, method, answer):
    with edge.connect() as client:
        client.send(request("/", method))
        with contextlib.closing(raw.accept()) as app:
            app.read_head()
            app.send(answer)
            assert client.answer(method).body == b""
            client.send(request("/next"))
            assert app.read_head().startswith(b"GET /next ")
