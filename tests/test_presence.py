"""The webhook of presence: who is told when a key gains its first watcher and loses its last."""

import itertools
import json
import signal
import time

import pytest

from support import ports
from support.events import EventStream
from support.upstream import Answer, Upstream
from support.wait import until
from support.websocket import WebSocket

KEY = "/poll/alice"
TOKEN = "a-token-of-some-length"


class Hook(Upstream):
    """The server that is told, and what it has taken."""

    def __init__(self):
        super().__init__()
        self.statuses = itertools.repeat(204)
        self.taken = []
        self.answer = self._take

    def _take(self, request):
        status = next(self.statuses)
        if status < 300:
            self.taken += json.loads(request.body)
        return Answer(status=status)

    def told(self):
        """The events that it has taken, as pairs."""
        return [(event["event"], event["key"]) for event in self.taken]

    def await_told(self, *events):
        until(lambda: len(self.told()) >= len(events), f"{events}; it was {self.told()}")
        assert self.told() == list(events)


@pytest.fixture
def hook(cleanup):
    started = Hook().start()
    cleanup.callback(started.stop)
    return started


@pytest.fixture
def start(start_dwell, hook):
    """Starts the edge with these options of its webhook."""

    def begin(**options):
        presence = {"webhook_url": hook.url, "linger": "0s", **options}
        return start_dwell(presence=presence)

    return begin


def test_the_first_and_the_last_watcher_of_all_loops_are_told(start, hook, cleanup):
    dwell = start(webhook_path="/presence", webhook_token=TOKEN)
    before = time.time() * 1000
    sockets = [cleanup.enter_context(WebSocket(dwell.address, KEY)) for _ in range(12)]
    streams = [cleanup.enter_context(EventStream(dwell.address, KEY)) for _ in range(12)]
    polls = [cleanup.enter_context(dwell.connect()) for _ in range(12)]
    for poll in polls:
        poll.ask(f"{KEY}?wait=50")
    dwell.await_waiters(36)
    hook.await_told(("first", KEY))
    for one in sockets + streams + polls:
        one.close()
    hook.await_told(("first", KEY), ("last", KEY))
    assert [event["watchers"] for event in hook.taken] == [1, 0]
    first, last = (event["at"] for event in hook.taken)
    # The wall clock of a loop may be 50 ms old, and the two are told by different loops.
    assert before - 100 < first < last + 100
    assert last < time.time() * 1000 + 100
    asked = hook.requests[0]
    assert (asked.method, asked.target) == ("POST", "/presence")
    assert asked.field("Content-Type") == "application/json"
    assert asked.field("Authorization") == f"Bearer {TOKEN}"
    assert asked.field("Host") == ports.text(hook.address)
    dwell.await_metric(2, "dwell_webhook_events_total", outcome="delivered")


def test_who_polls_again_has_not_left(start, hook):
    dwell = start(linger="1h")
    with dwell.connect() as client:
        for _ in range(3):
            assert client.get(f"{KEY}?wait=20ms").status == 204
        # What is told comes in order, so nothing is told between these.
        assert client.get("/poll/bob?wait=20ms").status == 204
    hook.await_told(("first", KEY), ("first", "/poll/bob"))


def test_a_client_that_stays_away_has_left_when_its_time_is_over(start, hook):
    dwell = start(linger="300ms")
    with dwell.connect() as client:
        client.get(f"{KEY}?wait=20ms")
    hook.await_told(("first", KEY), ("last", KEY))
    # The time is when it left, not when that was certain.
    assert time.time() * 1000 - hook.taken[1]["at"] >= 300


def test_what_is_not_taken_is_told_again_and_in_order(start, hook):
    hook.statuses = itertools.chain([503, 429], itertools.repeat(200))
    dwell = start(linger="1h")
    with dwell.connect() as client:
        client.get(f"{KEY}?wait=10ms")
        client.get("/poll/bob?wait=10ms")
    hook.await_told(("first", KEY), ("first", "/poll/bob"))
    assert dwell.metric("dwell_webhook_retries_total") == 2
    assert dwell.metric("dwell_webhook_events_total", outcome="dropped") == 0


def test_a_refusal_is_final_and_the_next_events_are_told(start, hook):
    hook.statuses = itertools.chain([400], itertools.repeat(200))
    dwell = start(linger="1h")
    with dwell.connect() as client:
        client.get(f"{KEY}?wait=10ms")
        dwell.await_metric(1, "dwell_webhook_events_total", outcome="dropped")
        client.get("/poll/bob?wait=10ms")
    hook.await_told(("first", "/poll/bob"))


def test_nobody_waits_for_a_webhook_and_its_queue_has_an_end(start, hook):
    dwell = start(linger="1h", webhook_queue_max=3, webhook_batch_max=2)
    hook.hang()
    with dwell.connect() as client:
        client.get("/poll/0?wait=10ms")
        hook.await_requests(1)
        for number in range(1, 9):
            client.get(f"/poll/{number}?wait=10ms")
        dwell.await_metric(5, "dwell_webhook_events_total", outcome="dropped")
        dwell.await_metric(4, "dwell_webhook_queue")
        hook.release()
    hook.await_told(*[("first", f"/poll/{number}") for number in range(4)])
    assert [len(json.loads(request.body)) for request in hook.requests] == [1, 2, 1]


def test_events_outlast_a_webhook_that_is_away(start, hook):
    dwell = start(linger="1h", webhook_attempts_max=100)
    hook.stop()
    with dwell.connect() as client:
        client.get(f"{KEY}?wait=10ms")
    until(lambda: dwell.metric("dwell_webhook_retries_total") >= 1, "it is tried again")
    hook.start()
    hook.await_told(("first", KEY))


def test_who_is_sent_away_has_not_left(start, hook, cleanup):
    dwell = start()
    socket = cleanup.enter_context(WebSocket(dwell.address, KEY))
    hook.await_told(("first", KEY))
    dwell.signal(signal.SIGTERM)
    assert socket.hear() == 1001
    socket.close()
    assert dwell.wait() == 0
    assert hook.told() == [("first", KEY)]
