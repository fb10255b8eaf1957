"""The certificates of clients on their way to the application: `Client-Cert` (RFC 9440)."""

import base64
import re
import signal
import ssl
import subprocess

import pytest

from support.dwell import BINARY
from support.guarded import Guarded
from support.http import request
from support.upgrade import upgrade
from support.upstream import Answer
from support.wait import until

POLLS = {"prefix": "/poll/"}
ON = {"client_cert_field": True}
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
UPGRADE = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
           "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}  # fmt: skip


def field_of(client):
    """The field by which a client's certificate is told."""
    der = ssl.PEM_cert_to_DER_cert(client[0].read_text())
    return f":{base64.b64encode(der).decode()}:"


def said(asked):
    """The certificate that a request to the application had."""
    return (asked.field("Client-Cert") or "none").encode()


class Told(Guarded):
    """An edge whose application answers with the certificate that it was told."""

    def __init__(self, start_dwell, folder, app, routes=(POLLS,), tls=ON, **sections):
        app.answer = lambda asked: Answer(body=said(asked))
        upstream = {"url": app.url}
        super().__init__(start_dwell, folder, list(routes), tls=tls, upstream=upstream, **sections)

    def twins(self):
        """Two certificates of the same name."""
        return [self.client(name, subject="/CN=alice") for name in ("first", "second")]


@pytest.fixture
def told(start_dwell, tmp_path, app):
    return Told(start_dwell, tmp_path, app)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("target", ["/poll/a", "/page"])
def test_the_application_gets_the_certificate_that_the_client_has_shown(told, version, target):
    alice = told.client("alice")
    theirs = {"Client-Cert": ":MIIB:", "client-cert-chain": ":MIIC:"}
    with told.connect(alice, version=version) as connection:
        for fields in ((), theirs):
            answer = connection.get(target, fields=fields)
            assert answer.body.decode() == field_of(alice)
            posted = connection.get(target, method="POST", fields=fields, body=b"hello")
            assert posted.body.decode() == field_of(alice)
    with told.connect(version=version) as connection:
        assert connection.get(target, fields=theirs).body == b"none"
    assert told.edge.get(target, fields=theirs).body == b"none"


@pytest.mark.parametrize(
    "route",
    [POLLS, {**POLLS, "fill": True}, {**POLLS, "key": "{path}|{tls.client.cn}", "fill": True}],
)
@pytest.mark.parametrize("target", ["/poll/a", "/poll/a?wait=50", "/poll/?k=a"])
def test_two_certificates_of_one_name_at_once_share_nothing(
    start_dwell, tmp_path, app, route, target
):
    told = Told(start_dwell, tmp_path, app, [route], server={"pollers": 1})
    fields = (("Content-Type", "text/plain"), ("Cache-Control", "max-age=60"))
    app.answer = lambda asked: Answer(body=said(asked), fields=fields)
    one, other = told.twins()
    app.gate.clear()
    with told.connect(one) as first, told.connect(other) as second:
        first.ask(target)
        app.await_requests(1)
        second.ask(target)
        app.await_requests(2)
        app.gate.set()
        for connection, client in ((first, one), (second, other)):
            assert field_of(client).encode() in connection.answer().body
        # Nothing was stored that the other one could hit.
        for connection, client in ((second, other), (first, one)):
            assert field_of(client).encode() in connection.get(target).body


def test_clients_without_a_certificate_share_a_request_that_has_none(told, app):
    app.gate.clear()
    with told.connect() as one, told.connect() as two, told.connect(told.client("a")) as three:
        for connection in (one, two, three):
            connection.ask("/poll/a")
        told.edge.await_misses(app, 3)
        app.gate.set()
        assert [one.answer().body, two.answer().body] == [b"none"] * 2
        assert three.answer().body != b"none"
    assert len(app.requests) == 2


def test_a_stream_of_events_begins_with_the_answer_to_its_own_certificate(told):
    one, other = told.twins()
    with told.connect(one) as first, told.connect(other) as second:
        for connection, client in ((first, one), (second, other)):
            connection.send(request("/poll/a", fields={"Accept": "text/event-stream"}))
            received = b""
            while field_of(client).encode() not in received:
                part = connection.socket.recv(65536)
                assert part, received
                received += part
            assert b"text/event-stream" in received


@pytest.mark.parametrize("target", ["/poll/a", "/chat"])
def test_a_websocket_carries_it_at_its_beginning(told, app, target):
    alice = told.client("alice")
    with told.connect(alice) as connection:
        connection.send(request(target, fields=UPGRADE))
        app.await_requests(1)
    assert said(app.requests[0]).decode() == field_of(alice)


def test_a_reload_begins_with_new_connections_and_ends_with_the_next_request(
    start_dwell, tmp_path, app
):
    told = Told(start_dwell, tmp_path, app, tls={"client_cert_field": False})
    alice = told.client("alice")
    field = field_of(alice).encode()

    def reload(is_on):
        told.edge.rewrite(tls={"client_cert_field": is_on})
        told.edge.signal(signal.SIGHUP)
        expected = field if is_on else b"none"
        until(lambda: told.get(alice, "/page").body == expected, "it is loaded")

    with told.connect(alice) as before:
        assert before.get("/poll/a").body == b"none"
        reload(True)
        assert before.get("/poll/a").body == b"none", "its certificate was not kept"
        assert before.get("/page").body == b"none"
        with told.connect(alice) as after:
            assert after.get("/poll/a").body == field
            reload(False)
            # Each loop takes the configuration at an end of a turn of its own.
            until(lambda: after.get("/poll/a").body == b"none", "its loop knows")
            assert after.get("/page").body == b"none"


def test_a_certificate_that_is_too_long_is_left_out_and_counted(told):
    names = [f"DNS:{number:03}.{'a' * 60}.example.org" for number in range(80)]
    large = told.client("large", names=names)
    assert len(ssl.PEM_cert_to_DER_cert(large[0].read_text())) > 6000
    with told.connect(large) as connection:
        assert connection.get("/poll/a").body == b"none"
        assert connection.get("/page").body == b"none"
    assert told.edge.metric("dwell_client_certs_too_long_total") == 2


def test_a_trusted_proxy_tells_of_its_own_clients(start_dwell, tmp_path, app):
    server = {"trusted_proxies": ["127.0.0.1"]}
    told = Told(start_dwell, tmp_path, app, server=server)
    with told.connect(told.client("proxy")) as connection:
        for target in ("/page", "/poll/a"):
            assert connection.get(target).body == b"none"
        theirs = {"Client-Cert": ":MIIB:"}
        assert connection.get("/page", fields=theirs).body == b":MIIB:"


def test_a_certificate_goes_over_an_upgrade_and_back_out_of_use(
    start_dwell, tmp_path, app, cleanup
):
    told = Told(start_dwell, tmp_path, app)
    alice = told.client("alice")
    with told.connect(alice) as connection:
        assert connection.get("/poll/a").body.decode() == field_of(alice)
        first = upgrade(told.edge, cleanup)
        told.await_end()
        for target in ("/poll/a", "/page"):
            assert connection.get(target).body.decode() == field_of(alice)
        # To a process that keeps none it does not go, and from there on it is gone.
        told.edge.rewrite(tls={"client_cert_field": False})
        second = upgrade(told.edge, cleanup, first)
        told.await_end(2)
        assert connection.get("/page").body == b"none"
        told.edge.rewrite(tls=ON)
        upgrade(told.edge, cleanup, second)
        told.await_end(3)
        for target in ("/poll/a", "/page"):
            assert connection.get(target).body == b"none"
    assert told.edge.metric("dwell_tls_handshakes_total", outcome="done") == 0


def test_the_question_for_access_has_none_and_what_it_admits_has(start_dwell, tmp_path, app):
    told = Told(start_dwell, tmp_path, app, [{**POLLS, "auth": "/may"}])
    alice = told.client("alice")
    answer = told.get(alice, "/poll/a")
    assert answer.body.decode() == field_of(alice)
    may = [asked for asked in app.requests if asked.target == "/may"]
    assert [said(asked) for asked in may] == [b"none"]


def test_the_option_takes_an_authority(tmp_path):
    config = tmp_path / "checked.toml"
    config.write_text("[tls]\nclient_cert_field = true\n")
    done = subprocess.run([BINARY, "check", config], capture_output=True, timeout=60, check=False)
    output = re.sub(r"\s+", " ", (done.stdout + done.stderr).decode())
    assert done.returncode != 0
    assert "`tls.client_cert_field` has no effect: no client is asked" in output
