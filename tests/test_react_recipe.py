"""The recipe for React: its hook and its page, bundled, in a real browser and on a server."""

import html
import re
import subprocess

import pytest

from support import recipe
from support.upstream import Answer

# One browser for all.
pytestmark = pytest.mark.xdist_group("browser")

PAGE = "react.md"
ESBUILD = recipe.NODE_MODULES / ".bin/esbuild"

# Every WebSocket of a page, and each frame on it.
OBSERVED = """
Object.assign(globalThis, { sockets: [], sent: [], frames: [], shown: [] });
globalThis.WebSocket = class extends WebSocket {
  constructor(url, ...rest) {
    super(url, ...rest);
    sockets.push(String(url));
    this.addEventListener("message", ({ data }) => frames.push(data));
  }
  send(data) {
    sent.push(data);
    super.send(data);
  }
};
new MutationObserver(() => {
  const text = document.querySelector("p")?.textContent;
  if (text !== undefined && text !== shown.at(-1)) shown.push(text);
}).observe(document, { childList: true, subtree: true, characterData: true });
"""

# Two components take turns with one key, or there is neither.
TURNS = """
import { StrictMode, useState } from "react";
import { createRoot } from "react-dom/client";
import { useValue } from "./use-value.js";

const One = () => <p>one {useValue("badge")?.unread}</p>;
const Two = () => <p>two {useValue("badge")?.unread}</p>;
function Turns() {
  const [Part, setPart] = useState(() => One);
  Object.assign(globalThis, { one: () => setPart(() => One), two: () => setPart(() => Two) });
  globalThis.none = () => setPart(null);
  return Part && <Part />;
}
createRoot(document.getElementById("root")).render(<StrictMode><Turns /></StrictMode>);
"""

# What a server renders, and the same in the browser.
BADGE = """
import { useValue } from "./use-value.js";
export const Badge = ({ given }) => <p>{useValue("badge", given)?.unread ?? "?"}</p>;
"""
RENDER = """
import { renderToString } from "react-dom/server";
import { Badge } from "./badge.jsx";
import { serverValue } from "./server-value.js";
const given = await serverValue("badge");
console.log(JSON.stringify(given));
console.log(renderToString(<Badge given={given} />));
"""
HYDRATE = """
import { StrictMode } from "react";
import { hydrateRoot } from "react-dom/client";
import { Badge } from "./badge.jsx";
const root = document.getElementById("root");
const given = JSON.parse(root.dataset.given);
hydrateRoot(root, <StrictMode><Badge given={given} /></StrictMode>);
"""


@pytest.fixture
def site(app, start_dwell):
    """The edge in front of an application that has the pages of a test."""
    app.pages = {}
    app.answer = lambda request: app.pages.get(request.target, Answer(b"none", 404))
    return start_dwell(upstream={"url": app.url})


@pytest.fixture
def bundle(site, tmp_path):
    """Bundles one file with what it imports, as a person would; returns the code."""
    if not ESBUILD.exists():
        pytest.skip("the packages of tests/clients/node are not installed")
    recipe.write(PAGE, tmp_path, {"http://127.0.0.1:8080": site.url("")})
    recipe.install_node_modules(tmp_path)
    for name, text in {
        "turns": TURNS,
        "badge": BADGE,
        "render": RENDER,
        "hydrate": HYDRATE,
    }.items():
        (tmp_path / f"{name}.jsx").write_text(text)

    def made(name, platform="browser"):
        arguments = ["--bundle", "--jsx=automatic", "--format=esm", f"--platform={platform}"]
        if platform == "node":
            arguments += ["--external:react", "--external:react-dom"]
        done = subprocess.run(
            [ESBUILD, name, *arguments], cwd=tmp_path, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    return made


@pytest.fixture
def open_page(browser, site, app, bundle, cleanup):
    """Opens a page with the bundle of one file."""

    def opened(name, root='<div id="root"></div>'):
        page = f"<!doctype html>{root}<script type=module src=/app.js></script>"
        app.pages["/"] = Answer(page.encode(), 200, (("Content-Type", "text/html"),))
        script = (("Content-Type", "text/javascript"),)
        app.pages["/app.js"] = Answer(bundle(name), 200, script)
        tab = browser.page(site.url("/"), before=OBSERVED)
        cleanup.callback(tab.close)
        return tab

    return opened


def shows(page, text):
    page.wait_for(f"document.querySelector('p')?.textContent === {text!r}")


def test_two_components_share_a_connection(site, open_page):
    store = site.store()
    store.set("/poll/badge", b'{"unread": 3}')
    store.set("/poll/score-1", b'{"home": 1, "away": 0}')
    store.set("/poll/score-2", b'{"home": 5, "away": 5}')
    page = open_page("page.jsx")
    shows(page, "1 : 0")
    page.wait_for("document.querySelector('b').textContent === '3'")
    # StrictMode runs each effect twice, and there is one request for both keys.
    assert page.run("sockets.length") == 1
    assert re.search(r"\?k=badge&k=score-1$", page.run("sockets[0]"))
    assert page.run("sent.length") == 0
    site.await_waiters(2)

    store.set("/poll/score-1", b'{"home": 2, "away": 0}')
    shows(page, "2 : 0")
    page.run("document.querySelector('button').click()")
    shows(page, "5 : 5")
    # The value of another key is shown at no time.
    assert page.run("shown") == ["…", "1 : 0", "2 : 0", "…", "5 : 5"]
    site.await_waiters(2)
    store.delete("/poll/score-2")
    shows(page, "no score")
    assert page.run("sockets.length") == 1


def test_a_component_that_replaces_another_gets_the_known_value(site, open_page):
    site.store().set("/poll/badge", b'{"unread": 3}')
    page = open_page("turns.jsx")
    shows(page, "one 3")
    site.await_waiters(1)
    page.run("two()")
    shows(page, "two 3")
    assert page.run("[sockets.length, sent.length, frames.length]") == [1, 0, 1]
    page.run("none()")
    page.wait_for("document.querySelector('p') === null")
    site.await_waiters(0)
    page.run("one()")
    shows(page, "one 3")


def test_a_page_that_the_server_has_rendered(site, bundle, open_page, tmp_path):
    site.store().set("/poll/badge", b'{"unread": 3}')
    (tmp_path / "server.mjs").write_bytes(bundle("render.jsx", "node"))
    rendered = subprocess.run(
        ["node", "server.mjs"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert rendered.returncode == 0, rendered.stderr
    given, text = rendered.stdout.splitlines()
    assert text == "<p>3</p>"

    root = f'<div id="root" data-given="{html.escape(given)}">{text}</div>'
    page = open_page("hydrate.jsx", root)
    site.await_waiters(1)
    # It has the value, so it is sent none.
    assert "since=" in page.run("sockets[0]")
    site.store().set("/poll/badge", b'{"unread": 4}')
    shows(page, "4")
    assert page.run("frames.length") == 1
    assert page.run("shown") == ["3", "4"]
