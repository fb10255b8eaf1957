"""WebSocket on poll routes: the values of one key or several, by the cursor of all transports."""

import json
import signal
import struct

import pytest

from support.events import EventStream
from support.upstream import Answer
from support.wait import Stopwatch, until
from support.websocket import BINARY, CLOSE, WebSocket

KEY = "/poll/alice"


@pytest.fixture
def connect(cleanup):
    """Opens a WebSocket."""

    def begin(dwell, target=KEY, fields=(), **options):
        return cleanup.enter_context(WebSocket(dwell.address, target, fields, **options))

    return begin


def cursor(dwell, key=KEY):
    return dwell.get(key).field("Poll-Cursor")


def test_a_socket_begins_with_the_value_and_brings_every_news(backend, connect):
    dwell, cache = backend
    cache.set(KEY, b"one")
    socket = connect(dwell)
    assert (socket.response.status, socket.response.reason) == (101, "Switching Protocols")
    assert socket.response.field("Sec-WebSocket-Protocol") is None
    assert socket.hear() == {"v": "one", "c": cursor(dwell)}
    with Stopwatch() as watch:
        cache.set(KEY, b'"two"\nlines')
        assert socket.hear() == {"v": '"two"\nlines', "c": cursor(dwell)}
    assert watch.seconds < 10
    cache.set(KEY, b'"two"\nlines')
    cache.set(KEY, b"\xff\x00")
    assert socket.hear() == {"b64": "/wA=", "c": cursor(dwell)}
    cache.delete(KEY)
    assert socket.hear() == {"c": None}
    assert dwell.metric("dwell_websockets_open") == dwell.metric("dwell_waits_held") == 1
    socket.send_frame(struct.pack("!H", 1000), CLOSE)
    assert socket.hear() == 1000
    dwell.await_metric(1, "dwell_streams_ended_total", reason="client")
    dwell.await_waiters(0)
    dwell.await_metric(0, "dwell_websockets_open")


def test_several_keys_and_their_names(backend, connect, app):
    dwell, cache = backend
    app.answer = lambda request: Answer(status=404)
    cache.set("/poll/a", b"one")
    fields = {"Sec-WebSocket-Protocol": "other, dwell.v1"}
    socket = connect(dwell, "/poll/?k=a&k=b", fields)
    assert socket.response.field("Sec-WebSocket-Protocol") == "dwell.v1"
    a = cursor(dwell, "/poll/a")
    assert socket.hear() == {"k": "a", "v": "one", "c": a}
    cache.set("/poll/b", b"two")
    b = cursor(dwell, "/poll/b")
    assert socket.hear() == {"k": "b", "v": "two", "c": b}
    cache.set("/poll/c", b"three")
    c = cursor(dwell, "/poll/c")
    socket.say(subscribe=["a", "c", "d"], since={"d": a})
    heard = [socket.hear(), socket.hear()]
    assert {"k": "c", "v": "three", "c": c} in heard
    assert {"k": "d", "c": None} in heard
    socket.say(unsubscribe=["a", "x"])
    assert socket.hear() == {"error": "not subscribed", "k": "x"}
    dwell.await_waiters(3)
    cache.set("/poll/a", b"nobody hears this")
    cache.set("/poll/d", b"four")
    assert socket.hear()["k"] == "d"
    # It has what it was told, under whichever transport it comes back.
    with dwell.connect() as poll:
        poll.ask(f"/poll/?k=b&k=c&since={b}.{c}&wait=30")
        dwell.await_waiters(5)
        cache.set("/poll/c", b"3")
        assert json.loads(poll.answer().body)["values"].keys() == {"c"}
    assert socket.hear()["v"] == "3"


def test_transports_share_their_cursor(backend, connect):
    dwell, cache = backend
    cache.set(KEY, b"1")
    with connect(dwell) as socket:
        known = socket.hear()["c"]
    with EventStream(dwell.address, KEY, known).begin() as stream:
        cache.set(KEY, b"2")
        known = stream.event().id
    again = connect(dwell, f"{KEY}?since={known}")
    cache.set(KEY, b"3")
    assert again.hear()["v"] == "3"


def test_a_single_key_gets_company(lone_edge, connect):
    lone_edge.store().set("/poll/", b"all")
    socket = connect(lone_edge, "/poll/")
    assert socket.hear()["v"] == "all"
    socket.say(subscribe=["a"])
    lone_edge.await_waiters(2)
    lone_edge.store().set("/poll/a", b"one")
    assert socket.hear() == {"k": "a", "v": "one", "c": cursor(lone_edge, "/poll/a")}
    lone_edge.store().set("/poll/", b"every")
    assert socket.hear() == {"v": "every", "c": cursor(lone_edge, "/poll/")}
    socket.say(unsubscribe=["a"])
    lone_edge.await_waiters(1)


def test_keys_are_bounded_and_so_are_waits(start_dwell, connect):
    dwell = start_dwell(server={"pollers": 1}, limits={"waiters_max": 65})
    socket = connect(dwell, "/poll/?k=0")
    socket.say(subscribe=[str(number) for number in range(100)])
    assert socket.hear() == {"error": "more than 64 keys", "k": "64"}
    dwell.await_waiters(64)
    socket.say(subscribe=["x" * 250])
    assert socket.hear()["error"] == "more than 64 keys"
    socket.say(unsubscribe=["0"])
    socket.say(subscribe=["x" * 250])
    assert socket.hear() == {"error": "key exceeds 250 bytes: 256", "k": "x" * 250}
    other = connect(dwell, "/poll/?k=a")
    other.say(subscribe=["b", "c"])
    assert other.hear() == {"error": "too many polls are waiting", "k": "c"}
    dwell.await_output("limits.waiters_max is reached: ")
    assert "refused=1 limit=65 per_loop=65" in dwell.output()
    assert connect(dwell, "/poll/?k=d").response.status == 503
    dwell.await_metric(4, "dwell_websocket_errors_total")


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ((b"x",), 1008),
        ((b"[]",), 1008),
        ((b'{"subscribe":"a"}',), 1008),
        ((b'{"subscribe":["a"],"publish":{}}',), 1008),
        ((b"\x00", BINARY), 1003),
        ((b'"' + b"x" * 2000 + b'"',), 1009),
    ],
)
def test_what_is_no_frame_of_ours_ends_the_connection(start_dwell, connect, frame, code):
    dwell = start_dwell(limits={"websocket_message_bytes_max": "1kb"})
    socket = connect(dwell)
    socket.send_frame(*frame)
    assert socket.hear() == code
    socket.close()
    dwell.await_waiters(0)


def test_publishing_is_for_routes_that_allow_it(backend, connect):
    dwell, cache = backend
    cache.set(KEY, b"one")
    socket = connect(dwell)
    assert socket.hear()["v"] == "one"
    socket.say(publish={"k": "bob", "v": "hello"})
    assert socket.hear() == {"error": "publishing is not allowed here", "k": "bob"}


@pytest.mark.parametrize("kind", ["embedded", "memcached"])
def test_what_is_published_reaches_all_who_wait(start_dwell, memcached, connect, kind):
    sections = {"route": [{"prefix": "/poll/", "websocket_publish": True}]}
    if kind == "memcached":
        sections["memcached"] = {"servers": [memcached.name], "sweep_interval": "50ms"}
    dwell = start_dwell(**sections)
    first, second = connect(dwell, "/poll/?k=a"), connect(dwell, "/poll/a")
    dwell.await_waiters(2)
    first.say(publish={"k": "a", "v": "hello"})
    heard = [first.hear(), first.hear()]
    a = cursor(dwell, "/poll/a")
    assert {"published": "a", "c": a} in heard
    assert {"k": "a", "v": "hello", "c": a} in heard
    assert second.hear() == {"v": "hello", "c": a}
    second.say(publish={"b64": "/wA="})
    told = [second.hear(), second.hear()]
    assert {"published": None, "c": cursor(dwell, "/poll/a")} in told
    assert dwell.get("/poll/a").body == b"\xff\x00"
    assert first.hear()["b64"] == "/wA="


def test_a_page_of_another_host_may_not_connect(start_dwell, connect):
    page = {"Origin": "https://elsewhere.example"}
    own = {"Origin": "http://localhost"}
    dwell = start_dwell()
    assert connect(dwell, KEY, page).response.status == 403
    assert connect(dwell, KEY, {"Origin": "null"}).response.status == 403
    assert dwell.metric("dwell_polls_total", outcome="denied") == 2
    assert connect(dwell, KEY, own).response.status == 101
    route = {"prefix": "/poll/", "allowed_origins": ["https://elsewhere.example"]}
    dwell = start_dwell(route=[route])
    assert connect(dwell, KEY, page).response.status == 101
    assert connect(dwell, KEY).response.status == 101
    assert connect(dwell, KEY, own).response.status == 101
    assert connect(dwell, KEY, {"Origin": "https://other.example"}).response.status == 403
    dwell = start_dwell(route=[{"prefix": "/poll/", "allowed_origins": ["*"]}])
    assert connect(dwell, KEY, page).response.status == 101


def test_a_page_that_may_read_the_answers_may_connect(start_dwell, connect):
    page = {"Origin": "https://app.example"}
    routes = [
        {"prefix": "/poll/", "cors_origins": ["https://app.example"]},
        {"prefix": "/open/", "cors_origins": "*"},
    ]
    dwell = start_dwell(route=routes)
    assert connect(dwell, KEY, page).response.status == 101
    assert connect(dwell, KEY, {"Origin": "https://evil.example"}).response.status == 403
    # What any page may read, it may read without cookies; a handshake has them.
    assert connect(dwell, "/open/a", page).response.status == 403
    assert connect(dwell, "/open/a").response.status == 101


def test_a_handshake_that_is_none_is_refused(lone_edge):
    fields = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "12"}
    answer = lone_edge.get(KEY, fields=fields)
    assert (answer.status, answer.field("Sec-WebSocket-Version")) == (426, "13")


def test_a_slow_client_gets_the_newest_and_no_queue(backend, connect):
    dwell, cache = backend
    cache.set(KEY, b"0")
    socket = connect(dwell, receive_buffer_bytes=4096)
    number = 0
    while dwell.metric("dwell_stream_postponed_total") < 3:
        number += 1
        cache.set(KEY, f"{number} ".encode() + b"x" * 300_000)
        until(
            lambda sent=number: dwell.metric("dwell_wakeups_total", outcome="answered") >= sent,
            "told",
        )
    heard = [0]
    while heard[-1] != number:
        heard.append(int(socket.hear()["v"].split(" ")[0]))
    # In order, none twice, and those that it was too slow for are left out.
    assert heard[1:] == sorted(set(heard[1:]))
    assert len(heard) <= number


def test_a_quiet_socket_is_pinged_and_ended_in_its_time(start_dwell, connect):
    dwell = start_dwell(limits={"stream_heartbeat": "100ms", "stream_lifetime": "1s"})
    with Stopwatch() as watch:
        socket = connect(dwell)
        assert socket.hear() == 1001
    assert 0.7 <= watch.seconds < 20
    # There is time for nine; a busy machine leaves some out.
    assert socket.pings >= 2
    dwell.await_metric(1, "dwell_streams_ended_total", reason="lifetime")


def test_sockets_end_with_the_server(lone_edge, connect):
    sockets = [connect(lone_edge), connect(lone_edge, "/poll/?k=a&k=b")]
    lone_edge.await_waiters(3)
    lone_edge.signal(signal.SIGTERM)
    for socket in sockets:
        assert socket.hear() == 1001
        socket.send_frame(struct.pack("!H", 1001), CLOSE)
        assert socket.is_ended()
