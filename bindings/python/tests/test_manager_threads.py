"""What other threads may do while one polls."""

from __future__ import annotations

import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator

import pytest

from dwell import Connection, Event, Manager
from support import Loop, answer, port_of


class Polled:
    """A manager that another thread polls."""

    def __init__(self, handler=answer) -> None:
        self.manager = Manager(handler)
        self.is_over = False
        self.thread = threading.Thread(target=self._poll, daemon=True)

    def _poll(self) -> None:
        while not self.is_over:
            self.manager.poll(60_000)

    def __enter__(self) -> Polled:
        self.thread.start()
        while repr(self.manager) != "<Manager polling>":
            assert self.thread.is_alive()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.is_over = True
        self.manager.wakeup()
        self.thread.join(30)
        assert not self.thread.is_alive()
        self.manager.close()


@pytest.fixture
def polled() -> Iterator[Polled]:
    with Polled() as polled:
        yield polled


def ask(conn: Connection) -> bytes:
    with socket.create_connection(("127.0.0.1", port_of(conn)), 30) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        return b"".join(iter(lambda: client.recv(65536), b""))


def test_a_manager_is_asked_while_another_thread_polls(polled):
    manager = polled.manager
    listener = manager.listen("http://127.0.0.1:0")
    assert ask(listener).endswith(b"ok")
    assert listener in manager.connections
    assert manager.connect(f"http://127.0.0.1:{port_of(listener)}").is_client is True
    with pytest.raises(RuntimeError, match="Failed to listen"):
        manager.listen(f"http://127.0.0.1:{port_of(listener)}")
    rung = threading.Event()
    timer = manager.timer_add(0, rung.set, repeat=True)
    assert rung.wait(30)
    timer.cancel()
    assert repr(manager) in (
        "<Manager polling>",
        f"<Manager connections={len(manager.connections)}>",
    )


def test_a_connection_is_asked_while_another_thread_polls(polled):
    listener = polled.manager.listen("tcp://127.0.0.1:0")
    assert listener.local_addr[:2] == ("127.0.0.1", port_of(listener))
    assert listener.remote_addr is None
    assert (listener.is_listening, listener.is_client, listener.is_websocket) == (
        True,
        False,
        False,
    )
    with socket.create_connection(("127.0.0.1", port_of(listener)), 30) as client:
        conn = None
        while conn is None:
            others = [conn for conn in polled.manager.connections if conn != listener]
            conn = others[0] if others else None
        assert conn.remote_addr[:2] == client.getsockname()
        # Back-pressure in a worker: what was sent before is counted.
        while not conn.is_full:
            conn.send(bytes(1 << 18))
        assert not conn.is_writable
        assert conn.send_len > 0
        assert not conn.is_closing
        conn.close()
        assert conn.is_closing
        assert f"<Connection id={conn.id}" in repr(conn) or repr(conn) == "<Connection closed>"
    listener.close()
    assert listener.is_closing
    while listener.id:
        assert listener.is_closing
    assert repr(listener) == "<Connection closed>"
    assert listener.local_addr is None


def test_many_threads_ask_at_once(polled):
    listener = polled.manager.listen("http://127.0.0.1:0")
    wrong: list[object] = []

    def work() -> None:
        try:
            for _ in range(50):
                opened = polled.manager.listen("tcp://127.0.0.1:0")
                assert opened.is_listening
                assert {listener, opened} <= set(polled.manager.connections)
                opened.close()
                assert opened.is_closing
        except BaseException as error:
            wrong.append(error)
            raise

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong
    assert ask(listener).endswith(b"ok")


def test_a_question_outlives_the_poll_it_was_asked_in():
    # The poll ends by what the question wakes it with, or before; it is answered either way.
    with Loop() as loop:
        listener = loop.listen()
        answers: list[bool] = []
        begun = threading.Event()

        def work() -> None:
            for _ in range(200):
                answers.append(listener.is_listening)
                begun.set()

        thread = threading.Thread(target=work)
        thread.start()
        assert begun.wait(30)
        while thread.is_alive():
            loop.manager.poll(1)
        assert answers == [True] * 200


def test_a_handler_that_waits_for_the_asking_thread():
    program = """
        import threading
        from dwell import Event, Manager
        asked = threading.Event()
        def work():
            try:
                listener.is_full
            except RuntimeError as error:
                print(error)
            print(repr(listener).startswith("<Connection id="))
            asked.set()
        def handler(conn, event, data):
            if event == Event.WAKEUP:
                threading.Thread(target=work).start()
                assert asked.wait(30)
        with Manager(handler) as manager:
            listener = manager.listen("tcp://127.0.0.1:0")
            manager.wakeup(listener.id)
            manager.poll(1000)
            print(listener.is_listening)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert done.stderr == ""
    assert "has not answered within 10 s" in lines[0]
    assert lines[1:] == ["True", "True"]


def test_run_in_a_handler_is_refused():
    refused: list[str] = []

    def handler(conn, event, data):
        if event == Event.HTTP_MSG:
            try:
                loop.manager.run()
            except RuntimeError as error:
                refused.append(str(error))
            conn.reply(200, "ok")

    with Loop(handler) as loop:
        listener = loop.listen()
        for _ in range(2):
            assert b"200 OK" in loop.ask(listener, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert not loop.manager.closed
    assert len(refused) == 2
    assert "poll() is not reentrant" in refused[0]


def test_run_beside_a_poll_is_refused(polled):
    with pytest.raises(RuntimeError, match="not reentrant"):
        polled.manager.run()
    assert not polled.manager.closed
    assert ask(polled.manager.listen("http://127.0.0.1:0")).endswith(b"ok")
