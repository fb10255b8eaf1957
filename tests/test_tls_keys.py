"""Keys made of the client's certificate: `{tls.client.cn}` and `{tls.client.san}`."""

import signal
import ssl
import subprocess

import pytest

from support import ports
from support.certificates import END_ENTITY, make_authority, make_certificate
from support.dwell import BINARY
from support.guarded import Guarded
from support.upgrade import upgrade
from support.upstream import Answer
from support.wait import until

ME = {"prefix": "/me/", "key": "in:{tls.client.cn}"}
POLLS = {"prefix": "/poll/"}
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.fixture
def guarded(start_dwell, tmp_path):
    return Guarded(start_dwell, tmp_path, [ME, POLLS])


@pytest.mark.parametrize("version", VERSIONS)
def test_each_client_gets_the_value_of_its_own_name(guarded, version):
    store = guarded.edge.store()
    for name in ("alice", "bob"):
        store.set(f"in:{name}", f"for {name}")
    for name in ("alice", "bob"):
        answer = guarded.get(guarded.client(name), version=version)
        assert (answer.status, answer.body) == (200, f"for {name}".encode())


def test_a_client_without_a_certificate_gets_403_and_nothing_else(guarded):
    edge = guarded.edge
    edge.store().set("in:", "of nobody")
    edge.store().set("/poll/a", "value")
    with guarded.connect() as connection:
        refused = connection.get("/me/")
        assert (refused.status, refused.body) == (403, b"this takes a client certificate\n")
        # Its connection is as good as before.
        assert connection.get("/poll/a").body == b"value"
    plain = edge.get("/me/")
    assert (plain.status, plain.closes) == (403, False)
    assert edge.metric("dwell_polls_total", outcome="denied") == 2
    # What a client says of a certificate counts for nothing.
    fields = {"Client-Cert": ":MIIB:", "X-Client-Cn": "alice"}
    assert edge.get("/me/", fields=fields).status == 403


@pytest.mark.parametrize(
    ("subject", "key"),
    [
        ("/CN=Alice", "in:Alice"),
        ("/O=Example/CN=alice", "in:alice"),
        ("/CN=älice", "in:älice"),
        ("/CN=a:b", "in:a:b"),
        ("/O=Example", None),
        ("/CN=alice/CN=bob", None),
        ("/CN=alice+CN=bob", None),
        ("/CN=alice smith", b"key has the byte 0x20\n"),
    ],
)
def test_the_common_name_is_taken_as_it_is_or_not_at_all(guarded, subject, key):
    # None of these is to be had by another spelling.
    for name in ("in:", "in:alice", "in:bob", "in:alicebob"):
        guarded.edge.store().set(name.encode(), "another's")
    if isinstance(key, str):
        guarded.edge.store().set(key.encode(), "value")
    answer = guarded.get(guarded.client("odd", subject=subject))
    if isinstance(key, str):
        assert (answer.status, answer.body) == (200, b"value")
    elif key:
        assert (answer.status, answer.body) == (400, key)
    else:
        words = b"the client certificate has no common name, or several\n"
        assert (answer.status, answer.body) == (403, words)


@pytest.mark.parametrize(
    ("names", "value"),
    [
        (["DNS:Laptop.Test"], "laptop.test"),
        (["email:A@b.test"], "A@b.test"),
        (["URI:spiffe://td/alice"], "spiffe://td/alice"),
        (["DNS:a.test", "IP:10.0.0.1"], "a.test"),
        (["DNS:a.test", "DNS:b.test"], None),
        (["DNS:a.test", "URI:spiffe://td/a"], None),
        (["DNS:*.a.test"], None),
        (["IP:10.0.0.1"], None),
        ([], None),
    ],
)
def test_the_only_alternative_name_makes_a_key(start_dwell, tmp_path, names, value):
    route = {"prefix": "/me/", "key": "in:{tls.client.san}"}
    guarded = Guarded(start_dwell, tmp_path, [route])
    if value:
        guarded.edge.store().set(f"in:{value}", "value")
    answer = guarded.get(guarded.client("alice", names=names))
    assert answer.status == (200 if value else 403), answer


def test_no_name_runs_into_the_rest_of_a_key(start_dwell, tmp_path):
    route = {"prefix": "/me/", "key": "{tls.client.cn}:{query.room}"}
    guarded = Guarded(start_dwell, tmp_path, [route])
    guarded.edge.store().set("a:b:c", "value of a, in the room b:c")
    one = guarded.get(guarded.client("short", subject="/CN=a"), "/me/?room=b:c")
    assert one.status == 200
    other = guarded.get(guarded.client("longer", subject="/CN=a:b"), "/me/?room=c")
    assert other.status == 400, other


def test_waits_streams_and_several_keys_belong_to_the_name(start_dwell, tmp_path):
    route = {"prefix": "/me/", "key": "{tls.client.cn}|{path}"}
    guarded = Guarded(start_dwell, tmp_path, [route])
    edge, store = guarded.edge, guarded.edge.store()
    alice, bob = guarded.client("alice"), guarded.client("bob")
    store.set("alice|/me/a", "old")
    with guarded.connect(alice) as of_alice, guarded.connect(bob) as of_bob:
        cursor = of_alice.get("/me/a").etag.strip('"')
        of_alice.ask(f"/me/a?since={cursor}&wait=50")
        of_bob.ask("/me/a?wait=50")
        edge.await_waiters(2)
        store.set("alice|/me/a", "new")
        assert of_alice.answer().body == b"new"
        edge.await_waiters(1)
        store.set("bob|/me/a", "of bob")
        assert of_bob.answer().body == b"of bob"
        several = of_bob.get("/me/?k=a").body
        assert b'"of bob"' in several
        assert b"new" not in several


def test_the_application_is_asked_for_each_name_alone(start_dwell, tmp_path, app):
    guarded = Guarded(start_dwell, tmp_path, [ME], upstream={"url": app.url})
    app.gate.clear()
    alice, bob = guarded.client("alice"), guarded.client("bob")
    with guarded.connect(alice) as one, guarded.connect(alice) as two, guarded.connect(bob) as bob:
        for connection in (one, two, bob):
            connection.ask("/me/")
        guarded.edge.await_misses(app, 3)
        app.gate.set()
        assert [each.answer().body for each in (one, two, bob)] == [b"from the app"] * 3
    assert len(app.requests) == 2, "those of one name share a request"


def test_users_behind_one_certificate_are_told_apart_by_their_cookies(start_dwell, tmp_path, app):
    guarded = Guarded(start_dwell, tmp_path, [{**ME, "fill": True}], upstream={"url": app.url})
    fields = (("Content-Type", "text/plain"), ("Cache-Control", "max-age=60"))
    app.answer = lambda request: Answer(body=request.field("Cookie").encode(), fields=fields)
    with guarded.connect(guarded.client("gateway")) as connection:
        for user in ("user=1", "user=2"):
            assert connection.get("/me/", fields={"Cookie": user}).body == user.encode()
    assert guarded.edge.store().get("in:gateway") is None


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_is_not_resumed_and_keeps_no_other_name(guarded, version, tmp_path):
    guarded.edge.store().set("in:alice", "for alice")
    certificate, key = guarded.client("alice")
    session = tmp_path / "session.pem"
    option = "-tls1_2" if version == ssl.TLSVersion.TLSv1_2 else "-tls1_3"
    command = ["openssl", "s_client", "-connect", ports.text(guarded.secure.address),
               "-servername", "one.test", "-CAfile", guarded.secure.certificate, "-ign_eof",
               option]  # fmt: skip
    request = b"GET /me/ HTTP/1.1\r\nHost: one.test\r\nConnection: close\r\n\r\n"

    def run(*options):
        done = subprocess.run(
            [*command, *options], input=request, capture_output=True, timeout=60, check=False
        )
        return done.stdout

    first = run("-cert", certificate, "-key", key, "-sess_out", session)
    assert b"\r\n\r\nfor alice" in first
    assert b"Reused" not in first
    if session.exists():
        again = run("-sess_in", session)
        assert b"Reused, TLSv1" not in again
        assert b"403 Forbidden" in again, "its client has shown no certificate"


def test_connections_from_before_the_option_come_again(start_dwell, tmp_path):
    guarded = Guarded(start_dwell, tmp_path, [POLLS])
    edge = guarded.edge
    edge.store().set("in:alice", "for alice")
    edge.store().set("/poll/a", "value")
    alice = guarded.client("alice")
    with guarded.connect(alice) as before, guarded.connect(alice) as unconcerned:
        assert before.get("/poll/a").body == b"value"
        assert unconcerned.get("/poll/a").body == b"value"
        edge.rewrite(route=[ME, POLLS])
        edge.signal(signal.SIGHUP)
        until(lambda: guarded.get(alice).body == b"for alice", "the route is there")
        # Those that have connected while the reload was under way may be among them.
        refused = edge.metric("dwell_polls_total", outcome="refused")
        told = before.get("/me/")
        assert (told.status, told.closes) == (503, True)
        assert told.field("Retry-After")
        assert b"connect again" in told.body
        assert before.socket.recv(1) == b""
        assert edge.metric("dwell_polls_total", outcome="refused") == refused + 1
        # Where nobody asks for the name, the connection goes on.
        assert unconcerned.get("/poll/a").body == b"value"


@pytest.mark.parametrize("client_auth", ["optional", "required"])
def test_a_name_goes_over_an_upgrade_to_a_process_with_the_same_authorities(
    start_dwell, tmp_path, cleanup, client_auth
):
    guarded = Guarded(start_dwell, tmp_path, [ME], client_auth)
    edge = guarded.edge
    edge.store().set("in:alice", "for alice")
    with guarded.connect(guarded.client("alice")) as connection:
        assert connection.get("/me/").body == b"for alice"
        first = upgrade(edge, cleanup)
        guarded.await_end()
        assert connection.get("/me/").body == b"for alice"
        upgrade(edge, cleanup, first)
        guarded.await_end(2)
        edge.store().set("in:alice", "news")
        assert connection.get("/me/").body == b"news"
    assert edge.metric("dwell_tls_handshakes_total", outcome="done") == 0


def test_a_name_of_other_authorities_counts_for_nothing_after_an_upgrade(
    start_dwell, tmp_path, cleanup
):
    guarded = Guarded(start_dwell, tmp_path, [ME, POLLS])
    edge = guarded.edge
    edge.store().set("in:alice", "for alice")
    edge.store().set("/poll/a", "value")
    with guarded.connect(guarded.client("alice")) as connection:
        assert connection.get("/me/").body == b"for alice"
        edge.rewrite(tls={"client_ca": str(make_authority(tmp_path, "theirs")[0])})
        upgrade(edge, cleanup)
        guarded.await_end()
        # It may go on where nobody asks for its name.
        assert connection.get("/poll/a").body == b"value"
        told = connection.get("/me/")
        assert (told.status, told.closes) == (503, True)


def test_a_process_that_begins_to_ask_for_names_takes_connections_without(
    start_dwell, tmp_path, cleanup
):
    guarded = Guarded(start_dwell, tmp_path, [POLLS])
    edge = guarded.edge
    edge.store().set("in:alice", "for alice")
    edge.store().set("/poll/a", "value")
    alice = guarded.client("alice")
    with guarded.connect(alice) as connection:
        assert connection.get("/poll/a").body == b"value"
        edge.rewrite(route=[ME, POLLS])
        upgrade(edge, cleanup)
        guarded.await_end()
        assert connection.get("/poll/a").body == b"value"
        assert connection.get("/me/").status == 503
    assert guarded.get(alice).body == b"for alice"


def test_curl_gets_the_value_of_its_certificate(guarded):
    guarded.edge.store().set("in:alice", "for alice")
    host, port = guarded.secure.address
    certificate, key = guarded.client("alice")
    command = ["curl", "-sS", "--max-time", "20", "--resolve", f"one.test:{port}:{host}",
               "--cacert", guarded.secure.certificate, "--cert", certificate, "--key", key,
               f"https://one.test:{port}/me/"]  # fmt: skip
    assert subprocess.check_output(command, timeout=60) == b"for alice"


def check(tmp_path, *lines):
    config = tmp_path / "checked.toml"
    config.write_text("\n".join([*lines, ""]))
    done = subprocess.run([BINARY, "check", config], capture_output=True, timeout=60, check=False)
    return done.returncode, (done.stdout + done.stderr).decode()


@pytest.mark.parametrize(
    ("key", "tls", "words"),
    [
        ("in:{tls.client.cn}", False, "no client is asked for the certificate"),
        ("{tls.client.cn}{path}", True, "would run into the next part"),
        ("{query.a}:{tls.client.cn}:{query.b}", True, "could write the name of another"),
        ("in:{tls.client.ou}", True, "unknown part of a request"),
    ],
)
def test_a_check_refuses_keys_of_no_client_and_of_several(tmp_path, key, tls, words):
    ca = make_authority(tmp_path, "ours")[0]
    lines = ["[tls]", f'client_ca = "{ca}"'] if tls else []
    code, output = check(tmp_path, *lines, "[[route]]", 'prefix = "/me/"', f'key = "{key}"')
    assert code == 2, output
    assert words in output


def test_a_check_warns_of_fields_that_a_client_chooses(tmp_path):
    lines = ["[[route]]", 'prefix = "/p/"', 'key = "{path}:{header.X-Forwarded-Proto}"',
             "[[route]]", 'prefix = "/q/"', 'key = "{header.client-cert}"']  # fmt: skip
    code, output = check(tmp_path, *lines)
    assert code == 0, output
    assert "a client can set to anything" in output
    assert "use {scheme}" in output
    assert "use {tls.client.cn} or {tls.client.san}" in output


def test_a_check_warns_of_client_auth_without_an_address(tmp_path):
    ca = make_authority(tmp_path, "ours")[0]
    certificate, key = make_certificate(tmp_path, "two", "two.test", extra=END_ENTITY)
    lines = ["[tls]", f'client_ca = "{ca}"', 'client_auth = "optional"',
             f'certificate = "{certificate}"', f'key = "{key}"']  # fmt: skip
    code, output = check(tmp_path, *lines)
    assert code == 0, output
    assert "tls.client_auth has no effect" in output


def test_a_client_is_explained_by_its_names(guarded):
    guarded.edge.store().set("in:alice", "for alice")

    def explain(*options):
        command = [BINARY, "explain", "/me/", "--admin", ports.text(guarded.edge.admin_address)]
        done = subprocess.run([*command, *options], capture_output=True, timeout=60, check=True)
        return done.stdout.decode()

    named = explain("--client-cn", "alice")
    assert "in:alice (made by in:{tls.client.cn})" in named
    assert "9 bytes" in named
    assert "403: " in explain()
    assert "403: " in explain("--client-san", "alice.test")


LIVE = {"prefix": "/live/", "publish": True}
TOKEN = "0123456789abcdef0123"


def put(connection, token=None, body=b"value", target="/live/a"):
    fields = {"Authorization": f"Bearer {token}"} if token else {}
    return connection.get(target, "PUT", fields, body)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_publisher_is_known_by_its_certificate(start_dwell, tmp_path, version):
    publish = {"clients": ["cn:app", "san:App.test", "san:spiffe://td/app"], "token": TOKEN}
    guarded = Guarded(start_dwell, tmp_path, [LIVE], publish=publish)
    edge = guarded.edge
    for name, names in [("app", ()), ("b", ["DNS:x.test", "DNS:app.TEST"]),
                        ("c", ["URI:spiffe://td/app"])]:  # fmt: skip
        client = guarded.client(name, names=names)
        with guarded.connect(client, version=version) as connection:
            assert put(connection).status in (201, 204)
            assert put(connection, TOKEN).status == 204
            assert put(connection, "another-token-of-no-use").status == 401
    # More than a poll may have as its body.
    large = b"x" * (512 << 10)
    with guarded.connect(guarded.client("app"), version=version) as connection:
        assert put(connection, body=large).status == 204
        assert connection.get("/live/a").body == large
    denied = edge.metric("dwell_publishes_total", outcome="denied")
    others = [("App", ()), ("d", ["DNS:app"]), ("e", ["DNS:*.test"]), ("f", ["email:app@a.test"])]
    for name, names in others:
        client = guarded.client(name, names=names)
        with guarded.connect(client, version=version) as connection:
            refused = put(connection)
            assert refused.status == 403, name
            assert put(connection, TOKEN).status == 204
    assert edge.metric("dwell_publishes_total", outcome="denied") == denied + len(others)
    with guarded.connect(version=version) as connection:
        assert put(connection).status == 401
    assert edge.get("/live/a", "PUT", body=b"x").status == 401
    assert edge.get("/live/a").body == b"value"


def test_without_tokens_a_publisher_needs_a_certificate(start_dwell, tmp_path):
    guarded = Guarded(start_dwell, tmp_path, [LIVE], publish={"clients": "cn:app"})
    with guarded.connect() as connection:
        assert put(connection).status == 403
        assert put(connection, TOKEN).status == 401
    assert guarded.edge.get("/live/a", "PUT", body=b"x").status == 403
    # The admin listener takes tokens alone.
    assert guarded.edge.admin("/-/keys//live/a").status == 403


def test_a_publisher_from_before_the_option_comes_again(start_dwell, tmp_path):
    guarded = Guarded(start_dwell, tmp_path, [LIVE], publish={"token": TOKEN})
    edge, app = guarded.edge, guarded.client("app")
    with guarded.connect(app) as before:
        assert put(before).status == 401
        edge.rewrite(publish={"clients": ["cn:app"]})
        edge.signal(signal.SIGHUP)

        def is_taken():
            with guarded.connect(app) as connection:
                return put(connection).status in (201, 204)

        until(is_taken, "the option is taken")
        told = put(before)
        assert (told.status, told.closes) == (503, True)
        assert told.field("Retry-After")


def test_a_check_refuses_publishers_of_no_name(tmp_path):
    code, output = check(tmp_path, "[publish]", 'clients = ["cn:app"]')
    assert code == 2, output
    assert "`publish.clients` has no effect: no client is asked for a certificate" in output
    code, output = check(tmp_path, "[publish]", 'clients = ["san:*.test", "app"]')
    assert code == 2, output
    assert "a wildcard is no name" in output


def test_what_a_client_says_of_its_certificate_does_not_reach_the_application(
    start_dwell, tmp_path, app
):
    guarded = Guarded(start_dwell, tmp_path, [POLLS], upstream={"url": app.url})
    fields = {"Client-Cert": ":MIIB:", "CLIENT-CERT-CHAIN": ":MIIC:", "X-Kept": "1"}
    with guarded.connect(guarded.client("alice")) as connection:
        for target in ("/other", "/poll/a"):
            connection.get(target, fields=fields)
    chunked = (
        b"POST /other HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
        b"Client-Cert: :MIIB:\r\n\r\n1\r\na\r\n0\r\nClient-Cert: :MIIB:\r\n\r\n"
    )
    with guarded.edge.connect() as connection:
        connection.send(chunked)
        assert connection.answer().status == 200
    assert [request.target for request in app.requests] == ["/other", "/poll/a", "/other"]
    for request in app.requests:
        assert request.field("Client-Cert") is None
        assert request.field("Client-Cert-Chain") is None
    assert app.requests[0].field("X-Kept") == "1"


def test_a_trusted_proxy_speaks_of_the_certificates_of_its_clients(start_dwell, app):
    edge = start_dwell(
        upstream={"url": app.url},
        server={"trusted_proxies": ["127.0.0.1"]},
        route=[POLLS, {"prefix": "/own/", "identity_headers": ["Client-Cert"]}],
    )
    # Polls share a request without it, unless the route says that it tells clients apart.
    for target, field in [("/other", ":MIIB:"), ("/poll/a", None), ("/own/a", ":MIIB:")]:
        edge.get(target, fields={"Client-Cert": ":MIIB:"})
        assert app.requests[-1].field("Client-Cert") == field, target
