"""The load generator: wrk with one thread and keep-alive connections, pinned to its own core."""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from harness.paths import LUA
from harness.stage import LOAD_CORE, ContenderError, favour

CONNECTIONS = 100
REPORT_MARK = "dwell-bench "


@dataclass(frozen=True)
class KeySpace:
    """The paths of a load: `prefix` followed by 0 to `count` - 1, in turn."""

    prefix: str
    count: int

    def path(self, index: int) -> str:
        """The path of one key."""
        return f"{self.prefix}{index}"

    def paths(self) -> list[str]:
        """All paths."""
        return [self.path(index) for index in range(self.count)]


@dataclass(frozen=True)
class LoadReport:
    """What wrk counted in one run."""

    requests: int
    seconds: float
    bytes_read: int
    p50_us: int
    p99_us: int
    errors: dict[str, int]

    @property
    def failures(self) -> int:
        """Requests that did not get a good answer, and connections that did not open."""
        return sum(self.errors.values())


def parse_report(output: str) -> LoadReport:
    """Reads the line `lua/load.lua` writes when wrk is done.

    Raises:
        ContenderError: wrk did not get that far; its own words are in the message.
    """
    for line in output.splitlines():
        if line.startswith(REPORT_MARK):
            report = json.loads(line.removeprefix(REPORT_MARK))
            return LoadReport(
                requests=report["requests"],
                seconds=report["microseconds"] / 1e6,
                bytes_read=report["bytes"],
                p50_us=report["p50_us"],
                p99_us=report["p99_us"],
                errors=report["errors"],
            )
    raise ContenderError(f"wrk failed: {output.strip()[-300:]}")


def run(
    url: str,
    seconds: float,
    keys: KeySpace | None,
    fields: Mapping[str, str] = MappingProxyType({}),
) -> LoadReport:
    """Loads `url` for a time, or the paths of `keys` on its host, with these fields.

    Raises:
        ContenderError: wrk could not run, or nothing was answered.
    """
    whole_seconds = max(1, round(seconds))
    command = ["taskset", "-c", str(LOAD_CORE), "wrk", "-t1", f"-c{CONNECTIONS}"]
    command += [f"-d{whole_seconds}s", "--timeout", "5s", "-s", str(LUA / "load.lua")]
    for name, value in fields.items():
        command += ["-H", f"{name}: {value}"]
    command.append(url)
    if keys is not None:
        command += ["--", keys.prefix, str(keys.count)]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as load:
        favour(load.pid)
        try:
            output, _ = load.communicate(timeout=whole_seconds + 30)
        finally:
            load.kill()
    report = parse_report(output)
    if report.requests == 0:
        raise ContenderError(f"no request was answered: {report.errors}")
    return report
