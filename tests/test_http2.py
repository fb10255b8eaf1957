"""HTTP/2 without TLS, by prior knowledge: many polls, streams and requests on one connection."""

import json
import re
import signal
import subprocess

import pytest

from support.http import BODILESS
from support.http2_client import Http2Connection
from support.upgrade import upgrade
from support.wait import until

KEY = "/poll/alice"
INTERNAL_ERROR, REFUSED_STREAM, CANCEL, ENHANCE_YOUR_CALM = 2, 7, 8, 11


@pytest.fixture
def edge(start_dwell, app):
    return start_dwell(server={"h2c": True}, upstream={"url": app.url})


@pytest.fixture
def alone(start_dwell):
    return start_dwell(server={"h2c": True})


@pytest.fixture
def client(alone, cleanup):
    return cleanup.enter_context(Http2Connection(alone.address))


def events(stream):
    """The blocks of an event stream so far, without the delay for the next one."""
    text = stream.body.decode()
    blocks = text.split("\n\n")
    assert blocks[-1] == "", f"a block that is not complete: {blocks[-1]!r}"
    return [block for block in blocks if block and not block.startswith("retry:")]


def data_of(block):
    return "\n".join(re.findall("^data: ?(.*)$", block, re.MULTILINE))


def test_it_is_off_unless_it_is_switched_on(start_dwell):
    dwell = start_dwell()
    with dwell.connect() as connection:
        connection.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        assert connection.answer().status in (400, 505)


def test_one_write_wakes_all_polls_of_a_connection(alone, client):
    alone.store().set(KEY, b"old")
    cursor = client.get(KEY).field("poll-cursor")
    asked = [client.ask(f"{KEY}?wait=30&since={cursor}") for _ in range(100)]
    alone.await_waiters(100)
    # Another request does not wait for any of them.
    assert client.get(KEY).body == b"old"
    alone.store().set(KEY, b"new")
    assert [client.answer(number).body for number in asked] == [b"new"] * 100
    alone.await_waiters(0)
    alone.await_connections(1)


def test_each_wait_has_its_own_end(alone, client):
    alone.store().set(KEY, b"value")
    cursor = client.get(KEY).field("poll-cursor")
    long = client.ask(f"{KEY}?wait=30&since={cursor}")
    short = client.ask(f"{KEY}?wait=50ms&since={cursor}")
    assert client.answer(short).status == 204
    assert not client.streams[long].is_over
    alone.await_waiters(1)
    client.h2.reset_stream(long, 8)
    client.flush()
    alone.await_waiters(0)
    assert client.get(KEY).status == 200


def test_a_connection_that_ends_takes_its_polls_along(alone, client):
    for _ in range(5):
        client.ask(f"{KEY}?wait=30")
    client.ask("/poll/?k=a&k=b&wait=30")
    client.ask(KEY, fields={"accept": "text/event-stream"})
    alone.await_metric(1, "dwell_streams_open")
    alone.await_waiters(8)
    client.close()
    alone.await_waiters(0)
    alone.await_connections(0)


def test_a_poll_of_several_keys_is_held(alone, client):
    asked = client.ask("/poll/?k=a&k=b&wait=30")
    alone.await_waiters(2)
    alone.store().set("/poll/b", b"two")
    values = json.loads(client.answer(asked).body)["values"]
    assert {key: value["v"] for key, value in values.items()} == {"b": "two"}


def test_metrics_tell_of_connections_and_streams(start_dwell):
    dwell = start_dwell(server={"h2c": True}, limits={"connections_per_address": 4})
    with Http2Connection(dwell.address) as client, dwell.connect() as other:
        assert other.get("/none").status == 404
        held = [client.ask(f"{KEY}?wait=50") for _ in range(2)]
        dwell.await_waiters(2)
        # The other connection has one place, and this one those of its requests.
        assert client.answer(client.ask("/none")).status == 404
        third = client.ask(f"{KEY}?wait=50")
        assert client.answer(client.ask("/none")).status == 429
        client.h2.reset_stream(held[0], CANCEL)
        client.flush()
        dwell.await_metric(2, "dwell_http2_streams_open")
        by_protocol = "dwell_connections_by_protocol"
        for protocol, count in [("http/1.1", 1), ("h2", 1), ("websocket", 0), ("tunnel", 0)]:
            dwell.await_metric(count, by_protocol, protocol=protocol)
        assert dwell.metric("dwell_http2_streams_total") == 5
        refused = "dwell_http2_streams_refused_total"
        assert dwell.metric(refused, reason="connections_per_address") == 1
        assert dwell.metric("dwell_http2_resets_received_total", code="CANCEL") == 1
        assert dwell.metric("dwell_http2_goaways_sent_total") == 0
        dwell.signal(signal.SIGTERM)
        assert client.answer(third).status in BODILESS


def test_polls_beyond_the_bound_are_refused(start_dwell):
    dwell = start_dwell(server={"h2c": True, "pollers": 1}, limits={"waiters_max": 10})
    with Http2Connection(dwell.address) as client:
        for _ in range(10):
            client.ask(f"{KEY}?wait=30")
        dwell.await_waiters(10)
        refused = client.get(f"{KEY}?wait=30")
        assert refused.status == 503
        assert int(refused.field("retry-after")) > 0


def test_an_event_stream(alone, client):
    alone.store().set(KEY, b"one")
    asked = client.ask(KEY, fields={"accept": "text/event-stream"})
    stream = client.until(asked, lambda stream: b"one" in stream.body)
    assert dict(stream.fields)["content-type"] == "text/event-stream"
    other = client.ask("/poll/?k=alice&k=bob", fields={"accept": "text/event-stream"})
    client.until(other, lambda stream: b"one" in stream.body)
    alone.store().set(KEY, b"two")
    client.until(asked, lambda stream: b"two" in stream.body)
    client.until(other, lambda stream: b"two" in stream.body)
    assert [data_of(block) for block in events(stream)[:2]] == ["one", "two"]


def test_a_stream_of_several_keys_has_no_comments_before_it_is_quiet(alone):
    with Http2Connection(alone.address, window_bytes=0) as client:
        asked = client.ask("/poll/?k=alice&k=bob", fields={"accept": "text/event-stream"})
        client.until(asked, lambda stream: stream.status == 200)
        for number in range(5):
            wanted = b"value %d." % number
            alone.store().set(KEY, wanted)
            # The window closes within the event. Nothing else is new when the client has all of it.
            while wanted not in client.streams[asked].body:
                client.h2.increment_flow_control_window(16, asked)
                client.flush()
                client.read()
        assert not re.search(rb"(?m)^:", client.streams[asked].body), client.streams[asked].body


def test_a_quiet_stream_has_comments(start_dwell):
    dwell = start_dwell(server={"h2c": True}, limits={"stream_heartbeat": "1s"})
    with Http2Connection(dwell.address) as client:
        asked = client.ask(KEY, fields={"accept": "text/event-stream"})
        client.until(asked, lambda stream: re.search(rb"(?m)^:", stream.body))
        dwell.store().set(KEY, b"value")
        client.until(asked, lambda stream: b"data: value" in stream.body)


def test_nothing_is_kept_for_a_stream_whose_window_is_closed(start_dwell):
    dwell = start_dwell(server={"h2c": True, "pollers": 1})
    with Http2Connection(dwell.address, window_bytes=0) as client:
        slow = client.ask(KEY, fields={"accept": "text/event-stream"})
        client.until(slow, lambda stream: stream.status == 200)
        for number in range(50):
            dwell.store().set(KEY, b"value %d." % number)
        # The writes have been told to it, and all but the first few put off.
        until(lambda: dwell.metric("dwell_stream_postponed_total") > 0, "events are put off")
        client.h2.increment_flow_control_window(1 << 20, slow)
        client.flush()
        stream = client.until(slow, lambda stream: b"value 49." in stream.body)
        assert len([block for block in events(stream) if data_of(block)]) < 5


def test_streams_that_take_nothing_are_reset_where_room_is_short(start_dwell):
    limits = {"output_bytes_max": "8MiB"}
    dwell = start_dwell(server={"h2c": True, "pollers": 1}, limits=limits)
    store = dwell.store()
    with Http2Connection(dwell.address, window_bytes=0) as client:
        asked = []
        for number in range(20):
            # Each has a key of its own, so that none is shared.
            store.set(f"/poll/{number}", b"%02d" % number * 400_000)
            asked.append(client.ask(f"/poll/{number}"))
        streams = [client.streams[stream] for stream in asked]
        client.until(asked[0], lambda _: any(stream.reset is not None for stream in streams))
        until(lambda: dwell.metric("dwell_output_cuts_total") > 0, "the slowest are cut off")
        until(lambda: dwell.metric("dwell_output_bytes") <= 8 << 20, "there is room again")
        assert {stream.reset for stream in streams} <= {None, ENHANCE_YOUR_CALM}
        # The connection goes on, and so do the streams for which there is room.
        left = next(stream for stream in asked if client.streams[stream].reset is None)
        client.h2.increment_flow_control_window(1 << 20, left)
        client.h2.increment_flow_control_window(1 << 20)
        client.flush()
        assert client.answer(left).body == b"%02d" % asked.index(left) * 400_000


def test_nothing_but_websockets_connects(alone, client):
    assert client.get(KEY, "CONNECT", protocol="connect-udp").status == 501
    assert client.get(KEY, "CONNECT").status == 501
    head = [(":method", "CONNECT"), (":authority", "localhost:80")]
    assert client.answer(client.ask_by(head)).status == 501
    assert client.get(KEY).status == 404


def test_what_is_no_poll_is_forwarded(start_dwell, raw, cleanup):
    options = {"url": raw.url, "request_buffer_bytes": 0}
    dwell = start_dwell(server={"h2c": True}, upstream=options)
    client = cleanup.enter_context(Http2Connection(dwell.address))
    head = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/up?x=1"),
        (":authority", "edge.example"),
        ("te", "trailers"),
        ("trailer", "x-sum"),
    ]
    asked = client.ask_by(head, b"hello", is_whole=False)
    connection = raw.accept()
    sent = connection.read_head().decode()
    assert sent.startswith("POST /up?x=1 HTTP/1.1\r\nHost: edge.example\r\n")
    assert "\r\nTransfer-Encoding: chunked\r\n" in sent
    assert re.search(r"(?i)\r\nte: trailers\r\n", sent)
    assert connection.read_until(b"hello\r\n").endswith(b"5\r\nhello\r\n")
    client.h2.send_headers(asked, [("x-sum", "5")], end_stream=True)
    client.flush()
    assert re.fullmatch(rb"(?i)0\r\nx-sum: 5\r\n\r\n", connection.read_until(b"\r\n\r\n"))
    connection.send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
    stream = client.until(asked, lambda stream: stream.interim)
    assert [dict(head) for head in stream.interim] == [{":status": "103", "link": "</a>"}]
    connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-End\r\n\r\n")
    connection.send(b"3\r\none\r\n")
    client.until(asked, lambda stream: stream.body == b"one")
    connection.send(b"3\r\ntwo\r\n0\r\nX-End: 1\r\n\r\n")
    assert client.answer(asked).body == b"onetwo"
    assert stream.trailers == [("x-end", "1")]
    names = {name for name, _ in stream.fields}
    assert not names & {"connection", "transfer-encoding", "keep-alive"}


@pytest.mark.parametrize(
    "framing", [b"Content-Length: 10", b"Transfer-Encoding: chunked"], ids=["length", "chunked"]
)
def test_an_answer_that_is_cut_short_ends_by_a_reset(start_dwell, raw, cleanup, framing):
    dwell = start_dwell(server={"h2c": True}, upstream={"url": raw.url})
    client = cleanup.enter_context(Http2Connection(dwell.address))
    asked, other = client.ask("/cut"), client.ask(f"{KEY}?k")
    connections = [raw.accept(), raw.accept()]
    heads = [connection.read_head() for connection in connections]
    if not heads[0].startswith(b"GET /cut "):
        connections.reverse()
    connections[0].send(b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n\r\n4\r\nhalf\r\n")
    client.until(asked, lambda stream: b"half" in stream.body)
    connections[0].close()
    assert client.until(asked, lambda stream: stream.is_over).reset == INTERNAL_ERROR
    assert not client.streams[asked].has_ended
    # The other one goes on.
    connections[1].send(b"HTTP/1.1 404 None\r\nContent-Length: 4\r\n\r\nnone")
    assert client.answer(other).body == b"none"


def test_a_slow_reader_of_a_forwarded_answer_gets_all_of_it(start_dwell, raw, cleanup):
    dwell = start_dwell(server={"h2c": True}, upstream={"url": raw.url})
    client = cleanup.enter_context(Http2Connection(dwell.address, window_bytes=1000))
    slow, quick = client.ask("/large"), client.ask("/small")
    connections = [raw.accept(), raw.accept()]
    if not connections[0].read_head().startswith(b"GET /large "):
        connections.reverse()
    body = bytes(range(256)) * 2000
    length = b"Content-Length: %d\r\n\r\n" % len(body)
    connections[0].send(b"HTTP/1.1 200 OK\r\n" + length + body[:200_000])
    connections[1].send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nquick")
    assert client.answer(quick).body == b"quick"
    client.until(slow, lambda stream: len(stream.body) == 1000)
    for number in (slow, None):
        client.h2.increment_flow_control_window(1 << 20, number)
    client.flush()
    connections[0].send(body[200_000:])
    assert client.answer(slow).body == body


def test_a_large_body_is_passed_on(edge, app, cleanup):
    client = cleanup.enter_context(Http2Connection(edge.address))
    body = bytes(range(256)) * 3000
    # The first is sent before the client has seen the settings of the server.
    for size in (60_000, len(body)):
        assert client.get("/up", "POST", body=body[:size]).status == 200
        assert app.requests[-1].body == body[:size]


def test_a_client_that_resets_cancels_its_request(start_dwell, raw, cleanup):
    dwell = start_dwell(server={"h2c": True}, upstream={"url": raw.url})
    client = cleanup.enter_context(Http2Connection(dwell.address))
    asked = client.ask("/slow")
    connection = raw.accept()
    connection.read_head()
    client.h2.reset_stream(asked, 8)
    client.flush()
    assert connection.is_cut()


def test_a_request_that_was_held_is_passed_on_as_it_came(start_dwell, raw, cleanup):
    dwell = start_dwell(server={"h2c": True}, upstream={"url": raw.url})
    dwell.store().set(KEY, b"value")
    client = cleanup.enter_context(Http2Connection(dwell.address))
    cursor = client.get(KEY).field("poll-cursor")
    asked = client.ask(f"{KEY}?wait=30&since={cursor}")
    dwell.await_waiters(1)
    dwell.store().delete(KEY)
    connection = raw.accept()
    assert b"\r\nVia: 2.0 dwell\r\n" in connection.read_head()
    connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nnew")
    assert client.answer(asked).body == b"new"


def test_the_access_log_names_the_protocol(start_dwell, app, tmp_path):
    log = tmp_path / "access.log"
    dwell = start_dwell(server={"h2c": True}, upstream={"url": app.url}, log={"access": str(log)})
    dwell.store().set(KEY, b"value")
    with Http2Connection(dwell.address) as client:
        cursor = client.get(KEY).field("poll-cursor")
        client.get(f"{KEY}?wait=10ms&since={cursor}")
        client.get("/forwarded")
        client.get("/poll/missed")
    dwell.get(KEY)
    until(lambda: log.read_text().count("\n") == 5, "all lines are written")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    told = {line["protocol"] for line in lines if "wait" in line["target"]}
    assert told == {"HTTP/2"}
    assert sorted(line["protocol"] for line in lines) == ["HTTP/1"] + ["HTTP/2"] * 4


def test_a_server_that_ends_says_so_and_answers_what_it_holds(alone, client):
    alone.store().set(KEY, b"value")
    cursor = client.get(KEY).field("poll-cursor")
    asked = [client.ask(f"{KEY}?wait=30&since={cursor}") for _ in range(10)]
    stream = client.ask(KEY, fields={"accept": "text/event-stream"})
    alone.await_waiters(11)
    alone.signal(signal.SIGTERM)
    for number in asked:
        assert client.answer(number).status in BODILESS
    client.until(stream, lambda stream: stream.has_ended)
    client.read_to_end()
    # First that nothing shall follow, and then what the last one was.
    assert client.last_streams == [2**31 - 1, stream]
    assert client.goaway_code == 0
    assert alone.wait() == 0


def test_a_window_that_is_closed_delays_the_end_by_little(start_dwell):
    limits = {"drain_timeout": "600s", "write_timeout": "600s"}
    dwell = start_dwell(server={"h2c": True}, limits=limits)
    dwell.store().set(KEY, b"v" * 100_000)
    with Http2Connection(dwell.address, window_bytes=0) as client:
        asked = client.ask(KEY)
        client.until(asked, lambda stream: stream.status == 200)
        dwell.signal(signal.SIGTERM)
        client.read_to_end()
        assert client.streams[asked].reset == CANCEL
        assert client.last_streams == [2**31 - 1, asked]
    assert dwell.wait() == 0


def test_a_reload_changes_nothing_on_a_connection(alone, client):
    waits = client.ask(f"{KEY}?wait=30")
    alone.await_waiters(1)
    generation = alone.metric("dwell_config_generation")
    alone.rewrite(limits={"idle_timeout": "50s"}, server={"h2c": False})
    alone.signal(signal.SIGHUP)
    alone.await_metric(generation + 1, "dwell_config_generation")
    until(lambda: "server.h2c" in alone.output(), "the log names what needs a restart")
    alone.store().set(KEY, b"value")
    assert client.answer(waits).body == b"value"
    assert client.get(KEY).body == b"value"


def test_an_upgrade_answers_what_waits_and_ends_the_connection(alone, client, cleanup):
    alone.store().set(KEY, b"value")
    cursor = client.get(KEY).field("poll-cursor")
    asked = [client.ask(f"{KEY}?wait=30&since={cursor}") for _ in range(5)]
    alone.await_waiters(5)
    upgrade(alone, cleanup)
    for number in asked:
        assert client.answer(number).status in (200, *BODILESS)
    client.read_to_end()
    with Http2Connection(alone.address) as newer:
        assert newer.get(KEY).body == b"value"


def run(*command):
    return subprocess.run(command, capture_output=True, timeout=60, check=True, text=True).stdout


def test_curl(alone):
    alone.store().set(KEY, b"for curl")
    url = alone.url(KEY)
    assert run("curl", "-sS", "--http2-prior-knowledge", url) == "for curl"
    shown = run("curl", "-sSI", "--http2-prior-knowledge", url)
    assert shown.startswith("HTTP/2 200")


def test_nghttp(alone):
    alone.store().set(KEY, b"for nghttp")
    told = run("nghttp", "-v", "-m", "3", alone.url(KEY))
    assert told.count(":status: 200") == 3
    assert "error_code=NO_ERROR(0x00)" in told


def test_h2load(alone):
    alone.store().set(KEY, b"for h2load")
    told = run("h2load", "-n", "2000", "-c", "5", "-m", "100", alone.url(KEY))
    assert "2000 succeeded, 0 failed" in told
