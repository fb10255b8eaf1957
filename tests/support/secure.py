"""An edge under TLS, and what its clients share."""

import contextlib
import socket
import ssl
import subprocess
import threading

from support import ports
from support.certificates import END_ENTITY, make_certificate
from support.http2_client import Http2Connection


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
        self.certificate, self.key = make_certificate(
            folder, "one", "one.test", "*.wild.test", extra=END_ENTITY
        )
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

    def context_for(self, *protocols, client=None, version=None, **options):
        """A context that offers these protocols (ALPN), with the certificate of a client."""
        context = self.context(**options)
        context.set_alpn_protocols(protocols)
        if client:
            context.load_cert_chain(*client)
        if version:
            context.minimum_version = context.maximum_version = version
        return context

    def http2(self, **options):
        """A connection that has agreed on HTTP/2."""
        connection = self.connect(context=self.context_for("h2", "http/1.1", **options))
        assert connection.selected_alpn_protocol() == "h2"
        return Http2Connection(secure=connection)


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


def s_client(server, *options):
    """The command by which OpenSSL connects, and verifies the certificate."""
    return ["openssl", "s_client", "-connect", ports.text(server.address), "-servername",
            "one.test", "-CAfile", server.certificate, "-verify_return_error",
            *options]  # fmt: skip


@contextlib.contextmanager
def openssl_client(server):
    """An `openssl s_client` that has connected, with pipes to it; killed after a while."""
    pipe = subprocess.PIPE
    client = subprocess.Popen(
        s_client(server), stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, bufsize=0
    )
    timer = threading.Timer(60, client.kill)
    timer.start()
    try:
        read_to_end(client, b"Verify return code: 0 (ok)")
        yield client
    finally:
        timer.cancel()
        client.kill()
        client.communicate()


def is_resumed(server, version, *options):
    """Makes one request for `/poll/a` by OpenSSL; returns whether it resumed a session."""
    request = b"GET /poll/a HTTP/1.1\r\nHost: one.test\r\nConnection: close\r\n\r\n"
    command = s_client(server, "-ign_eof", f"-{version}", *options)
    done = subprocess.run(command, input=request, capture_output=True, timeout=60, check=False)
    assert b"\r\n\r\nvalue" in done.stdout, done.stdout + done.stderr
    assert (b"New, TLSv1" in done.stdout) != (b"Reused, TLSv1" in done.stdout), done.stdout
    return b"Reused, TLSv1" in done.stdout


def read_to_end(process, end):
    """Reads what a process writes up to these bytes."""
    seen = b""
    while not seen.endswith(end):
        part = process.stdout.read(1)
        assert part, seen
        seen += part
    return seen


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
