"""Limits: what is beyond one is refused, and what is within it is not."""

import contextlib

from dwell_conformance.rule import Rules, expect, expect_true

RULES = Rules("status-codes.md")
# Requests after which a rate has to have refused one.
REQUESTS_MAX = 1000


@RULES.of("status-codes", "a body above the limit gets 413, and the connection is closed")
def _(server):
    name, _ = server.value(b"the value")
    limit = server.limits.body_bytes
    answer = server.poll(name, method="POST", body=b"x" * limit)
    expect(f"the status of {limit} bytes", answer.status, 200)
    with server.connection() as connection:
        connection.putrequest("POST", server.path(name))
        connection.putheader("Content-Length", str(limit + 1))
        connection.endheaders()
        # It may be refused by its length alone.
        with contextlib.suppress(OSError):
            connection.send(b"x" * (limit + 1))
        answer = server.answer(connection)
        expect(f"the status of {limit + 1} bytes", answer.status, 413)
        expect("Connection", (answer.field("Connection") or "").lower(), "close")


@RULES.of("status-codes", "a target above the limit gets 414, and the connection is closed")
def _(server):
    name, _ = server.value(b"the value")
    limit = server.limits.target_bytes
    path = server.path(name) + "?x="
    longest = path + "y" * (limit - len(path))
    expect(f"the status of {limit} bytes", server.ask(longest).status, 200)
    answer = server.ask(longest + "y")
    expect(f"the status of {limit + 1} bytes", answer.status, 414)
    expect("Connection", (answer.field("Connection") or "").lower(), "close")


@RULES.of("status-codes", "a request above the rate gets 429 with Retry-After", needs="rate_path")
def _(server):
    with server.connection() as connection:
        for _ in range(REQUESTS_MAX):
            answer = server.ask(server.limits.rate_path, connection=connection)
            if answer.status == 429:
                return expect_seconds(answer)
            expect_true(f"the status is {answer.status}, and no fault", answer.status < 500)
    expect_true(f"one of {REQUESTS_MAX} requests is refused", False)
    return None


@RULES.of("status-codes", "a wait above the limit gets 503 with Retry-After", needs="waiters_max")
def _(server):
    name, cursor = server.value(b"first")
    target = f"{server.path(name)}?since={cursor}&wait=20"
    with contextlib.ExitStack() as held:
        waiting = []
        for _ in range(server.limits.waiters_max):
            connection = held.enter_context(server.connection())
            connection.request("GET", target)
            waiting.append(connection)
        # The waits may not have begun: one more is refused once they have.
        for _ in range(REQUESTS_MAX):
            answer = server.ask(f"{server.path(name)}?since={cursor}&wait=100ms")
            if answer.status == 503:
                break
        expect("the status of one wait more", answer.status, 503)
        expect_seconds(answer)
        expect("the status of a poll without a wait", server.poll(name).status, 200)
        server.set(name, b"second")
        for connection in waiting:
            expect("the body that a held poll gets", server.answer(connection).body, b"second")


def expect_seconds(answer):
    seconds = answer.field("Retry-After") or ""
    expect_true(f"Retry-After is a number of seconds: {seconds!r}", seconds.isdecimal())
