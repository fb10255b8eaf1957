"""The same requests get the same answers over HTTP/1.1 and HTTP/2."""

import pytest

from support.http2_client import Http2Connection
from support.upstream import Answer

TOKEN = "0123456789abcdef0123456789"

ROUTES = [
    {"prefix": "/poll/", "share_cookies": True},
    {"prefix": "/board/", "key": "{path}", "publish": True},
    {"prefix": "/mine/", "key": "mine:{cookie.session}:{cookie.theme}"},
    {"prefix": "/hosts/", "key": "{scheme}:{header.host}:{path}"},
    {"prefix": "/header/", "key": "x:{header.x-key}:{query.room}"},
    {"prefix": "/empty/", "empty": "204"},
]

TARGETS = [
    ("/poll/alice", 200),
    ("/poll/alice?x=1&_=2", 200),
    ("/poll/large", 200),
    ("/poll/bob", 200),
    ("/poll/empty", 200),
    ("/empty/x", 204),
    ("/poll/a%20b?q", 200),
    ("/poll/alice?wait=nonsense", 400),
    ("/poll/alice?since=AAAAAAAAAAA", 200),
    ("/poll/?k=alice&k=bob&k=none", 200),
    ("/poll/?k=alice&k=alice", 200),
    ("/poll/?k=", None),
    ("/poll/" + 300 * "x", 414),
    ("/poll/../alice", None),
    ("/poll//alice", None),
    ("/poll/%zz", None),
    ("/poll/gone", 404),
    ("/poll/missed?x=%20", 203),
    ("/x/" + 1100 * "y", 414),
    ("/plain?a=b&a=c", 203),
    ("/plain;p=1/%2e%2e/b", 203),
    ("/mine/x", 400),
    ("/header/x", 400),
    ("/hosts/x", 203),
]

FIELDS = [
    ("/poll/alice", {"If-None-Match": '"AAAAAAAAAAA"'}),
    ("/poll/alice", {"If-None-Match": "*"}),
    ("/poll/alice", {"Accept-Encoding": "gzip", "Prefer": "wait=0"}),
    ("/poll/alice", {"Origin": "https://example.com"}),
    ("/poll/missed", {"Authorization": "Basic YTpi"}),
    ("/poll/missed", {"Cookie": "a=1; b=2", "X-One": "1", "Cache-Control": "no-cache"}),
    ("/poll/missed", {"X-Forwarded-For": "10.0.0.1", "X-Forwarded-Proto": "https"}),
    ("/plain", {"X-Forwarded-For": "10.0.0.1", "Forwarded": "for=10.0.0.1"}),
    ("/plain", {"Range": "bytes=0-1", "Accept": "*/*", "User-Agent": "test"}),
    ("/plain", {"X-Large": "y" * 5000}),
    ("/plain", {f"X-{number}": "" for number in range(60)}),
    ("/header/x?room=7", {"X-Key": "k"}),
    ("/mine/x", {"Cookie": "session=s1; theme=dark"}),
    ("/mine/x", {"Cookie": "session=s1"}),
    ("/mine/x", {"Cookie": "session=s1; session=s2; theme=dark"}),
    ("/plain", {"Expect": "something"}),
]

# Fields that belong to one connection, or to one moment.
OF_A_CONNECTION = {"connection", "date", "keep-alive", "transfer-encoding", "content-length"}


def echo(request):
    """Answers with all that has reached the application."""
    if request.target.startswith("/poll/gone"):
        return Answer(b"gone", 404)
    fields = sorted((name.lower(), value) for name, value in request.fields)
    told = [line for line in fields if line[0] not in ("via", "connection", "content-length")]
    lines = [f"{request.method} {request.target}", *map(str, told), repr(request.body)]
    kind = (("Content-Type", "text/plain"), ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"))
    return Answer("\n".join(lines).encode(), 203, kind)


@pytest.fixture
def edge(start_dwell, app):
    app.answer = echo
    dwell = start_dwell(
        server={"h2c": True},
        upstream={"url": app.url},
        publish={"token": TOKEN},
        limits={
            "head_bytes_max": 4096,
            "target_bytes_max": 1024,
            "header_count_max": 40,
            "body_bytes_max": 100_000,
        },
        route=ROUTES,
    )
    store = dwell.store()
    store.set("/poll/alice", b"news for alice")
    store.set("/poll/large", b"0123456789abcdef" * 20_000)
    store.set("/poll/bob", b"\xff\x00")
    store.set("/poll/empty", b"")
    store.set("/empty/x", b"")
    store.set("/poll/a%20b", b"as it is written")
    store.set("mine:s1:dark", b"for s1")
    return dwell


def own(answer):
    """What is the answer's own, and not its connection's."""
    fields = [(name.lower(), value) for name, value in answer.fields]
    return answer.status, sorted(f for f in fields if f[0] not in OF_A_CONNECTION), answer.body


def both(dwell, *request, **options):
    """Sends a request over either protocol; checks that the answers are the same."""
    fields = options.get("fields", ())
    fields = list(fields.items() if isinstance(fields, dict) else fields)
    with dwell.connect() as connection:
        first = connection.get(*request, **{**options, "fields": dict(fields)})
    with Http2Connection(dwell.address) as connection:
        second = connection.get(*request, **{**options, "fields": fields})
    assert own(first) == own(second), (request, options)
    lengths = [answer.all("Content-Length") for answer in (first, second)]
    assert lengths[0] == lengths[1] or lengths[0] == []
    return first


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "QUERY", "DELETE", "PATCH", "OPTIONS"])
def test_methods_and_targets(edge, method):
    body = b"a=1&b=2" if method in ("POST", "QUERY", "PATCH") else None
    for target, status in TARGETS:
        answer = both(edge, target, method, body=body)
        if status and method == "GET":
            assert answer.status == status, target


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_fields(edge, method):
    for target, fields in FIELDS:
        both(edge, target, method, fields=fields)


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "QUERY"])
def test_a_value_that_is_known(edge, method):
    cursor = edge.get("/poll/alice").field("Poll-Cursor")
    body = b"" if method == "POST" else None
    answer = both(edge, f"/poll/alice?since={cursor}", method, body=body)
    assert answer.status == (204 if method == "POST" else 304)
    if method != "POST":
        both(edge, "/poll/alice", method, fields={"If-None-Match": f'"{cursor}"'})
    both(edge, f"/poll/?k=alice&k=bob&since={cursor}.", method, body=body)
    waited = both(edge, f"/poll/alice?since={cursor}&wait=10ms", method, body=body)
    assert waited.status == 204


def test_cookies_in_crumbs_are_one_field(edge, app):
    crumbs = [("cookie", "session=s1"), ("x-between", "1"), ("cookie", "theme=dark")]
    with Http2Connection(edge.address) as connection:
        mine = connection.get("/mine/x", fields=crumbs)
        assert (mine.status, mine.body) == (200, b"for s1")
        connection.get("/plain", fields=crumbs)
    assert app.requests[-1].field("Cookie") == "session=s1; theme=dark"


def test_the_scheme_is_that_of_the_connection(edge):
    edge.store().set("http:a.example:/hosts/x", b"plain")
    edge.store().set("https:a.example:/hosts/x", b"secret")
    with Http2Connection(edge.address) as connection:
        for scheme in ("http", "https", "HTTPS"):
            answer = connection.get("/hosts/x", scheme=scheme, authority="a.example")
            assert answer.body == b"plain"


def test_the_authority_is_the_host(edge, app):
    with Http2Connection(edge.address) as connection:
        connection.get("/plain", authority="b.example:81")
        assert app.requests[-1].field("Host") == "b.example:81"
        connection.get("/plain", authority=None, fields={"host": "c.example"})
        assert app.requests[-1].field("Host") == "c.example"
        number = connection.ask("/plain", authority="b.example", fields={"host": "c.example"})
        assert connection.until(number, lambda stream: stream.is_over).reset == 1


@pytest.mark.parametrize("token", [TOKEN, "wrong", None])
def test_publishing(edge, token):
    for method in ("PUT", "POST", "DELETE"):
        publish_twice(edge, method, token)


def publish_twice(edge, method, token):
    fields = {"Authorization": f"Bearer {token}"} if token else {}
    body = b"published" if method != "DELETE" else None
    for options in ({"fields": fields, "body": body}, {"fields": fields}):
        # Each finds what the one before has left.
        edge.store().set("/board/a", b"old")
        with edge.connect() as connection:
            first = connection.get("/board/a", method, **options)
        value = edge.store().get("/board/a")
        edge.store().set("/board/a", b"old")
        with Http2Connection(edge.address) as connection:
            second = connection.get("/board/a", method, **options)
        assert own(first) == own(second)
        assert edge.store().get("/board/a") == value


def test_bodies_beyond_the_bounds(edge):
    both(edge, "/poll/none", "POST", body=bytes(70_000))
    both(edge, "/plain", "POST", body=bytes(200_000))


def test_misses_share_a_request_whatever_the_protocol(start_dwell, app, cleanup):
    dwell = start_dwell(upstream={"url": app.url}, server={"pollers": 1, "h2c": True})
    app.hang()
    first = cleanup.enter_context(dwell.connect())
    first.ask("/poll/alice")
    dwell.await_misses(app, 1)
    second = cleanup.enter_context(Http2Connection(dwell.address))
    asked = [second.ask("/poll/alice") for _ in range(3)]
    secret = second.ask("/poll/alice", fields={"authorization": "Basic YTpi"})
    dwell.await_misses(app, 5)
    app.answer = lambda request: Answer(b"%d" % app.requests.index(request))
    app.release()
    answers = [second.answer(number) for number in asked]
    assert first.answer().body == b"0"
    assert [answer.body for answer in answers] == [b"0"] * 3
    collapsed = [answer.field("cache-status") for answer in answers]
    assert collapsed == ["dwell; fwd=miss; collapsed"] * 3
    assert second.answer(secret).body == b"1"
