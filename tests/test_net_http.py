"""The same bytes to the engine's `echo` example and to Go's net/http: the same answers.

A case is the raw bytes of one connection; what is compared is the status, the framing and the body
of each answer up to the end of the connection. Every case but those marked `cut` is followed by one
more request, which is answered where the connection lives on, and so tells whether it does.
"""

import dataclasses
import os
import pathlib
import re
import shutil
import socket
import subprocess

import pytest

from support import ports
from support.process import Process

# One build of the Go program for all.
pytestmark = pytest.mark.xdist_group("net_http")

HERE = pathlib.Path(__file__).resolve().parent
EXAMPLES = pathlib.Path(
    os.environ.get("DWELL_ECHO", HERE.parent / "target/debug/examples/websocket_echo")
).parent
LAST = b"GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
LAST_ANSWER = "404"


@dataclasses.dataclass
class Case:
    """The bytes of a connection, and where ours may differ from net/http and why."""

    data: bytes
    ours: list | None = None
    why: str = ""
    # The client ends its side after them, and no further request follows.
    cut: bool = False


def get(target=b"/", fields=b"Host: a\r\n", method=b"GET", version=b"HTTP/1.1"):
    return method + b" " + target + b" " + version + b"\r\n" + fields + b"\r\n"


def post(fields, body=b"", method=b"POST"):
    return get(method=method, fields=b"Host: a\r\n" + fields) + body


def chunked(body, fields=b""):
    return post(b"Transfer-Encoding: chunked\r\n" + fields, body)


CHUNKED = b"Transfer-Encoding: chunked\r\n"

CASES = {
    # Framing of requests.
    "get": Case(get()),
    "get with a length": Case(post(b"Content-Length: 2\r\n", b"ab", b"GET")),
    "post": Case(post(b"Content-Length: 5\r\n", b"hello")),
    "post of nothing": Case(post(b"Content-Length: 0\r\n")),
    "post without framing": Case(post(b"")),
    "put": Case(post(b"Content-Length: 3\r\n", b"put", b"PUT")),
    "own method": Case(post(b"Content-Length: 3\r\n", b"own", b"PURGE")),
    "length twice, the same": Case(
        post(b"Content-Length: 1\r\nContent-Length: 1\r\n", b"a"),
        ours=["400"],
        why="may be refused or taken once (RFC 9112 section 6.3), and no client sends it",
    ),
    "length twice, another": Case(post(b"Content-Length: 1\r\nContent-Length: 2\r\n", b"ab")),
    "length with a sign": Case(post(b"Content-Length: +1\r\n", b"a")),
    "length below zero": Case(post(b"Content-Length: -1\r\n")),
    "length in words": Case(post(b"Content-Length: one\r\n")),
    "length of nothing": Case(post(b"Content-Length: \r\n")),
    "length beyond 64 bits": Case(post(b"Content-Length: 99999999999999999999\r\n")),
    "body cut short": Case(
        post(b"Content-Length: 5\r\n", b"hel"),
        cut=True,
        ours=[],
        why="who ends its side within a request has left: nobody is told of its fault",
    ),
    "chunked": Case(chunked(b"5\r\nhello\r\n0\r\n\r\n")),
    "chunks": Case(chunked(b"1\r\na\r\n2\r\nbc\r\n0\r\n\r\n")),
    "chunked, in capitals": Case(post(b"TRANSFER-ENCODING: CHUNKED\r\n", b"1\r\na\r\n0\r\n\r\n")),
    "chunk size in capitals": Case(chunked(b"A\r\n0123456789\r\n0\r\n\r\n")),
    "chunk extension": Case(chunked(b'1;name="a;b"\r\na\r\n0\r\n\r\n')),
    "trailer": Case(chunked(b"1\r\na\r\n0\r\nDigest: none\r\n\r\n")),
    "chunk of nothing said": Case(chunked(b"\r\na\r\n0\r\n\r\n")),
    "chunk size in words": Case(chunked(b"one\r\na\r\n0\r\n\r\n")),
    "chunk too long": Case(chunked(b"1\r\nab\r\n0\r\n\r\n")),
    "chunk size beyond 64 bits": Case(chunked(b"11111111111111111\r\na\r\n0\r\n\r\n")),
    "chunked cut short": Case(
        chunked(b"5\r\nhel"),
        cut=True,
        ours=[],
        why="who ends its side within a request has left: nobody is told of its fault",
    ),
    "chunked and length": Case(
        post(CHUNKED + b"Content-Length: 3\r\n", b"1\r\na\r\n0\r\n\r\n"),
        ours=["400"],
        why="smuggling: a server may refuse it, RFC 9112 section 6.1",
    ),
    "chunked twice": Case(
        post(CHUNKED + CHUNKED, b"1\r\na\r\n0\r\n\r\n"),
        ours=["400"],
        why="a fault of the message, RFC 9112 section 7, not a coding we lack",
    ),
    "gzip and chunked": Case(post(b"Transfer-Encoding: gzip, chunked\r\n", b"0\r\n\r\n")),
    "chunked and identity": Case(
        post(b"Transfer-Encoding: chunked, identity\r\n"),
        ours=["400"],
        why="chunked is not the last coding: 400, RFC 9112 section 6.3",
    ),
    "identity": Case(post(b"Transfer-Encoding: identity\r\n")),
    "chunked by 1.0": Case(
        get(method=b"POST", fields=CHUNKED, version=b"HTTP/1.0") + b"1\r\na\r\n0\r\n\r\n",
        ours=["400"],
        why="1.0 has no chunks, its framing is faulty: RFC 9112 section 6.1",
    ),
    # HEAD, 1xx, Expect.
    "head": Case(get(method=b"HEAD")),
    "head of what is not there": Case(get(b"/nothing", method=b"HEAD")),
    "head with a body": Case(post(b"Content-Length: 2\r\n", b"ab", b"HEAD")),
    "expect": Case(
        post(b"Expect: 100-continue\r\nContent-Length: 2\r\n"),
        cut=True,
        ours=["100"],
        why="who ends its side within a request has left: nobody is told of its fault",
    ),
    "expect with the body": Case(
        post(b"Expect: 100-continue\r\nContent-Length: 2\r\n", b"ab"),
        ours=["200 'ab'", LAST_ANSWER],
        why="no 100 where the body has begun, RFC 9110 section 10.1.1",
    ),
    "expect without a body": Case(post(b"Expect: 100-continue\r\n", method=b"GET")),
    "expect of nothing": Case(post(b"Expect: 100-continue\r\nContent-Length: 0\r\n")),
    "expect by 1.0": Case(
        get(
            method=b"POST",
            fields=b"Expect: 100-continue\r\nContent-Length: 2\r\n",
            version=b"HTTP/1.0",
        )
        + b"ab"
    ),
    "expect what nobody does": Case(post(b"Expect: a miracle\r\n", method=b"GET")),
    # Host.
    "no host": Case(get(fields=b"")),
    "no host by 1.0": Case(get(fields=b"", version=b"HTTP/1.0")),
    "two hosts": Case(get(fields=b"Host: a\r\nHost: b\r\n")),
    "host of nothing": Case(
        get(fields=b"Host:\r\n"),
        ours=["400"],
        why="the host of an http URI is not empty, RFC 9110 section 4.2.1",
    ),
    "host with a space": Case(get(fields=b"Host: a b\r\n")),
    "host with a port": Case(get(fields=b"Host: a:8000\r\n")),
    "host and user": Case(get(fields=b"Host: me@a\r\n")),
    "whole url": Case(get(b"http://a/")),
    "whole url, another host": Case(get(b"http://b/")),
    # Request lines and fields.
    "query": Case(get(b"/?a=1")),
    "not there": Case(get(b"/nothing")),
    "target without slash": Case(get(b"nothing")),
    "asterisk": Case(
        get(b"*", method=b"OPTIONS"),
        ours=["404", LAST_ANSWER],
        why="the handler's to answer; net/http does so by itself",
    ),
    "asterisk to get": Case(
        get(b"*"),
        ours=["400"],
        why="for OPTIONS only, RFC 9112 section 3.2.4",
    ),
    "connect": Case(
        get(b"a:80", method=b"CONNECT"),
        ours=["501"],
        why="not a proxy, and the handler must not think so",
    ),
    "method that is none": Case(get(method=b"G(T")),
    "version 2": Case(get(version=b"HTTP/2.0")),
    "version 1.2": Case(get(version=b"HTTP/1.2")),
    "version in small letters": Case(get(version=b"http/1.1")),
    "no version": Case(b"GET /\r\n\r\n"),
    "space before the colon": Case(get(fields=b"Host : a\r\n")),
    "folded field": Case(
        get(fields=b"Host: a\r\nX: 1\r\n 2\r\n"),
        ours=["400"],
        why="a server refuses or unfolds it, RFC 9112 section 5.2",
    ),
    "name of nothing": Case(get(fields=b"Host: a\r\n: 1\r\n")),
    "field without colon": Case(get(fields=b"Host: a\r\nnonsense\r\n")),
    "nul in a value": Case(get(fields=b"Host: a\r\nX: a\0b\r\n")),
    "bare line feeds": Case(
        b"GET / HTTP/1.1\nHost: a\n\n",
        ours=["400"],
        why="need not be taken for line ends (RFC 9112 section 2.2), and differ among servers",
    ),
    "bare carriage return": Case(get(fields=b"Host: a\r\nX: a\rb\r\n")),
    "empty line first": Case(
        b"\r\n" + get(),
        ours=["200 ''", LAST_ANSWER],
        why="one is passed over, RFC 9112 section 2.2",
    ),
    "head too long": Case(get(fields=b"Host: a\r\nX: " + b"x" * 40_000 + b"\r\n")),
    "head cut short": Case(
        b"GET / HTTP/1.1\r\nHo",
        cut=True,
        ours=[],
        why="who ends its side within a request has left: nobody is told of its fault",
    ),
    "nothing": Case(b"", cut=True),
    # Connections.
    "close": Case(get(fields=b"Host: a\r\nConnection: close\r\n")),
    "close in a list": Case(get(fields=b"Host: a\r\nConnection: x, Close\r\n")),
    "1.0": Case(get(version=b"HTTP/1.0")),
    "1.0 kept alive": Case(get(fields=b"Connection: keep-alive\r\n", version=b"HTTP/1.0")),
    "1.0 post": Case(
        get(method=b"POST", fields=b"Content-Length: 2\r\n", version=b"HTTP/1.0") + b"ab"
    ),
    "pipelined": Case(get() * 3),
    "pipelined with bodies": Case(post(b"Content-Length: 2\r\n", b"ab") * 3 + get(b"/x")),
    "pipelined behind chunks": Case(chunked(b"1\r\na\r\n0\r\n\r\n") * 2 + get(method=b"HEAD")),
    "pipelined behind a fault": Case(get() + b"nonsense\r\n\r\n" + get()),
}


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """The addresses of ours and of net/http."""
    if not shutil.which("go"):
        pytest.skip("NET/HTTP WAS NOT COMPARED: there is no go")
    folder = tmp_path_factory.mktemp("net_http")
    program = folder / "net_http"
    subprocess.run(["go", "build", "-o", program, HERE / "net_http/main.go"], check=True)
    started = []
    addresses = []
    for command in ([EXAMPLES / "echo", "--listen"], [program]):
        address = ports.free_address()
        name = pathlib.Path(command[0]).name
        server = Process([*command, ports.text(address)], folder / f"{name}.log")
        started.append(server)
        addresses.append(address)
        server.start_listening(address)
    yield addresses
    for server in started:
        server.stop()


@pytest.mark.parametrize("name", CASES)
def test_answers_are_those_of_net_http(servers, name):
    case = CASES[name]
    ours, theirs = (answers(address, case) for address in servers)
    if case.ours is None:
        assert ours == theirs
    else:
        assert ours == case.ours, case.why
        assert ours != theirs, f"no difference is left: {case.why}"


def answers(address, case):
    """All answers on one connection, each as its status, framing and body."""
    with socket.create_connection(address, timeout=10) as client:
        client.sendall(case.data if case.cut else case.data + LAST)
        if case.cut:
            client.shutdown(socket.SHUT_WR)
        received = b""
        try:
            while data := client.recv(65536):
                received += data
        except ConnectionResetError:
            # What was not read of the request has become a reset behind the answer.
            pass
    found = []
    methods = re.findall(rb"([A-Z]{1,8}) \S{1,20} HTTP/1\.[01]\r\n", case.data + LAST)
    while received:
        method = methods[0] if methods else b"GET"
        answer, received = first(received, method, b" HTTP/1.0\r\n" in case.data)
        if not answer.startswith("1"):
            methods = methods[1:]
        found.append(answer)
    return found


def first(received, method, is_10):
    """The first of some answers, in a word, and the rest."""
    head, end, rest = received.partition(b"\r\n\r\n")
    assert end, received
    line, *fields = head.decode("latin-1").split("\r\n")
    # Which of the two versions is said is each server's own as well: RFC 9110 section 2.5.
    status = line.split(" ", 2)[1]
    fields = {name.lower(): value for name, value in (field.split(": ", 1) for field in fields)}
    if status.startswith("1"):
        return status, rest
    if status >= "4":
        # What is said of a fault is each server's own.
        length = int(fields.get("content-length", 0)) if method != b"HEAD" else 0
        is_framed = "content-length" in fields or "transfer-encoding" in fields
        return status, rest[length:] if is_framed else b""
    # A client of 1.0 knows it without being told.
    says_so = fields.get("connection", "").lower() == "close" and not is_10
    closes = " close" if says_so else ""
    if method == b"HEAD":
        # A size may be left out here: RFC 9110 section 9.3.2.
        return f"{status} head{closes}", rest
    length = int(fields["content-length"])
    return f"{status} {rest[:length].decode()!r}{closes}", rest[length:]
