"""Polls that do not wait."""

from dwell_conformance.rule import Rules, expect, expect_one_of, expect_true

RULES = Rules("polls.md")
METHODS = {"GET", "HEAD", "POST", "QUERY"}


@RULES.of("response", "a poll returns the value of its key")
def _(server):
    name, _ = server.value(b"good morning")
    answer = server.poll(name)
    expect("the status", answer.status, 200)
    expect("the body", answer.body, b"good morning")


@RULES.of("values.md#values", "a value is returned byte for byte")
def _(server):
    value = bytes(range(256)) * 3
    name, _ = server.value(value)
    expect("the body", server.poll(name).body, value)


@RULES.of("response", "an empty value is a value")
def _(server):
    name = server.name()
    server.set(name, b"")
    answer = server.poll(name)
    expect_one_of("the status", answer.status, (200, 204))
    expect("the body", answer.body, b"")
    expect_true("an empty value has a cursor", answer.cursor)


@RULES.of("response", "a key without a value gets 404 without an application")
def _(server):
    expect("the status", server.poll(server.name()).status, 404)


@RULES.of("response", "a key without a value gets 404 at once for a client with a cursor")
def _(server):
    _, cursor = server.value()
    answer = server.poll(server.name(), f"?since={cursor}&wait=50")
    expect("the status", answer.status, 404)


@RULES.of("response", "a response with a value has its cursor as ETag and Poll-Cursor")
def _(server):
    name, cursor = server.value()
    expect("ETag", server.poll(name).field("ETag"), f'"{cursor}"')


@RULES.of("response", "pages of other origins may read the cursor")
def _(server):
    name, _ = server.value()
    exposed = server.poll(name).field("Access-Control-Expose-Headers") or ""
    names = {part.strip().lower() for part in exposed.split(",")}
    expect_true("ETag and Poll-Cursor are exposed", {"etag", "poll-cursor"} <= names)


@RULES.of("response", "the response names the cache that it comes from")
def _(server):
    name, _ = server.value()
    field = server.poll(name).field("Cache-Status") or ""
    expect_true(f"Cache-Status has a hit: {field!r}", field.split(";")[-1].strip() == "hit")


@RULES.of("response", "a response may be stored, but not used unasked, if the poll does not wait")
def _(server):
    name, _ = server.value()
    expect("Cache-Control", server.poll(name).field("Cache-Control"), "private, no-cache")


@RULES.of("response", "a response is not stored if the poll may wait")
def _(server):
    name, _ = server.value()
    expect("Cache-Control", server.poll(name, "?wait=5").field("Cache-Control"), "no-store")


@RULES.of("values.md#values", "browsers do not guess the type of a value")
def _(server):
    name, _ = server.value()
    expect("the field", server.poll(name).field("X-Content-Type-Options"), "nosniff")


@RULES.of("request", "the query is no part of the key")
def _(server):
    name, _ = server.value(b"the value")
    expect("the body", server.poll(name, "?x=1").body, b"the value")


@RULES.of("request", "nothing in the path is decoded")
def _(server):
    name = server.name() + "%2Fa%20b"
    server.set(name, b"encoded")
    expect("the body", server.poll(name).body, b"encoded")
    expect("the status", server.poll(name.replace("%2F", "/")).status, 404)


@RULES.of("request", "HEAD gets the headers of GET")
def _(server):
    name, cursor = server.value(b"four")
    answer = server.poll(name, method="HEAD")
    expect("the status", answer.status, 200)
    expect("the body", answer.body, b"")
    expect("the cursor", answer.cursor, cursor)
    expect("Content-Length", answer.field("Content-Length"), "4")


for _method in ("POST", "QUERY"):

    @RULES.of("request", f"{_method} polls, and its body does not change the key")
    def _(server, method=_method):
        name, _ = server.value(b"the value")
        answer = server.poll(name, method=method, body=b"a=1")
        expect("the status", answer.status, 200)
        expect("the body", answer.body, b"the value")


@RULES.of("status-codes.md#status-codes", "another method gets 405 with the methods that poll")
def _(server):
    name, _ = server.value()
    for method in ("PATCH", "OPTIONS"):
        answer = server.poll(name, method=method)
        expect(f"the status of {method}", answer.status, 405)
        allowed = {part.strip() for part in (answer.field("Allow") or "").split(",")}
        expect_true(f"Allow has {METHODS}: {allowed}", allowed >= METHODS)


@RULES.of(
    "status-codes.md#status-codes",
    "a key of more than 250 bytes gets 414, and the connection is kept",
)
def _(server):
    longest = "x" * (250 - len(server.prefix))
    with server.connection() as connection:
        answer = server.poll(longest + "x", connection=connection)
        expect("the status of 251 bytes", answer.status, 414)
        answer = server.poll(longest, connection=connection)
        expect("the status of 250 bytes", answer.status, 404)
