"""What a poll of the manager waits for: wake-ups, threads and timers."""

from __future__ import annotations

import threading
import time

import pytest

from dwell import Event, Manager
from support import Loop, body_of

# Waiting.


def test_a_poll_waits_no_longer_than_asked():
    with Manager() as manager:
        for timeout in (0, 30):
            began = time.monotonic()
            manager.poll(timeout)
            waited = time.monotonic() - began
            assert timeout / 1000 <= waited < timeout / 1000 + 20


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

        def other():
            entered.wait()
            for call in [
                lambda: loop.manager.poll(0),
                lambda: loop.manager.close(),
                lambda: loop.manager.fileno(),
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
    assert [text.split()[0] for text in refused] == ["poll()", "Cannot", "another"]
    assert "not reentrant" in refused[0]
    assert "while poll() is active" in refused[1]


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
        began = time.monotonic()
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
        # A busy machine may have taken the 20 ms already.
        assert sorted(set(rung) - {"once"}) == ["now", "zero"]
        assert "once" not in rung or time.monotonic() - began >= 0.02
        while "once" not in rung:
            manager.poll(60_000)
        assert 0.02 <= time.monotonic() - began < 30
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
