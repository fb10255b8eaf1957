"""The application fails, and the edge says so plainly and in time."""

import pytest

from support.upstream import Answer, ScriptedUpstream
from support.wait import Stopwatch, until

KEY = "/poll/alice"
TARGETS = pytest.mark.parametrize("target", [KEY, "/page"], ids=["poll", "forward"])


@pytest.fixture
def script(cleanup, start_dwell):
    """Starts an edge before an application that answers with the given bytes."""

    def start(*answers, **settings):
        upstream = ScriptedUpstream(*answers)
        cleanup.callback(upstream.close)
        dwell = start_dwell(upstream={"url": upstream.url, **settings})
        return dwell, upstream

    return start


def is_plain(response):
    content_type = response.field("Content-Type")
    return content_type.startswith(("text/plain", "application/json")) and response.body


@TARGETS
def test_a_dead_application_is_502(edge, app, target):
    assert edge.get(target).status == 200
    app.stop()
    with edge.connect() as connection:
        for _ in range(3):
            response = connection.get(target, "POST", body=b"x")
            assert response.status == 502
            assert is_plain(response)


@pytest.mark.parametrize(("target", "route"), [(KEY, "/poll/"), ("/page", "(forwarded)")])
def test_the_log_names_the_server_and_the_route(edge, app, target, route):
    app.stop()
    for _ in range(3):
        assert edge.get(target).status == 502
    edge.await_output("upstream does not answer")
    server = app.url.removeprefix("http://")
    lines = [line for line in edge.output().splitlines() if "upstream does not answer" in line]
    assert f"server={server} route={route} error=cannot connect: connection refused" in lines[0]
    assert lines[0].endswith("count=1")
    # A failure of a poll's miss is remembered for a second.
    failures = ("dwell_upstream_server_failures_total", {"server": app.url})
    until(lambda: edge.metric(failures[0], **failures[1]) >= 1, "failures are counted")
    assert edge.metric("dwell_upstream_server_queued", server=app.url) == 0
    app.start()
    until(lambda: edge.get(target).status == 200, "the application answers again")
    edge.await_output(f"upstream answers server={server}")


def test_hits_need_no_application(edge, app):
    app.stop()
    edge.store().set(KEY, b"value")
    assert edge.get(KEY).body == b"value"


@TARGETS
def test_an_application_that_comes_back_is_used_again(edge, app, target):
    app.stop()
    assert edge.get(target).status == 502
    app.start()
    until(lambda: edge.get(target).status == 200, "the application answers again")


@TARGETS
def test_a_hanging_application_is_504(start_dwell, app, target):
    dwell = start_dwell(upstream={"url": app.url, "header_timeout": "300ms"})
    app.hang()
    with dwell.connect() as connection, Stopwatch() as watch:
        response = connection.get(target)
    assert response.status == 504
    assert is_plain(response)
    assert 0.29 <= watch.seconds < 20
    app.release()


def test_all_who_share_a_hanging_miss_get_504(start_dwell, app, cleanup):
    dwell = start_dwell(upstream={"url": app.url, "header_timeout": "300ms"})
    app.hang()
    clients = [cleanup.enter_context(dwell.connect()) for _ in range(20)]
    for client in clients:
        client.ask(KEY)
    assert {client.answer().status for client in clients} == {504}
    app.release()


@TARGETS
@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nX: 1\r\n folded: 2\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent",
    ],
    ids=["nothing", "ssh", "lengths", "sign", "both", "folded", "status", "half_head"],
)
def test_an_answer_that_is_no_http_is_502(script, target, answer):
    dwell, _ = script(answer)
    response = dwell.get(target, "POST", body=b"x")
    assert response.status == 502
    assert is_plain(response)


@TARGETS
@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n",
    ],
    ids=["length", "chunked", "bad_chunk"],
)
def test_a_cut_off_answer_is_never_taken_for_a_whole_one(script, target, answer):
    dwell, _ = script(answer)
    with dwell.connect() as connection:
        try:
            response = connection.get(target, "POST", body=b"x")
        except (EOFError, ConnectionError):
            return
        assert response.status == 502


@TARGETS
@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.0 200 OK\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"2;x=y\r\nhe\r\n3\r\nllo\r\n0\r\nX-Trailer: 1\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n"
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    ],
    ids=["http10", "until_close", "close", "chunked", "continue", "early_hints"],
)
def test_every_framing_of_an_answer_is_understood(script, target, answer):
    dwell, _ = script(answer)
    with dwell.connect() as connection:
        for _ in range(2):
            connection.ask(target, "POST", body=b"x")
            response = connection.answer()
            while response.status < 200:
                response = connection.answer()
            assert (response.status, response.body) == (200, b"hello")
            # A request must not race with the end of the connection it would go over.
            dwell.await_metric(0, "dwell_upstream_connections_open")


def test_a_kept_connection_that_died_meanwhile_is_no_fault(script):
    # Keep-alive is promised, and the connection closed all the same.
    dwell, upstream = script(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    for _ in range(20):
        assert dwell.get("/page").body == b"ok"
    assert upstream.connections >= 20


def test_an_answer_over_the_limit_is_passed_on(script):
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 70000\r\n\r\n" + b"x" * 70_000
    dwell, _ = script(answer, answer_bytes_max="64kb")
    response = dwell.get(KEY)
    assert (response.status, response.body) == (200, b"x" * 70_000)
    assert response.field("Poll-Cursor") is None


def test_a_client_that_leaves_does_not_disturb_those_who_share_its_miss(edge, app, cleanup):
    app.hang()
    leaver = cleanup.enter_context(edge.connect())
    leaver.ask(KEY)
    app.await_requests(1)
    others = [cleanup.enter_context(edge.connect()) for _ in range(5)]
    for other in others:
        other.ask(KEY)
    leaver.close()
    app.release()
    assert {other.answer().body for other in others} == {b"from the app"}


def test_more_requests_than_connections_wait_for_one(start_dwell, app, cleanup):
    settings = {"url": app.url, "connections_max": 2}
    dwell = start_dwell(upstream=settings, server={"pollers": 1})
    app.answer = lambda request: Answer(request.target.encode())
    app.hang()
    clients = [cleanup.enter_context(dwell.connect()) for _ in range(10)]
    for place, client in enumerate(clients):
        client.ask(f"/page/{place}")
    app.await_requests(2)
    app.release()
    for place, client in enumerate(clients):
        assert client.answer().body == f"/page/{place}".encode()


@TARGETS
def test_a_head_of_unknown_size_says_none(script, target):
    dwell, _ = script(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n")
    with dwell.connect() as connection:
        response = connection.get(target, "HEAD")
    assert response.status == 200
    assert response.field("Content-Length") is None
