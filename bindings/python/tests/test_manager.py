"""The manager itself: polls, wake-ups, timers, signals, ends, memory, threads and forks."""

from __future__ import annotations

import errno
import gc
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from pathlib import Path

import pytest

import dwell
from dwell import Connection, Event, Manager
from support import Loop, body_of, port_of


def answer(conn, event, data):
    """Answers every request."""
    if event == Event.HTTP_MSG:
        conn.reply(200, "ok")


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
        ("https://127.0.0.1:0", "tls"),
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


# Waiting.


def test_a_poll_waits_no_longer_than_asked():
    with Manager() as manager:
        for timeout in (0, 30):
            began = time.monotonic()
            manager.poll(timeout)
            waited = time.monotonic() - began
            assert timeout / 1000 <= waited < timeout / 1000 + 2


def test_wakeups_reach_their_connection_whole_and_in_order():
    told = []
    with Loop(
        lambda conn, event, data: event == Event.WAKEUP and told.append((conn.id, data))
    ) as loop:
        one, two = loop.listen(), loop.listen()
        payloads = [b"", b"a\0b", bytes(1 << 20), bytearray(b"x"), memoryview(b"y")]
        for payload in payloads:
            assert loop.manager.wakeup(one.id, payload) is True
        assert loop.manager.wakeup(two.id) is True
        assert loop.manager.wakeup(12345, b"nobody") is True
        assert loop.manager.wakeup(0, b"x") is False
        assert loop.manager.wakeup() is True
        assert loop.manager.wakeup(loop.manager.wakeup_id) is True
        loop.manager.poll(0)
        assert told == [(one.id, bytes(payload)) for payload in payloads] + [(two.id, b"")]


@pytest.mark.parametrize("number", [-1, 1 << 70])
def test_ids_that_cannot_be(number):
    with Manager() as manager, pytest.raises(OverflowError):
        manager.wakeup(number)


def test_a_wakeup_ends_a_poll_at_once():
    with Manager() as manager:
        manager.wakeup()
        manager.poll(-1)
        threading.Timer(0.02, manager.wakeup).start()
        manager.poll(-1)


def test_a_storm_of_wakeups_from_threads_loses_none():
    told = []
    with Loop(lambda conn, event, data: event == Event.WAKEUP and told.append(data)) as loop:
        listener = loop.listen()

        def storm(name):
            for number in range(2000):
                assert loop.manager.wakeup(listener.id, f"{name} {number}".encode())

        threads = [threading.Thread(target=storm, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        loop.until(lambda: len(told) == 8000)
        for thread in threads:
            thread.join()
        loop.manager.poll(0)
    for name in range(4):
        assert [data for data in told if data.startswith(b"%d " % name)] == [
            f"{name} {number}".encode() for number in range(2000)
        ]


def test_threads_answer_through_their_connection():
    threads = []

    def handler(conn, event, message):
        if event == Event.HTTP_MSG:
            thread = threading.Thread(target=conn.reply, args=(200, message.uri))
            threads.append(thread)
            thread.start()

    with Loop(handler) as loop, loop.client(loop.listen()) as client:
        for number in range(20):
            assert body_of(client.get(f"/{number}")) == f"/{number}".encode()
    for thread in threads:
        thread.join()


def test_another_thread_is_told_what_it_may_not_do():
    entered, refused = threading.Event(), []
    with Loop() as loop:
        listener = loop.listen()

        def other():
            entered.wait()
            for call in [
                lambda: loop.manager.poll(0),
                lambda: loop.manager.listen("http://127.0.0.1:0"),
                lambda: loop.manager.close(),
                lambda: listener.local_addr,
            ]:
                try:
                    call()
                except RuntimeError as error:
                    refused.append(str(error))
            loop.manager.wakeup()

        thread = threading.Thread(target=other)
        thread.start()

        def ring():
            entered.set()
            thread.join()

        loop.manager.timer_add(0, ring)
        loop.until(lambda: not thread.is_alive())
    assert [text.split()[0] for text in refused] == ["poll()", "another", "Cannot", "another"]
    assert "not reentrant" in refused[0]
    assert "while poll() is active" in refused[2]


def test_a_poll_within_a_handler_is_refused():
    refused = []

    def handler(conn, event, data):
        if event == Event.WAKEUP:
            with pytest.raises(RuntimeError, match=r"poll\(\) is not reentrant"):
                loop.manager.poll(0)
            refused.append(event)

    with Loop(handler, error_handler=print) as loop:
        loop.manager.wakeup(loop.listen().id)
        loop.until(lambda: refused)


def test_other_threads_run_while_a_poll_waits():
    ran = threading.Event()
    with Manager() as manager:

        def work():
            ran.set()
            manager.wakeup()

        threading.Thread(target=work).start()
        manager.poll(-1)
    assert ran.is_set()


# Timers.


def test_timers():
    rung = []
    with Manager() as manager:
        once = manager.timer_add(20, lambda: rung.append("once"))
        manager.timer_add(0, lambda: rung.append("zero"))
        manager.timer_add(60_000, lambda: rung.append("now"), run_now=True, repeat=True)
        never = manager.timer_add(1, lambda: rung.append("never"))
        assert once.active
        assert repr(once) == "<Timer active>"
        never.cancel()
        never.cancel()
        assert not never.active
        manager.poll(0)
        assert sorted(rung) == ["now", "zero"]
        began = time.monotonic()
        while "once" not in rung:
            manager.poll(5000)
        assert time.monotonic() - began < 2
        assert not once.active
        assert repr(once) == "<Timer inactive>"
        assert sorted(rung) == ["now", "once", "zero"]


def test_a_timer_that_repeats_until_it_cancels_itself():
    rung = []
    with Manager() as manager:

        def ring():
            rung.append(timer.active)
            if len(rung) == 3:
                timer.cancel()

        timer = manager.timer_add(10, ring, repeat=True)
        while timer.active:
            manager.poll(1000)
        manager.poll(30)
    assert rung == [True, True, True]


def test_a_timer_is_cancelled_by_a_thread():
    with Manager() as manager:
        timer = manager.timer_add(10, lambda: pytest.fail("it rang"), repeat=True)
        thread = threading.Thread(target=timer.cancel)
        thread.start()
        thread.join()
        manager.poll(30)


def test_an_exception_in_a_timer_is_told():
    errors = []
    with Manager(error_handler=errors.append) as manager:
        manager.timer_add(0, lambda: 1 / 0)
        manager.poll(0)
    [error] = errors
    assert isinstance(error, ZeroDivisionError)
    assert error.__traceback__ is not None


def test_a_timer_reaches_the_manager_and_connections():
    with Loop() as loop:
        listener = loop.listen()
        made = []
        loop.manager.timer_add(
            0,
            lambda: made.extend(
                [
                    loop.manager.connections,
                    loop.manager.listen("http://127.0.0.1:0"),
                    loop.manager.timer_add(0, lambda: made.append("later")),
                    listener.local_addr,
                ]
            ),
        )
        loop.until(lambda: made and made[-1] == "later")
        assert made[0] == (listener,)
        assert made[3] == listener.local_addr
        assert made[1].is_listening


# Signals.


def interrupted(text: str, number: int) -> tuple[float, subprocess.CompletedProcess[str]]:
    """Runs a program, sends it a signal when it says so, and takes the time until it ends."""
    program = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(text)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    wait_until_asleep(program.pid)
    began = time.monotonic()
    program.send_signal(number)
    out, err = program.communicate(timeout=30)
    return time.monotonic() - began, subprocess.CompletedProcess([], program.returncode, out, err)


def wait_until_asleep(pid: int) -> None:
    """Waits until a process waits, where the system tells."""
    try:
        while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "S":
            os.sched_yield()
    except FileNotFoundError:
        pass


def test_ctrl_c_ends_a_long_poll():
    took, done = interrupted(
        """
        from dwell import Manager
        with Manager() as manager:
            manager.listen("http://127.0.0.1:0")
            print("ready", flush=True)
            try:
                manager.poll(60_000)
            except KeyboardInterrupt:
                print("interrupted")
        """,
        signal.SIGINT,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted\n", "", 0)
    assert took < 5


def test_a_signal_handler_runs_and_the_poll_returns():
    took, done = interrupted(
        """
        import signal
        from dwell import Manager
        stopped = []
        signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
        with Manager() as manager:
            print("ready", flush=True)
            while not stopped:
                manager.poll(60_000)
            print("stopped")
        """,
        signal.SIGTERM,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("stopped\n", "", 0)
    assert took < 5


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_run_ends_in_order_and_gives_the_signals_back(number):
    took, done = interrupted(
        f"""
        import signal
        from dwell import Manager
        before = signal.getsignal({int(number)})
        manager = Manager()
        manager.listen("http://127.0.0.1:0")
        manager.timer_add(0, lambda: print("ready", flush=True))
        manager.run(60_000)
        print(manager.closed, signal.getsignal({int(number)}) == before, signal.set_wakeup_fd(-1))
        """,
        number,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("True True -1\n", "", 0)
    assert took < 5


def test_another_ones_wakeup_descriptor_is_left_alone():
    read, write = socket.socketpair()
    write.setblocking(False)
    before = signal.set_wakeup_fd(write.fileno())
    try:
        with Manager() as manager:
            manager.poll(1)
            assert signal.set_wakeup_fd(write.fileno()) == write.fileno()
    finally:
        signal.set_wakeup_fd(before)
        read.close()
        write.close()


def test_run_ends_when_a_handler_closes_the_manager():
    manager = Manager()
    manager.timer_add(0, manager.close)
    manager.run()
    assert manager.closed


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
            live = sum(isinstance(each, Connection) for each in gc.get_objects())
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
        lambda manager, conn: dwell.TlsOpts(ca="x"),
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
