"""The promises of docs/recipes/from-nginx.md, beside the real nginx on the same values."""

import re

import pytest

from support import nginx, ports
from support.dwell import ROOT
from support.http import Connection
from support.websocket import WebSocket

RECIPE = (ROOT / "docs/recipes/from-nginx.md").read_text()
# Each as a client writes it, with the key that nginx looks up.
PATHS = {
    "/Poll/alice?u=1": "/Poll/alice",
    "/Poll/a%20b": "/Poll/a%20b",
    "/Poll/%E4%BD%A0": "/Poll/你",
    "/Poll//a/b": "/Poll/a/b",
    "/Poll/c%2Cd": "/Poll/c,d",
    "/Poll/x/../bob": "/Poll/bob",
    "/Poll/100%25": "/Poll/100%25",
}


def block(language):
    (found,) = re.findall(rf"```{language}\n(.*?)```", RECIPE, re.DOTALL)
    return found


@pytest.fixture
def both(start_dwell, cleanup, tmp_path):
    """Dwell as the recipe has it, nginx before it, and the nginx that it takes the place of."""
    key = re.search(r'^key = "(.*)"$', block("toml"), re.MULTILINE).group(1)
    route = {"prefix": "/Poll/", "content_type": "application/json", "key": key}
    dwell = start_dwell(route=[route], server={"trusted_proxies": ["127.0.0.1"]})
    in_http, in_server = block("nginx").split("# In the server block.")
    in_server = in_server.replace("127.0.0.1:8080", ports.text(dwell.address))
    front, old = ports.free_address(), ports.free_address()
    http = f"""
    {in_http}
    server {{ listen {ports.text(front)}; {in_server} }}
    server {{
        listen {ports.text(old)};
        location /Poll/ {{
            set $memcached_key "$uri";
            memcached_pass {ports.text(dwell.store_address)};
            default_type application/json;
        }}
    }}
"""
    nginx.start(tmp_path, cleanup, http, front, old)
    return dwell, front, old


def test_every_path_keeps_its_key(both):
    dwell, front, old = both
    for path, key in PATHS.items():
        dwell.store().set(key.encode(), path.encode())
        for address in (old, dwell.address, front):
            with Connection(address) as connection:
                answer = connection.get(path)
            assert (answer.status, answer.body) == (200, path.encode()), (path, address)
            assert answer.field("Content-Type") == "application/json"


def test_polls_and_websockets_come_through(both):
    dwell, front, _ = both
    dwell.store().set("/Poll/alice", b"one")
    with WebSocket(front, "/Poll/alice") as socket:
        assert socket.response.status == 101
        assert socket.hear()["v"] == "one"
        with Connection(front) as waiting:
            cursor = waiting.get("/Poll/alice").field("Poll-Cursor")
            waiting.ask(f"/Poll/alice?since={cursor}&wait=50")
            dwell.await_waiters(2)
            dwell.store().set("/Poll/alice", b"two")
            assert waiting.answer().body == b"two"
        assert socket.hear()["v"] == "two"
