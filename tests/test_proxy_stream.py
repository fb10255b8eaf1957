"""What is no poll passes through as it comes, in both directions."""

import contextlib
import random
import select
import signal
import socket

import pytest

from support.http import request
from support.raw_app import field
from support.wait import until

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


@pytest.fixture
def proxy(start_dwell, raw):
    """Starts the edge before it, which passes bodies on as they come."""

    def start(**settings):
        upstream = {"url": raw.url, "request_buffer_bytes": "0", **settings}
        return start_dwell(upstream=upstream, server={"pollers": 1})

    return start


@pytest.fixture
def pair(proxy, raw, cleanup):
    """A client whose request has reached the application, and the application's side of it."""

    def start(sent=None, **settings):
        client = cleanup.enter_context(proxy(**settings).connect())
        client.send(sent or request("/page"))
        app = raw.accept()
        cleanup.callback(app.close)
        return client, app, app.read_head()

    return start


def send_until_refused(peer):
    """Sends until nothing more is taken, or there is an answer; returns how much was."""
    sent = 0
    peer.settimeout(1)
    with contextlib.suppress(TimeoutError):
        # Behind an answer the connection is closed.
        while sent < 200 << 20 and not select.select([peer], [], [], 0)[0]:
            sent += peer.send(b"x" * 65536)
    peer.settimeout(30)
    return sent


def send_for_ever(peer):
    while True:
        peer.sendall(b"x" * 65536)


def read_head(client):
    """The next head that a client gets, an interim one or not."""
    return client._head()


def test_events_arrive_one_by_one(pair):
    client, app, _ = pair()
    app.send(EVENTS)
    head = read_head(client)
    assert (head.status, head.field("Content-Type")) == (200, "text/event-stream")
    assert head.field("Transfer-Encoding") == "chunked"
    for number in range(20):
        event = b"data: %d\n\n" % number
        app.send(event)
        assert client._line() == f"{len(event):x}"
        assert client._take(len(event) + 2) == event + b"\r\n"
    app.close()
    assert client._take(5) == b"0\r\n\r\n"


def test_an_answer_without_an_end_is_passed_on_before_it_ends(pair):
    client, app, _ = pair()
    app.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345")
    head = read_head(client)
    assert head.field("Content-Length") == "10"
    assert client._take(5) == b"12345"
    app.send(b"67890")
    assert client._take(5) == b"67890"


@pytest.mark.parametrize(
    "begun",
    [
        CHUNKED + b"5\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello",
        CHUNKED + b"5\r\nhel",
    ],
)
@pytest.mark.parametrize("end", ["close", "reset"])
@pytest.mark.parametrize("version", ["1.1", "1.0"])
def test_an_answer_cut_short_has_no_clean_end(pair, begun, end, version):
    client, app, _ = pair(b"GET / HTTP/%s\r\nHost: a\r\n\r\n" % version.encode())
    app.send(begun)
    head = read_head(client)
    client._take(len(b"hel"))
    getattr(app, end)()
    if version == "1.1":
        rest = b""
        with contextlib.suppress(ConnectionResetError):
            rest = client.read_to_end()
        assert not rest.endswith(b"0\r\n\r\n")
        assert head.field("Content-Length") in (None, "10")
    elif head.field("Content-Length") is None:
        # An HTTP/1.0 client takes an orderly end for the end of the answer.
        with pytest.raises(ConnectionResetError):
            client.read_to_end()


def test_bad_chunks_have_no_clean_end(pair):
    client, app, _ = pair()
    app.send(CHUNKED + b"5\r\nhello\r\n" + b"fish\r\n")
    assert read_head(client).status == 200
    with pytest.raises((EOFError, ConnectionResetError)):
        client._chunks()


def test_an_answer_that_ends_with_the_connection_ends_in_order(pair):
    client, app, _ = pair()
    app.send(b"HTTP/1.1 200 OK\r\n\r\nall ")
    app.send(b"of it")
    app.close()
    response = client.answer()
    assert (response.status, response.body) == (200, b"all of it")


def test_a_client_of_http_1_0_gets_no_chunks(pair):
    client, app, _ = pair(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    app.send(CHUNKED + b"5\r\nhello\r\n0\r\nX-Trailer: 1\r\n\r\n")
    head = read_head(client)
    assert head.field("Transfer-Encoding") is None
    assert head.field("Connection") == "close"
    assert client.read_to_end() == b"hello"


def test_interim_answers_pass(pair):
    client, app, _ = pair()
    app.send(
        b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nConnection: x\r\n\r\n"
        b"HTTP/1.1 102 Processing\r\n\r\n"
    )
    hints = read_head(client)
    assert (hints.status, hints.fields) == (103, [("Link", "</a.css>")])
    assert read_head(client).status == 102
    app.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    assert client.answer().body == b"ok"


def test_a_client_of_http_1_0_gets_no_interim_answers(pair):
    client, app, _ = pair(b"GET / HTTP/1.0\r\n\r\n")
    app.send(b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n")
    assert read_head(client).status == 204


def test_endless_interim_answers_are_502(pair):
    client, app, _ = pair()
    app.send(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 33)
    statuses = [read_head(client).status for _ in range(33)]
    assert statuses == [103] * 32 + [502]


def test_trailers_of_an_answer_pass(pair):
    client, app, _ = pair()
    app.send(
        b"HTTP/1.1 200 OK\r\nTrailer: Digest\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"2\r\nok\r\n0\r\nDigest: x\r\nContent-Length: 99\r\n\r\n"
    )
    head = read_head(client)
    assert head.field("Trailer") == "Digest"
    assert client._take(len(b"2\r\nok\r\n0\r\nDigest: x\r\n\r\n")) == (
        b"2\r\nok\r\n0\r\nDigest: x\r\n\r\n"
    )
    client.send(request("/next"))
    assert app.read_head().startswith(b"GET /next ")


def test_trailers_of_the_connection_stay_on_it(pair):
    client, app, _ = pair()
    app.send(
        b"HTTP/1.1 200 OK\r\nConnection: X-Mine\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"2\r\nok\r\n0\r\nX-Mine: 1\r\nX-A: 2\r\n\r\n"
    )
    assert read_head(client).field("Transfer-Encoding") == "chunked"
    expected = b"2\r\nok\r\n0\r\nX-A: 2\r\n\r\n"
    assert client._take(len(expected)) == expected


def test_trailers_of_a_request_pass(pair):
    head = (
        b"POST / HTTP/1.1\r\nHost: a\r\nConnection: TE\r\nTE: trailers\r\nTrailer: Digest\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n"
    )
    _, app, seen = pair(head + b"2\r\nab\r\n0\r\nDigest: x\r\nTransfer-Encoding: x\r\n\r\n")
    assert field(seen, "Transfer-Encoding") == b"chunked"
    assert field(seen, "Content-Length") is None
    assert (field(seen, "TE"), field(seen, "Trailer")) == (b"trailers", b"Digest")
    assert app.read_until(b"\r\n\r\n") == b"2\r\nab\r\n0\r\nDigest: x\r\n\r\n"


def test_a_request_body_is_passed_on_before_it_ends(pair):
    head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    client, app, _ = pair(head)
    for piece in (b"a", b"bc", b"def" * 1000):
        client.send(b"%x;some=extension\r\n%s\r\n" % (len(piece), piece))
        framed = b"%x\r\n%s\r\n" % (len(piece), piece)
        assert app.read(len(framed)) == framed
    client.send(b"0\r\n\r\n")
    assert app.read(5) == b"0\r\n\r\n"
    app.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    assert client.answer().body == b"ok"


def test_a_long_body_keeps_its_length(pair):
    body = bytes(range(256)) * 4096
    head = b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body)
    client, app, seen = pair(head + body[:10])
    assert field(seen, "Content-Length") == b"%d" % len(body)
    assert app.read(10) == body[:10]
    client.send(body[10:])
    assert app.read(len(body) - 10) == body[10:]
    app.send(b"HTTP/1.1 204 No Content\r\n\r\n")
    assert client.answer().status == 204
    client.send(request("/next"))
    assert app.read_head().startswith(b"GET /next ")


def test_both_directions_at_once(pair):
    client, app, _ = pair(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
    app.send(CHUNKED)
    read_head(client)
    for _ in range(10):
        client.send(b"4\r\nping\r\n")
        assert app.read(9) == b"4\r\nping\r\n"
        app.send(b"4\r\npong\r\n")
        assert client._take(9) == b"4\r\npong\r\n"
    app.send(b"0\r\n\r\n")
    assert client._take(5) == b"0\r\n\r\n"
    # The application is not asked anything on a connection on which a body is under way.
    assert app.is_cut()


class TestExpect:
    HEAD = b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"

    def test_the_application_decides(self, pair):
        client, app, seen = pair(self.HEAD)
        assert field(seen, "Expect") == b"100-continue"
        assert client.is_silent()
        app.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert read_head(client).status == 100
        client.send(b"hello")
        assert app.read(5) == b"hello"
        app.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        assert client.answer().body == b"ok"

    def test_a_refusal_comes_without_the_body(self, pair):
        client, app, _ = pair(self.HEAD)
        app.send(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n")
        response = client.answer()
        assert response.status == 413
        assert response.closes
        assert app.is_cut()

    def test_an_application_that_does_not_know_of_it_gets_the_body(self, pair):
        client, app, _ = pair(self.HEAD)
        assert read_head(client).status == 100
        client.send(b"hello")
        assert app.read(5) == b"hello"

    def test_who_does_not_wait_is_not_told(self, pair):
        client, app, _ = pair(self.HEAD + b"hello")
        app.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert app.read(5) == b"hello"
        app.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        assert client.answer().body == b"ok"


def test_an_early_answer_passes_while_the_body_comes(pair):
    client, app, _ = pair(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\nabc")
    assert app.read(3) == b"abc"
    app.send(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nno\n")
    response = client.answer()
    assert (response.status, response.body) == (413, b"no\n")
    assert response.closes
    assert app.is_cut()


def test_an_application_that_refuses_a_body_and_closes_is_heard(pair):
    client, app, _ = pair(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\nabc")
    app.send(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    app.close()
    assert client.answer().status == 403


class TestWhoLeaves:
    def test_a_client_that_resets_is_told_to_the_application(self, pair):
        client, app, _ = pair()
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.close()
        assert app.is_cut()

    def test_a_client_that_closes_before_the_answer(self, pair):
        client, app, _ = pair()
        client.close()
        assert app.is_cut()

    def test_a_client_that_closes_in_a_quiet_stream_of_events(self, pair):
        client, app, _ = pair()
        app.send(EVENTS)
        read_head(client)
        client.close()
        assert app.is_cut()

    def test_a_client_that_closes_in_mid_upload(self, pair):
        head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\nabc"
        client, app, _ = pair(head)
        assert app.read(3) == b"abc"
        client.close()
        assert app.is_cut()

    def test_a_client_that_has_only_ended_its_side_gets_its_answer(self, pair):
        client, app, _ = pair()
        client.socket.shutdown(socket.SHUT_WR)
        # It is asked whether it is there, in a way that it reads over.
        assert read_head(client).status == 100
        app.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        assert client.answer().body == b"ok"

    def test_a_queued_request_is_forgotten(self, proxy, raw, cleanup):
        dwell = proxy(connections_max=1)
        first = cleanup.enter_context(dwell.connect())
        first.send(request("/first"))
        app = raw.accept()
        app.read_head()
        second = dwell.connect()
        second.send(request("/second"))
        until(lambda: dwell.metric("dwell_connections_open") == 2, "both are there")
        second.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        second.close()
        dwell.await_connections(1)
        app.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        assert first.answer().body == b"ok"
        first.send(request("/third"))
        assert app.read_head().startswith(b"GET /third ")


class TestBackpressure:
    def test_a_client_that_does_not_read_stops_the_application(self, proxy, raw):
        dwell = proxy()
        with dwell.connect(receive_buffer_bytes=65536) as client:
            client.send(request("/"))
            app = raw.accept()
            app.read_head()
            app.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
            assert client._head().status == 200
            sent = send_until_refused(app.socket)
            # The buffers of two sockets, and no more than a window here.
            assert sent < 32 << 20
            assert dwell.memory_bytes() < 64 << 20
            # It goes on when the client does.
            assert client._take(sent) == b"x" * sent

    def test_an_application_that_does_not_read_stops_the_client(self, proxy, raw):
        dwell = proxy()
        with dwell.connect() as client:
            client.send(b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n")
            app = raw.accept(receive_buffer_bytes=65536)
            app.read_head()
            sent = send_until_refused(client.socket)
            assert sent < 32 << 20
            assert dwell.memory_bytes() < 64 << 20
            assert app.read(sent) == b"x" * sent

    def test_a_client_that_never_reads_is_cut_off(self, start_dwell, raw):
        dwell = start_dwell(upstream={"url": raw.url}, limits={"write_timeout": "300ms"})
        with dwell.connect(receive_buffer_bytes=65536) as client:
            client.send(request("/"))
            app = raw.accept()
            app.read_head()
            app.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
            with pytest.raises(ConnectionError):
                send_for_ever(app.socket)
            dwell.await_connections(0)


class TestTimeouts:
    def test_an_answer_that_comes_to_a_halt_is_cut_off(self, pair):
        client, app, _ = pair(stall_timeout="300ms", header_timeout="10s")
        app.send(CHUNKED + b"5\r\nhello\r\n")
        assert read_head(client).status == 200
        with pytest.raises((EOFError, ConnectionResetError)):
            client._chunks()
        assert app.is_cut()

    def test_an_answer_may_take_longer_than_the_total_timeout(self, pair):
        # Long enough for the head to be passed on, and shorter than the silence behind it.
        client, app, _ = pair(total_timeout="1s", header_timeout="1s")
        app.send(EVENTS)
        read_head(client)
        app.socket.settimeout(1.5)
        with pytest.raises(TimeoutError):
            app.socket.recv(1)
        app.send(b"data: late\n\n")
        assert client._line() == "c"

    def test_an_upload_may_take_longer_than_the_total_timeout(self, pair):
        head = b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n"
        client, app, _ = pair(head, total_timeout="300ms", header_timeout="200ms")
        app.socket.settimeout(0.5)
        with pytest.raises(TimeoutError):
            app.socket.recv(1)
        app.socket.settimeout(30)
        client.send(b"x" * 100_000)
        assert app.read(100_000) == b"x" * 100_000
        assert client.answer().status == 504

    def test_a_body_that_nobody_takes_is_504(self, pair):
        head = b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n"
        client, app, _ = pair(head, stall_timeout="300ms")
        send_until_refused(client.socket)
        assert client.answer().status == 504
        assert app.socket.recv(1)


def test_a_repeatable_request_is_sent_again_and_a_body_under_way_is_not(proxy, raw, cleanup):
    dwell = proxy()
    client = cleanup.enter_context(dwell.connect())
    client.send(request("/"))
    first = raw.accept()
    first.read_head()
    first.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    assert client.answer().body == b"ok"
    head = b"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    client.send(head + b"2\r\nab\r\n")
    assert first.read_head().startswith(b"PUT ")
    assert first.read(7) == b"2\r\nab\r\n"
    first.close()
    assert client.answer().status == 502
    assert raw.is_alone()
    gathering = proxy(request_buffer_bytes="64KiB")
    with gathering.connect() as other:
        other.send(request("/", "PUT", body=b"small"))
        second = raw.accept()
        second.read_head()
        assert second.read(5) == b"small"
        second.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        assert other.answer().body == b"ok"
        other.send(request("/", "PUT", body=b"small"))
        second.read_head()
        second.close()
        third = raw.accept()
        third.read_head()
        assert third.read(5) == b"small"


def test_an_application_that_a_reload_brings_gets_requests(start_dwell, app):
    dwell = start_dwell()
    assert dwell.get("/page").status == 404
    text = dwell.config.read_text()
    dwell.config.write_text(f'{text}\n[upstream]\nurl = "{app.url}"\n')
    dwell.signal(signal.SIGHUP)
    until(lambda: dwell.get("/page").body == b"from the app", "it is forwarded")


class TestMisses:
    def test_others_ask_for_a_large_answer_themselves(self, proxy, raw, cleanup):
        dwell = proxy(answer_bytes_max="64kb")
        clients = [cleanup.enter_context(dwell.connect()) for _ in range(3)]
        clients[0].send(request("/poll/a"))
        app = raw.accept()
        app.read_head()
        for client in clients[1:]:
            client.send(request("/poll/a"))
        until(
            lambda: dwell.metric("dwell_upstream_requests_total", outcome="coalesced") == 2,
            "two have joined",
        )
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100_000
        app.send(answer)
        response = clients[0].answer()
        assert response.body == b"x" * 100_000
        assert response.field("Cache-Status") == "dwell; fwd=miss"
        for _ in range(2):
            connection = raw.accept()
            cleanup.callback(connection.close)
            connection.read_head()
            connection.send(answer)
        for client in clients[1:]:
            assert client.answer().body == b"x" * 100_000

    def test_events_of_the_application_reach_a_poll_that_misses(self, pair):
        client, app, _ = pair(request("/poll/a"))
        app.send(EVENTS)
        assert read_head(client).status == 200
        app.send(b"data: 1\n\n")
        assert client._line() == "9"
        client.close()
        assert app.is_cut()


ANSWERS = {
    "length": b"HTTP/1.1 200 OK\r\nX-A: b\r\nContent-Length: 26\r\n\r\nabcdefghijklmnopqrstuvwxyz",
    "chunks": CHUNKED + b"3;x=y\r\nabc\r\n17\r\ndefghijklmnopqrstuvwxyz\r\n0\r\nX-T: 1\r\n\r\n",
    "end": b"HTTP/1.1 200 OK\r\nX-A: b\r\n\r\nabcdefghijklmnopqrstuvwxyz",
    "interim": b"HTTP/1.1 103 Early\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "none": b'HTTP/1.1 304 Not Modified\r\nETag: "a"\r\nContent-Length: 26\r\n\r\n',
    "nonsense": b"HTTP/1.1 200 OK\r\nX-A : b\r\n\r\n",
}


@pytest.mark.parametrize("name", ANSWERS)
def test_any_split_of_an_answer_gives_its_client_the_same(proxy, raw, name):
    dwell, answer = proxy(failures_max=1000), ANSWERS[name]
    chance = random.Random(name)

    def what_comes_of(pieces):
        with dwell.connect() as client:
            client.send(request("/"))
            app = raw.accept()
            app.read_head()
            for piece in pieces:
                app.send(piece)
            if name == "end":
                app.end_sending()
            seen = [client.answer()]
            while seen[-1].status < 200:
                seen.append(client.answer())
            app.close()
            return [(one.status, without_date(one.fields), one.body) for one in seen]

    whole = what_comes_of([answer])
    for count in (*range(1, 15), len(answer) - 1):
        cuts = sorted(chance.sample(range(1, len(answer)), count))
        pieces = [answer[start:end] for start, end in zip([0, *cuts], [*cuts, None], strict=True)]
        assert what_comes_of(pieces) == whole


def without_date(fields):
    return [(name, value) for name, value in fields if name != "Date"]
