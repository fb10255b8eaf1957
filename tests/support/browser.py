"""Headless Chromium, driven by its own debugging protocol over a pair of pipes."""

import base64
import collections
import fcntl
import json
import os
import select
import shutil
import subprocess
import time

# Nothing here takes this long: what does is a fault.
TIMEOUT_S = 40
# Above what a shell hands to its children, so that the pipes can become numbers 3 and 4 there.
_HIGH = 10


def find():
    """The browser's program, or None."""
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    return next(filter(None, map(shutil.which, names)), None)


class Browser:
    """One browser; each page is in a profile of its own unless it is given one."""

    def __init__(self, folder):
        to_read, self._to = map(_raised, os.pipe())
        self._from, to_write = map(_raised, os.pipe())
        shell = f'exec "$@" 3<&{to_read} 4>&{to_write}'
        arguments = [
            *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            *("--no-first-run", "--disable-background-networking", "--disable-extensions"),
            *("--hide-scrollbars", "--remote-debugging-pipe", f"--user-data-dir={folder}"),
        ]
        with open(os.path.join(folder, "browser.log"), "wb") as log:
            self._child = subprocess.Popen(
                ["bash", "-c", shell, "browser", find(), *arguments],
                pass_fds=(to_read, to_write),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        os.close(to_read)
        os.close(to_write)
        self._buffer = b""
        self._number = 0
        self._answers = {}
        self._events = collections.deque(maxlen=1000)

    def stop(self):
        self._child.terminate()
        try:
            self._child.wait(5)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait(5)
        os.close(self._to)
        os.close(self._from)

    def profile(self):
        """A new profile: pages of one share what tabs of one browser share."""
        return self.call("Target.createBrowserContext")["browserContextId"]

    def page(self, url, profile=None, width=1280, height=900, dark=False, before=None):
        """A tab at `url`; `before` is run in it before anything of the page is."""
        target = self.call(
            "Target.createTarget", url="about:blank", browserContextId=profile or self.profile()
        )["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, target, session)
        page.resize(width, height, dark)
        page.call("Page.enable")
        page.call("Runtime.enable")
        page.call("Network.enable")
        if before:
            page.call("Page.addScriptToEvaluateOnNewDocument", source=before)
        page.go(url)
        return page

    def call(self, method, session=None, **parameters):
        """One command; returns its result."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        return self._until(lambda: self._answers.pop(number, None), method)

    def _until(self, condition, what):
        deadline = time.monotonic() + TIMEOUT_S
        while (found := condition()) is None:
            left_s = deadline - time.monotonic()
            ready, _, _ = select.select([self._from], [], [], max(0, left_s))
            assert ready, f"not within {TIMEOUT_S} s: {what}"
            piece = os.read(self._from, 1 << 20)
            assert piece, "the browser has ended"
            *messages, self._buffer = (self._buffer + piece).split(b"\0")
            for message in map(json.loads, messages):
                if "id" in message:
                    error = message.get("error")
                    assert error is None, error
                    self._answers[message["id"]] = message["result"]
                else:
                    self._events.append(message)
        return found

    def event(self, method, session):
        """Waits for an event; those before it are forgotten."""

        def look():
            while self._events:
                event = self._events.popleft()
                if event["method"] == method and event.get("sessionId") == session:
                    return event["params"]
            return None

        return self._until(look, method)


class Page:
    """One tab."""

    def __init__(self, browser, target, session):
        self.browser, self.target, self.session = browser, target, session

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def go(self, url):
        """Opens `url` and waits until it has been loaded."""
        self.call("Page.navigate", url=url)
        self.browser.event("Page.loadEventFired", self.session)

    def resize(self, width, height, dark=False):
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def run(self, expression):
        """The value of an expression, awaited if it is a promise."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, expression):
        """Waits until an expression is true, and returns its value."""
        return self.run(
            f"""new Promise((done, failed) => {{
              const ends = performance.now() + {TIMEOUT_S * 900};
              const look = async () => {{
                const value = await ({expression});
                if (value) done(value);
                else if (performance.now() > ends) failed(new Error("in vain"));
                else setTimeout(() => look().catch(failed), 10);
              }};
              look().catch(failed);
            }})"""
        )

    def text(self, selector):
        """What the first element that matches shows."""
        return self.run(f"document.querySelector({json.dumps(selector)}).innerText")

    def press(self, key, text="\r"):
        code = {"Enter": 13}.get(key, 0)
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, text=text, windowsVirtualKeyCode=code
            )

    def screenshot(self, path, whole=True):
        data = self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def close(self):
        if self.target:
            self.browser.call("Target.closeTarget", targetId=self.target)
        self.target = None


def _raised(descriptor):
    high = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _HIGH)
    os.close(descriptor)
    return high
