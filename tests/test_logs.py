"""Log lines in JSON: one shape for events and requests, and the trace that a request names."""

import json
import re
import signal
import socket

import pytest

from support import ports
from support.dwell import Dwell
from support.http import Connection
from support.http2_client import Http2Connection
from support.wait import until

KEY = "/poll/alice"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
LEVELS = {"error", "warn", "info", "debug", "trace"}
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


def parsed(text):
    """Every line, which has to be an object with the members that all have."""
    lines = [json.loads(line, object_pairs_hook=distinct) for line in text.splitlines()]
    for line in lines:
        assert list(line)[:3] == ["time", "level", "message"], line
        assert TIME.fullmatch(line["time"]), line
        assert line["level"] in LEVELS
        assert isinstance(line["message"], str)
        assert line["message"]
        assert all(isinstance(value, str | int | float | bool) for value in line.values()), line
    return lines


def distinct(pairs):
    assert len(dict(pairs)) == len(pairs), f"a name comes twice: {pairs}"
    return dict(pairs)


def test_every_line_of_a_run_with_faults_has_one_shape(start_dwell, start_memcached, app):
    memcached = start_memcached()
    servers = {"servers": [memcached.name], "failures_max": 1, "timeout": "500ms"}
    dwell = start_dwell(
        log={"format": "json", "access": "-"},
        upstream={"url": app.url},
        memcached=servers,
    )
    memcached.client().set(KEY, b"value")
    until(lambda: dwell.get(KEY).body == b"value", "memcached answers")
    assert dwell.get("/a?b='{}'").status == 200
    with dwell.connect() as connection:
        connection.send(b"BAD\r\n\r\n")
        connection.answer()
    memcached.kill()
    app.stop()
    assert dwell.get("/poll/other").status == 502
    assert dwell.get("/page").status == 502
    good = dwell.config.read_text()
    dwell.config.write_text(f'{good}\n[limits]\n"odd\\nname" = 1\n')
    dwell.signal(signal.SIGHUP)
    until(lambda: "configuration" in dwell.output() and "odd" in dwell.output(), "it is refused")
    dwell.stop()
    lines = parsed(dwell.output())
    messages = [line["message"] for line in lines]
    assert messages[-1] == "ended"
    assert any(it.startswith("started") for it in messages)
    requests = [line for line in lines if line["message"] == "request"]
    assert {200, 502} == {line["status"] for line in requests}
    assert "/a?b='{}'" in [line["target"] for line in requests]
    assert {line["level"] for line in lines} >= {"info", "warn", "error"}


def test_the_reason_of_a_failed_start_is_such_a_line(cleanup, tmp_path):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        address = ports.text(holder.getsockname())
        dwell = Dwell(tmp_path, server={"listen": address}, log={"format": "json", "level": "off"})
        cleanup.callback(dwell.stop)
        assert dwell.start().wait() == 1
    last = parsed(dwell.output())[-1]
    assert last["level"] == "error"
    assert f"cannot listen on {address}" in last["message"]


@pytest.fixture
def logged(start_dwell, app, tmp_path):
    """An edge with an application, and a function that reads its access log."""
    file = tmp_path / "access.log"
    dwell = start_dwell(
        server={"h2c": True},
        upstream={"url": app.url},
        log={"access": str(file)},
    )

    def lines(count):
        until(lambda: file.read_text().count("\n") >= count, f"{count} lines are written")
        return parsed(file.read_text())

    return dwell, lines


@pytest.mark.parametrize("connection", [Connection, Http2Connection])
def test_a_line_has_what_an_operator_looks_for(logged, app, connection):
    dwell, lines = logged
    agent = 'agent "' + "x" * 300
    fields = {"User-Agent": agent, "X-Request-Id": "id-7"}
    with connection(dwell.address) as client:
        assert client.get("/page", fields=fields).status == 200
        assert client.get("/poll/lines", fields=fields).status == 200
        dwell.store().set("/poll/lines", b"value")
        hit = client.get("/poll/lines", fields=fields)
        cursor = hit.field("Poll-Cursor")
        held = client.get(f"/poll/lines?wait=100ms&since={cursor}", fields=fields)
        assert held.status in (204, 304)
    forwarded, *polls = lines(4)[:4]
    for line in (forwarded, *polls):
        assert line["host"] == "localhost"
        assert line["request_id"] == "id-7"
        assert line["user_agent"].startswith("agent ")
        assert len(line["user_agent"]) == 256
    assert forwarded["upstream"] == app.url.removeprefix("http://")
    assert 0 < forwarded["upstream_us"] <= forwarded["duration_us"]
    assert "route" not in forwarded
    assert "key" not in forwarded
    assert [line["outcome"] for line in polls][:2] == ["miss", "hit"]
    for line in polls:
        assert (line["route"], line["key"]) == ("/poll/", "/poll/lines")
        assert "upstream" not in line


def test_lines_of_tunnels_and_of_large_answers_name_the_server(start_dwell, raw, tmp_path):
    file = tmp_path / "access.log"
    upstream = {"url": raw.url, "answer_bytes_max": "64kb"}
    dwell = start_dwell(upstream=upstream, log={"access": str(file)})
    with dwell.connect() as client:
        client.ask("/poll/large")
        app = raw.accept()
        app.read_head()
        app.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100_000)
        assert client.answer().status == 200
        client.ask("/chat", fields={"Connection": "Upgrade", "Upgrade": "chat/1"})
        app.read_head()
        app.send(b"HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: chat/1\r\n\r\n")
        until(lambda: file.read_text().count("\n") == 2, "both have a line")
        app.close()
    large, tunnel = parsed(file.read_text())
    for line in (large, tunnel):
        assert line["upstream"] == raw.url.removeprefix("http://")
        assert 0 < line["upstream_us"] <= line["duration_us"]
    assert (large["route"], large["key"]) == ("/poll/", "/poll/large")
    assert (large["outcome"], tunnel["status"]) == ("miss", 101)


@pytest.mark.parametrize("connection", [Connection, Http2Connection])
def test_a_trace_reaches_the_application_and_the_log(logged, app, connection):
    dwell, lines = logged
    fields = {"traceparent": PARENT, "tracestate": "a=1"}
    with connection(dwell.address) as client:
        assert client.get("/page", fields=fields).status == 200
        # A miss is shared: the trace goes along, and what only one client says does not.
        assert client.get(KEY, fields=fields).status == 200
        dwell.store().set(KEY, b"value")
        cursor = {name.lower(): value for name, value in client.get(KEY).fields}["poll-cursor"]
        # Held, so that its head is gone when it is answered.
        assert client.get(f"{KEY}?since={cursor}&wait=10ms", fields=fields).status in (204, 304)
        assert client.get(f"/poll/?k=alice&since={cursor}&wait=10ms", fields=fields).status < 400
    forwarded, missed = app.requests[:2]
    assert forwarded.field("traceparent") == missed.field("traceparent") == PARENT
    assert (forwarded.field("tracestate"), missed.field("tracestate")) == ("a=1", None)
    traces = [line.get("trace_id") for line in lines(5)]
    assert traces == [TRACE, TRACE, None, TRACE, TRACE]


def test_the_line_of_an_event_stream_has_its_trace(logged):
    dwell, lines = logged
    dwell.store().set(KEY, b"value")
    with dwell.connect() as client:
        client.ask(KEY, fields={"Accept": "text/event-stream", "traceparent": PARENT})
        assert lines(1)[0]["trace_id"] == TRACE


@pytest.mark.parametrize(
    "malformed",
    ["", "x" * 8000, PARENT.upper(), f"{PARENT}-x", PARENT.replace(TRACE, "0" * 32)],
)
def test_a_malformed_trace_is_passed_on_and_is_no_id(logged, app, malformed):
    dwell, lines = logged
    assert dwell.get("/page", fields={"traceparent": malformed}).status == 200
    assert dwell.get(KEY, fields={"traceparent": malformed}).status == 200
    forwarded, missed = app.requests
    assert forwarded.field("traceparent") == malformed
    assert missed.field("traceparent") is None
    assert not any("trace_id" in line for line in lines(2))
