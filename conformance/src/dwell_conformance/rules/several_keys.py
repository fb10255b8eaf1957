"""Polls of several keys."""

import json

from dwell_conformance.rule import Rules, expect, expect_true
from dwell_conformance.server import text_of

RULES = Rules("several-keys.md")


def target(server, *names, rest=""):
    return server.prefix + "?" + "&".join(f"k={name}" for name in names) + rest


@RULES.of(
    "several-keys-in-one-poll", "a poll of several keys returns those that have a value, as JSON"
)
def _(server):
    one, cursor = server.value(b"one")
    absent = server.name()
    answer = server.ask(target(server, one, absent))
    expect("the status", answer.status, 200)
    expect("the type", answer.field("Content-Type"), "application/json")
    values = json.loads(answer.body)["values"]
    expect("the values", values, {one: {"v": "one", "c": cursor}})


@RULES.of(
    "several-keys-in-one-poll", "the cursor has those of the keys, in the order of the request"
)
def _(server):
    one, first = server.value(b"one")
    absent = server.name()
    two, second = server.value(b"two")
    answer = server.ask(target(server, two, absent, one))
    expect("the cursor", answer.cursor, f"{second}..{first}")
    expect("the cursor of the body", json.loads(answer.body)["cursor"], answer.cursor)


@RULES.of("several-keys-in-one-poll", "a value that is not UTF-8 comes as base64")
def _(server):
    value = b"\xff\x00\xfe"
    name, _ = server.value(value)
    [entry] = json.loads(server.ask(target(server, name)).body)["values"].values()
    expect_true("the entry has b64", "b64" in entry and "v" not in entry)
    expect("the value", text_of(entry), value)


@RULES.of("several-keys-in-one-poll", "a client that has every value gets 304")
def _(server):
    one, first = server.value(b"one")
    two, second = server.value(b"two")
    answer = server.ask(target(server, one, two, rest=f"&since={first}.{second}"))
    expect("the status", answer.status, 304)


@RULES.of("several-keys-in-one-poll", "a poll that waits gets the keys that change, and no others")
def _(server):
    one, first = server.value(b"one")
    two, second = server.value(b"two")
    waits = target(server, one, two, rest=f"&since={first}.{second}&wait=25")
    with server.asking(waits) as wait:
        server.set(two, b"two again")
        [answer] = wait()
    found = json.loads(answer.body)
    expect("the keys", list(found["values"]), [two])
    expect("the value", found["values"][two]["v"], "two again")
    expect("the cursor", found["cursor"], f"{first}.{found['values'][two]['c']}")


@RULES.of("several-keys-in-one-poll", "a key that is deleted is null")
def _(server):
    one, first = server.value(b"one")
    two, second = server.value(b"two")
    waits = target(server, one, two, rest=f"&since={first}.{second}&wait=25")
    with server.asking(waits) as wait:
        server.delete(one)
        [answer] = wait()
    found = json.loads(answer.body)
    expect("the values", found["values"], {one: None})
    expect("the cursor", found["cursor"], f".{second}")


@RULES.of("several-keys-in-one-poll", "without a value and without a wait the values are empty")
def _(server):
    answer = server.ask(target(server, server.name(), server.name()))
    expect("the status", answer.status, 200)
    expect("the values", json.loads(answer.body)["values"], {})


@RULES.of("several-keys-in-one-poll", "more than 64 keys get 400")
def _(server):
    names = [server.name() for _ in range(65)]
    expect("the status of 64", server.ask(target(server, *names[:64])).status, 200)
    expect("the status of 65", server.ask(target(server, *names)).status, 400)


@RULES.of("several-keys-in-one-poll", "a name with a dot segment gets 400")
def _(server):
    for name in ("..", "a/../b", "..%2Fb"):
        expect(f"the status of {name}", server.ask(target(server, name)).status, 400)
