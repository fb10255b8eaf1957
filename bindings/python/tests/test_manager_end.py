"""The end of the manager, the memory it takes, and its children."""

from __future__ import annotations

import gc
import os
import resource
import select
import socket
import sys
import threading
import weakref

import pytest

from dwell import Connection, Event, Manager
from support import Loop, answer, body_of, port_of

# Ends.


def test_close_tells_every_connection_and_frees_all():
    with Loop() as loop:
        listener = loop.listen()
        with loop.client(listener):
            loop.until_told(Event.ACCEPT)
            timer = loop.manager.timer_add(1000, print)
            loop.manager.close()
            loop.manager.close()
        assert [event for _, event in loop.told].count(Event.CLOSE) == 2
        assert loop.manager.connections == ()
        assert not timer.active
        timer.cancel()
        for call in [
            lambda: loop.manager.poll(0),
            lambda: loop.manager.wakeup(1),
            lambda: loop.manager.wakeup(),
            lambda: loop.manager.timer_add(1, print),
            lambda: loop.manager.listen("http://127.0.0.1:0"),
            lambda: loop.manager.connect("http://127.0.0.1:1"),
            lambda: loop.manager.ws_connect("ws://127.0.0.1:1"),
            lambda: loop.manager.fileno(),
        ]:
            with pytest.raises(RuntimeError, match="Manager has been freed"):
                call()


def test_close_lets_out_what_is_queued():
    body = bytes(1 << 20)

    def handler(conn, event, data):
        if event == Event.HTTP_MSG:
            conn.reply(200, body)
            loop.manager.close()

    received = []
    with Loop(handler) as loop:
        port = port_of(loop.listen())

        def client():
            with socket.create_connection(("127.0.0.1", port)) as sock:
                sock.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
                while data := sock.recv(1 << 16):
                    received.append(data)

        thread = threading.Thread(target=client)
        thread.start()
        while not loop.manager.closed:
            loop.manager.poll(100)
        thread.join()
    assert body_of(b"".join(received)) == body


def test_the_context_lets_exceptions_through():
    with pytest.raises(KeyError), Manager() as manager:
        raise KeyError
    assert manager.closed


def test_a_dropped_manager_is_collected_with_its_sockets():
    def make():
        manager = Manager(lambda *_: manager)
        listener = manager.listen("http://127.0.0.1:0", lambda *_: manager)
        listener.userdata = manager
        manager.timer_add(1000, lambda: manager, repeat=True)
        manager.poll(0)
        return weakref.ref(manager), weakref.ref(listener)

    gc.collect()
    before = len(os.listdir("/dev/fd"))
    made = [make() for _ in range(20)]
    gc.collect()
    assert [reference() for pair in made for reference in pair] == [None] * 40
    assert len(os.listdir("/dev/fd")) == before


def test_a_connection_outlives_its_manager():
    manager = Manager()
    listener = manager.listen("http://127.0.0.1:0")
    del manager
    gc.collect()
    assert listener.id == 0
    with pytest.raises(RuntimeError, match="closed"):
        listener.send("x")


# Memory.


def test_requests_leave_nothing_behind():
    def handler(conn, event, message):
        if event == Event.HTTP_MSG:
            message.headers()
            message.query_var("q")
            conn.reply(200, message.body_bytes, {"X-A": message.uri})

    with Loop(handler) as loop, loop.client(loop.listen()) as client:
        references = [handler, Event.HTTP_MSG]

        def rounds(count):
            for _ in range(count):
                client.get("/a?q=1")
            loop.told.clear()
            gc.collect()
            return [sys.getrefcount(each) for each in references], len(gc.get_objects())

        rounds(50)
        counts, objects = rounds(50)
        later_counts, later_objects = rounds(500)
        assert later_counts == counts
        assert abs(later_objects - objects) < 20


def test_ten_thousand_idle_connections_have_no_objects_and_cost_a_poll_nothing():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Both ends of each are here; other tests, and those who read them, have some too.
    others = len(os.listdir("/dev/fd")) + 100
    count = min(10_000, (hard - others) // 2)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * count + others), hard))
    calls = []

    def handler(conn, event, data):
        calls.append(1)
        if event == Event.HTTP_MSG:
            conn.reply(200, "ok")

    with Manager(handler) as manager:
        port = port_of(manager.listen("http://127.0.0.1:0"))
        clients = []
        try:
            for _ in range(count):
                client = socket.create_connection(("127.0.0.1", port))
                client.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
                clients.append(client)
                if len(clients) % 100 == 0:
                    manager.poll(0)
            waiting = select.epoll()
            for client in clients:
                waiting.register(client, select.EPOLLIN | select.EPOLLONESHOT)
            answered = 0
            while answered < count:
                manager.poll(0)
                answered += len(waiting.poll(0, 1000))
            waiting.close()
            gc.collect()
            live = sum(type(each) is Connection for each in gc.get_objects())
            assert live <= 2
            calls.clear()
            manager.poll(0)
            manager.poll(1)
            assert calls == []
            assert len(manager.connections) == count + 1
        finally:
            for client in clients:
                client.close()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# Processes.


def test_a_child_has_nothing_of_its_parents_manager():
    with Loop(answer) as loop:
        listener = loop.listen()
        with loop.client(listener) as client:
            client.get()
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    for call in [
                        lambda: loop.manager.poll(0),
                        lambda: loop.manager.wakeup(),
                        lambda: loop.manager.listen("http://127.0.0.1:0"),
                        lambda: listener.close(),
                    ]:
                        with pytest.raises(RuntimeError, match="process"):
                            call()
                    loop.manager.close()
                    del loop.manager
                    gc.collect()
                    with Manager(answer) as own:
                        own.listen("http://127.0.0.1:0")
                        own.poll(0)
                    status = 0
                finally:
                    os._exit(status)
            assert os.waitpid(child, 0)[1] == 0
            assert client.get().startswith(b"HTTP/1.1 200")


def test_fileno_is_ready_when_there_is_something_to_tell():
    with Loop(answer) as loop:
        listener = loop.listen()
        loop.manager.poll(0)
        ready = select.poll()
        ready.register(loop.manager.fileno(), select.POLLIN)
        assert ready.poll(0) == []
        with loop.client(listener) as client:
            client.socket.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            assert ready.poll(5000)
            client.answer()


# Draining.

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


def begin_events(conn):
    conn.http_sse("news", "1")


def begin_raw(conn):
    conn.send(STREAM)
    conn.send(b"event: news\ndata: 1\n\n")


def begin_chunks(conn):
    conn.reply(200, "", {"Transfer-Encoding": "chunked"})
    conn.http_chunk("event: news\ndata: 1\n\n")


@pytest.mark.parametrize("begin", [begin_events, begin_raw, begin_chunks])
@pytest.mark.parametrize("where", ["handler", "outside", "other"])
def test_drain_ends_a_stream(begin, where):
    open_one: list[Connection] = []

    def handler(conn, event, data):
        if event == Event.HTTP_MSG and data.uri == "/other":
            open_one[0].drain()
            conn.reply(200, "ok")
        elif event == Event.HTTP_MSG:
            open_one.append(conn)
            begin(conn)
            if where == "handler":
                conn.drain()
                assert conn.is_draining

    with Loop(handler) as loop:
        listener = loop.listen()
        with loop.client(listener) as client:
            client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            loop.until(lambda: open_one)
            if where == "outside":
                open_one[0].drain()
                assert open_one[0].is_draining
            if where == "other":
                loop.ask(listener, b"GET /other HTTP/1.1\r\nHost: a\r\n\r\n")
            received = client.rest()
        assert b"data: 1" in received
        if begin is begin_chunks:
            # The client sees that it is whole.
            assert received.endswith(b"0\r\n\r\n")
        loop.until(lambda: not open_one[0].id)


def test_drain_lets_out_what_is_queued():
    body = b"x" * (1 << 20)

    def handler(conn, event, data):
        if event == Event.HTTP_MSG:
            conn.send(STREAM)
            conn.send(body)
            conn.drain()

    with Loop(handler) as loop:
        listener = loop.listen()
        with loop.client(listener) as client:
            client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            loop.until_told(Event.HTTP_MSG)
            assert client.rest() == STREAM + body


def test_a_request_has_status_0():
    seen: list[int | None] = []

    def handler(conn, event, data):
        if event == Event.HTTP_MSG:
            seen.append(data.status())
            conn.reply(200, "ok")

    with Loop(handler) as loop:
        loop.ask(loop.listen(), b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    assert seen == [0]
