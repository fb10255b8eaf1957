"""The page of the tutorial in a browser: two windows, and a vote in one of them."""

import re
import sys

from support import ports
from support.dwell import ROOT
from support.process import Process

TUTORIAL = (ROOT / "docs/tutorial.md").read_text()


def block(name):
    """The file of this name as the tutorial has it."""
    pattern = rf"```\w+\n((?:# |<!-- ){re.escape(name)}(?: -->)?\n.*?)```"
    (found,) = re.findall(pattern, TUTORIAL, re.DOTALL)
    return found


def test_a_vote_in_one_window_is_seen_in_the_other(start_dwell, browser, tmp_path, cleanup):
    address = ports.free_address()
    dwell = start_dwell(
        upstream={"url": f"http://{ports.text(address)}"},
        route=[{"prefix": "/poll/", "content_type": "application/json"}],
    )
    (tmp_path / "votes.html").write_text(block("votes.html"))
    code = block("votes.py").replace("127.0.0.1:11211", ports.text(dwell.store_address))
    code = code.replace('"127.0.0.1", 3000', f'"127.0.0.1", {address[1]}')
    (tmp_path / "votes.py").write_text(code)
    app = Process([sys.executable, "votes.py"], tmp_path / "votes.log", tmp_path)
    cleanup.callback(app.stop)
    app.start_listening(address)
    windows = [browser.page(dwell.url("/")) for _ in range(2)]
    for window in windows:
        cleanup.callback(window.close)
        window.wait_for("document.getElementById('votes').textContent === 'coffee 0, tea 0'")
    windows[0].run("document.getElementById('tea').click()")
    for window in windows:
        window.wait_for("document.getElementById('votes').textContent === 'coffee 0, tea 1'")
