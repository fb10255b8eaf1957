"""Watches sources, so that a server is started again when one changes."""

from __future__ import annotations

import contextlib
import os
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch

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
    """The sources below directories, and those that were imported from elsewhere.

    Left out are what is installed, virtual environments, hidden folders, and ``node_modules``.

    Args:
        directories: Where to look.
        include: Patterns of names or relative paths of further files, as ``*.html``.
        exclude: Patterns of files and folders that are left out.
    """

    def __init__(
        self, directories: Sequence[str], include: Sequence[str] = (), exclude: Sequence[str] = ()
    ) -> None:
        self._directories = [os.path.abspath(directory) for directory in directories]
        self._include = ("*.py", *include)
        self._exclude = tuple(exclude)

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
        excluded = {name for name in own if _fits(self._exclude, os.path.abspath(name))}
        return (own - excluded).union(*map(self._walk, self._directories))

    def _walk(self, top: str) -> Iterator[str]:
        for folder, folders, files in os.walk(top):
            below = os.path.relpath(folder, top)

            def fits(patterns: Sequence[str], name: str, below: str = below) -> bool:
                return _fits(patterns, os.path.normpath(os.path.join(below, name)))

            folders[:] = [
                name
                for name in folders
                if _is_watched(folder, name) and not fits(self._exclude, name)
            ]
            yield from (
                os.path.join(folder, name)
                for name in files
                if fits(self._include, name) and not fits(self._exclude, name)
            )


def _fits(patterns: Sequence[str], path: str) -> bool:
    """Whether a pattern fits the path or its last part."""
    name = os.path.basename(path)
    return any(fnmatch(name, pattern) or fnmatch(path, pattern) for pattern in patterns)


def pause_after(cost: float) -> float:
    """Seconds to wait after a look that took so many seconds of a core."""
    return max(INTERVAL, cost / SHARE)


def _is_watched(folder: str, name: str) -> bool:
    if name[0] == "." or name in ("__pycache__", "node_modules", "site-packages"):
        return False
    return not os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))
