"""The description of the HTTP interface is valid, and the program does what it says.

Every operation and status that docs/openapi.yaml names is produced by a request here, and every
response has the headers and the form that the description gives it.
"""

import json
import re
import signal

import jsonschema
import openapi_spec_validator
import pytest
import yaml

from support.dwell import ROOT
from support.http import Connection
from support.upstream import Answer
from support.wait import until

FILE = ROOT / "docs/openapi.yaml"
DESCRIPTION = yaml.safe_load(FILE.read_text())
TOKEN = {"Authorization": "Bearer 0123456789abcdef"}
HANDSHAKE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
LARGE = b"x" * 100_000
POLL, SEVERAL, LIVE, KEYS = "/poll/{name}", "/poll/", "/live/{name}", "/-/keys/{key}"
EVENTS = {"Accept": "text/event-stream"}

# Path, method, status, and the request: target, headers and body.
EXAMPLES = [
    (POLL, "get", 200, "/poll/alice", {}, None),
    (POLL, "get", 200, "/poll/alice", EVENTS, None),
    (POLL, "get", 101, "/poll/alice", HANDSHAKE, None),
    (POLL, "get", 204, "/poll/alice?since={cursor}&wait=10ms", {}, None),
    (POLL, "get", 304, "/poll/alice?since={cursor}", {}, None),
    (POLL, "get", 400, "/poll/alice?wait=soon", {}, None),
    (POLL, "get", 404, "/poll/nobody", {}, None),
    (POLL, "get", 414, "/poll/" + "x" * 300, {}, None),
    (POLL, "head", 200, "/poll/alice", {}, None),
    (POLL, "head", 404, "/poll/nobody", {}, None),
    (POLL, "post", 200, "/poll/alice", {}, b"a=1"),
    (POLL, "post", 204, "/poll/alice?since={cursor}", {}, b"a=1"),
    (POLL, "post", 404, "/poll/nobody", {}, b"a=1"),
    (POLL, "post", 413, "/poll/alice", {}, LARGE),
    (POLL, "delete", 405, "/poll/alice", {}, None),
    (SEVERAL, "get", 200, "/poll/?k=alice&k=nobody", {}, None),
    (SEVERAL, "get", 204, "/poll/?k=alice&since={cursor}&wait=10ms", {}, None),
    (SEVERAL, "get", 304, "/poll/?k=alice&since={cursor}", {}, None),
    (SEVERAL, "get", 400, "/poll/?k=..", {}, None),
    *(
        (path, method, status, target, {**fields, **TOKEN}, body)
        for path, method, start in [
            (LIVE, "put", "/live/"),
            (LIVE, "post", "/live/"),
            (KEYS, "put", "/-/keys/"),
        ]
        for status, target, fields, body in [
            (201, f"{start}new-{method}", {}, b"hello"),
            (204, f"{start}new-{method}", {}, b"hello"),
            (400, f"{start}new-{method}?ttl=soon", {}, b"hello"),
            (412, f"{start}new-{method}", {"If-None-Match": "*"}, b"hello"),
            (413, f"{start}new-{method}", {}, LARGE),
            (415, f"{start}new-{method}", {"Content-Encoding": "gzip"}, b"hello"),
        ]
    ),
    (LIVE, "put", 401, "/live/new-put", {}, b"hello"),
    (LIVE, "post", 401, "/live/new-put", {}, b"hello"),
    (LIVE, "delete", 412, "/live/new-put", {"If-Match": '"AAAAAAAAAAA"', **TOKEN}, None),
    (LIVE, "delete", 204, "/live/new-put", TOKEN, None),
    (LIVE, "delete", 404, "/live/new-put", TOKEN, None),
    (LIVE, "delete", 401, "/live/new-put", {}, None),
    (KEYS, "put", 401, "/-/keys/new-put", {}, b"hello"),
    (KEYS, "put", 401, "/-/keys/new-put", {}, LARGE),
    (KEYS, "get", 200, "/-/keys/new-put", TOKEN, None),
    (KEYS, "get", 401, "/-/keys/new-put", {}, None),
    (KEYS, "delete", 204, "/-/keys/new-put", TOKEN, None),
    (KEYS, "get", 404, "/-/keys/new-put", TOKEN, None),
    (KEYS, "delete", 404, "/-/keys/new-put", TOKEN, None),
    (KEYS, "delete", 401, "/-/keys/new-put", {}, None),
    ("/-/health", "get", 200, "/-/health", {}, None),
    ("/-/health", "post", 405, "/-/health", {}, None),
    ("/-/ready", "get", 200, "/-/ready", {}, None),
    ("/-/ready", "post", 405, "/-/ready", {}, None),
    ("/-/metrics", "get", 200, "/-/metrics", {}, None),
    ("/-/history", "get", 200, "/-/history", {}, None),
    ("/-/events", "get", 200, "/-/events", {}, None),
    ("/-/watched", "get", 200, "/-/watched?prefix=/poll/", {}, None),
    ("/-/watched", "get", 400, "/-/watched?limit=0", {}, None),
    ("/-/explain", "get", 200, "/-/explain?target=/poll/alice&field=A:%20b", {}, None),
    ("/-/explain", "get", 400, "/-/explain", {}, None),
]
# Each of these needs an application that fails, or an edge that is full or ends.
FAILURES = {
    (POLL, "get", 502),
    (POLL, "get", 503),
    (POLL, "get", 504),
    (SEVERAL, "get", 503),
    ("/-/health", "get", 503),
    ("/-/ready", "get", 503),
}


def resolved(node):
    """What stands at the place that a reference names."""
    while "$ref" in node:
        found = DESCRIPTION
        for part in node["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        node = found
    return node


def schema_of(schema):
    return {**schema, "components": DESCRIPTION["components"]}


def hold(path, method, response):
    """Holds a response to what the description says of the operation."""
    responses = DESCRIPTION["paths"][path][method]["responses"]
    place = f"{method} {path} {response.status}"
    assert str(response.status) in responses, f"{place} is not described"
    described = resolved(responses[str(response.status)])
    for name, header in described.get("headers", {}).items():
        header = resolved(header)
        value = response.field(name)
        assert value is not None or not header.get("required"), f"{place} has no {name}"
        jsonschema.validate(value, header["schema"])
    content = described.get("content")
    media_type = response.field("Content-Type")
    if content and media_type:
        assert media_type in content, f"{place}: {media_type}"
        if media_type == "application/json":
            jsonschema.validate(json.loads(response.body), schema_of(content[media_type]["schema"]))


def test_the_description_is_valid():
    openapi_spec_validator.validate(DESCRIPTION)
    manifest = (ROOT / "Cargo.toml").read_text()
    version = re.search(r'^version = "(.*)"$', manifest, re.MULTILINE)[1]
    assert DESCRIPTION["info"]["version"] == version


def test_every_status_that_is_described_is_shown_here():
    described = {
        (path, method, int(status))
        for path, item in DESCRIPTION["paths"].items()
        for method, operation in item.items()
        if method not in ("parameters", "servers")
        for status in operation["responses"]
        if status != "default"
    }
    assert {example[:3] for example in EXAMPLES} | FAILURES == described


def test_every_path_of_the_admin_listener_is_described(lone_edge):
    listed = lone_edge.admin("/-/nothing").body.decode()
    paths = {path.replace("KEY", "{key}") for path in re.findall(r"/-/[\w/]+", listed)}
    described = {path for path in DESCRIPTION["paths"] if path.startswith("/-/")}
    assert paths == described


def test_the_program_does_what_is_described(start_dwell):
    dwell = start_dwell(
        publish={"token": TOKEN["Authorization"].split()[1], "value_bytes_max": 50_000},
        route=[{"prefix": "/poll/"}, {"prefix": "/live/", "publish": True}],
    )
    dwell.store().set("/poll/alice", b"hello")
    cursor = dwell.get("/poll/alice").field("Poll-Cursor")
    for path, method, status, target, fields, body in EXAMPLES:
        address = dwell.admin_address if path.startswith("/-/") else dwell.address
        with Connection(address) as connection:
            connection.ask(target.replace("{cursor}", cursor), method.upper(), fields, body)
            is_open = status == 101 or fields == EVENTS
            response = connection._head() if is_open else connection.answer(method.upper())
        assert response.status == status, (path, method, target, response)
        hold(path, method, response)


def test_failures_are_as_described(start_dwell, app):
    dwell = start_dwell(
        upstream={"url": app.url, "header_timeout": "500ms"},
        limits={"waiters_max": 1},
        server={"pollers": 1},
    )

    def get(path, status, target):
        response = dwell.get(target)
        assert response.status == status, response
        hold(path, "get", response)

    app.answer = lambda request: Answer(status=500)
    get(SEVERAL, 503, "/poll/?k=tom")
    app.gate.clear()
    get(POLL, 504, "/poll/slow")
    app.gate.set()
    app.stop()
    get(POLL, 502, "/poll/gone")
    dwell.store().set("/poll/alice", b"hello")
    cursor = dwell.get("/poll/alice").field("Poll-Cursor")
    with dwell.connect() as held, dwell.connect() as other:
        held.ask(f"/poll/alice?since={cursor}&wait=50")
        dwell.await_waiters(1)
        response = other.get(f"/poll/alice?since={cursor}&wait=50")
        assert response.status == 503
        hold(POLL, "get", response)


def test_health_is_as_described_while_the_process_ends(edge, app):
    app.hang()
    with edge.connect() as connection:
        connection.ask("/page")
        app.await_requests(1)
        edge.signal(signal.SIGTERM)
        until(lambda: edge.admin("/-/health").status == 503, "it drains")
        for path in ("/-/health", "/-/ready"):
            hold(path, "get", edge.admin(path))
        app.release()
        assert connection.answer().status == 200


def test_a_response_that_is_not_described_is_found(lone_edge):
    response = lone_edge.get("/poll/nobody")
    response.status = 418
    with pytest.raises(AssertionError):
        hold(POLL, "get", response)
