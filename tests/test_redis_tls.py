"""Redis and Valkey under TLS, with users and passwords, and what is said when that fails.

Debian's Redis speaks TLS itself; the Valkey of the tests was built without it, so another process
speaks it in front. The sweep is set so far apart that it cannot have woken anybody.
"""

import socket
import ssl

import pytest

from support import ports
from support.certificates import make_authority, make_certificate, make_client
from support.redis import REDIS, VALKEY, SecureFront
from support.secure_app import server_context
from support.wait import until

KEY = "/poll/alice"


@pytest.fixture
def pair(tmp_path):
    """A certificate for the loopback address, and its key."""
    return make_certificate(tmp_path, "redis", "127.0.0.1", "redis.test")


@pytest.fixture
def authority(tmp_path):
    """Issues the certificates of clients."""
    return make_authority(tmp_path, "authority")


@pytest.fixture
def start_secure(start_redis, cleanup, pair, authority):
    """Starts a server under TLS; returns it and its URL."""

    def start(server, asks_for=False, of=None, version=None):
        certificate, key = of or pair
        if server == REDIS:
            port = ports.free_address()[1]
            redis = start_redis(
                *("--tls-port", port, "--tls-cert-file", certificate, "--tls-key-file", key),
                *("--tls-ca-cert-file", authority[0]),
                *("--tls-auth-clients", "yes" if asks_for else "no"),
                *(("--tls-protocols", version.name.replace("_", ".")) if version else ()),
                server=server,
            )
            return redis, f"rediss://127.0.0.1:{port}"
        redis = start_redis(server=server)
        context = server_context(certificate, key, version)
        if asks_for:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(authority[0])
        front = SecureFront(redis.address, context).start()
        cleanup.callback(front.close)
        return redis, front.url

    return start


@pytest.fixture
def start_edge(start_dwell):
    def start(url, **options):
        # Long: a machine that halts for a moment must not look like a server that fails.
        defaults = {"sweep_interval": "60s", "timeout": "20s", "connect_timeout": "20s"}
        return start_dwell(redis={"url": url, **defaults, **options}, server={"pollers": 1})

    return start


def hold(edge, cleanup):
    connection = cleanup.enter_context(edge.connect())
    etag = edge.get(KEY).etag
    connection.ask(f"{KEY}?wait=50", fields={"If-None-Match": etag} if etag else ())
    edge.await_waiters(1)
    return connection


def assert_a_write_wakes(edge, cache, cleanup):
    for value in (b"1", b"x" * 300_000, b"3"):
        poll = hold(edge, cleanup)
        cache.set(KEY, value)
        assert poll.answer().body == value
    assert edge.metric("dwell_memcached_sweeps_total") == 0


@pytest.mark.parametrize("server", [REDIS, VALKEY])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_polls_wake_under_tls(start_secure, start_edge, pair, cleanup, server, version):
    redis, url = start_secure(server, version=version)
    edge = start_edge(url, tls_ca=str(pair[0]))
    assert_a_write_wakes(edge, redis.client(), cleanup)
    edge.await_metric(2, "dwell_redis_handshakes_total", outcome="done")
    # A new connection is a new handshake, after which everything is read.
    poll = hold(edge, cleanup)
    redis.client().ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    redis.client().set(KEY, b"4")
    assert poll.answer().body == b"4"


@pytest.mark.parametrize("server", [REDIS, VALKEY])
@pytest.mark.parametrize("way", ["tcp", "tls", "tls and certificate", "unix"])
@pytest.mark.parametrize("user", ["user", "default"])
def test_a_user_with_a_password_file_enters_on_every_way(
    start_secure, start_redis, start_edge, pair, authority, tmp_path, cleanup, server, way, user
):
    options = {}
    if way == "unix":
        path = tmp_path / "redis.sock"
        redis, url = start_redis("--unixsocket", path, server=server), f"unix://{path}"
    elif way == "tcp":
        redis = start_redis(server=server)
        url = redis.url
    else:
        asks_for = way != "tls"
        redis, url = start_secure(server, asks_for)
        options["tls_ca"] = str(pair[0])
        if asks_for:
            shown = make_client(tmp_path, "edge", authority)
            options |= {"tls_certificate": str(shown[0]), "tls_key": str(shown[1])}
    cache = redis.client()
    (tmp_path / "password").write_text("se cret\r\n")
    options["password_file"] = str(tmp_path / "password")
    if user == "user":
        options["username"] = "edge"
        rights = ["+client|tracking", "+hello", "+get", "+pttl", "+ping", "+select"]
        cache.ask("ACL", "SETUSER", "edge", "on", ">se cret", "~*", *rights)
    else:
        cache.ask("CONFIG", "SET", "requirepass", "se cret")
    cache.ask("SELECT", 3)
    edge = start_edge(url, database=3, **options)
    assert_a_write_wakes(edge, cache, cleanup)
    assert "Redis does not" not in edge.output()


@pytest.mark.parametrize("server", [REDIS, VALKEY])
@pytest.mark.parametrize("fault", ["name", "expired", "unknown", "no certificate"])
def test_what_tls_refuses_is_told_once_and_counted(
    start_secure, start_edge, tmp_path, pair, server, fault
):
    of = pair
    if fault == "expired":
        dates = ("240101000000Z", "240201000000Z")
        of = make_certificate(tmp_path, "old", "127.0.0.1", dates=dates)
    trusted = make_certificate(tmp_path, "other", "127.0.0.1") if fault == "unknown" else of
    _, url = start_secure(server, asks_for=fault == "no certificate", of=of)
    name = {"tls_server_name": "elsewhere.test"} if fault == "name" else {}
    edge = start_edge(url, tls_ca=str(trusted[0]), **name)
    assert edge.get(KEY).status == 503
    if fault == "no certificate":
        # The handshake is done for the client of TLS 1.3 when the server refuses it.
        edge.await_output("Redis does not answer")
        return
    reason = {
        "name": "elsewhere.test is refused: it is for other names: 127.0.0.1, redis.test",
        "expired": "127.0.0.1 is refused: it has expired ",
        "unknown": "127.0.0.1 is refused: it is self-signed and not trusted",
    }[fault]
    edge.await_output(f"certificate of {reason}")
    name = "dwell_redis_handshakes_total"
    until(lambda: edge.metric(name, outcome="certificate") >= 3, "each is counted")
    said = [line for line in edge.output().splitlines() if "Redis does not answer" in line]
    assert len(said) == 1, said
    assert "no TLS handshake" in said[0]


@pytest.mark.parametrize("server", [REDIS, VALKEY])
def test_a_server_without_tls_is_told_and_never_waited_for(start_redis, start_edge, pair, server):
    redis = start_redis(server=server)
    url = redis.url.replace("redis:", "rediss:")
    edge = start_edge(url, tls_ca=str(pair[0]), connect_timeout="200ms")
    assert edge.get(KEY).status == 503
    edge.await_output("Redis does not answer")
    said = [line for line in edge.output().splitlines() if "Redis does not answer" in line]
    assert len(said) == 1, said
    assert "no TLS handshake" in said[0]
    name = "dwell_redis_handshakes_total"
    ends = ("not_tls", "closed", "reset", "timeout", "protocol")
    until(lambda: sum(edge.metric(name, outcome=end) for end in ends) >= 2, "each is counted")


def test_a_server_that_is_silent_in_the_handshake_is_given_up(start_edge, pair, cleanup):
    listener = cleanup.enter_context(socket.create_server(ports.free_address()))
    url = f"rediss://{ports.text(listener.getsockname())}"
    edge = start_edge(url, tls_ca=str(pair[0]), connect_timeout="200ms")
    assert edge.get(KEY).status == 503
    edge.await_output("no end of the handshake in time")
    name = "dwell_redis_handshakes_total"
    until(lambda: edge.metric(name, outcome="timeout") >= 2, "it is counted")


def test_a_server_under_tls_that_is_spoken_to_without_is_told(start_secure, start_edge):
    _, url = start_secure(REDIS)
    edge = start_edge(url.replace("rediss:", "redis:"))
    assert edge.get(KEY).status == 503
    edge.await_output("Redis does not answer")
