"""Event streams."""

from dwell_conformance.rule import Rules, expect, expect_true

RULES = Rules("streams.md")
ANCHOR = "event-streams-sse"


@RULES.of(ANCHOR, "a stream begins with the value, whose cursor is the id of the event")
def _(server):
    name, cursor = server.value(b"good morning")
    with server.events(server.path(name)) as stream:
        expect("the status", stream.response.status, 200)
        expect("the type", stream.response.headers["Content-Type"], "text/event-stream")
        expect("the event", stream.event(), {"id": cursor, "data": "good morning"})


@RULES.of(ANCHOR, "a stream gets the next value")
def _(server):
    name, _ = server.value(b"before")
    with server.events(server.path(name)) as stream:
        stream.event()
        server.set(name, b"after")
        event = stream.event()
        expect("the data", event["data"], "after")
        expect("the id", event["id"], server.poll(name).cursor)


@RULES.of(ANCHOR, "a client that comes back gets no value twice")
def _(server):
    name, cursor = server.value(b"before")
    path = server.path(name)
    for target, fields in (
        (path, {"Last-Event-ID": cursor}),
        (f"{path}?last_event_id={cursor}", {}),
        (f"{path}?since={cursor}", {}),
    ):
        server.set(name, b"before")
        with server.events(target, fields) as stream:
            server.set(name, b"after")
            expect(f"the data for {target}", stream.event()["data"], "after")


@RULES.of(ANCHOR, "the lines of a value are lines of data")
def _(server):
    name, _ = server.value(b"one\ntwo\r\nthree\rfour\n")
    with server.events(server.path(name)) as stream:
        expect("the data", stream.event()["data"], "one\ntwo\nthree\nfour\n")


@RULES.of(ANCHOR, "the type */* alone selects no stream")
def _(server):
    name, _ = server.value(b"plain")
    answer = server.poll(name, fields={"Accept": "*/*"})
    expect("the body", answer.body, b"plain")
    expect_true("it is no stream", answer.field("Content-Type") != "text/event-stream")


@RULES.of("a-key-without-a-value", "a deletion is an event that resets the id")
def _(server):
    name, _ = server.value()
    with server.events(server.path(name)) as stream:
        stream.event()
        server.delete(name)
        event = stream.event()
        expect("the type", event.get("event"), "delete")
        expect("the id", event.get("id"), "")


@RULES.of("a-key-without-a-value", "a stream waits for the first value")
def _(server):
    name = server.name()
    with server.events(server.path(name)) as stream:
        server.set(name, b"at last")
        expect("the data", stream.event()["data"], "at last")


@RULES.of("several-keys", "the type of an event is the key as the request names it")
def _(server):
    one, first = server.value(b"one")
    two = server.name()
    with server.events(f"{server.prefix}?k={one}&k={two}") as stream:
        expect("the event", stream.event(), {"event": one, "id": f"{first}.", "data": "one"})
        server.set(two, b"two")
        second = server.poll(two).cursor
        wanted = {"event": two, "id": f"{first}.{second}", "data": "two"}
        expect("the event", stream.event(), wanted)


@RULES.of("several-keys", "a deletion names its key")
def _(server):
    one, _ = server.value(b"one")
    two, second = server.value(b"two")
    with server.events(f"{server.prefix}?k={one}&k={two}") as stream:
        stream.event()
        stream.event()
        server.delete(one)
        wanted = {"event": "delete", "id": f".{second}", "data": one}
        expect("the event", stream.event(), wanted)
