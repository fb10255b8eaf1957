"""Clients of HTTP/2 that others have written, against each kind of server of the package.

curl, nghttp and h2load speak HTTP/2 without TLS by prior knowledge; the library `h2` is the client
of the other tests.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Iterator

import pytest

from http2_client import Http2
from servers import Environ, RunAsgi, RunWsgi, Start, text
from test_asgi_http2 import Site
from test_manager_http2 import Served
from wire import TIMEOUT

# A server's address for clients, and the body of its index.
Server = tuple[tuple[str, int], bytes]


def index(environ: Environ, start: Start) -> Iterable[bytes]:
    return text(start, environ["SERVER_PROTOCOL"].encode())


@pytest.fixture(params=["wsgi", "asgi", "manager"])
def server(
    request: pytest.FixtureRequest, run_wsgi: RunWsgi, run_asgi: RunAsgi
) -> Iterator[Server]:
    if request.param == "wsgi":
        yield run_wsgi(index, h2c=True).addresses[0], b"HTTP/2.0"
    elif request.param == "asgi":
        yield run_asgi(Site(), lifespan="off", h2c=True).server.addresses[0], b"ok"
    else:
        served = Served("http://127.0.0.1:0", h2c=True)
        yield served.address, b"HTTP/2"
        served.end()


def url(server: Server) -> str:
    return f"http://127.0.0.1:{server[0][1]}/"


def run(*command: str) -> bytes:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    ran = subprocess.run(command, capture_output=True, timeout=TIMEOUT, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_curl_in_either_protocol(server: Server) -> None:
    form = ("-w", "|%{http_version}|%{response_code}")
    told = run("curl", "-sS", "--http2-prior-knowledge", *form, url(server))
    assert told == server[1] + b"|2|200"
    assert run("curl", "-sS", "--http1.1", *form, url(server)).endswith(b"|1.1|200")
    # It offers h2c by Upgrade, which is not taken.
    assert run("curl", "-sS", "--http2", *form, url(server)).endswith(b"|1.1|200")


def test_nghttp_asks_on_streams(server: Server) -> None:
    told = run("nghttp", "-v", "-m", "3", url(server))
    assert (told.count(b":status: 200"), told.count(server[1])) == (3, 3)


def test_h2load(server: Server) -> None:
    told = run("h2load", "-n", "500", "-c", "5", "-m", "20", url(server))
    assert b"500 succeeded, 0 failed, 0 errored, 0 timeout" in told
    assert b"500 2xx" in told


def test_the_library_h2(server: Server) -> None:
    with Http2(server[0]) as peer:
        asked = [peer.ask("/") for _ in range(100)]
        assert {peer.answer(number).body for number in asked} == {server[1]}
