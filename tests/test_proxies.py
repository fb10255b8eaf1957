"""The blocks of docs/recipes/proxies.md: polls, waits, streams and WebSockets pass each proxy."""

import re
import shlex
import shutil
import subprocess

import pytest

from support import nginx, ports
from support.dwell import ROOT
from support.events import EventStream
from support.http import Connection
from support.process import Process
from support.websocket import WebSocket

RECIPE = (ROOT / "docs/recipes/proxies.md").read_text()
KEY = "/poll/alice"


def block(language):
    (found,) = re.findall(rf"```{language}\n(.*?)```", RECIPE, re.DOTALL)
    return found


def start_nginx(dwell, folder, cleanup, front):
    in_http, in_server = block("nginx").split("# In the server block.")
    in_http = in_http.replace("127.0.0.1:8080", ports.text(dwell.address))
    server = f"server {{ listen {ports.text(front)}; {in_server} }}"
    nginx.start(folder, cleanup, f"{in_http}\n{server}", front)


def start_haproxy(dwell, folder, cleanup, front):
    binary = shutil.which("haproxy")
    if binary is None:
        pytest.skip("haproxy is not installed")
    text = block("haproxy").replace("127.0.0.1:8080", ports.text(dwell.address))
    text = text.replace("127.0.0.1:8081", ports.text(front))
    (folder / "haproxy.cfg").write_text(text)
    process = Process([binary, "-db", "-f", folder / "haproxy.cfg"], folder / "haproxy.log")
    cleanup.callback(process.stop)
    process.start_listening(front)


@pytest.fixture(params=[start_nginx, start_haproxy])
def behind(request, start_dwell, app, cleanup, tmp_path):
    """Dwell with an application, and the address of a proxy in front."""
    (trusted,) = re.findall(r"^trusted_proxies = \[\"(.*)\"\]$", block("toml"), re.MULTILINE)
    dwell = start_dwell(server={"trusted_proxies": [trusted]}, upstream={"url": app.url})
    front = ports.free_address()
    request.param(dwell, tmp_path, cleanup, front)
    return dwell, front


def test_a_poll_is_held_and_woken(behind):
    dwell, front = behind
    dwell.store().set(KEY, b"one")
    with Connection(front) as client:
        cursor = client.get(KEY).field("Poll-Cursor")
        assert client.get(f"{KEY}?since={cursor}&wait=50ms").status == 204
        client.ask(f"{KEY}?since={cursor}&wait=50")
        dwell.await_waiters(1)
        dwell.store().set(KEY, b"two")
        assert client.answer().body == b"two"


def test_the_check_of_the_recipe_ends_as_it_says(behind, tmp_path):
    dwell, front = behind
    said = re.search(
        r"A poll that waits ends with `(\d+)` after its wait, here (\d) seconds", RECIPE
    )
    _, check = RECIPE.split("## Check it works")
    commands = re.findall(r"```sh\n(.*?)```", check, re.DOTALL)[0].splitlines()
    publish, first, held, stream = commands
    assert publish == "dwell mc set /poll/check one"
    dwell.store().set("/poll/check", b"one")

    def curl(command):
        command = command.replace("127.0.0.1:8081", ports.text(front))
        return subprocess.run(shlex.split(command), capture_output=True, text=True, check=True)

    cursor = re.search(r"^Poll-Cursor: (.*)$", curl(first).stdout, re.MULTILINE | re.I)[1].strip()
    assert f"wait={said[2]}'" in held
    shorter = held.replace("CURSOR", cursor).replace(f"wait={said[2]}", "wait=50ms")
    assert curl(shorter).stdout.split()[1] == said[1]
    assert stream.startswith("curl -N -H 'Accept: text/event-stream' ")


def test_an_event_comes_at_once(behind):
    dwell, front = behind
    dwell.store().set(KEY, b"one")
    with EventStream(front, KEY).begin() as stream:
        assert stream.event().data == "one"
        dwell.store().set(KEY, b"two")
        assert stream.event().data == "two"


def test_a_websocket_passes(behind):
    dwell, front = behind
    dwell.store().set(KEY, b"one")
    with WebSocket(front, KEY) as socket:
        assert socket.response.status == 101
        assert socket.hear()["v"] == "one"
        dwell.store().set(KEY, b"two")
        assert socket.hear()["v"] == "two"


def test_the_application_sees_the_client_and_not_the_proxy(behind, app):
    _, front = behind
    with Connection(front, source="127.0.0.7") as client:
        assert client.get("/page", fields={"Host": "example.org"}).status == 200
    (request,) = app.requests
    assert request.field("Host") == "example.org"
    assert request.field("X-Forwarded-For").split(",")[0] == "127.0.0.7"
    assert request.field("X-Forwarded-Proto") == "http"
