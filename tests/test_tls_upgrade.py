"""SIGUSR2 under TLS: connections and sessions go on in the process that serves."""

import contextlib
import ssl
import sys

import pytest

from support.certificates import make_authority, make_client
from support.dwell import BINARY, ROOT
from support.secure import Secure, answer, ask, is_resumed, openssl_client, read_to_end
from support.upgrade import begin, upgrade
from support.wait import until

# Nothing here is to be cut off, however slow the machine is.
LIMITS = {"drain_timeout": "30s", "idle_timeout": "10m"}
HANDSHAKES = "dwell_tls_handshakes_total"
ENDED = "the process before this one has ended"


@pytest.fixture
def patient(start_dwell, tmp_path):
    return Secure(start_dwell, tmp_path, limits=LIMITS)


def head(connection):
    """The status line and the fields of a response without a body."""
    received = b""
    while not received.endswith(b"\r\n\r\n"):
        part = connection.recv(65536)
        assert part, received
        received += part
    return received


def poll(connection, value, target="/poll/a"):
    ask(connection, target)
    assert answer(connection) == value


def end_first(secure):
    """Waits until the first process has ended, and the next one knows."""
    assert secure.edge.wait() == 0
    until(lambda: secure.edge.output().count(ENDED) == 1, "it knows")


def test_idle_connections_go_on_over_two_upgrades(patient, cleanup):
    edge = patient.edge
    edge.store().set("/poll/a", "value")
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(patient.connect()) for _ in range(100)]
        for client in clients:
            poll(client, b"value")
        half = clients.pop()
        half.sendall(b"GET /poll/a HTTP/1.1\r\nHo")
        first = upgrade(edge, cleanup)
        half.sendall(b"st: one.test\r\n\r\n")
        assert answer(half) == b"value"
        end_first(patient)
        for client in clients:
            poll(client, b"value")
        upgrade(edge, cleanup, first)
        first.wait()
        edge.store().set("/poll/a", "news")
        for client in clients:
            poll(client, b"news")
        assert edge.metric(HANDSHAKES, outcome="done") == 0, "nobody has shaken hands again"
        edge.await_connections(100)


def test_a_long_poll_ends_and_is_asked_again_on_its_connection(patient, cleanup):
    edge = patient.edge
    edge.store().set("/poll/a", "old")
    with patient.connect() as waiting:
        poll(waiting, b"old")
        cursor = edge.get("/poll/a").etag[1:-1]
        ask(waiting, f"/poll/a?since={cursor}&wait=50")
        edge.await_waiters(1)
        upgrade(edge, cleanup)
        ended = head(waiting)
        assert ended.startswith(b"HTTP/1.1 204"), ended
        assert b"connection: close" not in ended.lower()
        ask(waiting, f"/poll/a?since={cursor}&wait=50")
        end_first(patient)
        edge.await_waiters(1)
        edge.store().set("/poll/a", "new")
        assert answer(waiting) == b"new"
        assert edge.metric(HANDSHAKES, outcome="done") == 0


def test_a_stream_of_events_ends_in_order(patient, cleanup):
    edge = patient.edge
    edge.store().set("/poll/a", "value")
    with patient.connect() as connection:
        connection.sendall(
            b"GET /poll/a HTTP/1.1\r\nHost: one.test\r\nAccept: text/event-stream\r\n\r\n"
        )
        edge.await_metric(1, "dwell_streams_open")
        upgrade(edge, cleanup)
        received = b""
        while not received.endswith(b"0\r\n\r\n"):
            part = connection.recv(65536)
            assert part, received
            received += part
        assert b"retry:" in received
        # Its connection goes on.
        poll(connection, b"value")


def test_openssl_changes_keys_before_and_after(patient, cleanup):
    patient.edge.store().set("/poll/a", "value")
    with openssl_client(patient) as client:

        def asks(commands):
            for command in commands:
                client.stdin.write(command)
                read_to_end(client, b"KEYUPDATE\n")
                client.stdin.write(b"GET /poll/a HTTP/1.1\r\nHost: one.test\r\n\r\n")
                read_to_end(client, b"\r\n\r\nvalue")

        asks([b"k\n", b"K\n"])
        # The update that it asks for here is owed when the connection goes over.
        client.stdin.write(b"K\n")
        read_to_end(client, b"KEYUPDATE\n")
        upgrade(patient.edge, cleanup)
        end_first(patient)
        asks([b"k\n", b"K\n", b"k\n"])


@pytest.mark.parametrize("version", ["tls1_2", "tls1_3"])
def test_a_session_is_resumed_after_an_upgrade(patient, cleanup, tmp_path, version):
    patient.edge.store().set("/poll/a", "value")
    session = tmp_path / "session.pem"
    assert not is_resumed(patient, version, "-sess_out", session)
    first = upgrade(patient.edge, cleanup)
    end_first(patient)
    assert is_resumed(patient, version, "-sess_in", session)
    upgrade(patient.edge, cleanup, first)
    first.wait()
    assert is_resumed(patient, version, "-sess_in", session)


def test_a_connection_of_tls_1_2_is_told_of_its_end(patient, cleanup):
    patient.edge.store().set("/poll/a", "value")
    context = patient.context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with patient.connect(context=context) as idle, patient.connect() as other:
        poll(idle, b"value")
        poll(other, b"value")
        upgrade(patient.edge, cleanup)
        # Without a close_notify this would be an error of its own.
        assert idle.recv(1) == b""
        end_first(patient)
        poll(other, b"value")


@pytest.mark.parametrize("takes", [b"", b"\x01"])
def test_a_successor_that_fails_changes_nothing(start_dwell, tmp_path, cleanup, takes):
    program = tmp_path / "dwell"
    program.symlink_to(BINARY)
    secure = Secure(start_dwell, tmp_path, limits=LIMITS, program=program)
    edge = secure.edge
    edge.store().set("/poll/a", "old")
    with secure.connect() as idle, secure.connect() as waiting:
        poll(idle, b"old")
        ask(waiting, "/poll/b?wait=50")
        edge.await_waiters(1)
        other_side = (ROOT / "tests" / "support" / "other_side.py").read_text()
        script = tmp_path / f"other.{takes.hex()}.serve"
        script.write_text(f"#!{sys.executable}\n{other_side}")
        script.chmod(0o755)
        program.unlink()
        program.write_text(f'#!/bin/sh\nexec "{script}"\n')
        program.chmod(0o755)
        begin(edge, cleanup).wait()
        edge.await_metric(1, "dwell_upgrades_failed_total")
        edge.await_output("the upgrade is given up")
        poll(idle, b"old")
        edge.store().set("/poll/b", "new")
        assert answer(waiting) == b"new"
        # And the next one does not fail.
        program.unlink()
        program.symlink_to(BINARY)
        upgrade(edge, cleanup)
        end_first(secure)
        poll(idle, b"old")
        poll(waiting, b"old")


def test_verified_clients_alone_go_to_a_process_that_verifies(start_dwell, tmp_path, cleanup):
    ours, theirs = make_authority(tmp_path, "ours"), make_authority(tmp_path, "theirs")
    secure = Secure(start_dwell, tmp_path, limits=LIMITS)
    edge, context = secure.edge, secure.context()
    context.load_cert_chain(*make_client(tmp_path, "alice", ours))
    edge.store().set("/poll/a", "value")
    processes = []
    # Nobody was verified; then the same authority; then another one.
    for authority, goes_on in [(ours, False), (ours, True), (theirs, False)]:
        with secure.connect(context=context) as connection:
            poll(connection, b"value")
            edge.rewrite(tls={"client_ca": str(authority[0])})
            processes.append(upgrade(edge, cleanup, processes[-1] if processes else None))
            until(lambda: edge.output().count(ENDED) == len(processes), "it knows")
            if goes_on:
                poll(connection, b"value")
            else:
                assert connection.recv(1) == b""


def test_a_client_without_a_certificate_does_not_go_to_a_process_that_requires_one(
    start_dwell, tmp_path, cleanup
):
    ours = make_authority(tmp_path, "ours")
    optional = {"client_auth": "optional"}
    secure = Secure(start_dwell, tmp_path, limits=LIMITS, client_ca=str(ours[0]), tls=optional)
    edge = secure.edge
    edge.store().set("/poll/a", "value")
    with secure.connect() as connection:
        poll(connection, b"value")
        first = upgrade(edge, cleanup)
        until(lambda: edge.output().count(ENDED) == 1, "it knows")
        poll(connection, b"value")
        edge.rewrite(tls={"client_auth": "required"})
        upgrade(edge, cleanup, first)
        assert connection.recv(1) == b""
