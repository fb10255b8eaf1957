"""The recipe for Next.js without Next.js: its route handlers in Node, its components bundled."""

import shutil
import subprocess
import tomllib

import pytest

from support import ports, recipe
from support.process import Process

PAGE = "nextjs.md"
ESBUILD = recipe.NODE_MODULES / ".bin/esbuild"

# The two handlers behind a server, as Next.js calls them.
SERVER = """
import http from "node:http";
import { text } from "node:stream/consumers";
import { GET } from "./app/poll/votes/route.js";
import { POST } from "./app/vote/route.js";
import { read } from "./votes.js";

http.createServer(async (incoming, outgoing) => {
  const url = `http://localhost${incoming.url}`;
  const called = async () => {
    if (incoming.url === "/read") return Response.json(await read());
    if (incoming.method === "GET") return GET(new Request(url));
    return POST(new Request(url, { method: "POST", body: await text(incoming) }));
  };
  const response = await called().catch((error) => new Response(error.message, { status: 500 }));
  outgoing.writeHead(response.status, Object.fromEntries(response.headers));
  outgoing.end(await response.text());
}).listen(process.argv[2], "127.0.0.1");
"""


@pytest.fixture
def votes(start_dwell, tmp_path, cleanup):
    """Dwell in front of the handlers of the page."""
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    address = ports.free_address()
    settings = tomllib.loads(recipe.files(PAGE)["next.toml"])
    settings["upstream"] = {"url": f"http://{ports.text(address)}"}
    dwell = start_dwell(**settings)
    recipe.write(PAGE, tmp_path, {"http://127.0.0.1:8080": dwell.url("")})
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "server.js").write_text(SERVER)
    variable = f"DWELL_PUBLISH_TOKEN={settings['publish']['token']}"
    arguments = ["env", variable, "node", "server.js", str(address[1])]
    server = Process(arguments, tmp_path / "server.log", tmp_path)
    cleanup.callback(server.stop)
    server.start_listening(address)
    return dwell


def test_a_vote_wakes_those_who_wait(votes):
    missed = votes.get("/poll/votes")
    assert (missed.status, missed.body) == (200, b'{"coffee":0,"tea":0}')
    assert "fwd=miss" in missed.field("Cache-Status")
    hit = votes.get("/poll/votes")
    assert (hit.body, hit.field("Cache-Status")) == (missed.body, "dwell; hit")
    assert hit.field("Content-Type") == missed.field("Content-Type") == "application/json"
    cursor = hit.field("Poll-Cursor")
    with votes.connect() as waiting:
        waiting.ask(f"/poll/votes?since={cursor}&wait=50")
        votes.await_waiters(1)
        assert votes.get("/vote", method="POST", body=b"tea").status == 200
        assert waiting.answer().body == b'{"coffee":0,"tea":1}'


def test_another_choice_is_refused(votes):
    assert votes.get("/vote", method="POST", body=b"nobody").status == 422
    assert votes.get("/poll/votes").body == b'{"coffee":0,"tea":0}'


def test_a_page_gets_the_value_with_its_cursor(votes):
    votes.store().set("/poll/votes", b'{"coffee":5,"tea":0}')
    cursor = votes.get("/poll/votes").field("Poll-Cursor")
    read = votes.get("/read")
    assert read.body.decode() == f'{{"votes":{{"coffee":5,"tea":0}},"cursor":"{cursor}"}}'


def test_the_components_are_bundled(tmp_path):
    if not ESBUILD.exists():
        pytest.skip("the packages of tests/clients/node are not installed")
    recipe.write(PAGE, tmp_path, {})
    arguments = ["app/page.js", "--bundle", "--loader:.js=jsx", "--jsx=automatic"]
    done = subprocess.run(
        [ESBUILD, *arguments, "--external:react", "--external:react/*", "--format=esm"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "EventSource" in done.stdout
