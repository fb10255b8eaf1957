"""The machine and the versions a result was measured with, and the tools it needs."""

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from harness.paths import REPOSITORY

# Program -> Debian package; `bench/requirements` installs the packages.
TOOLS = {
    "taskset": "util-linux",
    "wrk": "wrk",
    "ab": "apache2-utils",
    "h2load": "nghttp2-client",
    "nginx": "nginx-light",
    "memcached": "memcached",
    "redis-server": "redis-server",
    "strace": "strace",
}
QUIET_LOAD = 0.5


def missing_tools() -> dict[str, str]:
    """The tools that are not installed, with their packages."""
    return {tool: package for tool, package in TOOLS.items() if shutil.which(tool) is None}


def facts() -> dict[str, str | int | float]:
    """What a reader has to know about the machine to compare a result with another."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count() or 0,
        "kernel": platform.release(),
        "load_before": round(os.getloadavg()[0], 2),
        "dwell": _first(["git", "-C", str(REPOSITORY), "describe", "--always", "--dirty"], r"(.+)"),
        "rustc": _first(["rustc", "--version"], r"rustc (\S+)"),
        "nginx": _first(["nginx", "-v"], r"nginx/(\S+)"),
        "memcached": _first(["memcached", "-V"], r"memcached (\S+)"),
        "redis": _first(["redis-server", "--version"], r"v=(\S+)"),
        "wrk": _first(["wrk", "-v"], r"wrk (\S+)"),
        "ab": _first(["ab", "-V"], r"Version (\S+)"),
        "h2load": _first(["h2load", "--version"], r"nghttp2/(\S+)"),
        "python": platform.python_version(),
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Processor"):
            return value.strip()
    return platform.machine()


def _first(command: Sequence[str], pattern: str) -> str:
    """The first match of `pattern` in what a command says, or "unknown"."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except OSError:
        return "unknown"
    match = re.search(pattern, done.stdout + done.stderr)
    return match[1] if match else "unknown"
