"""Clients of HTTP/2 that others have written, against each kind of server of the package.

Each server is asked without TLS, where clients speak HTTP/2 by prior knowledge, and under it, where
they agree on it.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dwell import TlsOpts
from http2_client import Http2
from servers import Environ, RunAsgi, RunWsgi, Start, text
from test_asgi_http2 import Site, tls_files
from test_manager_http2 import DATA, Served
from wire import TIMEOUT

GO_CLIENT = Path(__file__).parents[3] / "tests" / "clients" / "h2c" / "main.go"


@dataclass
class Server:
    address: tuple[str, int]
    is_secure: bool
    # Of its index.
    body: bytes

    @property
    def url(self) -> str:
        scheme = "https" if self.is_secure else "http"
        return f"{scheme}://127.0.0.1:{self.address[1]}/"


def index(environ: Environ, start: Start) -> Iterable[bytes]:
    return text(start, environ["SERVER_PROTOCOL"].encode())


@pytest.fixture(params=["wsgi", "asgi", "manager"])
def face(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["plain", "tls"])
def server(
    request: pytest.FixtureRequest, face: str, run_wsgi: RunWsgi, run_asgi: RunAsgi
) -> Iterator[Server]:
    is_secure = request.param == "tls"
    options: dict[str, Any] = {"http2": True, **tls_files()} if is_secure else {"h2c": True}
    if face == "wsgi":
        yield Server(run_wsgi(index, **options).addresses[0], is_secure, b"HTTP/2.0")
    elif face == "asgi":
        running = run_asgi(Site(), lifespan="off", **options)
        yield Server(running.server.addresses[0], is_secure, b"ok")
    else:
        if is_secure:
            files = TlsOpts(cert=str(DATA / "certificate.pem"), key=str(DATA / "key.pem"))
            options = {"http2": True, "tls": files}
        served = Served(f"{'https' if is_secure else 'http'}://127.0.0.1:0", **options)
        yield Server(served.address, is_secure, b"HTTP/2")
        served.end()


def run(*command: str | Path, timeout: float = TIMEOUT) -> bytes:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    ran = subprocess.run(command, capture_output=True, timeout=timeout, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_curl_in_either_protocol(server: Server) -> None:
    curl = ("curl", "-sS", "--insecure", "-w", "|%{http_version}|%{response_code}")
    is_secure = server.is_secure
    told = run(*curl, "--http2" if is_secure else "--http2-prior-knowledge", server.url)
    assert told == server.body + b"|2|200"
    assert run(*curl, "--http1.1", server.url).endswith(b"|1.1|200")
    if not is_secure:
        # It offers h2c by Upgrade, which is not taken.
        assert run(*curl, "--http2", server.url).endswith(b"|1.1|200")


def test_nghttp_asks_on_streams(server: Server) -> None:
    told = run("nghttp", "-v", "-m", "3", server.url)
    assert (told.count(b":status: 200"), told.count(server.body)) == (3, 3)


def test_h2load(server: Server) -> None:
    told = run("h2load", "-n", "500", "-c", "5", "-m", "20", server.url)
    assert b"500 succeeded, 0 failed, 0 errored, 0 timeout" in told
    assert b"500 2xx" in told
    assert not server.is_secure or b"Application protocol: h2\n" in told


@pytest.mark.xdist_group("go")
def test_the_client_of_net_http(server: Server, tmp_path: Path) -> None:
    program = tmp_path / "client"
    run("go", "build", "-o", program, GO_CLIENT, timeout=300)
    assert run(program, server.url, server.body.decode(), timeout=120) == b"50 of 50\n"


def test_the_library_h2(server: Server) -> None:
    with Http2(server.address, tls=server.is_secure) as peer:
        asked = [peer.ask("/") for _ in range(100)]
        assert {peer.answer(number).body for number in asked} == {server.body}
