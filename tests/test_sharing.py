"""Misses on one key at the same time share a request, if the answer is anybody's."""

import pytest

from support.upstream import Answer

KEY = "/poll/alice"


@pytest.fixture
def one_loop(start_dwell, app):
    """An edge of one loop, as each loop asks for itself."""
    return start_dwell(upstream={"url": app.url}, server={"pollers": 1})


@pytest.fixture
def sharing_cookies(start_dwell, app):
    """The same, where requests with cookies share as others do."""
    route = {"prefix": "/poll/", "share_cookies": True}
    return start_dwell(upstream={"url": app.url}, server={"pollers": 1}, route=[route])


def ask_together(dwell, app, cleanup, asks):
    """Sends polls for one key while the application hangs; `asks` has the fields of each."""
    app.hang()
    clients = []
    for fields in asks:
        clients.append(cleanup.enter_context(dwell.connect()))
        clients[-1].ask(KEY, fields=fields)
        dwell.await_misses(app, len(clients))
    return clients


def count_answers(app):
    """Lets each answer say which request it is for."""
    app.answer = lambda request: Answer(b"%d" % app.requests.index(request))


def test_a_shared_answer_says_that_it_is(one_loop, app, cleanup):
    clients = ask_together(one_loop, app, cleanup, [{}, {}])
    app.release()
    first, second = [client.answer() for client in clients]
    assert first.field("Cache-Status") == "dwell; fwd=miss"
    assert second.field("Cache-Status") == "dwell; fwd=miss; collapsed"
    assert first.body == second.body == b"from the app"
    assert first.field("Poll-Cursor") == second.field("Poll-Cursor") is not None


def test_a_request_with_credentials_is_sent_by_itself(one_loop, app, cleanup):
    count_answers(app)
    asks = [{}, {"Authorization": "Basic YTpi"}, {}, {"Authorization": "Basic YzpkCg"}]
    clients = ask_together(one_loop, app, cleanup, asks)
    app.release()
    assert [client.answer().body for client in clients] == [b"0", b"1", b"0", b"2"]
    sent = [request.field("Authorization") for request in app.requests]
    assert sent == [None, "Basic YTpi", "Basic YzpkCg"]


@pytest.mark.parametrize(
    "field",
    [
        ("Set-Cookie", "session=1"),
        ("Cache-Control", "private"),
        ("Cache-Control", "max-age=0, no-store"),
        ("Vary", "Cookie"),
        ("Vary", "*"),
    ],
)
def test_an_answer_for_one_client_goes_to_no_other(sharing_cookies, app, cleanup, field):
    app.answer = lambda request: Answer(request.field("Cookie").encode(), fields=(field,))
    names = ["name=alice", "name=bob", "name=carol"]
    clients = ask_together(sharing_cookies, app, cleanup, [{"Cookie": name} for name in names])
    assert len(app.requests) == 1
    app.release()
    answers = [client.answer() for client in clients]
    assert [answer.body.decode() for answer in answers] == names
    assert [answer.field(field[0]) for answer in answers] == [field[1]] * 3


def test_a_request_with_a_cookie_shares_nothing(edge, app, cleanup):
    app.answer = lambda request: Answer((request.field("Cookie") or "nobody").encode())
    asks = [{"Cookie": "name=alice"}, {"Cookie": "name=bob"}, {}]
    clients = ask_together(edge, app, cleanup, asks)
    app.release()
    answers = [client.answer() for client in clients]
    assert [answer.body for answer in answers] == [b"name=alice", b"name=bob", b"nobody"]
    # Nor does anybody get it later, when the application fails.
    app.answer = lambda request: Answer(b"", 500)
    assert [edge.get(KEY, fields=fields).body for fields in asks[:2]] == [b"", b""]


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_goes_to_no_other(one_loop, app, cleanup, status):
    app.answer = lambda request: Answer(b"", 200 if request.field("Cookie") else status)
    clients = ask_together(one_loop, app, cleanup, [{}, {"Cookie": "name=bob"}])
    app.release()
    assert [client.answer().status for client in clients] == [status, 200]


def test_an_answer_in_one_of_several_codings_is_shared(one_loop, app, cleanup):
    app.answer = lambda request: Answer(b"plain", fields=(("Vary", "Accept-Encoding"),))
    asks = [{"Accept-Encoding": "gzip"}, {"Accept-Encoding": "br"}]
    clients = ask_together(one_loop, app, cleanup, asks)
    app.release()
    assert [client.answer().body for client in clients] == [b"plain"] * 2
    assert len(app.requests) == 1


def test_what_a_client_says_goes_along_with_a_request_of_its_own_alone(edge, app):
    fields = {
        "If-None-Match": '"abc"',
        "If-Modified-Since": "Tue, 15 Nov 1994 12:45:26 GMT",
        "Range": "bytes=0-3",
        "If-Range": '"abc"',
        "Accept-Encoding": "gzip",
        "Accept-Language": "eo",
    }
    assert edge.get(f"{KEY}?since=x&wait=1&room=2", fields=fields).status == 200
    assert app.requests[0].target == f"{KEY}?room=2"
    assert {name: app.requests[0].field(name) for name in fields} == dict.fromkeys(fields)
    # What is refused so is asked for once more as it came.
    app.answer = lambda request: Answer(b"", 200 if request.field("Accept-Language") else 406)
    assert edge.get("/poll/bob?wait=1", fields=fields).status == 200
    assert app.requests[2].target == "/poll/bob?wait=1"
    assert {name: app.requests[2].field(name) for name in fields} == fields


@pytest.mark.parametrize("victim_first", [True, False])
def test_attackers_who_ask_all_the_time_leave_the_others_their_answers(
    start_dwell, app, cleanup, victim_first
):
    """Fields that applications refuse, fall over, or answer with something else."""
    route = {"prefix": "/poll/", "negative": "1h"}
    dwell = start_dwell(upstream={"url": app.url}, route=[route], server={"pollers": 2})

    def answer(request):
        if request.field("X-Bad") or len(request.field("X-Long") or "") > 4096:
            return Answer(b"bad", 400)
        if request.field("X-Crash") or "crash" in request.target:
            return Answer(b"crashed", 500)
        host = request.field("X-Forwarded-Host") or ""
        return Answer(b"for " + host.encode(), 302 if "evil" in host else 200)

    app.answer = answer
    hostile = [
        {"X-Bad": "1"},
        {"X-Long": "x" * 5000},
        {"X-Crash": "1"},
        {"X-Forwarded-Host": "evil"},
    ]
    asks = [{}, *hostile] if victim_first else [*hostile, {}]
    for number in range(5):
        app.hang()
        clients, key = [], f"/poll/{number}"
        for fields in asks:
            clients.append(cleanup.enter_context(dwell.connect()))
            clients[-1].ask(key, fields=fields)
        app.await_requests(1)
        app.release()
        answers = [client.answer() for client in clients]
        victim = answers[0 if victim_first else -1]
        assert (victim.status, victim.body) == (200, b"for localhost")
        assert dwell.get(f"{key}?crash").status == 500
        assert dwell.get(key).status == 200


def test_a_failure_of_one_kind_of_request_is_remembered_for_no_other(start_dwell, app):
    route = {"prefix": "/poll/", "negative": "1h"}
    dwell = start_dwell(upstream={"url": app.url}, route=[route], server={"pollers": 1})
    app.answer = lambda request: Answer(b"", 500 if "?" in request.target else 200)
    for _ in range(2):
        assert dwell.get(f"{KEY}?crash").status == 500
    assert len(app.requests) == 1
    assert dwell.get(f"{KEY}?since=.").status == 200


@pytest.mark.parametrize(("target", "method"), [(KEY, "POST"), (KEY, "HEAD"), ("/page", "GET")])
def test_a_request_of_its_own_is_sent_whole(edge, app, target, method):
    fields = {"Range": "bytes=0-3", "Accept-Encoding": "gzip", "If-None-Match": '"abc"'}
    assert edge.get(target, method, fields).status == 200
    assert {name: app.requests[0].field(name) for name in fields} == fields
