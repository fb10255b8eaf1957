"""The recipe for Go: its service behind Dwell, and its program that waits."""

import os
import shutil
import subprocess
import tomllib

import pytest

from support import ports, recipe
from support.dwell import ROOT
from support.process import Process

PAGE = "go.md"


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """The programs of the page, in a folder."""
    if shutil.which("go") is None:
        pytest.skip("go is not installed")
    folder = tmp_path_factory.mktemp("go")
    recipe.write(PAGE, folder, {})
    # The library is there, in the version that other tests use.
    for name in ("go.mod", "go.sum"):
        shutil.copy(ROOT / "tests/clients/go" / name, folder)
    environment = {**os.environ, "GOFLAGS": "-mod=mod"}
    for name in ("service", "follow"):
        for command in (["vet"], ["build", "-o", name]):
            arguments = ["go", *command, f"{name}.go"]
            done = subprocess.run(
                arguments, cwd=folder, env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
        shown = subprocess.run(
            ["gofmt", "-l", f"{name}.go"], cwd=folder, capture_output=True, text=True, check=True
        )
        assert shown.stdout == ""
    return folder


@pytest.fixture
def inboxes(programs, start_dwell, tmp_path, cleanup):
    """Dwell with the service behind it."""
    address = ports.free_address()
    settings = tomllib.loads(recipe.files(PAGE)["go.toml"])
    settings["upstream"] = {"url": f"http://{ports.text(address)}"}
    dwell = start_dwell(**settings)
    arguments = [programs / "service", ports.text(address), ports.text(dwell.store_address)]
    service = Process(arguments, tmp_path / "service.log")
    cleanup.callback(service.stop)
    service.start_listening(address)
    return dwell


@pytest.fixture
def follow(programs, inboxes, tmp_path, cleanup):
    """Starts a program that waits."""

    def start(name, way):
        arguments = [programs / "follow", inboxes.url(f"/poll/inbox/{name}"), way]
        follower = Process(arguments, tmp_path / f"{way}.log")
        cleanup.callback(follower.stop)
        return follower.start()

    return start


def send(dwell, name, text):
    assert dwell.get(f"/send/{name}", method="POST", body=text.encode()).status == 200


def test_each_way_of_waiting_gets_each_message(inboxes, follow):
    followers = [follow("alice", way) for way in ("poll", "stream")]
    for follower in followers:
        follower.await_output("[]\n")
    inboxes.await_waiters(2)
    send(inboxes, "alice", "lunch?")
    for follower in followers:
        follower.await_output('["lunch?"]\n')
        assert follower.output() == '[]\n["lunch?"]\n'
    follower.signal(2)
    assert follower.wait() == 0


def test_a_restart_of_dwell_loses_no_message(inboxes, follow):
    followers = [follow("alice", way) for way in ("poll", "stream")]
    inboxes.await_waiters(2)
    send(inboxes, "alice", "one")
    for follower in followers:
        follower.await_output('["one"]\n')
    inboxes.kill()
    inboxes.start_ready()
    # The values are gone with the store, and the service has connections that are dead.
    send(inboxes, "alice", "two")
    for follower in followers:
        follower.await_output('["one","two"]\n')
        assert follower.output().count('["one"]\n') == 1


def test_a_name_that_is_escaped_is_one_key(inboxes, follow):
    follower = follow("a%20b", "poll")
    follower.await_output("[]\n")
    inboxes.await_waiters(1)
    send(inboxes, "a%20b", "lunch?")
    follower.await_output('["lunch?"]\n')
    assert "hit" in inboxes.get("/poll/inbox/a%20b").field("Cache-Status")
