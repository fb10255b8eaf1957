"""HTTP/2 under TLS, agreed on by ALPN: browsers and other clients, upgrades and drains."""

import contextlib
import pathlib
import re
import shutil
import signal
import socket
import ssl
import subprocess

import pytest

from support import ports
from support.browser import find
from support.certificates import END_ENTITY, make_certificate
from support.guarded import Guarded
from support.http import BODILESS
from support.http2_client import GOAWAY, Http2Connection
from support.secure import Secure, answer, ask
from support.upgrade import upgrade
from support.upstream import Answer
from support.wait import until

GO_CLIENT = pathlib.Path(__file__).parent / "clients" / "http2" / "main.go"
KEY = "/poll/alice"
NO_ERROR, PROTOCOL_ERROR = 0, 1
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
# Nothing here is to be cut off, however slow the machine is.
LIMITS = {"drain_timeout": "30s"}


@pytest.fixture
def alone(start_dwell, tmp_path):
    """An edge that offers HTTP/2, on its embedded store."""
    return Secure(start_dwell, tmp_path, limits=LIMITS)


@pytest.fixture
def client(alone, cleanup):
    return cleanup.enter_context(alone.http2())


def agreed(secure, *offered, **options):
    """The protocol that is agreed on with a client that offers these."""
    context = secure.context_for(*offered, **options) if offered else secure.context()
    with secure.connect(context=context) as connection:
        return connection.selected_alpn_protocol()


def waiting(edge, client, count):
    """The numbers of so many polls that wait for another value."""
    edge.store().set(KEY, b"value")
    cursor = client.get(KEY).field("poll-cursor")
    asked = [client.ask(f"{KEY}?wait=30&since={cursor}") for _ in range(count)]
    edge.await_waiters(count)
    return asked


def test_it_is_on_unless_it_is_switched_off(start_dwell, tmp_path, lone):
    assert agreed(lone, "h2", "http/1.1") == "h2"
    (tmp_path / "off").mkdir()
    lone = Secure(start_dwell, tmp_path / "off", tls={"http2": False})
    assert agreed(lone, "h2", "http/1.1") == "http/1.1"
    with pytest.raises(ssl.SSLError, match="alert no application protocol"):
        agreed(lone, "h2")


def test_the_client_says_what_it_speaks_and_the_server_chooses(alone):
    for version in VERSIONS:
        for offered, chosen in [
            (["h2", "http/1.1"], "h2"),
            (["http/1.1", "h2"], "h2"),
            (["h2"], "h2"),
            (["http/1.1"], "http/1.1"),
            ([], None),
        ]:
            assert agreed(alone, *offered, version=version) == chosen
    with pytest.raises(ssl.SSLError, match="alert no application protocol"):
        agreed(alone, "h3", "spdy/3")
    alone.edge.await_metric(1, "dwell_tls_handshakes_total", outcome="incompatible")


@pytest.mark.parametrize("version", VERSIONS)
def test_one_write_wakes_all_polls_of_a_connection(alone, version):
    with alone.http2(version=version) as client:
        asked = waiting(alone.edge, client, 100)
        # Another request does not wait for any of them.
        assert client.get(KEY).body == b"value"
        alone.edge.store().set(KEY, b"x" * 30_000)
        assert [client.answer(number).body for number in asked] == [b"x" * 30_000] * 100
        alone.edge.await_connections(1)


def test_clients_of_all_kinds_share_an_edge(alone, client):
    edge = alone.edge
    asked = waiting(edge, client, 1)
    with contextlib.ExitStack() as stack:
        for offered in (["http/1.1"], None):
            context = alone.context_for(*offered) if offered else alone.context()
            connection = stack.enter_context(alone.connect(context=context))
            ask(connection, KEY)
            assert answer(connection) == b"value"
        assert edge.get(KEY).body == b"value"
        # HTTP/2 without TLS has an option of its own.
        plain = stack.enter_context(edge.connect())
        plain.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        assert plain.answer().status in (400, 505)
    edge.store().set(KEY, b"news")
    assert client.answer(asked[0]).body == b"news"


def test_who_breaks_the_agreement_is_refused(alone):
    with alone.connect(context=alone.context_for("h2")) as connection:
        ask(connection, KEY)
        received = b""
        while part := connection.recv(65536):
            received += part
    # The settings, a window, and the frame that ends the connection.
    frame = received[-17:]
    assert (frame[3], int.from_bytes(frame[13:17], "big")) == (GOAWAY, PROTOCOL_ERROR), received
    with alone.connect(context=alone.context_for("http/1.1")) as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        assert re.match(rb"HTTP/1\.1 (400|505) ", connection.recv(65536))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_goes_on_whichever_protocol_is_spoken_next(alone, version):
    alone.edge.store().set(KEY, b"value")
    context = alone.context_for("h2", "http/1.1", version=version)
    with Http2Connection(secure=alone.connect(context=context)) as client:
        assert client.get(KEY).body == b"value"
        session = client.socket.session
    for offered, chosen in [(["http/1.1"], "http/1.1"), (["h2"], "h2")]:
        context.set_alpn_protocols(offered)
        plain = socket.create_connection(alone.address, timeout=20)
        with context.wrap_socket(plain, server_hostname="one.test", session=session) as again:
            assert (again.session_reused, again.selected_alpn_protocol()) == (True, chosen)


def test_a_reload_switches_it_on_and_off_for_new_connections(lone):
    lone.edge.store().set(KEY, b"value")

    def switch(is_on):
        generation = lone.edge.metric("dwell_config_generation")
        lone.edge.rewrite(tls={"http2": is_on})
        lone.edge.signal(signal.SIGHUP)
        lone.edge.await_metric(generation + 1, "dwell_config_generation")
        wanted = "h2" if is_on else "http/1.1"
        until(lambda: agreed(lone, "h2", "http/1.1") == wanted, "it is switched")

    with lone.connect() as older:
        switch(False)
        switch(True)
        with lone.http2() as client:
            asked = waiting(lone.edge, client, 3)
            switch(False)
            lone.edge.store().set(KEY, b"news")
            assert [client.answer(number).body for number in asked] == [b"news"] * 3
            assert client.get(KEY).body == b"news"
        ask(older, KEY)
        assert answer(older) == b"news"


def test_the_application_is_told_of_https_whatever_the_request_says(start_dwell, tmp_path, app):
    secure = Secure(start_dwell, tmp_path, upstream={"url": app.url})
    with secure.http2() as client:
        assert client.get("/page").body == b"from the app"
        assert client.get("/page", scheme="http").body == b"from the app"
        assert client.get("/up", "POST", body=b"x" * 200_000).status == 200
        client.get("/poll/missing")
    assert app.requests[2].body == b"x" * 200_000
    told = [dict(request.fields)["X-Forwarded-Proto"] for request in app.requests]
    assert told == ["https"] * 4


@pytest.mark.parametrize("version", VERSIONS)
def test_streams_are_those_of_the_client_that_has_shown_its_certificate(
    start_dwell, tmp_path, app, version
):
    app.answer = lambda asked: Answer(body=(asked.field("Client-Cert") or "none").encode())
    routes = [{"prefix": "/me/", "key": "{tls.client.cn}"}, {"prefix": "/poll/"}]
    tls = {"client_cert_field": True}
    guarded = Guarded(start_dwell, tmp_path, routes, tls=tls, upstream={"url": app.url})
    edge, secure = guarded.edge, guarded.secure
    for name in ("alice", "bob"):
        edge.store().set(name, f"of {name}")
    with contextlib.ExitStack() as stack:
        alice, bob, nobody = (
            stack.enter_context(secure.http2(client=client, version=version))
            for client in (guarded.client("alice"), guarded.client("bob"), None)
        )
        for _ in range(2):
            assert (alice.get("/me/").body, bob.get("/me/").body) == (b"of alice", b"of bob")
            assert nobody.get("/me/").status == 403
        shown = [client.get("/page").body for client in (alice, bob, nobody)]
        assert [value[:4] for value in shown] == [b":MII", b":MII", b"none"]
        assert shown[0] != shown[1]


def test_nothing_stays_of_clients_that_leave_in_the_handshake(alone):
    hello = ssl.MemoryBIO()
    context = alone.context_for("h2")
    begun = context.wrap_bio(ssl.MemoryBIO(), hello, server_hostname="one.test")
    with contextlib.suppress(ssl.SSLWantReadError):
        begun.do_handshake()
    hello = hello.read()
    for sent in (0, 1, 100, len(hello) - 1, len(hello)):
        with socket.create_connection(alone.address, timeout=20) as plain:
            plain.sendall(hello[:sent])
            if sent == len(hello):
                assert plain.recv(65536)
    alone.edge.await_connections(0)
    # One leaves when all is agreed on, before its preface.
    alone.connect(context=context).close()
    alone.edge.await_connections(0)
    assert agreed(alone, "h2") == "h2"


def test_certificates_are_taken_anew_beside_connections(alone, client, tmp_path):
    asked = waiting(alone.edge, client, 3)
    newer = make_certificate(tmp_path, "newer", "one.test", extra=END_ENTITY)
    alone.edge.rewrite(tls={"certificate": str(newer[0]), "key": str(newer[1])})
    alone.edge.signal(signal.SIGHUP)

    def is_shown():
        try:
            return agreed(alone, "h2", certificate=newer[0]) == "h2"
        except ssl.SSLCertVerificationError:
            return False

    until(is_shown, "the new certificate is shown")
    alone.edge.store().set(KEY, b"news")
    assert [client.answer(number).body for number in asked] == [b"news"] * 3
    assert client.get(KEY).body == b"news"


def test_a_server_that_ends_answers_all_that_it_holds(alone, client):
    asked = waiting(alone.edge, client, 20)
    stream = client.ask(KEY, fields={"accept": "text/event-stream"})
    alone.edge.await_waiters(21)
    alone.edge.signal(signal.SIGTERM)
    for number in asked:
        assert client.answer(number).status in BODILESS
    client.until(stream, lambda stream: stream.has_ended)
    client.read_to_end()
    # First that nothing shall follow, and then what the last one was.
    assert (client.last_streams, client.goaway_code) == ([2**31 - 1, stream], NO_ERROR)
    assert alone.edge.wait() == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_an_upgrade_answers_what_waits_and_ends_the_connection(alone, cleanup, version):
    edge = alone.edge
    with contextlib.ExitStack() as stack:
        busy, idle = (stack.enter_context(alone.http2(version=version)) for _ in range(2))
        older = stack.enter_context(alone.connect())
        ask(older, "/poll/b?wait=30")
        edge.await_waiters(1)
        edge.store().set("/poll/b", b"b")
        assert answer(older) == b"b"
        edge.store().set(KEY, b"value")
        assert idle.get(KEY).body == b"value"
        asked = waiting(edge, busy, 20)
        upgrade(edge, cleanup)
        for number in asked:
            assert busy.answer(number).status in (200, *BODILESS)
        for client in (busy, idle):
            client.read_to_end()
            last = max(client.streams)
            assert (client.last_streams, client.goaway_code) == ([2**31 - 1, last], NO_ERROR)
        # A connection of HTTP/1.1 goes on where its keys can go along, and clients come again.
        ask(older, KEY)
        assert answer(older) == b"value"
        newer = stack.enter_context(alone.http2(version=version))
        again = waiting(edge, newer, 5)
        edge.store().set(KEY, b"news")
        assert [newer.answer(number).body for number in again] == [b"news"] * 5


@pytest.mark.parametrize("ends", [False, True])
def test_requests_on_their_way_to_the_application_are_answered_by_an_end(
    start_dwell, tmp_path, raw, cleanup, ends
):
    secure = Secure(start_dwell, tmp_path, limits=LIMITS, upstream={"url": raw.url})
    client = cleanup.enter_context(secure.http2())
    asked = [client.ask(f"/slow/{number}") for number in range(3)]
    connections = [raw.accept() for _ in asked]
    for connection in connections:
        connection.read_head()
    # Of one the answer has begun.
    connections[0].send(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf")
    until(lambda: read_and_find(client, asked, b"half"), "half of it comes")
    if ends:
        secure.edge.signal(signal.SIGTERM)
    else:
        upgrade(secure.edge, cleanup)
    connections[0].send(b"half")
    for connection in connections[1:]:
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalfhalf")
    assert [client.answer(number).body for number in asked] == [b"halfhalf"] * 3
    client.read_to_end()
    assert (client.last_streams, client.goaway_code) == ([2**31 - 1, asked[-1]], NO_ERROR)


def read_and_find(client, numbers, body):
    """Reads once; returns whether one of the streams has this body."""
    client.read()
    return any(client.streams[number].body == body for number in numbers)


def run(*command):
    done = subprocess.run(command, capture_output=True, timeout=120, check=False, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_curl(alone):
    alone.edge.store().set(KEY, b"for curl")
    host, port = alone.address
    url = f"https://one.test:{port}{KEY}"
    told = ["--resolve", f"one.test:{port}:{host}", "--cacert", alone.certificate]
    form = ["-w", " %{http_version}", "--max-time", "20"]
    for extra in ([], ["--tls-max", "1.2"]):
        assert run("curl", "-sS", "--http2", *extra, *told, *form, url) == "for curl 2"
    assert run("curl", "-sS", "--http1.1", *told, *form, url) == "for curl 1.1"


@pytest.mark.skipif(shutil.which("nghttp") is None, reason="nghttp is not installed")
def test_nghttp(alone):
    alone.edge.store().set(KEY, b"for nghttp")
    told = run("nghttp", "-v", "-m", "3", f"https://{ports.text(alone.address)}{KEY}")
    assert "The negotiated protocol: h2" in told
    assert (told.count("for nghttp"), told.count(":status: 200")) == (3, 3)


@pytest.mark.skipif(shutil.which("h2load") is None, reason="h2load is not installed")
def test_h2load(alone):
    alone.edge.store().set(KEY, b"for h2load")
    url = f"https://{ports.text(alone.address)}{KEY}"
    told = run("h2load", "-n", "2000", "-c", "5", "-m", "100", url)
    assert "Application protocol: h2" in told
    assert "2000 succeeded, 0 failed, 0 errored, 0 timeout" in told


@pytest.mark.xdist_group("go")
def test_a_go_client_waits_on_one_connection(alone):
    alone.edge.store().set("/poll/a", "value")
    program = alone.folder / "client"
    run("go", "build", "-o", program, GO_CLIENT)
    command = [program, ports.text(alone.address), alone.certificate]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        alone.edge.await_waiters(50)
        alone.edge.await_connections(1)
        alone.edge.store().set("/poll/b", "news")
        output, _ = process.communicate(timeout=60)
    assert (process.returncode, output) == (0, b"50 of 50\n")


@pytest.mark.skipif(find() is None, reason="Chromium is not installed")
@pytest.mark.xdist_group("browser")
def test_a_page_opens_a_hundred_streams_on_one_connection(alone, browser):
    alone.edge.store().set(KEY, b"first")
    page = browser.page("about:blank")
    page.call("Security.setIgnoreCertificateErrors", ignore=True)
    page.go(f"https://{ports.text(alone.address)}{KEY}")
    page.run(
        f"""window.told = Array.from({{length: 100}}, () => []);
        window.sources = told.map((values) => {{
          const source = new EventSource("{KEY}");
          source.onmessage = (event) => values.push(event.data);
          return source;
        }});
        null"""
    )
    page.wait_for("told.every((values) => values.at(-1) === 'first')")
    alone.edge.await_metric(100, "dwell_streams_open")
    alone.edge.await_connections(1)
    # Another request of the page is not kept waiting by any of them.
    body = f'fetch("{KEY}").then((answer) => answer.text())'
    assert page.run(body) == "first"
    alone.edge.store().set(KEY, b"news")
    page.wait_for("told.every((values) => values.at(-1) === 'news')")
    protocol = "performance.getEntriesByType('navigation')[0].nextHopProtocol"
    assert page.run(protocol) == "h2"
    page.run("sources.forEach((source) => source.close())")
    alone.edge.await_metric(0, "dwell_streams_open")
    page.close()


@pytest.mark.skipif(find() is None, reason="Chromium is not installed")
@pytest.mark.xdist_group("browser")
def test_the_websockets_of_a_page_are_streams_of_its_connection(alone, browser):
    alone.edge.store().set(KEY, b"first")
    page = browser.page("about:blank")
    page.call("Security.setIgnoreCertificateErrors", ignore=True)
    page.go(f"https://{ports.text(alone.address)}{KEY}")
    page.run(
        f"""window.told = Array.from({{length: 100}}, () => []);
        window.closes = [];
        window.sockets = told.map((values) => {{
          const socket = new WebSocket("wss://" + location.host + "{KEY}", "dwell.v1");
          socket.onmessage = (event) => values.push(JSON.parse(event.data).v);
          socket.onclose = (event) => closes.push(event.wasClean);
          return socket;
        }});
        null"""
    )
    page.wait_for("told.every((values) => values.at(-1) === 'first')")
    alone.edge.await_metric(100, "dwell_websockets_open")
    # No connection carries them but the page's own.
    for protocol, count in {"h2": 1, "websocket": 100}.items():
        alone.edge.await_metric(count, "dwell_connections_by_protocol", protocol=protocol)
    alone.edge.store().set(KEY, b"news")
    page.wait_for("told.every((values) => values.at(-1) === 'news')")
    page.run("sockets.forEach((socket) => socket.close(4000, 'enough'))")
    page.wait_for("closes.length === 100")
    assert page.run("closes.every((isClean) => isClean)")
    alone.edge.await_metric(0, "dwell_websockets_open")
    page.close()
