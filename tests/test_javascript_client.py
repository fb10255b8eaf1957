"""dwell.js in a real browser: over each transport, in several tabs, and when things break."""

import json
import re

import pytest

from support.dwell import ROOT
from support.upstream import Answer
from support.wait import until

# One browser for all.
pytestmark = pytest.mark.xdist_group("browser")

CLIENT = ROOT / "clients/javascript"
TRANSPORTS = ["poll", "sse", "websocket"]
QUICK = {"backoff": {"base": 20, "max": 200}}

# A page that can be said to be hidden, and one without WebSocket.
HIDEABLE = """
Object.defineProperty(Document.prototype, "hidden", { get: () => globalThis.isHidden ?? false });
globalThis.hide = (isHidden) => {
  globalThis.isHidden = isHidden;
  document.dispatchEvent(new Event("visibilitychange"));
};
"""
BLOCKED = """
globalThis.WebSocket = class {
  readyState = 0;
  constructor() {
    setTimeout(() => {
      this.readyState = 3;
      this.onclose({ code: 1006 });
    });
  }
  close() {}
};
"""


@pytest.fixture
def site(app, start_dwell):
    """The edge in front of an application that has the client and an empty page."""
    pages = {
        "/": Answer(b"<!doctype html><title>tab</title>", 200, (("Content-Type", "text/html"),)),
        "/dwell.js": Answer(
            (CLIENT / "dwell.js").read_bytes(), 200, (("Content-Type", "text/javascript"),)
        ),
    }
    app.pages = pages
    app.answer = lambda request: pages.get(request.target, Answer(b"none", 404))
    return start_dwell(upstream={"url": app.url})


class Tabs:
    """Tabs of one browser that watch keys."""

    def __init__(self, browser, site, cleanup):
        self.browser, self.site, self.cleanup = browser, site, cleanup
        self.profile = browser.profile()

    def open(self, *keys, before=None, **options):
        page = self.browser.page(self.site.url("/"), self.profile, before=before)
        self.cleanup.callback(page.close)
        page.run(
            f"""import("/dwell.js").then(({{ Dwell }}) => {{
              Object.assign(globalThis, {{ heard: {{}}, states: [], failures: [] }});
              globalThis.dwell = new Dwell("/poll/", {{
                ...{json.dumps({**QUICK, **options})},
                onstate: ({{ state, transport }}) => states.push([state, transport]),
                onerror: (error) => failures.push(String(error)),
              }});
              for (const key of {json.dumps(keys)}) {{
                heard[key] = [];
                dwell.watch(key, (value) => heard[key].push(value));
              }}
            }})"""
        )
        return page


def ends_on(page, key, value):
    page.wait_for(f"heard[{key!r}].at(-1) === {json.dumps(value)}")


@pytest.fixture
def tabs(browser, site, cleanup):
    return Tabs(browser, site, cleanup)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_each_transport(tabs, site, transport):
    site.store().set("/poll/a", b"one")
    page = tabs.open("a", transports=[transport])
    ends_on(page, "a", "one")
    site.store().set("/poll/a", b"two")
    ends_on(page, "a", "two")
    assert page.run("states.at(-1)") == ["live", transport]
    assert page.run("failures") == []


def test_three_tabs_share_one_connection(tabs, site):
    store = site.store()
    for key in "abc":
        store.set(f"/poll/{key}", key.encode())
    pages = [tabs.open("a", "b", transports=["sse"]) for _ in range(2)]
    for page in pages:
        ends_on(page, "a", "a")
        ends_on(page, "b", "b")
    # One that comes later is told what is known, and may want other keys.
    pages.append(tabs.open("a", "c", transports=["sse"]))
    ends_on(pages[2], "a", "a")
    ends_on(pages[2], "c", "c")
    site.await_metric(1, "dwell_streams_open")
    site.await_waiters(3)
    store.set("/poll/a", b"news")
    for page in pages:
        ends_on(page, "a", "news")
        assert page.run("heard.a") == ["a", "news"]
    store.delete("/poll/c")
    ends_on(pages[2], "c", None)


def leave(page, how):
    if how == "closed":
        page.close()
    else:
        page.call("Page.navigate", url="about:blank")


@pytest.mark.parametrize("how", ["closed", "elsewhere"])
def test_the_next_tab_leads_when_the_leader_leaves(tabs, site, how):
    store = site.store()
    store.set("/poll/a", b"one")
    store.set("/poll/c", b"of the last tab")
    pages = []
    for keys in ("a", "a", "ac"):
        pages.append(tabs.open(*keys, transports=["sse"]))
        ends_on(pages[-1], "a", "one")
    ends_on(pages[2], "c", "of the last tab")
    site.await_waiters(2)
    leave(pages[0], how)
    pages[1].wait_for("navigator.locks.query().then(({ held }) => held.length === 3)")
    store.set("/poll/a", b"two")
    for page in pages[1:]:
        ends_on(page, "a", "two")
    site.await_metric(1, "dwell_streams_open")
    site.await_waiters(2)
    # What the tabs had, they were not told again.
    assert [page.run("heard.a") for page in pages[1:]] == [["one", "two"]] * 2
    # A key that the new leader has been told nothing of is asked for.
    late = tabs.open("a", "c", transports=["sse"])
    ends_on(late, "a", "two")
    ends_on(late, "c", "of the last tab")
    # The leader no longer follows what only a closed tab wanted.
    leave(pages[2], how)
    leave(late, how)
    site.await_waiters(1)


def test_a_page_that_is_shown_again_by_the_back_button(tabs, site):
    site.store().set("/poll/a", b"one")
    page = tabs.open("a", transports=["sse"])
    ends_on(page, "a", "one")
    page.run("dispatchEvent(new PageTransitionEvent('pagehide', { persisted: true }))")
    site.await_metric(0, "dwell_streams_open")
    site.store().set("/poll/a", b"two")
    page.run("dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))")
    ends_on(page, "a", "two")
    assert page.run("heard.a") == ["one", "two"]


def test_tabs_by_themselves(tabs, site):
    site.store().set("/poll/a", b"one")
    for page in [tabs.open("a", transports=["sse"], share=False) for _ in range(2)]:
        ends_on(page, "a", "one")
    site.await_metric(2, "dwell_streams_open")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_server_that_is_started_anew(tabs, site, transport):
    site.store().set("/poll/a", b"before")
    pages = [tabs.open("a", transports=[transport]) for _ in range(2)]
    for page in pages:
        ends_on(page, "a", "before")
    site.kill()
    for page in pages:
        page.wait_for("states.at(-1)[0] !== 'live'")
    site.start_ready()
    site.store().set("/poll/a", b"after")
    for page in pages:
        ends_on(page, "a", "after")


def test_a_transport_that_is_blocked(tabs, site):
    site.store().set("/poll/a", b"one")
    page = tabs.open("a", before=BLOCKED)
    ends_on(page, "a", "one")
    assert page.run("states.at(-1)") == ["live", "sse"]
    assert page.run("failures").count("DwellError: no WebSocket can be opened") == 1


def test_a_network_that_comes_back(tabs, site):
    site.store().set("/poll/a", b"one")
    long = {"base": 600_000, "max": 600_000}
    page = tabs.open("a", transports=["poll"], backoff=long, share=False)
    ends_on(page, "a", "one")
    conditions = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    page.call("Network.emulateNetworkConditions", offline=True, **conditions)
    # Whoever holds the poll lets go of it, and the next one fails.
    site.store().set("/poll/a", b"two")
    page.wait_for("states.at(-1)[0] === 'waiting'")
    page.call("Network.emulateNetworkConditions", offline=False, **conditions)
    page.run("dispatchEvent(new Event('online'))")
    ends_on(page, "a", "two")


def test_a_page_that_is_hidden_lets_go(tabs, site):
    site.store().set("/poll/a", b"one")
    page = tabs.open("a", before=HIDEABLE, transports=["sse"], pauseWhenHidden=10)
    ends_on(page, "a", "one")
    page.run("hide(true)")
    site.await_metric(0, "dwell_streams_open")
    site.store().set("/poll/a", b"two")
    page.run("hide(false)")
    ends_on(page, "a", "two")
    assert page.run("heard.a") == ["one", "two"]


def test_the_page_of_the_readme(tabs, site, app, browser, cleanup):
    html = re.search(r"```html\n(.*?)```", (CLIENT / "README.md").read_text(), re.DOTALL)[1]
    app.pages["/page"] = Answer(html.encode(), 200, (("Content-Type", "text/html"),))
    site.store().set("/poll/badge", b"3")
    page = browser.page(site.url("/page"))
    cleanup.callback(page.close)
    page.wait_for("document.title === 'Inbox (3)'")
    site.store().delete("/poll/badge")
    page.wait_for("document.title === 'Inbox'")


def test_the_page_of_the_book(tabs, site, app, browser, cleanup):
    html = re.search(r"```html\n(.*?)```", (ROOT / "docs/javascript.md").read_text(), re.DOTALL)[1]
    app.pages["/page"] = Answer(html.encode(), 200, (("Content-Type", "text/html"),))
    site.store().set("/poll/score", b"1 : 0")
    page = browser.page(site.url("/page"))
    cleanup.callback(page.close)
    page.wait_for("document.getElementById('score').textContent === '1 : 0'")
    site.store().delete("/poll/score")
    page.wait_for("document.getElementById('score').textContent === 'no score'")


def test_a_client_that_is_closed_leaves_nothing(tabs, site):
    site.store().set("/poll/a", b"one")
    page = tabs.open("a", transports=["sse"])
    ends_on(page, "a", "one")
    page.run("dwell.close()")
    site.await_metric(0, "dwell_streams_open")
    until(
        lambda: page.run("navigator.locks.query().then(({ held }) => held.length)") == 0,
        "the locks are given back",
    )
