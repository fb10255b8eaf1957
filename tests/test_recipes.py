"""The applications of the recipes, behind Dwell, for as long as it takes to be woken by them."""

import shutil
import sys
import tomllib

import pytest

from support import ports, recipe
from support.dwell import ROOT
from support.process import Process

NODE_MODULES = ROOT / "tests/clients/node/node_modules"


def django(address, store):
    return [sys.executable, ROOT / "examples/django_inbox.py", ports.text(address), store]


def fastapi(address, store):
    return [sys.executable, ROOT / "examples/fastapi_inbox.py", ports.text(address), store]


def express(address, store):
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    script = ROOT / "examples/express_inbox.js"
    # There is no node_modules beside the script.
    return ["env", f"NODE_PATH={NODE_MODULES}", "node", script, str(address[1]), store]


@pytest.mark.parametrize("framework", [django, fastapi, express])
def test_an_inbox(framework, start_dwell, tmp_path, cleanup):
    address = ports.free_address()
    name = framework.__name__
    settings = tomllib.loads(recipe.files(f"{name}.md")[f"{name}.toml"])
    settings["upstream"] = {"url": f"http://{ports.text(address)}"}
    dwell = start_dwell(**settings)
    arguments = framework(address, ports.text(dwell.store_address))
    application = Process(arguments, tmp_path / "application.log")
    cleanup.callback(application.stop)
    application.start_listening(address)

    empty = dwell.get("/poll/inbox/alice")
    assert (empty.status, empty.body) == (200, b"[]")
    assert "fwd=miss" in empty.field("Cache-Status")
    # Whether the application answers or the cache, the type is the same; Express adds a charset to
    # each, which means nothing for JSON.
    hit = dwell.get("/poll/inbox/alice")
    assert (hit.body, hit.field("Cache-Status")) == (b"[]", "dwell; hit")
    types = [answer.field("Content-Type").split(";")[0] for answer in (empty, hit)]
    assert types == ["application/json"] * 2
    cursor = empty.field("Poll-Cursor")
    assert dwell.get(f"/poll/inbox/alice?since={cursor}").status == 304
    with dwell.connect() as waiting, dwell.connect() as sending:
        waiting.ask(f"/poll/inbox/alice?since={cursor}&wait=50")
        dwell.await_waiters(1)
        assert sending.get("/send/alice", method="POST", body=b"lunch?").status == 200
        news = waiting.answer()
    assert (news.status, news.body) == (200, b'["lunch?"]')
    assert "hit" in news.field("Cache-Status")
