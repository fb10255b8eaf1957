"""Clients under TLS: handshakes, key updates, waits, and floods."""

import contextlib
import pathlib
import signal
import socket
import ssl
import subprocess
import time

import pytest

from support import ports
from support.browser import find
from support.secure import Secure, answer, ask, has_tls, openssl_client, read_to_end
from support.wait import until

GO_CLIENT = pathlib.Path(__file__).parent / "clients" / "tls" / "main.go"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_poll_waits_and_is_answered_under_tls(lone, version):
    context = lone.context()
    context.minimum_version = context.maximum_version = version
    store = lone.edge.store()
    store.set("/poll/a", "first")
    with lone.connect(context=context) as connection:
        for _ in range(3):
            ask(connection, "/poll/a")
            assert answer(connection) == b"first"
        ask(connection, "/poll/b?wait=20")
        lone.edge.await_waiters(1)
        store.set("/poll/b", "x" * 300_000)
        assert answer(connection) == b"x" * 300_000
    lone.edge.await_metric(1, "dwell_tls_handshakes_total", outcome="done")


def test_one_change_wakes_plain_and_secure_clients_together(lone):
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(lone.connect()) for _ in range(30)]
        for client in clients:
            ask(client, "/poll/a?wait=20")
        plain = [
            stack.enter_context(socket.create_connection(lone.edge.address)) for _ in range(30)
        ]
        for client in plain:
            client.settimeout(20)
            ask(client, "/poll/a?wait=20")
        lone.edge.await_waiters(60)
        lone.edge.store().set("/poll/a", "news")
        assert [answer(client) for client in clients + plain] == [b"news"] * 60


def test_one_change_goes_to_many_secure_websockets(start_dwell, tmp_path):
    # So many that a loop gathers messages, which go to a socket under TLS as records.
    edge = Secure(start_dwell, tmp_path, server={"pollers": 1})
    handshake = (
        b"GET /poll/a HTTP/1.1\r\nHost: one.test\r\nConnection: Upgrade\r\n"
        b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    context = edge.context()
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(edge.connect(context=context)) for _ in range(20)]
        for client in clients:
            client.sendall(handshake)
            assert client.recv(65536).startswith(b"HTTP/1.1 101 ")
        for word in (b"one", b"two"):
            edge.edge.store().set("/poll/a", word)
            frames = [client.recv(65536) for client in clients]
            assert [word in frame for frame in frames] == [True] * len(clients)


def test_an_event_stream_goes_on_over_a_key_update(lone):
    with lone.connect() as connection:
        connection.sendall(
            b"GET /poll/a HTTP/1.1\r\nHost: one.test\r\nAccept: text/event-stream\r\n\r\n"
        )
        lone.edge.await_metric(1, "dwell_streams_open")
        received = b""
        for word in (b"one", b"two", b"three"):
            lone.edge.store().set("/poll/a", word)
            while word not in received:
                part = connection.recv(65536)
                assert part, received
                received += part


@pytest.mark.skipif(find() is None, reason="Chromium is not installed")
@pytest.mark.xdist_group("browser")
def test_chromium_shows_a_value(secure):
    secure.edge.store().set("/poll/a", "a value for Chromium")
    command = [find(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
               "--ignore-certificate-errors", f"--user-data-dir={secure.folder / 'profile'}",
               "--dump-dom", f"https://{ports.text(secure.address)}/poll/a"]  # fmt: skip
    page = subprocess.run(command, capture_output=True, timeout=120, check=True)
    assert b"a value for Chromium" in page.stdout


def test_the_application_is_told_of_https(secure, app):
    with secure.connect() as connection:
        ask(connection, "/page")
        assert answer(connection) == b"from the app"
        ask(connection, "/poll/missing")
        answer(connection)
    secure.edge.get("/poll/missing")
    told = [dict(request.fields)["X-Forwarded-Proto"] for request in app.requests]
    assert told == ["https", "https", "http"]


def test_curl_gets_a_value(secure):
    secure.edge.store().set("/poll/a", "value")
    host, port = secure.address
    ask_curl = ["curl", "-sS", "--max-time", "20", "--resolve", f"one.test:{port}:{host}"]
    url = f"https://one.test:{port}/poll/a"
    for extra in (["--http1.1"], ["--tls-max", "1.2"], ["--compressed"]):
        command = [*ask_curl, *extra, "--cacert", secure.certificate, url, url]
        assert subprocess.check_output(command, timeout=60) == b"valuevalue"
    refused = subprocess.run([*ask_curl, url], capture_output=True, timeout=60, check=False)
    assert refused.returncode == 60, refused.stderr


def test_openssl_changes_its_keys_and_asks_for_ours(secure):
    secure.edge.store().set("/poll/a", "value")
    with openssl_client(secure) as client:
        for command in (b"", b"k\n", b"K\n", b"k\n", b"K\n"):
            if command:
                client.stdin.write(command)
                read_to_end(client, b"KEYUPDATE\n")
            client.stdin.write(b"GET /poll/a HTTP/1.1\r\nHost: one.test\r\n\r\n")
            read_to_end(client, b"\r\n\r\nvalue")


def test_a_session_is_resumed_by_its_ticket(secure):
    secure.edge.store().set("/poll/a", "value")
    for version in (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2):
        context = secure.context()
        context.minimum_version = context.maximum_version = version
        with secure.connect(context=context) as connection:
            ask(connection, "/poll/a")
            assert answer(connection) == b"value"
            session = connection.session
        plain = socket.create_connection(secure.address, timeout=20)
        with context.wrap_socket(plain, server_hostname="one.test", session=session) as again:
            assert again.session_reused
            ask(again, "/poll/a")
            assert answer(again) == b"value"


@pytest.mark.xdist_group("go")
def test_a_go_client_waits_on_many_connections(secure):
    secure.edge.store().set("/poll/a", "value")
    program = secure.folder / "client"
    subprocess.run(
        ["go", "build", "-o", program, GO_CLIENT],
        check=True,
        capture_output=True,
        timeout=300,
    )
    command = [program, ports.text(secure.address), secure.certificate]
    output = subprocess.run(command, capture_output=True, timeout=120, check=False)
    assert (output.returncode, output.stdout) == (0, b"50 of 50\n"), output.stderr


@pytest.mark.parametrize("sends", [False, True])
def test_a_flood_that_stalls_keeps_no_client_out(start_dwell, tmp_path, sends):
    # A hello of TLS 1.3 takes the memory of a handshake, of which only few are allowed for.
    bound = 8 if sends else 1000
    sections = {"tls": {"handshakes_max": bound}, "server": {"pollers": 1}}
    edge = Secure(start_dwell, tmp_path, **sections)
    edge.edge.store().set("/poll/a", "value")
    hello = ssl.MemoryBIO()
    begun = edge.context().wrap_bio(ssl.MemoryBIO(), hello, server_hostname="one.test")
    with contextlib.suppress(ssl.SSLWantReadError):
        begun.do_handshake()
    hello = hello.read()
    with contextlib.ExitStack() as stack:
        for _ in range(60 if sends else 1000):
            client = stack.enter_context(socket.create_connection(edge.address, timeout=20))
            if sends:
                client.sendall(hello)
        began = time.monotonic()
        with edge.connect() as connection:
            ask(connection, "/poll/a")
            assert answer(connection) == b"value"
        took = time.monotonic() - began
        # A handshake has 10 s, and a place was free only then.
        assert took < 8, took
        if sends:
            edge.edge.await_metric(61 - bound, "dwell_tls_handshakes_total", outcome="displaced")
    if not sends:
        edge.edge.await_metric(1000, "dwell_tls_handshakes_total", outcome="closed")
    edge.edge.await_metric(1, "dwell_tls_handshakes_total", outcome="done")
    edge.edge.await_metric(1, "dwell_tls_established_total", kind="tls13_full")


def test_plain_http_is_told_to_use_tls(secure):
    with socket.create_connection(secure.address, timeout=20) as connection:
        ask(connection, "/poll/a")
        received = b""
        while part := connection.recv(65536):
            received += part
    assert received.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"use https://" in received
    secure.edge.await_metric(1, "dwell_tls_handshakes_total", outcome="not_tls")


def test_the_end_is_told_when_the_server_drains(secure):
    with secure.connect() as connection:
        ask(connection, "/poll/a")
        answer(connection)
        secure.edge.signal(signal.SIGTERM)
        # Without a close_notify this would be an error of its own.
        assert connection.recv(1) == b""


def test_tls_on_a_plain_port_is_closed_counted_and_told(lone):
    refused = pytest.raises((ssl.SSLError, ConnectionError))
    with refused, socket.create_connection(lone.edge.address, timeout=20) as plain:
        lone.context().wrap_socket(plain, server_hostname="one.test")
    lone.edge.await_metric(1, "dwell_tls_on_plain_total")
    until(lambda: "move the address to tls.listen" in lone.edge.output(), "the log has the remedy")
    # Not one line for each; the count has them all.
    for _ in range(5):
        assert not has_tls(lone.edge.address)
    lone.edge.await_metric(6, "dwell_tls_on_plain_total")
    assert lone.edge.output().count("a client began TLS on") < 6
    # A first byte alone is no TLS.
    with socket.create_connection(lone.edge.address, timeout=20) as plain:
        plain.sendall(b"\x16GET / HTTP/1.1\r\n\r\n")
        assert plain.recv(65536).startswith(b"HTTP/1.1 400 ")


def test_challenges_are_answered_plain_and_under_tls_before_any_route(start_dwell, tmp_path):
    folder = tmp_path / "challenges"
    folder.mkdir()
    (folder / "to-ken_1").write_text("to-ken_1.digest")
    (tmp_path / "secret").write_text("secret")
    (folder / "link").symlink_to(tmp_path / "secret")
    routes = [{"prefix": "/"}]
    edge = Secure(start_dwell, tmp_path, acme_challenge=str(folder), route=routes)
    below = "/.well-known/acme-challenge/"
    plain = edge.edge.get(below + "to-ken_1")
    assert (plain.status, plain.body) == (200, b"to-ken_1.digest")
    with edge.connect() as connection:
        ask(connection, below + "to-ken_1")
        assert answer(connection) == b"to-ken_1.digest"
    for token in ("none", "link", "..", "../secret", "%2e%2e/secret", "a.b", ""):
        assert edge.edge.get(below + token).status in (400, 404), token
    refused = edge.edge.get(below + "to-ken_1", method="PUT", body=b"x")
    assert refused.status == 405
    # Without the option the path is a route's.
    edge.edge.rewrite(tls={"acme_challenge": "off"})
    edge.edge.signal(signal.SIGHUP)
    until(lambda: edge.edge.get(below + "to-ken_1").status != 200, "it is off")
