"""Routes on which the application says who may ask."""

import socket
import struct

import pytest

from support.upstream import Answer
from support.wait import until

ALICE = {"Cookie": "session=alice"}
BOB = {"Cookie": "session=bob"}


@pytest.fixture
def start_asking(start_dwell, app):
    """Starts an edge that asks an application which knows its users by their cookies."""

    def answer(request):
        if request.target != "/auth":
            return Answer(b"from the app")
        user = (request.field("Cookie") or "").partition("session=")[2]
        if user in ("alice", "bob"):
            return Answer(b"", 204, (("X-User", user),))
        status = 403 if user else 401
        fields = (("WWW-Authenticate", "Form"), ("Set-Cookie", "a=b"), ("Content-Type", "text/x"))
        return Answer(b"who are you?", status, fields)

    app.answer = answer

    def start(route=(), **sections):
        own = {"prefix": "/me/", "auth": "/auth", "key": "inbox:{auth.x-user}", **dict(route)}
        return start_dwell(
            route=[own], upstream={"url": app.url}, **{"server": {"pollers": 1}, **sections}
        )

    return start


@pytest.fixture
def edge(start_asking):
    edge = start_asking()
    for name in ("alice", "bob"):
        edge.store().set(f"inbox:{name}", f"for {name}")
    return edge


def questions(app):
    return [request for request in app.requests if request.target == "/auth"]


def test_everybody_has_a_key_of_their_own(edge, app):
    for fields, name in ((ALICE, "alice"), (BOB, "bob")):
        answer = edge.get("/me/?x=1&since=y", fields=fields)
        assert (answer.status, answer.body.decode()) == (200, f"for {name}")
    asked = questions(app)[0]
    assert (asked.method, asked.body) == ("GET", b"")
    assert asked.field("X-Original-Method") == "GET"
    assert asked.field("X-Original-URI") == "/me/?x=1&since=y"
    assert asked.field("X-Forwarded-For") == "127.0.0.1"
    assert asked.field("Cookie") == ALICE["Cookie"]


def test_a_refusal_is_passed_on(edge, app):
    nobody = edge.get("/me/")
    assert (nobody.status, nobody.body) == (401, b"who are you?")
    assert nobody.field("WWW-Authenticate") == "Form"
    assert nobody.field("Content-Type") == "text/x"
    assert nobody.field("Set-Cookie") is None, "it may be given to another"
    assert edge.get("/me/", fields={"Cookie": "session=eve"}).status == 403
    edge.await_metric(2, "dwell_polls_total", outcome="denied")


def test_who_was_known_is_not_asked_about_again(edge, app):
    cursor = edge.get("/me/", fields=ALICE).field("Poll-Cursor")
    for _ in range(20):
        assert edge.get(f"/me/?since={cursor}&wait=10ms", fields=ALICE).status == 204
    assert len(questions(app)) == 1
    edge.await_metric(20, "dwell_auth_total", outcome="known")
    edge.get("/me/other", fields=ALICE)
    assert len(questions(app)) == 2, "what is asked for is a part of the question"


def test_what_is_known_is_known_for_a_while(start_asking, app):
    edge = start_asking({"auth_time": "10ms"})
    edge.store().set("inbox:alice", "x")
    assert edge.get("/me/", fields=ALICE).status == 200

    def asked_again():
        edge.get("/me/", fields=ALICE)
        return len(questions(app)) > 1

    until(asked_again, "it is asked again")


def test_those_who_show_the_same_share_a_question(edge, app, cleanup):
    app.hang()
    clients = [cleanup.enter_context(edge.connect()) for _ in range(10)]
    for client in clients:
        client.ask("/me/", fields=ALICE)
    edge.await_connections(10)
    app.await_requests(1)
    app.release()
    assert [client.answer().body for client in clients] == [b"for alice"] * 10
    assert len(questions(app)) == 1


def test_a_poll_and_a_stream_wait_as_they_do_elsewhere(edge, cleanup):
    cursor = edge.get("/me/", fields=ALICE).field("Poll-Cursor")
    poll = cleanup.enter_context(edge.connect())
    poll.ask(f"/me/sub?since={cursor}&wait=30", fields=ALICE)
    stream = cleanup.enter_context(edge.connect())
    stream.ask("/me/sub", fields={**ALICE, "Accept": "text/event-stream"})
    edge.await_waiters(2)
    edge.store().set("inbox:alice", "news")
    assert poll.answer().body == b"news"
    head = stream._head()
    assert head.field("Content-Type") == "text/event-stream"


def test_a_miss_goes_to_the_application_as_it_came(edge, app):
    edge.store().delete("inbox:alice")
    assert edge.get("/me/", "POST", ALICE, b"body").body == b"from the app"
    assert [request.target for request in app.requests] == ["/auth", "/me/"]
    assert (app.requests[1].method, app.requests[1].body) == ("POST", b"body")


def test_no_field_makes_a_key_memcached_would_not_take(edge, app):
    for user in ("a b", "x" * 251):
        app.answer = lambda request, user=user: Answer(b"", 200, (("X-User", user),))
        answer = edge.get("/me/", fields={"Cookie": f"session={len(user)}"})
        assert answer.status == 400
    app.answer = lambda request: Answer(b"", 200, ())
    assert edge.get("/me/", fields={"Cookie": "session=none"}).status == 400


@pytest.mark.parametrize("status", [302, 404, 500])
def test_an_answer_that_is_neither_yes_nor_no(edge, app, status):
    app.answer = lambda request: Answer(b"", status)
    assert edge.get("/me/", fields=ALICE).status == 502
    assert edge.get("/me/", fields=ALICE).status == 502
    assert len(questions(app)) == 2, "it is not remembered"


def test_an_application_that_is_gone(edge, app):
    app.stop()
    answer = edge.get("/me/", fields=ALICE)
    assert answer.status in (502, 503)
    edge.await_metric(1, "dwell_auth_total", outcome="failed")


def test_a_client_that_leaves_meanwhile_leaves_nothing(edge, app):
    app.hang()
    client = edge.connect()
    client.ask("/me/", fields=ALICE)
    app.await_requests(1)
    # One that only ends its side may still be reading.
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    edge.await_connections(0)
    app.release()
    assert edge.get("/me/", fields=ALICE).body == b"for alice"


def test_a_yes_for_one_host_is_none_for_another(edge, app):
    assert edge.get("/me/", fields={**ALICE, "Host": "one.example"}).status == 200
    assert edge.get("/me/", fields={**ALICE, "Host": "two.example"}).status == 200
    assert [request.field("Host") for request in questions(app)] == ["one.example", "two.example"]
