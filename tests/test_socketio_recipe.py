"""The recipe for an application that comes from Socket.IO: its server and its clients."""

import shutil
import subprocess
import tomllib

import pytest

from support import ports, recipe
from support.process import Process

PAGE = "from-socketio.md"


@pytest.fixture
def scores(start_dwell, tmp_path, cleanup):
    """Dwell with the server of the page behind it, and the programs of the page in a folder."""
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    address = ports.free_address()
    settings = tomllib.loads(recipe.files(PAGE)["socketio.toml"])
    settings["upstream"] = {"url": f"http://{ports.text(address)}"}
    dwell = start_dwell(**settings)
    recipe.write(PAGE, tmp_path, {"http://127.0.0.1:8080": dwell.url("")})
    recipe.install_node_modules(tmp_path)
    arguments = ["node", "server.mjs", str(address[1]), ports.text(dwell.store_address)]
    server = Process(arguments, tmp_path / "server.log", tmp_path)
    cleanup.callback(server.stop)
    server.start_listening(address)
    return dwell


@pytest.fixture
def watch(tmp_path, cleanup):
    """Starts a client that watches."""

    def start(name):
        client = Process(["node", "watch.mjs"], tmp_path / f"{name}.log", tmp_path)
        cleanup.callback(client.stop)
        return client.start()

    return start


def goal(folder, team):
    arguments = ["node", "goal.mjs", team]
    ended = subprocess.run(
        arguments, cwd=folder, capture_output=True, text=True, timeout=30, check=False
    )
    return ended.stdout + ended.stderr


def test_a_goal_is_acknowledged_and_seen_by_all_who_watch(scores, watch, tmp_path):
    watchers = [watch(name) for name in ("one", "two")]
    for watcher in watchers:
        watcher.await_output('{"home":0,"away":0}\n')
    scores.await_waiters(2)
    assert goal(tmp_path, "home") == '200 {"accepted":true}\n'
    for watcher in watchers:
        watcher.await_output('{"home":1,"away":0}\n')
        assert watcher.output() == '{"home":0,"away":0}\n{"home":1,"away":0}\n'
    # One that comes later gets the newest value, not the first.
    late = watch("three")
    late.await_output("\n")
    assert late.output() == '{"home":1,"away":0}\n'


def test_a_goal_for_another_team_is_refused_and_seen_by_no_client(scores, watch, tmp_path):
    watcher = watch("one")
    watcher.await_output('{"home":0,"away":0}\n')
    scores.await_waiters(1)
    assert goal(tmp_path, "nobody") == '422 {"error":"no such team"}\n'
    assert goal(tmp_path, "away") == '200 {"accepted":true}\n'
    watcher.await_output('{"home":0,"away":1}\n')
    assert watcher.output() == '{"home":0,"away":0}\n{"home":0,"away":1}\n'


def test_a_client_that_leaves_ends(scores, watch):
    watcher = watch("one")
    scores.await_waiters(1)
    watcher.signal(15)
    assert watcher.wait() == 0
    scores.await_waiters(0)
