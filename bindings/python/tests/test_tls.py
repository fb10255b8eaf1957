"""Clients under TLS: WSGI, ASGI and ``python -m dwell``."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dwell import asgi, wsgi
from programs import Program, Start
from servers import Receive, RunAsgi, RunWsgi, Scope, Send, echo, read, respond, text
from wire import TIMEOUT

DATA = Path(__file__).parents[3] / "crates" / "tls" / "tests" / "data"
BIG = b"a line of a big file\n" * 200_000


class Pair:
    """A certificate and its key, in files that a test may replace."""

    def __init__(self, folder: Path) -> None:
        self.certificate = folder / "certificate.pem"
        self.key = folder / "key.pem"
        self.put("certificate.pem", "key.pem")

    def put(self, certificate: str, key: str) -> None:
        shutil.copy(DATA / certificate, self.certificate)
        shutil.copy(DATA / key, self.key)

    @property
    def options(self) -> dict[str, Any]:
        return {"ssl_certfile": str(self.certificate), "ssl_keyfile": str(self.key)}

    @property
    def flags(self) -> list[str]:
        return ["--ssl-certfile", str(self.certificate), "--ssl-keyfile", str(self.key)]


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


def trusting() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(DATA / "certificate.pem"))


def connected(address: tuple[str, int]) -> http.client.HTTPSConnection:
    """A client that verifies the certificate."""
    host, port = address
    return http.client.HTTPSConnection(host, port, timeout=TIMEOUT, context=trusting())


def get(address: tuple[str, int], path: str = "/", body: bytes | None = None) -> bytes:
    client = connected(address)
    client.request("GET" if body is None else "POST", path, body)
    answer = client.getresponse().read()
    client.close()
    return answer


def worker_of(address: tuple[str, int]) -> int:
    """The process that answers, whatever certificate it offers."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    client = http.client.HTTPSConnection(*address, timeout=TIMEOUT, context=context)
    client.request("GET", "/")
    answer = client.getresponse()
    answer.read()
    client.close()
    return int(answer.headers["X-Pid"])


def successor_of(worker: int, address: tuple[str, int]) -> int:
    """Waits until another process than ``worker`` answers, and returns it."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        assert time.monotonic() < deadline
        with contextlib.suppress(ConnectionError):
            if (answering := worker_of(address)) != worker:
                return answering


def offered(address: tuple[str, int]) -> bytes:
    """The certificate that a server offers."""
    return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(address, timeout=TIMEOUT))


def der(name: str) -> bytes:
    return ssl.PEM_cert_to_DER_cert((DATA / name).read_text())


def until_offered(address: tuple[str, int], name: str) -> None:
    """Waits until every worker offers it: clients come to one by chance."""
    deadline = time.monotonic() + TIMEOUT
    in_a_row = 0
    while in_a_row < 16:
        assert time.monotonic() < deadline
        try:
            is_offered = offered(address) == der(name)
        except ConnectionResetError:
            # A worker that leaves closes its socket with the clients that it has not accepted.
            is_offered = False
        in_a_row = in_a_row + 1 if is_offered else 0


def served(program: Program) -> tuple[str, int]:
    """Where a program listens."""
    line = program.wait_for(" on https://")
    program.wait_for("Ctrl+C")
    return "127.0.0.1", int(line.split("https://127.0.0.1:")[1].split(":")[0])


def test_wsgi_has_clients_under_tls(run_wsgi: RunWsgi, pair: Pair, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(BIG)

    def app(environ: dict[str, Any], start: Any) -> Any:
        if environ["PATH_INFO"] == "/file":
            start("200 OK", [])
            return wsgi.FileWrapper((tmp_path / "big").open("rb"))
        if environ["PATH_INFO"] == "/echo":
            return text(start, environ["wsgi.input"].read())
        return text(start, f"{environ['wsgi.url_scheme']} {environ['SERVER_PORT']}".encode())

    server = run_wsgi(app, **pair.options)
    port = server.addresses[0][1]
    assert server.url == f"https://127.0.0.1:{port}"
    address = ("127.0.0.1", port)
    assert get(address) == f"https {port}".encode()
    assert get(address, "/file") == BIG
    assert get(address, "/echo", BIG) == BIG
    with socket.create_connection(address, TIMEOUT) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert plain.recv(12) == b"HTTP/1.1 400"


def test_asgi_has_clients_under_tls(run_asgi: RunAsgi, pair: Pair, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(BIG)
    schemes = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            raise NotImplementedError
        schemes.append(scope["scheme"])
        if scope["type"] == "websocket":
            return await echo(scope, receive, send)
        if scope["path"] == "/file":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.pathsend", "path": str(tmp_path / "big")})
            return None
        return await respond(send, await read(receive))

    running = run_asgi(app, "https://127.0.0.1:0", **pair.options)
    address = ("127.0.0.1", running.server.addresses[0][1])
    assert get(address, "/echo", BIG) == BIG
    assert get(address, "/file") == BIG
    with running.socket(ssl=trusting()) as client:
        for message in (b"", b"x" * 300_000):
            client.send(message)
            assert client.recv(TIMEOUT) == message
    assert schemes == ["https", "https", "wss"]


def test_a_trusted_proxy_says_what_its_client_speaks(run_wsgi: RunWsgi, pair: Pair) -> None:
    def app(environ: dict[str, Any], start: Any) -> Any:
        return text(start, environ["wsgi.url_scheme"].encode())

    server = run_wsgi(app, trusted_proxies=["127.0.0.1"], **pair.options)
    client = connected(server.addresses[0])
    for told, scheme in (("http", b"http"), ("https", b"https")):
        client.request("GET", "/", headers={"X-Forwarded-Proto": told})
        assert client.getresponse().read() == scheme
    client.close()


def test_certificates_are_read_again(run_wsgi: RunWsgi, run_asgi: RunAsgi, pair: Pair) -> None:
    servers = [
        run_wsgi(lambda _, start: text(start, b""), **pair.options),
        run_asgi(echo, **pair.options).server,
    ]
    pair.put("other.pem", "key.pem")
    for server in servers:
        with pytest.raises(ValueError, match=r"key\.pem: private key does not belong"):
            server.reload_tls()
        assert offered(server.addresses[0]) == der("certificate.pem")
    pair.put("other.pem", "other_key.pem")
    for server in servers:
        server.reload_tls()
        assert offered(server.addresses[0]) == der("other.pem")


@pytest.mark.parametrize("app", ["web", "aweb"])
@pytest.mark.parametrize("flags", [[], ["--workers", "2"]])
def test_a_hangup_has_certificates_read_again(
    start: Start, pair: Pair, app: str, flags: list[str]
) -> None:
    program = start(app, "--port", "0", *pair.flags, *flags)
    address = served(program)
    assert get(address)
    assert offered(address) == der("certificate.pem")
    pair.put("other.pem", "other_key.pem")
    program.send(signal.SIGHUP)
    until_offered(address, "other.pem")
    # Files that cannot be used change nothing.
    pair.key.write_text("nothing")
    program.send(signal.SIGHUP)
    program.wait_for("private key cannot be read")
    for _ in range(4):
        assert offered(address) == der("other.pem")
    program.send(signal.SIGTERM)
    assert program.end() == 0


def test_a_worker_that_dies_is_replaced_whatever_the_files_hold(start: Start, pair: Pair) -> None:
    program = start("web", "--port", "0", *pair.flags, "--workers", "1")
    address = served(program)
    first = worker_of(address)
    pair.put("other.pem", "other_key.pem")
    program.send(signal.SIGHUP)
    until_offered(address, "other.pem")
    pair.key.write_text("nothing")
    # The first worker may still answer while it leaves, and nobody comes for it.
    died = successor_of(first, address)
    os.kill(died, signal.SIGKILL)
    program.wait_for("the certificates before are used")
    # Those that were read last, and not those of the start.
    until_offered(address, "other.pem")
    assert successor_of(died, address)


def test_sessions_are_resumed_in_every_worker(start: Start, pair: Pair) -> None:
    address = served(start("web", "--port", "0", "--workers", "2", *pair.flags))
    context = trusting()

    def asked(session: ssl.SSLSession | None) -> tuple[ssl.SSLSession | None, bool, bytes]:
        plain = socket.create_connection(address, TIMEOUT)
        with context.wrap_socket(plain, server_hostname="localhost", session=session) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            answer = b""
            while piece := client.recv(4096):
                answer += piece
            worker = re.findall(rb"X-Pid: (\d+)", answer)[0]
            return client.session, client.session_reused, worker

    session, is_reused, _ = asked(None)
    assert not is_reused
    deadline = time.monotonic() + TIMEOUT
    resumed = set()
    while len(resumed) < 2:
        assert time.monotonic() < deadline
        _, is_reused, worker = asked(session)
        assert is_reused
        resumed.add(worker)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--ssl-certfile", "none.pem"], "cannot read none.pem: No such file"),
        (["--ssl-keyfile", "key.pem"], "ssl_keyfile needs ssl_certfile"),
        (["--ssl-certfile", "certificate.pem"], "certificate.pem: private key cannot be read"),
        (
            ["--ssl-certfile", "certificate.pem", "--ssl-keyfile", str(DATA / "encrypted_key.pem")],
            "encrypted_key.pem: private key is encrypted; decrypt it: openssl pkey -in",
        ),
        (["--ssl-keyfile-password=secret"], "there is no --ssl-keyfile-password: keys are not"),
    ],
)
@pytest.mark.parametrize("workers", [[], ["--workers", "2"]])
def test_wrong_files_end_the_start(
    pair: Pair, tmp_path: Path, flags: list[str], told: str, workers: list[str]
) -> None:
    (tmp_path / "web.py").write_text("def app(environ, start_response): return []\n")
    command = [sys.executable, "-m", "dwell", "web", "--port", "0", *flags, *workers]
    ended = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert ended.returncode != 0
    assert ended.stderr.startswith("dwell: ")
    assert told in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_https_needs_a_certificate() -> None:
    with pytest.raises(ValueError, match="https needs ssl_certfile"):
        wsgi.Server(lambda _, start: text(start, b""), "https://127.0.0.1:0")
    server = asgi.Server(echo, "https://127.0.0.1:0")
    with pytest.raises(RuntimeError, match="not started"):
        _ = server.url
