"""Clients under TLS: handshakes, key updates, certificates and their reload."""

import contextlib
import datetime
import pathlib
import signal
import socket
import ssl
import subprocess
import threading
import time

import pytest

from support import ports
from support.browser import find
from support.dwell import BINARY
from support.process import Process
from support.wait import until

GO_CLIENT = pathlib.Path(__file__).parent / "clients" / "tls" / "main.go"


def make_certificate(folder, name, *names):
    """A self-signed certificate for these names; returns it and its key."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    alternatives = ",".join(f"DNS:{one}" for one in names)
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", f"/CN={names[0]}", "-keyout", key, "-out", certificate,
         "-addext", f"subjectAltName={alternatives}", "-addext",
         "basicConstraints=critical,CA:FALSE"],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    return certificate, key


class Secure:
    """An edge that speaks TLS at `address`, for `one.test`."""

    def __init__(
        self,
        start_dwell,
        folder,
        check_interval="60s",
        acme_challenge="off",
        client_ca="off",
        **sections,
    ):
        self.folder = folder
        self.address = ports.free_address()
        self.certificate, self.key = make_certificate(folder, "one", "one.test", "*.wild.test")
        tls = {
            "listen": ports.text(self.address),
            "certificate": str(self.certificate),
            "key": str(self.key),
            "check_interval": check_interval,
            "acme_challenge": acme_challenge,
            "client_ca": client_ca,
            **sections.pop("tls", {}),
        }
        self.edge = start_dwell(tls=tls, **sections)

    def context(self, certificate=None):
        return ssl.create_default_context(cafile=certificate or self.certificate)

    def connect(self, name="one.test", context=None):
        plain = socket.create_connection(self.address, timeout=20)
        try:
            return (context or self.context()).wrap_socket(plain, server_hostname=name)
        except BaseException:
            plain.close()
            raise


@pytest.fixture
def secure(start_dwell, tmp_path, app):
    return Secure(start_dwell, tmp_path, upstream={"url": app.url})


@pytest.fixture
def lone(start_dwell, tmp_path):
    """One without an application, so a poll for a key that has no value waits."""
    return Secure(start_dwell, tmp_path)


def ask(connection, target):
    connection.sendall(f"GET {target} HTTP/1.1\r\nHost: one.test\r\n\r\n".encode())


def answer(connection):
    """The body of one response."""
    received = b""
    while b"\r\n\r\n" not in received:
        part = connection.recv(65536)
        assert part, received
        received += part
    head, _, body = received.partition(b"\r\n\r\n")
    lines = head.decode().lower().split("\r\n")
    length = next(int(line.split(":")[1]) for line in lines if line.startswith("content-length:"))
    while len(body) < length:
        part = connection.recv(65536)
        assert part, body
        body += part
    return body


def read_to_end(process, end):
    """Reads what a process writes up to these bytes."""
    seen = b""
    while not seen.endswith(end):
        part = process.stdout.read(1)
        assert part, seen
        seen += part
    return seen


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
    # So many that a loop gathers messages, which a socket under TLS must not be sent as they are.
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
    command = ["openssl", "s_client", "-connect", ports.text(secure.address), "-servername",
               "one.test", "-CAfile", secure.certificate, "-verify_return_error"]  # fmt: skip
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(
            subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                bufsize=0,
            )
        )
        stack.callback(client.kill)
        timer = threading.Timer(60, client.kill)
        timer.start()
        stack.callback(timer.cancel)

        read_to_end(client, b"Verify return code: 0 (ok)")
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


def test_names_choose_certificates_and_a_reload_takes_new_ones(lone, tmp_path):
    other, other_key = make_certificate(tmp_path, "other", "two.test")
    both = {
        "certificate": [str(lone.certificate), str(other)],
        "key": [str(lone.key), str(other_key)],
    }

    def is_shown(certificate, name):
        try:
            lone.connect(name, lone.context(certificate)).close()
        except ssl.SSLCertVerificationError:
            return False
        return True

    assert is_shown(lone.certificate, "a.wild.test")
    assert not is_shown(other, "two.test")
    waiting = lone.connect()
    ask(waiting, "/poll/w?wait=20")
    lone.edge.await_waiters(1)
    lone.edge.rewrite(tls=both)
    lone.edge.signal(signal.SIGHUP)
    until(lambda: is_shown(other, "two.test"), "the second certificate is shown for its name")
    assert is_shown(lone.certificate, "one.test")
    # A key that does not fit changes nothing, and is named.
    lone.edge.rewrite(tls={**both, "key": [str(other_key), str(lone.key)]})
    lone.edge.signal(signal.SIGHUP)
    words = "private key does not belong to the certificate"
    until(lambda: words in lone.edge.output(), "the reload is refused")
    assert is_shown(other, "two.test")
    lone.edge.store().set("/poll/w", "woken")
    with waiting:
        assert answer(waiting) == b"woken"


def has_tls(address):
    """Whether a client of TLS gets through its handshake there."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection(address, timeout=20) as plain:
            context.wrap_socket(plain).close()
    except OSError:
        return False
    return True


def has_plain_http(address):
    try:
        with socket.create_connection(address, timeout=20) as plain:
            ask(plain, "/poll/a")
            return answer(plain) == b"value"
    except (OSError, AssertionError):
        return False


def test_a_reload_moves_an_address_between_plain_and_tls(lone):
    lone.edge.store().set("/poll/a", "value")
    plain, extra = ports.free_address(), ports.free_address()
    listen = [ports.text(lone.edge.address), ports.text(plain)]
    files = {"certificate": str(lone.certificate), "key": str(lone.key)}
    tls = {**files, "listen": [ports.text(lone.address), ports.text(extra)]}
    lone.edge.rewrite(server={"listen": listen}, tls=tls)
    lone.edge.signal(signal.SIGHUP)
    until(lambda: has_plain_http(plain) and has_tls(extra), "both new addresses are served")
    # Both change sides; an address that is in neither list any more is closed.
    listen = [ports.text(lone.edge.address), ports.text(extra)]
    tls = {**files, "listen": ports.text(plain)}
    lone.edge.rewrite(server={"listen": listen}, tls=tls)
    lone.edge.signal(signal.SIGHUP)
    until(lambda: has_tls(plain) and has_plain_http(extra), "both have changed")
    assert not has_tls(lone.address)


def test_a_reload_opens_no_address_that_would_verify_no_client(lone, tmp_path):
    extra = ports.free_address()
    listen = [ports.text(lone.address), ports.text(extra)]
    authority = str(make_authority(tmp_path, "ours")[0])
    lone.edge.rewrite(tls={"listen": listen, "client_ca": authority})
    lone.edge.signal(signal.SIGHUP)
    words = "(tls.client_ca): clients show certificates only after a restart or an upgrade"
    until(lambda: words in lone.edge.output(), "the reload is rejected")
    assert not has_tls(extra)
    assert has_tls(lone.address)
    # Without it, the rest of the change is taken.
    lone.edge.rewrite(tls={"client_ca": "off"})
    lone.edge.signal(signal.SIGHUP)
    until(lambda: has_tls(extra), "the rest of the change is taken")


def test_without_any_address_the_listener_closes(lone):
    lone.edge.rewrite(tls={"listen": [], "certificate": [], "key": []})
    lone.edge.signal(signal.SIGHUP)
    until(lambda: not has_tls(lone.address), "the listener is closed")


def test_files_that_are_renamed_into_place_are_taken_without_a_signal(start_dwell, tmp_path):
    secure = Secure(start_dwell, tmp_path, check_interval="1s")
    before = secure.edge.metrics()['dwell_tls_certificate_expiry_seconds{name="one.test"}']
    ends = subprocess.check_output(
        ["openssl", "x509", "-in", secure.certificate, "-noout", "-enddate", "-dateopt",
         "iso_8601"], timeout=60, text=True)  # fmt: skip
    ends = ends.strip().removeprefix("notAfter=").replace("Z", "+00:00")
    assert before == datetime.datetime.fromisoformat(ends).timestamp()
    other = tmp_path / "other"
    other.mkdir()
    certificate, key = make_certificate(other, "new", "one.test", "renewed.test")
    context = secure.context(certificate)

    def is_renewed():
        try:
            secure.connect("renewed.test", context).close()
        except ssl.SSLCertVerificationError:
            return False
        return True

    # As an ACME client leaves them for a moment, and longer where it fails.
    certificate.rename(secure.certificate)
    until(lambda: "the certificate before it stays" in secure.edge.output(), "it is refused")
    assert not is_renewed()
    key.rename(secure.key)
    until(is_renewed, "the new pair is taken")
    # The broken one was looked at more than once, and logged once.
    assert secure.edge.output().count("the certificate before it stays") == 1


def test_an_ocsp_response_is_sent_with_the_certificate(start_dwell, tmp_path):
    certificate, key = make_certificate(tmp_path, "signer", "one.test")
    request, response, index = (tmp_path / name for name in ("request", "response", "index"))
    serial = subprocess.check_output(
        ["openssl", "x509", "-in", certificate, "-noout", "-serial"], timeout=60, text=True
    )
    index.write_text(f"V\t301231235959Z\t\t{serial.strip().partition('=')[2]}\tunknown\t/CN=a\n")
    for command in (
        ["-issuer", certificate, "-cert", certificate, "-reqout", request],
        ["-index", index, "-CA", certificate, "-rsigner", certificate, "-rkey", key,
         "-reqin", request, "-respout", response, "-ndays", "2"],
    ):  # fmt: skip
        subprocess.run(["openssl", "ocsp", *command], check=True, capture_output=True, timeout=60)
    address = ports.free_address()
    tls = {
        "listen": ports.text(address),
        "certificate": str(certificate),
        "key": str(key),
        "ocsp": str(response),
    }
    start_dwell(tls=tls)
    shown = subprocess.run(
        ["openssl", "s_client", "-connect", ports.text(address), "-status", "-servername",
         "one.test"], input=b"", capture_output=True, timeout=60, check=False)  # fmt: skip
    assert b"OCSP Response Status: successful" in shown.stdout, shown


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ('listen = "127.0.0.1:1"', "needs a certificate"),
        ('certificate = "a.pem"', "has 1 files"),
        ('listen = "127.0.0.1:1"\ncertificate = "none.pem"\nkey = "none.key"', "check the path"),
        ('client_ca = "none.pem"', "none.pem (tls.client_ca): No such file"),
        ('certificate = "a.pem"\nkey = "a.key"\nocsp = ["a", "b"]', "`tls.ocsp` has 2"),
    ],
)
def test_a_check_names_what_is_wrong(tmp_path, options, words):
    config = tmp_path / "dwell.toml"
    config.write_text(f"[tls]\n{options}\n")
    command = [BINARY, "check", config]
    checked = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert checked.returncode != 0
    assert words in (checked.stdout + checked.stderr).decode()


def test_a_check_warns_of_what_clients_refuse(tmp_path):
    certificate, key = make_certificate(tmp_path, "old", "old.test")
    expired = tmp_path / "expired.pem"
    subprocess.run(
        ["openssl", "x509", "-in", certificate, "-signkey", key, "-days", "-1", "-out", expired],
        check=True, capture_output=True, timeout=60)  # fmt: skip
    config = tmp_path / "dwell.toml"
    config.write_text(f'[tls]\ncertificate = "{expired}"\nkey = "{key}"\n')
    checked = subprocess.run([BINARY, "check", config], capture_output=True, timeout=60, check=True)
    assert b"expired at 20" in checked.stderr, checked


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


@pytest.mark.parametrize("flags", [["serve", "--tls-self-signed"], ["demo", "--tls"]])
def test_a_flag_makes_a_certificate_for_localhost(tmp_path, cleanup, flags):
    plain, secure, store = (ports.free_address() for _ in range(3))
    *rest, last = flags
    command = [BINARY, *rest, f"{last}={ports.text(secure)}", "--listen", ports.text(plain),
               "--admin", "off", "--store", ports.text(store)]  # fmt: skip
    server = Process(command, tmp_path / "log")
    cleanup.callback(server.stop)
    server.start_listening(plain, secure, store)
    words = "self-signed, for localhost and a week"
    until(lambda: words in server.output(), "the log warns of the certificate")
    with socket.create_connection(secure, timeout=20) as connection:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        shown = context.wrap_socket(connection).getpeercert(binary_form=True)
    certificate = tmp_path / "shown.pem"
    certificate.write_text(ssl.DER_cert_to_PEM_cert(shown))
    trusting = ssl.create_default_context(cafile=certificate)
    for name in ("localhost", "127.0.0.1"):
        with socket.create_connection(secure, timeout=20) as connection:
            trusting.wrap_socket(connection, server_hostname=name).close()
    refused = pytest.raises(ssl.SSLCertVerificationError)
    with socket.create_connection(secure, timeout=20) as connection, refused:
        trusting.wrap_socket(connection, server_hostname="example.org")


def make_client(folder, name, authority, days="2"):
    """A client's certificate of this authority, and its key."""
    certificate, key, request = (folder / f"{name}.{kind}" for kind in ("pem", "key", "csr"))
    extensions = folder / "client.ext"
    extensions.write_text("extendedKeyUsage=clientAuth\nbasicConstraints=critical,CA:FALSE\n")
    for command in (
        ["req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-subj", f"/CN={name}", "-keyout", key, "-out", request],
        ["x509", "-req", "-in", request, "-CA", authority[0], "-CAkey", authority[1], "-days",
         days, "-set_serial", "7", "-extfile", extensions, "-out", certificate],
    ):  # fmt: skip
        subprocess.run(["openssl", *command], check=True, capture_output=True, timeout=60)
    return certificate, key


def make_authority(folder, name):
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", f"/CN={name}", "-keyout", key, "-out", certificate],
        check=True, capture_output=True, timeout=60)  # fmt: skip
    return certificate, key


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_only_clients_with_a_certificate_of_the_authority_are_served(
    start_dwell, tmp_path, version
):
    ours, theirs = make_authority(tmp_path, "ours"), make_authority(tmp_path, "theirs")
    secure = Secure(start_dwell, tmp_path, client_ca=str(ours[0]))
    secure.edge.store().set("/poll/a", "value")

    def is_served(client, session=None):
        context = secure.context()
        context.minimum_version = context.maximum_version = version
        if client:
            context.load_cert_chain(*client)
        try:
            # With TLS 1.3 the refusal comes behind the handshake.
            with secure.connect(context=context) as connection:
                ask(connection, "/poll/a")
                return answer(connection) == b"value"
        except (OSError, AssertionError):
            return False

    alice = make_client(tmp_path, "alice", ours)
    assert is_served(alice)
    assert not is_served(None)
    assert not is_served(make_client(tmp_path, "mallory", theirs))
    assert not is_served(make_client(tmp_path, "old", ours, days="-1"))
    # One that has issued its certificate itself, under the name of the authority.
    assert not is_served(make_authority(tmp_path / "..", f"{tmp_path.name}-ours"))
    secure.edge.await_metric(1, "dwell_tls_handshakes_total", outcome="done")
    assert is_served(alice)
    # A ticket would stand for a certificate that is not verified again.
    context = secure.context()
    context.minimum_version = context.maximum_version = version
    context.load_cert_chain(*alice)
    with secure.connect(context=context) as connection:
        ask(connection, "/poll/a")
        assert answer(connection) == b"value"
        session = connection.session
    if session is not None:
        plain = socket.create_connection(secure.address, timeout=20)
        with context.wrap_socket(plain, server_hostname="one.test", session=session) as again:
            assert not again.session_reused


def test_curl_shows_its_certificate(start_dwell, tmp_path):
    ours = make_authority(tmp_path, "ours")
    secure = Secure(start_dwell, tmp_path, client_ca=str(ours[0]))
    secure.edge.store().set("/poll/a", "value")
    host, port = secure.address
    command = ["curl", "-sS", "--max-time", "20", "--resolve", f"one.test:{port}:{host}",
               "--cacert", secure.certificate, f"https://one.test:{port}/poll/a"]  # fmt: skip
    certificate, key = make_client(tmp_path, "alice", ours)
    shown = [*command, "--cert", certificate, "--key", key]
    assert subprocess.check_output(shown, timeout=60) == b"value"
    refused = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert refused.returncode != 0
    assert b"certificate required" in refused.stderr, refused


def test_a_process_without_a_file_takes_certificates_at_sighup(tmp_path, cleanup):
    plain, secure = ports.free_address(), ports.free_address()
    certificate, key = make_certificate(tmp_path, "one", "one.test")
    options = {
        "tls.listen": ports.text(secure),
        "tls.certificate": certificate,
        "tls.key": key,
        "tls.check_interval": "1d",
    }
    sets = [part for name, value in options.items() for part in ("--set", f"{name}={value}")]
    command = [BINARY, "serve", "--listen", ports.text(plain), "--admin", "off", "--store", "off"]
    server = Process([*command, *sets], tmp_path / "log")
    cleanup.callback(server.stop)
    server.start_listening(plain, secure)
    other = tmp_path / "other"
    other.mkdir()
    new_certificate, new_key = make_certificate(other, "new", "two.test")
    new_certificate.rename(certificate)
    new_key.rename(key)
    context = ssl.create_default_context(cafile=certificate)
    refused = pytest.raises(ssl.SSLCertVerificationError)
    with socket.create_connection(secure, timeout=20) as connection, refused:
        context.wrap_socket(connection, server_hostname="two.test")
    server.signal(signal.SIGHUP)
    until(lambda: "certificate renewed" in server.output(), "the new pair is taken")
    with socket.create_connection(secure, timeout=20) as connection:
        context.wrap_socket(connection, server_hostname="two.test").close()
