"""Certificates of the edge and of its clients: choice, renewal, reload, and what is refused."""

import datetime
import signal
import socket
import ssl
import subprocess

import pytest

from support import ports
from support.certificates import END_ENTITY, make_authority, make_certificate, make_client
from support.dwell import BINARY
from support.process import Process
from support.secure import Secure, answer, ask, has_tls
from support.wait import until


def test_names_choose_certificates_and_a_reload_takes_new_ones(lone, tmp_path):
    other, other_key = make_certificate(tmp_path, "other", "two.test", extra=END_ENTITY)
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
    certificate, key = make_certificate(other, "new", "one.test", "renewed.test", extra=END_ENTITY)
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
    certificate, key = make_certificate(tmp_path, "signer", "one.test", extra=END_ENTITY)
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
    certificate, key = make_certificate(tmp_path, "old", "old.test", extra=END_ENTITY)
    expired = tmp_path / "expired.pem"
    subprocess.run(
        ["openssl", "x509", "-in", certificate, "-signkey", key, "-days", "-1", "-out", expired],
        check=True, capture_output=True, timeout=60)  # fmt: skip
    config = tmp_path / "dwell.toml"
    config.write_text(f'[tls]\ncertificate = "{expired}"\nkey = "{key}"\n')
    checked = subprocess.run([BINARY, "check", config], capture_output=True, timeout=60, check=True)
    assert b"expired at 20" in checked.stderr, checked


def test_a_check_and_the_start_warn_of_options_without_an_address(tmp_path, start_dwell):
    certificate, key = make_certificate(tmp_path, "one", "one.test", extra=END_ENTITY)
    options = {"client_ca": str(certificate), "certificate": str(certificate), "key": str(key)}
    lines = [f"{name} = {value!r}" for name, value in options.items()]
    config = tmp_path / "idle.toml"
    config.write_text("\n".join(["[tls]", *lines, ""]))
    checked = subprocess.run([BINARY, "check", config], capture_output=True, timeout=60, check=True)
    words = "tls.client_ca has no effect: no address is under TLS, and those of server.listen ask"
    assert f"dwell: warning: {words}" in checked.stderr.decode()
    for option in (b"certificate", b"key"):
        idle = b"tls.%s has no effect: no address is under TLS" % option
        assert idle in checked.stderr
    edge = start_dwell(tls=options)
    edge.await_output(words)


@pytest.mark.parametrize(
    "flags", [["serve", "--tls-self-signed"], ["demo", "--clients=0", "--tls"]]
)
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


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_may_show_no_certificate_where_it_is_optional(start_dwell, tmp_path, version):
    ours, theirs = make_authority(tmp_path, "ours"), make_authority(tmp_path, "theirs")
    options = {"client_auth": "optional"}
    secure = Secure(start_dwell, tmp_path, client_ca=str(ours[0]), tls=options)
    secure.edge.store().set("/poll/a", "value")

    def ask_as(client):
        context = secure.context()
        context.minimum_version = context.maximum_version = version
        if client:
            context.load_cert_chain(*client)
        with secure.connect(context=context) as connection:
            ask(connection, "/poll/a")
            return answer(connection)

    assert ask_as(None) == b"value"
    assert ask_as(make_client(tmp_path, "alice", ours)) == b"value"
    # By an alert, which with TLS 1.3 comes behind the handshake.
    for refused in (
        make_client(tmp_path, "mallory", theirs),
        make_client(tmp_path, "old", ours, days="-1"),
    ):
        with pytest.raises(ssl.SSLError, match="ALERT"):
            ask_as(refused)
    secure.edge.await_metric(2, "dwell_tls_handshakes_total", outcome="certificate")


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
    certificate, key = make_certificate(tmp_path, "one", "one.test", extra=END_ENTITY)
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
    new_certificate, new_key = make_certificate(other, "new", "two.test", extra=END_ENTITY)
    new_certificate.rename(certificate)
    new_key.rename(key)
    context = ssl.create_default_context(cafile=certificate)
    refused = pytest.raises(ssl.SSLCertVerificationError)
    with socket.create_connection(secure, timeout=20) as connection, refused:
        context.wrap_socket(connection, server_hostname="two.test")
    server.signal(signal.SIGHUP)
    until(lambda: "certificate renewed" in server.output(), "the new pair is read")

    def is_taken():
        with socket.create_connection(secure, timeout=20) as connection:
            try:
                context.wrap_socket(connection, server_hostname="two.test").close()
            except ssl.SSLCertVerificationError:
                return False
        return True

    # Each event loop takes the pair at its own time.
    until(is_taken, "the new pair is taken")
