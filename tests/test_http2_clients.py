"""Clients of HTTP/2 that others have written, without TLS: against the edge and the engine alone.

Under TLS they are in `test_http2_tls`; the servers of the Python package, the Go package and C have
tests like these beside their own.
"""

import os
import pathlib
import shutil
import subprocess

import pytest

from support import ports
from support.http2_client import Http2Connection
from support.process import Process

HERE = pathlib.Path(__file__).resolve().parent
H2C = pathlib.Path(os.environ.get("DWELL_H2C", HERE.parent / "target/debug/examples/h2c"))
GO_CLIENT = HERE / "clients" / "h2c" / "main.go"
PATH = "/poll/a"
BODY = "hello, world\n"


@pytest.fixture(params=["edge", "engine"])
def address(request, start_dwell, tmp_path, cleanup):
    """Where something answers `PATH` with `BODY`."""
    if request.param == "edge":
        edge = start_dwell(server={"h2c": True})
        edge.store().set(PATH, BODY)
        return edge.address
    address = ports.free_address()
    engine = Process([H2C, ports.text(address)], tmp_path / "h2c.log")
    cleanup.callback(engine.stop)
    engine.start_listening(address)
    return address


def run(*command):
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run(command, capture_output=True, timeout=120, check=False, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def url(address):
    return f"http://{ports.text(address)}{PATH}"


def test_curl_in_either_protocol(address):
    form = ("-w", "|%{http_version}|%{response_code}")
    told = run("curl", "-sS", "--http2-prior-knowledge", *form, url(address))
    assert told == f"{BODY}|2|200"
    # The second offers h2c by Upgrade, which is not taken.
    for flag in ("--http1.1", "--http2"):
        assert run("curl", "-sS", flag, *form, url(address)) == f"{BODY}|1.1|200"
    shown = run("curl", "-sSI", "--http2-prior-knowledge", url(address))
    assert shown.startswith("HTTP/2 200")


def test_nghttp_asks_on_streams(address):
    told = run("nghttp", "-v", "-m", "3", url(address))
    assert (told.count(":status: 200"), told.count(BODY)) == (3, 3)
    assert "error_code=NO_ERROR(0x00)" in told


@pytest.mark.parametrize("streams", [1, 100])
def test_h2load(address, streams):
    told = run("h2load", "-n", "1000", "-c", "5", "-m", str(streams), url(address))
    assert "1000 succeeded, 0 failed, 0 errored, 0 timeout" in told
    assert "1000 2xx" in told


@pytest.mark.xdist_group("go")
def test_the_client_of_net_http(address, tmp_path):
    program = tmp_path / "client"
    run("go", "build", "-o", program, GO_CLIENT)
    assert run(program, url(address), BODY) == "50 of 50\n"


def test_the_library_h2(address):
    with Http2Connection(address) as client:
        asked = [client.ask(PATH) for _ in range(100)]
        assert {client.answer(number).body for number in asked} == {BODY.encode()}
