"""Cursors, and the responses to a client that has the value."""

import re

from dwell_conformance.rule import Rules, expect, expect_true

RULES = Rules("cursors.md")


@RULES.of("polls.md#response", "a client that has the value gets 304 for If-None-Match")
def _(server):
    name, cursor = server.value()
    answer = server.poll(name, fields={"If-None-Match": f'"{cursor}"'})
    expect("the status", answer.status, 304)
    expect("the body", answer.body, b"")
    expect("the cursor", answer.cursor, cursor)


@RULES.of("polls.md#response", "a client that has the value gets 304 for since")
def _(server):
    name, cursor = server.value()
    answer = server.poll(name, f"?since={cursor}")
    expect("the status", answer.status, 304)
    expect("the cursor", answer.cursor, cursor)


@RULES.of("polls.md#response", "a POST of a client that has the value gets 204")
def _(server):
    name, cursor = server.value()
    answer = server.poll(name, f"?since={cursor}", method="POST", body=b"")
    expect("the status", answer.status, 204)
    expect("the cursor", answer.cursor, cursor)


@RULES.of("polls.md#request", "If-None-Match takes precedence over since")
def _(server):
    name, cursor = server.value()
    _, other = server.value(b"another value")
    fields = {"If-None-Match": f'"{other}"'}
    expect("the status", server.poll(name, f"?since={cursor}", fields=fields).status, 200)
    fields = {"If-None-Match": f'"{cursor}"'}
    expect("the status", server.poll(name, f"?since={other}", fields=fields).status, 304)


@RULES.of("polls.md#response", "an asterisk matches any value")
def _(server):
    name, _ = server.value()
    answer = server.poll(name, "?wait=50", fields={"If-None-Match": "*"})
    expect("the status", answer.status, 304)


@RULES.of("polls.md#request", "a cursor of another value gets the value")
def _(server):
    name, _ = server.value(b"the value")
    _, other = server.value(b"another value")
    answer = server.poll(name, f"?since={other}&wait=50")
    expect("the status", answer.status, 200)
    expect("the body", answer.body, b"the value")


@RULES.of("polls.md#request", "a malformed cursor is no error, and gets the value")
def _(server):
    name, _ = server.value(b"the value")
    for cursor in ("", "x", "%00", "a" * 300):
        answer = server.poll(name, f"?since={cursor}")
        expect(f"the status for {cursor[:5]!r}", answer.status, 200)
        expect("the body", answer.body, b"the value")


@RULES.of("cursors", "a cursor has 11 characters that need no encoding")
def _(server):
    _, cursor = server.value()
    expect_true(f"the cursor is {cursor!r}", re.fullmatch(r"[A-Za-z0-9_-]{11}", cursor))


@RULES.of("cursors", "the same bytes have the same cursor under every key")
def _(server):
    _, one = server.value(b"same")
    _, other = server.value(b"same")
    expect("the other cursor", other, one)


@RULES.of("cursors", "different bytes have different cursors")
def _(server):
    values = [b"", b"a", b"b", b"a\n", b"A"]
    cursors = set()
    for value in values:
        name = server.name()
        server.set(name, value)
        cursors.add(server.poll(name).cursor)
    expect("the number of cursors", len(cursors), len(values))


@RULES.of("cursors", "a value that changed and changed back is not a change")
def _(server):
    name, cursor = server.value(b"first")
    server.set(name, b"second")
    server.set(name, b"first")
    expect("the status", server.poll(name, f"?since={cursor}").status, 304)


@RULES.of("cursors", "an ETag that a proxy weakened or extended is still the cursor")
def _(server):
    name, cursor = server.value()
    for tag in (f'W/"{cursor}"', f'"{cursor}-gzip"'):
        answer = server.poll(name, fields={"If-None-Match": tag})
        expect(f"the status for {tag}", answer.status, 304)
