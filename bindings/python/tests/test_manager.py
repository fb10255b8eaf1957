"""The manager itself: listening, handlers and connections."""

from __future__ import annotations

import errno
import functools
import sys

import pytest

import dwell
from dwell import Connection, Event, Manager
from support import Loop, answer, body_of, port_of

# Listening.


def test_a_listener():
    with Manager() as manager:
        assert manager.connections == ()
        listener = manager.listen("http://127.0.0.1:0")
        assert manager.connections == (listener,)
        assert manager.connections[0] is listener
        assert listener.is_listening
        assert listener.local_addr[0] == "127.0.0.1"
        assert listener.local_addr[2] is False
        assert listener.remote_addr is None
        assert repr(listener) == f"<Connection id={listener.id} readable=False writable=False>"
        assert repr(manager) == "<Manager connections=1>"
        with pytest.raises(RuntimeError, match="another protocol"):
            listener.send("x")
    assert repr(manager) == "<Manager closed>"
    assert repr(listener) == "<Connection closed>"


def test_ipv6():
    with Manager() as manager:
        try:
            listener = manager.listen("http://[::1]:0")
        except RuntimeError:
            pytest.skip("no IPv6 here")
        assert listener.local_addr[::2] == ("::1", True)


def test_a_port_in_use():
    with Manager() as manager:
        port = port_of(manager.listen("http://127.0.0.1:0"))
        with pytest.raises(
            RuntimeError, match=f"Failed to listen on 'http://127.0.0.1:{port}'"
        ) as caught:
            manager.listen(f"http://127.0.0.1:{port}")
        assert isinstance(caught.value.__cause__, OSError)
        assert caught.value.__cause__.errno == errno.EADDRINUSE
        assert len(manager.connections) == 1


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("http://127.0.0.1:99999", "99999"),
        ("http://127.0.0.1:-1", "-1"),
        ("http://127.0.0.1:x", "x"),
        ("tcp://127.0.0.1", "missing port"),
        ("udp://127.0.0.1:1", "scheme"),
        ("nonsense", "scheme"),
        ("", "scheme"),
        ("unix://relative", "path"),
    ],
)
def test_bad_urls(url, text):
    with Manager() as manager:
        for open_it, verb in [(manager.listen, "listen on"), (manager.connect, "connect to")]:
            with pytest.raises(ValueError, match=text) as caught:
                open_it(url)
            assert isinstance(caught.value, RuntimeError)
            assert str(caught.value).startswith(f"Failed to {verb} '{url}': ")


@pytest.mark.parametrize(
    "call",
    [
        lambda manager: manager.listen(5),
        lambda manager: manager.listen("http://127.0.0.1:0", 5),
        lambda manager: manager.listen(),
        lambda manager: manager.poll("1"),
        lambda manager: manager.poll(1.5),
        lambda manager: manager.wakeup(1, "text"),
        lambda manager: manager.wakeup("1"),
        lambda manager: manager.timer_add(1, 5),
        lambda manager: manager.timer_add("1", print),
        lambda manager: manager.timer_add(1, print, True),
        lambda manager: Manager(5),
        lambda manager: Manager(error_handler=5),
        lambda manager: Manager(unknown=1),
        lambda manager: Manager(events=5),
        lambda manager: Connection(),
    ],
)
def test_wrong_types(call):
    with Manager() as manager, pytest.raises(TypeError):
        call(manager)


@pytest.mark.parametrize(
    "call",
    [
        lambda manager: manager.timer_add(-1, print),
        lambda manager: Manager(events=[99]),
    ],
)
def test_wrong_values(call):
    with Manager() as manager, pytest.raises(ValueError, match="-1|99"):
        call(manager)


# Handlers.


def test_handlers_are_inherited_and_replaced():
    told = []

    def named(name):
        def handler(conn, event, data):
            if event == Event.HTTP_MSG:
                told.append((name, conn.handler))
                conn.reply(200)

        return handler

    default, own, other = named("default"), named("own"), named("other")
    manager = Manager(default)
    with Loop() as loop:
        loop.manager.close()
        loop.manager = manager
        listener = loop.listen("http://127.0.0.1:0", own)
        assert listener.handler is own
        with loop.client(listener) as client:
            client.get()
            listener.set_handler(other)
            client.get()
            with loop.client(listener) as later:
                later.get()
            [conn] = [conn for conn in manager.connections if not conn.is_listening][:1]
            conn.set_handler(None)
            client.get()
    assert told == [("own", own), ("own", own), ("other", other), ("default", None)]


class Handlers:
    """The forms that a handler can have; each answers with its name."""

    def method(self, conn, event, _data):
        if event == Event.HTTP_MSG:
            conn.reply(200, "method")

    def __call__(self, conn, event, _data):
        if event == Event.HTTP_MSG:
            conn.reply(200, "object")

    @staticmethod
    def function(name, conn, event, *rest):
        assert len(rest) == 1
        if event == Event.HTTP_MSG:
            conn.reply(200, name)


class Constructed:
    """A class whose objects are made for each event."""

    def __init__(self, conn, event, _data):
        Handlers.function("class", conn, event, _data)


@pytest.mark.parametrize(
    ("handler", "name"),
    [
        (Handlers().method, "method"),
        (Handlers(), "object"),
        (functools.partial(Handlers.function, "partial"), "partial"),
        (lambda *arguments: Handlers.function("any", *arguments), "any"),
        (Constructed, "class"),
    ],
)
def test_whatever_can_be_called_is_a_handler(handler, name):
    with Loop() as loop:
        listener = loop.listen("http://127.0.0.1:0", handler)
        assert body_of(loop.ask(listener, b"GET / HTTP/1.0\r\n\r\n")) == name.encode()


@pytest.mark.parametrize("fails", [False, True])
def test_what_a_handler_is_given_is_let_go_of(fails):
    given = []

    def handler(conn, event, message):
        if event != Event.HTTP_MSG:
            return
        given.append(tuple(map(sys.getrefcount, (conn, event, message))))
        if fails:
            raise ValueError
        conn.reply(200)

    options = {"error_handler": lambda _error: None}
    with Loop(handler, **options) as loop, loop.client(loop.listen()) as client:
        for _ in range(20):
            client.get()
            loop.told.clear()
    # The first requests may make what the others find.
    assert len(set(given[2:])) == 1


def test_only_the_events_asked_for():
    with Loop(answer, events=[Event.HTTP_MSG]) as loop:
        with loop.client(loop.listen()) as client:
            client.get()
        loop.until_told(Event.CLOSE)
        assert loop.events(2) == ["HTTP_MSG", "CLOSE"]


def test_poll_events_are_told_where_they_are_wanted():
    with Loop() as loop:
        listener = loop.listen()
        loop.manager.poll(0)
        listener.set_poll_events(True)
        loop.manager.poll(0)
        loop.manager.poll(0)
        listener.set_poll_events(False)
        loop.manager.poll(0)
        assert loop.events(listener.id) == ["OPEN", "POLL", "POLL"]


def test_an_error_of_ones_own():
    told = []

    def handler(conn, event, data):
        if event == Event.HTTP_MSG:
            conn.error("broken")
        elif event in (Event.ERROR, Event.CLOSE):
            told.append((event, data))

    with Loop(handler) as loop, loop.client(loop.listen()) as client:
        client.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        client.rest()
        loop.until(lambda: len(told) == 2)
        assert told == [(Event.ERROR, "broken"), (Event.CLOSE, None)]


# Connections.


def test_one_object_for_each_connection_while_it_is_referenced():
    seen = []

    def handler(conn, event, data):
        if event == Event.HTTP_MSG:
            seen.append(conn)
            conn.reply(200)

    with Loop(handler) as loop:
        listener = loop.listen()
        with loop.client(listener) as first, loop.client(listener) as second:
            for _ in range(3):
                first.get()
                second.get()
            assert seen[0::2] == [seen[0]] * 3
            assert seen[1::2] == [seen[1]] * 3
            assert seen[0] is not seen[1]
            assert set(loop.manager.connections) == {listener, seen[0], seen[1]}
            assert seen[0].remote_addr[1] == first.socket.getsockname()[1]
            assert seen[1].remote_addr[1] == second.socket.getsockname()[1]


def test_userdata_stays_though_nobody_has_the_object():
    def handler(conn, event, data):
        if event == Event.ACCEPT:
            assert conn.userdata is None
            conn.userdata = [0]
        elif event == Event.HTTP_MSG:
            conn.userdata[0] += 1
            conn.reply(200, str(conn.userdata[0]))

    with Loop(handler) as loop:
        listener = loop.listen()
        with loop.client(listener) as first, loop.client(listener) as second:
            answers = [body_of(client.get()) for client in [first, second, first, second, first]]
    assert answers == [b"1", b"1", b"2", b"2", b"3"]


def test_a_closed_connection():
    seen = []
    with Loop(lambda conn, event, data: seen.append(conn)) as loop:
        listener = loop.listen()
        with loop.client(listener):
            loop.until_told(Event.ACCEPT)
        loop.until_told(Event.CLOSE)
        conn = seen[-1]
        assert conn.id == 0
        assert conn.is_closing
        for name in ["is_listening", "is_client", "is_websocket", "is_full", "is_draining"]:
            assert getattr(conn, name) is False
        for name in ["is_readable", "is_writable", "is_tls", "is_udp"]:
            assert getattr(conn, name) is False
        assert (conn.recv_len, conn.send_len, conn.recv_size, conn.send_size) == (0, 0, 0, 0)
        assert (conn.recv_data(), conn.send_data()) == (b"", b"")
        assert conn.local_addr is conn.remote_addr is conn.handler is None
        assert repr(conn) == "<Connection closed>"
        conn.close()
        conn.drain()
        conn.set_handler(None)
        for call in [
            lambda: conn.send("x"),
            lambda: conn.reply(200),
            lambda: conn.reply_json({}),
            lambda: conn.http_chunk("x"),
            lambda: conn.http_sse("a", "b"),
            lambda: conn.ws_send("x"),
            lambda: conn.error("x"),
            lambda: conn.http_basic_auth("a", "b"),
        ]:
            with pytest.raises(RuntimeError, match="Connection has been closed"):
                call()


# What is left out.


@pytest.mark.parametrize(
    "call",
    [
        lambda manager, conn: manager.mqtt_connect("mqtt://h"),
        lambda manager, conn: manager.mqtt_listen("mqtt://h"),
        lambda manager, conn: manager.sntp_connect("udp://h"),
        lambda manager, conn: conn.mqtt_pub("a", "b"),
        lambda manager, conn: conn.sntp_request(),
        lambda manager, conn: conn.tls_init(None),
        lambda manager, conn: conn.resolve("http://h"),
        lambda manager, conn: dwell.Rpc(),
        lambda manager, conn: dwell.md5(b""),
        lambda manager, conn: dwell.json_get(b"", "$"),
    ],
)
def test_what_is_left_out_says_what_there_is_instead(call):
    with Manager() as manager:
        listener = manager.listen("http://127.0.0.1:0")
        with pytest.raises(NotImplementedError, match="use|dwell|names"):
            call(manager, listener)
