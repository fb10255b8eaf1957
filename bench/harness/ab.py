"""The 2009 post's own command: `ab -c 50 -n 5000`, a new connection for every request."""

import re
import subprocess
from dataclasses import dataclass

from harness.stage import LOAD_CORE, ContenderError

REQUESTS = 5000
CONCURRENCY = 50


@dataclass(frozen=True)
class AbReport:
    """What ab counted in one run."""

    requests: int
    seconds: float
    requests_per_second: float
    mean_ms: float
    p99_ms: float
    failures: int
    body_bytes: int


def parse_report(output: str) -> AbReport:
    """Reads ab's report.

    Raises:
        ContenderError: a line of the report is not there; ab's own words are in the message.
    """

    def number(pattern: str, default: float | None = None) -> float:
        match = re.search(pattern, output, re.MULTILINE)
        if match is None:
            if default is not None:
                return default
            raise ContenderError(f"ab failed: {output.strip()[-300:]}")
        return float(match[1])

    failed = number(r"^Failed requests:\s+(\d+)")
    wrong_status = number(r"^Non-2xx responses:\s+(\d+)", default=0)
    return AbReport(
        requests=int(number(r"^Complete requests:\s+(\d+)")),
        seconds=number(r"^Time taken for tests:\s+([\d.]+)"),
        requests_per_second=number(r"^Requests per second:\s+([\d.]+)"),
        mean_ms=number(r"^Time per request:\s+([\d.]+) \[ms\] \(mean\)"),
        p99_ms=number(r"^\s+99%\s+(\d+)"),
        failures=int(failed + wrong_status),
        body_bytes=int(number(r"^Document Length:\s+(\d+)")),
    )


def run(url: str, requests: int = REQUESTS) -> AbReport:
    """Runs the command against `url`.

    Raises:
        ContenderError: ab could not run or gave up.
    """
    command = ["taskset", "-c", str(LOAD_CORE), "ab", "-q", "-c", str(CONCURRENCY)]
    command += ["-n", str(requests), url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return parse_report(done.stdout + done.stderr)
