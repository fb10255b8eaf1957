"""TLS towards the application and the webhook."""

import signal
import ssl
import subprocess

import pytest
from pymemcache.client.base import Client

from support import nginx, ports
from support.certificates import make_authority, make_certificate, make_server
from support.dwell import BINARY
from support.http import request
from support.secure_app import SecureScript, SecureUpstream, server_context
from support.upstream import Answer
from support.wait import until
from test_presence import Hook

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.fixture
def pair(tmp_path):
    """A certificate for the loopback address, and its key."""
    return make_certificate(tmp_path, "app", "127.0.0.1", "app.test")


@pytest.fixture
def start_app(cleanup, pair):
    def start(context=None):
        app = SecureUpstream(context or server_context(*pair)).start()
        cleanup.callback(app.stop)
        return app

    return start


@pytest.fixture
def start_script(cleanup, pair):
    def start(play, context=None):
        script = SecureScript(context or server_context(*pair), play)
        cleanup.callback(script.close)
        return script

    return start


def upstream_of(app, pair, **options):
    return {"url": app.url, "tls_ca": str(pair[0]), **options}


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_nginx_under_tls_is_asked_over_few_connections(
    start_dwell, cleanup, tmp_path, pair, version
):
    address = ports.free_address()
    body = '"$ssl_protocol $ssl_server_name $connection $request_uri"'
    nginx.start(
        tmp_path,
        cleanup,
        f"""server {{
            listen {ports.text(address)} ssl; ssl_certificate {pair[0]};
            ssl_certificate_key {pair[1]}; ssl_protocols {version};
            location / {{ return 200 {body}; }}
        }}""",
        address,
    )
    edge = start_dwell(
        upstream={
            "url": f"https://{ports.text(address)}",
            "tls_ca": str(pair[0]),
            "tls_server_name": "app.test",
        },
        server={"pollers": 1},
    )
    with edge.connect() as client:
        answers = [client.get(f"/page/{number}").body.decode().split() for number in range(20)]
        answers.append(client.get("/poll/a").body.decode().split())
    assert {answer[0] for answer in answers} == {version}
    assert {answer[1] for answer in answers} == {"app.test"}
    assert len({answer[2] for answer in answers}) == 1
    edge.await_metric(1, "dwell_upstream_handshakes_total", outcome="done")
    assert [answer[3] for answer in answers[-2:]] == ["/page/19", "/poll/a"]


def test_bodies_pass_both_ways(start_dwell, start_app, pair):
    app = start_app()
    app.answer = lambda asked: Answer(asked.body[::-1])
    edge = start_dwell(upstream=upstream_of(app, pair))
    with edge.connect() as client:
        sent = bytes(range(256)) * 4000
        answer = client.get("/page", method="POST", body=sent)
    assert answer.status == 200
    assert app.requests[-1].body == sent
    assert answer.body == sent[::-1]


@pytest.mark.parametrize("fault", ["name", "expired", "unknown"])
def test_a_certificate_that_is_wrong_is_refused_and_told(
    start_dwell, start_app, tmp_path, pair, fault
):
    trusted, context = pair[0], None
    if fault == "expired":
        dates = ("240101000000Z", "240201000000Z")
        old = make_certificate(tmp_path, "old", "127.0.0.1", dates=dates)
        trusted, context = old[0], server_context(*old)
    if fault == "unknown":
        trusted = make_certificate(tmp_path, "other", "127.0.0.1")[0]
    name = {"tls_server_name": "elsewhere.test"} if fault == "name" else {}
    app = start_app(context)
    edge = start_dwell(upstream={"url": app.url, "tls_ca": str(trusted), **name})
    with edge.connect() as client:
        assert client.get("/page").status == 502
    reason = {
        "name": "elsewhere.test is refused: it is for other names: 127.0.0.1, app.test",
        "expired": "127.0.0.1 is refused: it has expired ",
        "unknown": "127.0.0.1 is refused: it is self-signed and not trusted",
    }[fault]
    edge.await_output(f"no TLS handshake: certificate of {reason}")
    edge.await_metric(1, "dwell_upstream_requests_total", outcome="tls_failed")
    edge.await_metric(1, "dwell_upstream_handshakes_total", outcome="certificate")
    assert app.requests == []


@pytest.mark.parametrize("place", ["option", "system"])
def test_a_reload_reads_the_files_again(start_dwell, start_app, tmp_path, monkeypatch, place):
    other = make_authority(tmp_path, "other")
    authority = make_authority(tmp_path, "authority")
    trusted = tmp_path / "trusted.pem"
    trusted.write_text(authority[0].read_text())
    app = start_app(server_context(*make_server(tmp_path, "server", authority, "IP:127.0.0.1")))
    upstream = {"url": app.url}
    if place == "option":
        upstream["tls_ca"] = str(trusted)
    else:
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    edge = start_dwell(upstream=upstream, server={"pollers": 1})
    assert edge.get("/page").status == 200

    def reload():
        generation = edge.metric("dwell_config_generation")
        edge.signal(signal.SIGHUP)
        edge.await_metric(generation + 1, "dwell_config_generation")

    reload()
    assert edge.get("/page").status == 200
    handshakes = edge.metric("dwell_upstream_handshakes_total", outcome="done")
    assert handshakes == 1, "the connection stays while the file is the same"
    trusted.write_text(other[0].read_text())
    reload()
    assert edge.get("/page").status == 502, "the application is not trusted any more"
    trusted.write_text(authority[0].read_text())
    reload()
    assert edge.get("/page").status == 200


def test_a_server_that_leaves_within_the_handshake_is_told(start_dwell, cleanup, pair):
    app = SecureScript(None, lambda connection: connection.recv(65536))
    cleanup.callback(app.close)
    edge = start_dwell(upstream=upstream_of(app, pair))
    with edge.connect() as client:
        assert client.get("/page").status == 502
    edge.await_output("no TLS handshake: connection closed by the server")
    edge.await_metric(1, "dwell_upstream_handshakes_total", outcome="closed")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("is_told", [True, False])
def test_an_answer_without_length_ends_by_close_notify_alone(
    start_dwell, start_script, pair, version, is_told
):
    def play(connection):
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\nsome of it")
        if is_told:
            connection.unwrap()

    app = start_script(play, server_context(*pair, version))
    edge = start_dwell(upstream=upstream_of(app, pair))
    with edge.connect() as client:
        if is_told:
            assert client.get("/page").body == b"some of it"
        else:
            with pytest.raises((EOFError, ConnectionResetError)):
                client.get("/page")


def test_a_server_that_asks_is_shown_a_certificate(start_dwell, start_app, tmp_path, pair):
    ours = make_certificate(tmp_path, "ours", "dwell.test")
    context = server_context(*pair)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(ours[0])
    app = start_app(context)
    shown = {"tls_certificate": str(ours[0]), "tls_key": str(ours[1])}
    edge = start_dwell(upstream=upstream_of(app, pair, **shown))
    with edge.connect() as client:
        assert client.get("/page").body == b"from the app"
    edge = start_dwell(upstream=upstream_of(app, pair))
    with edge.connect() as client:
        assert client.get("/page").status == 502
    edge.await_output("peer ended the connection with alert 116")


def test_a_tunnel_goes_through_tls(start_dwell, start_script, pair):
    def play(connection):
        connection.recv(65536)
        connection.sendall(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: chat/1\r\n\r\n"
        )
        while part := connection.recv(65536):
            connection.sendall(part.upper())

    edge = start_dwell(upstream=upstream_of(start_script(play), pair))
    with edge.connect() as client:
        client.send(
            request("/chat", fields={"Connection": "keep-alive, Upgrade", "Upgrade": "chat/1"})
        )
        assert client._head().status == 101
        for word in (b"one", b"two" * 50_000):
            client.send(word)
            assert client._take(len(word)) == word.upper()


def test_the_webhook_is_told_under_tls(start_dwell, cleanup, pair):
    class SecureHook(SecureUpstream, Hook):
        def __init__(self):
            SecureUpstream.__init__(self, server_context(*pair))

    hook = SecureHook()
    hook.start()
    cleanup.callback(hook.stop)
    edge = start_dwell(presence={"webhook_url": hook.url, "webhook_tls_ca": str(pair[0])})
    with edge.connect() as client:
        client.send(request("/poll/alice?wait=20"))
        hook.await_told(("first", "/poll/alice"))


def test_check_names_the_file_and_the_option(tmp_path, pair):
    def check(text):
        (tmp_path / "a.toml").write_text(text)
        checked = subprocess.run(
            [BINARY, "check", tmp_path / "a.toml"],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        return checked.returncode, checked.stdout + checked.stderr

    url = 'url = "https://127.0.0.1:1"'
    assert check(f"[upstream]\n{url}\ntls_ca = {str(pair[0])!r}\n")[0] == 0
    code, told = check(f"[upstream]\n{url}\ntls_ca = {str(pair[1])!r}\n")
    assert code != 0
    assert f"cannot use {pair[1]} (upstream.tls_ca): certificate cannot be read" in told
    code, told = check(f"[upstream]\n{url}\ntls_certificate = {str(pair[0])!r}\n")
    assert code != 0
    assert "`upstream.tls_certificate` and `upstream.tls_key` need one another" in told
    code, told = check(f'[upstream]\nurl = "http://127.0.0.1:1"\ntls_ca = {str(pair[0])!r}\n')
    assert code != 0
    assert "`upstream.tls_ca` has no effect: `upstream.url` is not for TLS" in told


@pytest.fixture
def secure_memcached(start_memcached, pair):
    """The real memcached under TLS, and a client of it."""
    chain, key = f"ssl_chain_cert={pair[0]}", f"ssl_key={pair[1]}"
    server = start_memcached("-Z", "-o", chain, "-o", key)
    context = ssl.create_default_context(cafile=pair[0])
    client = Client(server.address, default_noreply=False, timeout=20, tls_context=context)
    yield server, client
    client.close()


@pytest.mark.parametrize("watch", [False, True])
def test_polls_on_memcached_under_tls_wake(start_dwell, secure_memcached, pair, watch):
    server, store = secure_memcached
    options = {"tls": True, "tls_ca": str(pair[0]), "watch": watch}
    edge = start_dwell(memcached={"servers": [server.name], **options})
    store.set("/poll/a", "first")
    with edge.connect() as client:
        assert client.get("/poll/a").body == b"first"
        assert edge.metric("dwell_memcached_handshakes_total", outcome="done") >= 1
        for number in range(3):
            client.ask("/poll/b?wait=20")
            edge.await_waiters(1)
            if watch:
                edge.await_output("memcached tells of changes")
            store.set("/poll/b", "x" * 100_000 + str(number))
            assert client.answer().body == b"x" * 100_000 + str(number).encode()
            store.delete("/poll/b")


def test_a_memcached_for_another_name_is_refused_and_told(start_dwell, secure_memcached, pair):
    server, _ = secure_memcached
    options = {"tls": True, "tls_ca": str(pair[0]), "tls_server_name": "elsewhere.test"}
    edge = start_dwell(memcached={"servers": [server.name], **options})
    edge.await_output("certificate of elsewhere.test is refused: it is for other names")
    name = "dwell_memcached_handshakes_total"
    until(lambda: edge.metric(name, outcome="certificate") >= 1, "it is counted")
