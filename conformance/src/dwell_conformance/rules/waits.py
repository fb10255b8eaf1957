"""Polls that wait.

No check rests on the order of a write and of the arrival of a poll: a poll with the cursor of the
value before gets the new value in either order.
"""

from dwell_conformance.rule import Rules, expect, expect_true

RULES = Rules("polls.md")
CROWD = 20


@RULES.of("long-polls", "a poll that waits gets the next value")
def _(server):
    name, cursor = server.value(b"before")
    with server.asking(server.path(name) + f"?since={cursor}&wait=25") as wait:
        server.set(name, b"after")
        [answer] = wait()
    expect("the status", answer.status, 200)
    expect("the body", answer.body, b"after")
    expect("the cursor", answer.cursor, server.poll(name).cursor)


@RULES.of("request", "headers ask for a wait as the query does")
def _(server):
    name, cursor = server.value(b"before")
    fields = {"If-None-Match": f'"{cursor}"', "Prefer": "wait=25"}
    with server.asking(server.path(name), fields=fields) as wait:
        server.set(name, b"after")
        [answer] = wait()
    expect("the status", answer.status, 200)
    expect("the body", answer.body, b"after")
    expect("Preference-Applied", answer.field("Preference-Applied"), "wait=25")


@RULES.of("long-polls", "all polls that wait for a key get its next value")
def _(server):
    name, cursor = server.value(b"before")
    targets = [server.path(name) + f"?since={cursor}&wait=25"] * CROWD
    with server.asking(*targets) as wait:
        server.set(name, b"after")
        answers = wait()
    expect("the bodies", {answer.body for answer in answers}, {b"after"})


@RULES.of("response", "a wait without a change ends with 204, and not early")
def _(server):
    name, cursor = server.value()
    answer = server.poll(name, f"?since={cursor}&wait=250ms")
    expect("the status", answer.status, 204)
    expect("the cursor", answer.cursor, cursor)
    expect_true(f"it has ended after {answer.seconds} s", answer.seconds >= 0.25)


@RULES.of("response", "a wait without a change ends with 304 for If-None-Match")
def _(server):
    name, cursor = server.value()
    fields = {"If-None-Match": f'"{cursor}"', "Prefer": "wait=1"}
    answer = server.poll(name, fields=fields)
    expect("the status", answer.status, 304)
    expect("Preference-Applied", answer.field("Preference-Applied"), "wait=1")
    expect_true(f"it has ended after {answer.seconds} s", answer.seconds >= 1)


@RULES.of("request", "a wait of zero is no wait")
def _(server):
    name, cursor = server.value()
    expect("the status", server.poll(name, f"?since={cursor}&wait=0").status, 304)


@RULES.of("request", "a wait that is no number of seconds gets 400")
def _(server):
    name, _ = server.value()
    for wait in ("soon", "-1", "1m", ""):
        expect(f"the status of wait={wait}", server.poll(name, f"?wait={wait}").status, 400)


@RULES.of("request", "an invalid preference is ignored")
def _(server):
    name, cursor = server.value()
    answer = server.poll(name, f"?since={cursor}", fields={"Prefer": "wait=soon"})
    expect("the status", answer.status, 304)


@RULES.of("long-polls", "a poll without a cursor waits for the first value")
def _(server):
    name = server.name()
    with server.asking(server.path(name) + "?wait=25") as wait:
        server.set(name, b"at last")
        [answer] = wait()
    expect("the status", answer.status, 200)
    expect("the body", answer.body, b"at last")


@RULES.of("response", "a wait for a first value that does not come ends with 204")
def _(server):
    answer = server.poll(server.name(), "?wait=250ms")
    expect("the status", answer.status, 204)
    expect_true(f"it has ended after {answer.seconds} s", answer.seconds >= 0.25)


@RULES.of("cursors.md#cursors", "storing the same bytes again wakes no client")
def _(server):
    name, cursor = server.value(b"same")
    with server.asking(server.path(name) + f"?since={cursor}&wait=1") as wait:
        for _ in range(20):
            server.set(name, b"same")
        [answer] = wait()
    expect("the status", answer.status, 204)


@RULES.of("long-polls", "a poll whose key is deleted gets 404 without an application")
def _(server):
    name, cursor = server.value()
    with server.asking(server.path(name) + f"?since={cursor}&wait=25") as wait:
        server.delete(name)
        [answer] = wait()
    expect("the status", answer.status, 404)


@RULES.of("long-polls", "a connection is used again after a wait")
def _(server):
    name, cursor = server.value()
    with server.connection() as connection:
        first = server.poll(name, f"?since={cursor}&wait=50ms", connection=connection)
        expect("the first status", first.status, 204)
        kept = connection.sock
        second = server.poll(name, connection=connection)
        expect("the second status", second.status, 200)
        expect_true("the connection is the same", connection.sock is kept)
