"""Watches sources, so that a server is started again when one changes."""

from __future__ import annotations

import contextlib
import os
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator

from dwell._processes import Stop

# Seconds between two looks, at least.
INTERVAL = 0.5
# The share of a core that the looks take, at most.
SHARE = 0.01

_INSTALLED = tuple(
    os.path.join(path, "")
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
    if (path := sysconfig.get_path(name))
)


class Watcher:
    """The sources below a directory, and those that were imported from elsewhere.

    Left out are what is installed, virtual environments, hidden folders, and ``node_modules``.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def __call__(self, stop: Stop) -> None:
        """Has ``stop`` reload when a source changes, from now on."""
        before, pause = self._look()

        def watch() -> None:
            known, wait = before, pause
            while not stop.asked.wait(wait):
                now, wait = self._look()
                # Modules that were imported since are no change.
                changed = [name for name in known if known[name] != now.get(name)]
                if changed:
                    print(f"dwell: {os.path.relpath(changed[0])} has changed", flush=True)
                    stop.reload()
                    return
                known = now

        threading.Thread(target=watch, name="dwell-reload", daemon=True).start()

    def _look(self) -> tuple[dict[str, float], float]:
        """When each source was changed, and how long to wait before the next look."""
        began = time.thread_time()
        found = {}
        for name in self.sources():
            with contextlib.suppress(OSError):
                found[name] = os.stat(name).st_mtime
        return found, pause_after(time.thread_time() - began)

    def sources(self) -> set[str]:
        """The paths of all sources."""
        imported = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
        own = {
            name
            for name in imported
            if name and name.endswith(".py") and not name.startswith(_INSTALLED)
        }
        return own | set(self._walk())

    def _walk(self) -> Iterator[str]:
        for folder, folders, files in os.walk(self._directory):
            folders[:] = [name for name in folders if _is_watched(folder, name)]
            yield from (os.path.join(folder, name) for name in files if name.endswith(".py"))


def pause_after(cost: float) -> float:
    """Seconds to wait after a look that took so many seconds of a core."""
    return max(INTERVAL, cost / SHARE)


def _is_watched(folder: str, name: str) -> bool:
    if name[0] == "." or name in ("__pycache__", "node_modules", "site-packages"):
        return False
    return not os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))
