"""Rounds: contenders in turn, each started anew, checked, warmed up, loaded and stopped."""

import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from harness import ab, accounting, http, syscalls, wrk
from harness.contenders import BODY, Contender, Running
from harness.stage import ContenderError, Stage

# Answers still on their way when wrk stops were sent but not counted, and the other way round.
SHORT_ANSWER_TOLERANCE = 0.01


@dataclass(frozen=True)
class Method:
    """How long and how often."""

    rounds: int = 3
    warm_up_seconds: float = 2
    seconds: float = 5
    trace_seconds: float = 3
    ab_requests: int = ab.REQUESTS
    waiting_clients: int = 10_000
    crowd_clients: int = 19_000
    storm_clients: int = 1_000
    idle_seconds: float = 10
    fan_out_rounds: int = 7
    seldom_writes: int = 100
    tls_seconds: float = 3
    tls_handshakes: int = 300
    tls_clients: int = 3_000
    tls_stalled: int = 500
    tls_held: int = 4_000
    tls_upgraded: int = 5_000


QUICK = Method(
    rounds=1,
    warm_up_seconds=0,
    seconds=1,
    trace_seconds=1,
    ab_requests=1000,
    waiting_clients=1000,
    crowd_clients=2000,
    storm_clients=200,
    idle_seconds=2,
    fan_out_rounds=2,
    seldom_writes=5,
    tls_seconds=1,
    tls_handshakes=50,
    tls_clients=600,
    tls_stalled=100,
    tls_held=300,
    tls_upgraded=500,
)

Sample = dict[str, Any]


@dataclass
class Row:
    """All rounds of one contender.

    Attributes:
        samples: the figures of each round that succeeded.
        problems: what went wrong, one sentence each; shown in the table.
    """

    name: str
    label: str
    ours: bool
    note: str = ""
    plotted: bool = True
    samples: list[Sample] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    syscalls: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, contender: Contender) -> "Row":
        """An empty row."""
        return cls(
            contender.name, contender.label, contender.ours, contender.note, contender.plotted
        )

    def problem(self, text: str) -> None:
        """Notes a problem once."""
        if text not in self.problems:
            self.problems.append(text)

    def median(self) -> dict[str, float]:
        """The median of each number over the rounds; empty if no round succeeded."""
        if not self.samples:
            return {}
        numbers = [key for key, value in self.samples[0].items() if isinstance(value, int | float)]
        return {key: statistics.median(sample[key] for sample in self.samples) for key in numbers}

    def as_dict(self) -> dict[str, Any]:
        """The row as it is kept in the results."""
        return {**asdict(self), "median": self.median()}


# A row, and what measures it.
Step = tuple[Row, Callable[[], Sample]]


def check_answer(running: Running) -> int:
    """Asks once before anything is measured; returns the size of the whole answer in bytes.

    Raises:
        ContenderError: the answer is not 200 with a body of 13 bytes, or not 304 where what is
            asked has a condition.
    """
    answer = http.fetch(running.url, running.fields)
    expected = (304, 0) if running.fields else (200, len(BODY))
    if (answer.status, len(answer.body)) != expected:
        raise ContenderError(f"it answered {answer.status} {answer.body[:40]!r}")
    return answer.wire_bytes


def load_sample(running: Running, method: Method, row: Row) -> Sample:
    """One round under wrk; errors and short answers become problems of the row."""
    answer_bytes = check_answer(running)
    if method.warm_up_seconds:
        wrk.run(running.url, method.warm_up_seconds, running.keys, running.fields)
    cpu_before = accounting.cpu_seconds(running.program.pid)
    report = wrk.run(running.url, method.seconds, running.keys, running.fields)
    cpu_seconds = accounting.cpu_seconds(running.program.pid) - cpu_before
    if report.failures:
        kinds = ", ".join(f"{count} {kind}" for kind, count in report.errors.items() if count)
        row.problem(f"errors: {kinds}")
    bytes_per_answer = report.bytes_read / report.requests
    if bytes_per_answer < answer_bytes * (1 - SHORT_ANSWER_TOLERANCE):
        row.problem(f"short answers: {bytes_per_answer:.0f} of {answer_bytes} bytes")
    return {
        "us_per_request": cpu_seconds / report.requests * 1e6,
        "requests_per_second": report.requests / report.seconds,
        "p50_us": report.p50_us,
        "p99_us": report.p99_us,
        "bytes_per_answer": answer_bytes,
        "requests": report.requests,
        "seconds": report.seconds,
        "cpu_seconds": cpu_seconds,
        "failures": report.failures,
        "errors": report.errors,
    }


def ab_sample(running: Running, method: Method, row: Row) -> Sample:
    """One round of the 2009 command."""
    check_answer(running)
    cpu_before = accounting.fine_cpu_seconds(running.program.pid)
    report = ab.run(running.url, method.ab_requests)
    cpu_seconds = accounting.fine_cpu_seconds(running.program.pid) - cpu_before
    if report.failures:
        row.problem(f"errors: {report.failures} of {report.requests} requests")
    if report.body_bytes != len(BODY):
        row.problem(f"short answers: {report.body_bytes} of {len(BODY)} bytes")
    return {"us_per_request": cpu_seconds / report.requests * 1e6, **asdict(report)}


def in_turn(
    contenders: Sequence[Contender],
    rounds: int,
    sample: Callable[[Running, Row], Sample],
) -> list[Row]:
    """A B A B: every contender once per round, each time started anew.

    A contender that fails keeps its row, with the reason, and is left out of later rounds.
    """
    rows = [Row.of(contender) for contender in contenders]
    gone: set[str] = set()
    for number in range(1, rounds + 1):
        for contender, row in zip(contenders, rows, strict=True):
            if contender.name in gone:
                continue
            try:
                with Stage() as stage:
                    result = sample(contender.start(stage), row)
            except (ContenderError, OSError) as error:
                row.problem(f"failed: {error}")
                gone.add(contender.name)
                say(f"  round {number}  {contender.label}: failed: {error}")
                continue
            row.samples.append(result)
            figure = next(iter(result))
            say(f"  round {number}  {contender.label}: {figure} {result[figure]:.2f}")
    return rows


def trace(contenders: Sequence[Contender], rows: Sequence[Row], seconds: float) -> None:
    """Counts the system calls of the contenders that are traced, into their rows."""
    for contender, row in zip(contenders, rows, strict=True):
        if not contender.traced or not row.samples:
            continue
        try:
            with Stage() as stage:
                running = contender.start(stage)
                row.syscalls = syscalls.per_request(running, seconds, stage.directory)
        except (ContenderError, OSError) as error:
            row.problem(f"system calls not counted: {error}")
            continue
        say(f"  traced   {contender.label}: {row.syscalls['total']:.2f} system calls/request")


def one_by_one(steps: Sequence[Step]) -> list[Row]:
    """Measures each row once; a row whose measurement failed says why."""
    for row, step in steps:
        try:
            row.samples.append(step())
        except (ContenderError, OSError) as error:
            row.problem(f"failed: {error}")
        say(f"  {row.name}: {'; '.join(row.problems) or short(row.samples[0])}")
    return [row for row, _ in steps]


def short(figures: Sample) -> str:
    """The figures in one line."""
    return ", ".join(
        f"{name} {value:.3g}" for name, value in figures.items() if isinstance(value, int | float)
    )


def say(line: str) -> None:
    """Tells the person at the terminal how far it is."""
    print(line, file=sys.stderr, flush=True)
