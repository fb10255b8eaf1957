"""The engine alone refuses what the edge refuses, as every face of Dwell is framed by it."""

import os
import pathlib

import pytest

from support import ports
from support.http import Connection
from support.process import Process
from test_bad_requests import HIDDEN
from test_bad_requests import REFUSED as BAD_REQUESTS
from test_proxy_smuggling import BAD_CHUNKS, CHUNKED, SMUGGLED
from test_proxy_smuggling import REFUSED as AMBIGUOUS

ROOT = pathlib.Path(__file__).resolve().parents[1]
HELLO = pathlib.Path(os.environ.get("DWELL_HELLO", ROOT / "target/debug/examples/hello"))
STATUSES = (400, 501, 505)

CASES = {
    **{name: data + HIDDEN for name, (_, data) in BAD_REQUESTS.items()},
    **{f"head: {name}": data + SMUGGLED for name, data in AMBIGUOUS.items()},
    **{f"body: {name}": CHUNKED + data + SMUGGLED for name, data in BAD_CHUNKS.items()},
}


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """The smallest server on the engine, which answers every request with 200."""
    address = ports.free_address()
    log = tmp_path_factory.mktemp("engine") / "hello.log"
    server = Process([HELLO, ports.text(address)], log)
    try:
        server.start_listening(address)
        yield address
    finally:
        server.stop()


@pytest.mark.parametrize("name", CASES)
def test_a_bad_request_is_refused_and_nothing_behind_it_is_read(engine, name):
    with Connection(engine) as client:
        client.send(CASES[name])
        response = client.answer()
        assert response.status in STATUSES
        assert response.closes
        assert client.read_to_end() == b""


def test_a_good_request_is_answered(engine):
    with Connection(engine) as client:
        assert client.get("/").status == 200
