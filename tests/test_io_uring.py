"""Answers to many, by io_uring where the kernel allows it, or each by a call of its own."""

import contextlib
import os
import ssl
from pathlib import Path

import pytest

from support.crowd import Crowd
from support.http import request
from support.secure import Secure, answer, ask

KEY = "/poll/news"


def rings(dwell):
    """How many rings the process has open."""
    names = []
    for descriptor in Path(f"/proc/{dwell.pid}/fd").iterdir():
        # The connections that the crowd has left go one by one.
        with contextlib.suppress(FileNotFoundError):
            names.append(os.readlink(descriptor))
    return sum("io_uring" in name for name in names)


@pytest.mark.parametrize("mode", ["auto", "off"])
def test_all_who_wait_get_the_value(start_dwell, mode):
    dwell = start_dwell(server={"pollers": 1, "io_uring": mode})
    store = dwell.store()
    store.set(KEY, b"old")
    with Crowd(dwell.address, 600) as crowd:
        for value in (b"first", b"second"):
            held = request(f"{KEY}?wait=55", fields={"If-None-Match": dwell.get(KEY).etag})
            crowd.send(held)
            dwell.await_waiters(600)
            store.set(KEY, value)
            answers = crowd.answers()
            assert {(status, body) for status, _, body in answers} == {(200, value)}
    allowed = "answers to many are sent by io_uring" in dwell.output()
    refused = "answers to many are sent one by one" in dwell.output()
    assert (allowed != refused) == (mode == "auto")
    assert rings(dwell) == (1 if allowed else 0)


@pytest.mark.parametrize("mode", ["auto", "off"])
def test_all_who_wait_under_tls_get_each_value(start_dwell, tmp_path, mode):
    # TLS 1.3 gives its records to the sends of a turn. TLS 1.2 and long values do not.
    secure = Secure(start_dwell, tmp_path, server={"pollers": 1, "io_uring": mode})
    store = secure.edge.store()
    with contextlib.ExitStack() as stack:
        clients = []
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = secure.context()
            context.minimum_version = context.maximum_version = version
            clients += [stack.enter_context(secure.connect(context=context)) for _ in range(40)]
        for value in (b"first", b"x" * 100_000, b"y" * 1000, b"last"):
            store.delete(KEY)
            for client in clients:
                ask(client, f"{KEY}?wait=55")
            secure.edge.await_waiters(len(clients))
            store.set(KEY, value)
            assert {answer(client) for client in clients} == {value}
