"""The load generator of HTTP/2: h2load with one thread, pinned to its own core as wrk is.

It speaks HTTP/1.1 too, so that both protocols are compared under the same hand.
"""

import re
import subprocess
from dataclasses import dataclass

from harness.stage import LOAD_CORE, ContenderError, favour

# As many requests at a time as wrk has (`wrk.CONNECTIONS`), on a tenth of its connections.
CONNECTIONS = 10
STREAMS = 10
FAILURES = ("failed", "errored", "timeout")


@dataclass(frozen=True)
class LoadReport:
    """What h2load counted in one run.

    Attributes:
        suite: the suite of TLS, where there is any.
    """

    protocol: str
    requests: int
    seconds: float
    failures: dict[str, int]
    suite: str


def parse_report(output: str) -> LoadReport:
    """Reads what h2load prints when it is done.

    Raises:
        ContenderError: it did not get that far, or nothing was answered by 200 to 299.
    """
    finished = re.search(r"^finished in ([\d.]+)(us|ms|s),", output, re.MULTILINE)
    counts = {name: int(count) for count, name in re.findall(r"(\d+) (\w+)", _counted(output))}
    protocol = re.search(r"^Application protocol: (\S+)$", output, re.MULTILINE)
    if finished is None or protocol is None or not counts.get("2xx"):
        raise ContenderError(f"h2load failed: {output.strip()[-300:]}")
    suite = re.search(r"^Cipher: (\S+)$", output, re.MULTILINE)
    failures = {name: counts[name] for name in FAILURES}
    failures["status"] = sum(counts[status] for status in ("3xx", "4xx", "5xx"))
    return LoadReport(
        protocol=protocol[1],
        requests=counts["2xx"],
        seconds=float(finished[1]) * {"us": 1e-6, "ms": 1e-3, "s": 1.0}[finished[2]],
        failures={name: count for name, count in failures.items() if count},
        suite=suite[1] if suite else "",
    )


def _counted(output: str) -> str:
    """The lines with counts of requests and of statuses."""
    lines = re.findall(r"^(?:requests|status codes): (.*)$", output, re.MULTILINE)
    return ", ".join(lines)


def run(url: str, seconds: float, *, is_http1: bool = False) -> LoadReport:
    """Loads `url` for a time: 100 requests at once, on 10 connections, or on 100 of HTTP/1.1.

    Raises:
        ContenderError: h2load could not run, or nothing was answered.
    """
    whole_seconds = max(1, round(seconds))
    connections, streams = (CONNECTIONS * STREAMS, 1) if is_http1 else (CONNECTIONS, STREAMS)
    command = ["taskset", "-c", str(LOAD_CORE), "h2load", "-t1", f"-c{connections}"]
    command += [f"-m{streams}", f"-D{whole_seconds}", *(["--h1"] if is_http1 else []), url]
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
    return parse_report(output)
