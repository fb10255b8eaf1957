"""Balancers that tell by the PROXY protocol whose connections they pass on."""

import contextlib
import signal
import socket
import struct
import subprocess

from support.secure import Secure, answer, ask
from support.wait import until

BALANCER = {"proxy_protocol": ["127.0.0.1"], "pollers": 1}
V1 = b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n"
SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"


def v2(address="192.0.2.7", command=0x21, tlvs=b""):
    addresses = socket.inet_aton(address) + socket.inet_aton("198.51.100.1")
    rest = addresses + struct.pack("!HH", 56324, 443) + tlvs
    return SIGNATURE + struct.pack("!BBH", command, 0x11, len(rest)) + rest


def told(balancer, header, target="/page", **fields):
    """Asks over a connection that begins with this header."""
    with balancer.connect() as connection:
        connection.send(header)
        return connection.get(target, fields=fields)


def test_the_client_is_at_the_address_in_the_header(start_dwell, app):
    dwell = start_dwell(server=BALANCER, upstream={"url": app.url})
    for header in (V1, v2(), v2(tlvs=b"\x04\0\x02ab"), v2(command=0x20), b"PROXY UNKNOWN\r\n"):
        assert told(dwell, header).status == 200
    forwarded = [dict(request.fields)["X-Forwarded-For"] for request in app.requests]
    assert forwarded == ["192.0.2.1", "192.0.2.7", "192.0.2.7", "127.0.0.1", "127.0.0.1"]
    # Header and request may come together, or a byte at a time.
    request = b"GET /poll/a HTTP/1.1\r\nHost: a\r\n\r\n"
    dwell.store().set("/poll/a", b"value")
    with dwell.connect() as connection:
        connection.send(V1 + request)
        assert connection.answer().body == b"value"
    with dwell.connect() as connection:
        for byte in v2() + request:
            connection.send(bytes([byte]))
        assert connection.answer().body == b"value"


def test_rates_and_limits_count_the_client(start_dwell):
    route = {"prefix": "/poll/", "rate_per_address": "2/h"}
    limits = {"connections_per_address": 3}
    dwell = start_dwell(server=BALANCER, route=[route], limits=limits)
    dwell.store().set("/poll/a", b"value")
    statuses = [told(dwell, V1, "/poll/a").status for _ in range(3)]
    assert statuses == [200, 200, 429]
    assert told(dwell, v2(), "/poll/a").status == 200
    # An address that a client writes itself counts for nothing.
    assert told(dwell, V1, "/poll/a", **{"X-Forwarded-For": "9.9.9.9"}).status == 429
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            connection = stack.enter_context(dwell.connect())
            connection.send(v2("192.0.2.8"))
            assert connection.get("/other").status == 404
        fourth = stack.enter_context(dwell.connect())
        fourth.send(v2("192.0.2.8"))
        assert fourth.is_ended()
        assert told(dwell, v2("192.0.2.9"), "/other").status == 404
    reason = {"reason": "connections_per_address"}
    dwell.await_metric(1, "dwell_connections_refused_total", **reason)


def test_a_connection_without_a_header_is_closed_counted_and_told(start_dwell):
    dwell = start_dwell(server=BALANCER)
    with dwell.connect() as connection:
        connection.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert connection.is_ended()
    dwell.await_metric(1, "dwell_proxy_headers_failed_total", reason="invalid")
    until(lambda: "server.proxy_protocol" in dwell.output(), "the log has the remedy")
    # Others than balancers have no header, and theirs is not believed.
    with dwell.connect(source="127.0.0.2") as connection:
        assert connection.get("/").status == 404
    with dwell.connect(source="127.0.0.2") as connection:
        connection.send(V1)
        assert connection.answer().status == 400


def test_the_header_comes_before_tls(start_dwell, tmp_path, app):
    secure = Secure(start_dwell, tmp_path, server=BALANCER, upstream={"url": app.url})
    for header, client in ((V1, "192.0.2.1"), (v2(), "192.0.2.7")):
        with socket.create_connection(secure.address, timeout=20) as plain:
            plain.sendall(header)
            with secure.context().wrap_socket(plain, server_hostname="one.test") as connection:
                ask(connection, "/page")
                assert answer(connection) == b"from the app"
        fields = dict(app.requests[-1].fields)
        assert (fields["X-Forwarded-For"], fields["X-Forwarded-Proto"]) == (client, "https")
    host, port = secure.address
    command = ["curl", "-sS", "--max-time", "20", "--haproxy-protocol", "--resolve",
               f"one.test:{port}:{host}", "--cacert", secure.certificate]  # fmt: skip
    url = f"https://one.test:{port}/page"
    assert subprocess.check_output([*command, url], timeout=60) == b"from the app"


def test_a_reload_changes_the_balancers(start_dwell):
    dwell = start_dwell()
    assert dwell.get("/").status == 404
    dwell.rewrite(server={"proxy_protocol": ["127.0.0.0/8"]})
    dwell.signal(signal.SIGHUP)
    until(lambda: told(dwell, V1, "/").status == 404, "a header is expected")
