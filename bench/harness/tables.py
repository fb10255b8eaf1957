"""`latest.md`: the tables of one result, for people."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from harness.results import Result
from harness.targets import Standing, number

RowDict = dict[str, Any]


@dataclass(frozen=True)
class Column:
    """A column: its heading, and its text for a row that was measured."""

    heading: str
    text: Callable[[RowDict], str]


def figure(name: str, decimals: int = 0, divide: float = 1) -> Callable[[RowDict], str]:
    """The median of a figure, or a dash."""

    def text(row: RowDict) -> str:
        value = row["median"].get(name)
        return "-" if value is None else f"{value / divide:,.{decimals}f}"

    return text


def spread(row: RowDict) -> str:
    """The least and the greatest CPU time per request among the rounds."""
    values = [sample["us_per_request"] for sample in row["samples"]]
    return f"{min(values):.2f}-{max(values):.2f}" if values else "-"


def syscalls(row: RowDict) -> str:
    """System calls per request."""
    return f"{row['syscalls']['total']:.2f}" if row["syscalls"] else "-"


def turns(row: RowDict) -> str:
    """Turns of the event loop per request; results of long ago have none."""
    found = row["syscalls"].get("turns")
    return "-" if found is None else f"{found:.2f}"


def remarks(row: RowDict) -> str:
    """What went wrong first, then what is worth knowing."""
    problems = [f"**{problem}**" for problem in row["problems"]]
    return "; ".join([*problems, *([row["note"]] if row["note"] else [])])


def name(row: RowDict) -> str:
    """Ours stand out."""
    return f"**{row['label']}**" if row["ours"] else row["label"]


LOAD_COLUMNS = (
    Column("server", name),
    Column("CPU us/request", figure("us_per_request", 2)),
    Column("rounds", spread),
    Column("req/s", figure("requests_per_second")),
    Column("p50 us", figure("p50_us")),
    Column("p99 us", figure("p99_us")),
    Column("syscalls/request", syscalls),
    Column("turns/request", turns),
    Column("bytes/answer", figure("bytes_per_answer")),
    Column("remarks", remarks),
)
AB_COLUMNS = (
    Column("server", name),
    Column("CPU us/request", figure("us_per_request", 1)),
    Column("req/s", figure("requests_per_second")),
    Column("mean ms", figure("mean_ms", 2)),
    Column("99 % within ms", figure("p99_ms")),
    Column("remarks", remarks),
)
STORE_COLUMNS = (
    Column("server", name),
    Column("CPU us/operation", figure("us_per_operation", 3)),
    Column("operations/s", figure("operations_per_second")),
    Column("remarks", remarks),
)
CACHE_COLUMNS = (
    Column("server", name),
    Column("hit ratio, Zipf", figure("zipf_hit_ratio", 4)),
    Column("with scans", figure("scan_hit_ratio", 4)),
    Column("overhead bytes/item", figure("overhead_bytes", 1)),
    Column("remarks", remarks),
)
IDLE_COLUMNS = (
    Column("server", name),
    Column("user bytes per connection", figure("bytes_per_connection")),
    Column("remarks", remarks),
)
HELD_COLUMNS = (
    Column("server", name),
    Column("user bytes each", figure("bytes_per_client")),
    Column("idle CPU, % of a core", figure("idle_cpu_percent", 3)),
    Column("wake-ups/s", figure("wakeups_per_second", 2)),
    Column("extra threads", figure("extra_threads")),
    Column("one write: first answered, ms", figure("fan_out_first_ms", 2)),
    Column("last answered, ms", figure("fan_out_last_ms", 1)),
    Column("CPU us per waiter", figure("fan_out_cpu_us_per_waiter", 2)),
    Column("remarks", remarks),
)
WAYS_COLUMNS = (
    Column("server", name),
    Column("user bytes each", figure("bytes_per_client")),
    Column("kernel bytes each", figure("kernel_bytes_per_client")),
    Column("a million: user GiB", figure("user_gib_per_million", 2)),
    Column("kernel GiB", figure("kernel_gib_per_million", 1)),
    Column("idle CPU, % of a core", figure("idle_cpu_percent", 3)),
    Column("wake-ups/s", figure("wakeups_per_second", 2)),
    Column("extra threads", figure("extra_threads")),
    Column("remarks", remarks),
)
STORM_COLUMNS = (
    Column("server", name),
    Column("clients", figure("clients")),
    Column("requests to the application", figure("upstream_requests")),
    Column("its answer to the first client, ms", figure("first_ms", 2)),
    Column("to the last, ms", figure("last_ms", 1)),
    Column("CPU us per client", figure("cpu_us_per_client", 1)),
    Column("remarks", remarks),
)
RELOAD_COLUMNS = (
    Column("server", name),
    Column("reloads", figure("reloads")),
    Column("requests", figure("requests")),
    Column("failed", figure("failures")),
    Column("p99 us", figure("p99_us")),
    Column("polls held", figure("held")),
    Column("sent away", figure("held_lost")),
    Column("remarks", remarks),
)
TLS_COLUMNS = (
    Column("server", name),
    Column("CPU us/request", figure("us_per_request", 2)),
    Column("rounds", spread),
    Column("p99 us", figure("p99_us")),
    Column("CPU us/connection, full handshake", figure("full_us", 1)),
    Column("resumed", figure("resumed_us", 1)),
    Column("user bytes, idle and plain", figure("plain_bytes")),
    Column("under TLS", figure("secure_bytes")),
    Column("user bytes, stalled in the handshake", figure("stalled_bytes")),
    Column("p99 us of others meanwhile", figure("stalled_p99_us")),
    Column("remarks", remarks),
)
UPGRADE_COLUMNS = (
    Column("server", name),
    Column("connections", figure("handed")),
    Column("lost", figure("lost")),
    Column("whole upgrade, ms", figure("upgrade_ms", 1)),
    Column("us/connection", figure("us_per_connection", 1)),
    Column("CPU us/connection", figure("cpu_us_per_connection", 1)),
    Column("longest wait of a client, ms", figure("stall_ms", 1)),
    Column("remarks", remarks),
)
HTTP2_COLUMNS = (
    Column("server", name),
    Column("CPU us/request", figure("us_per_request", 2)),
    Column("rounds", spread),
    Column("req/s", figure("requests_per_second")),
    Column("remarks", remarks),
)
HTTP2_HELD_COLUMNS = (
    Column("server", name),
    Column("user bytes each", figure("bytes_per_client")),
    Column("above a held poll of HTTP/1.1", figure("above_bytes")),
    Column("one write: first answered, ms", figure("fan_out_first_ms", 2)),
    Column("last answered, ms", figure("fan_out_last_ms", 1)),
    Column("CPU us per waiter", figure("fan_out_cpu_us_per_waiter", 2)),
    Column("remarks", remarks),
)
REDIS_COLUMNS = (
    Column("server", name),
    Column("write to answer, p50 ms", figure("woken_p50_ms", 2)),
    Column("p99 ms", figure("woken_p99_ms", 2)),
    Column("bare loop, p50 ms", figure("floor_woken_p50_ms", 2)),
    Column("p99 ms", figure("floor_woken_p99_ms", 2)),
    Column("GETs/change", figure("gets_per_change", 2)),
    Column("GETs/poll", figure("gets_per_poll", 2)),
    Column("bytes in Redis per key", figure("server_bytes_per_key")),
    Column("user bytes each", figure("bytes_per_client")),
    Column("one write: first answered, ms", figure("fan_out_first_ms", 2)),
    Column("last answered, ms", figure("fan_out_last_ms", 1)),
    Column("CPU us per waiter", figure("fan_out_cpu_us_per_waiter", 2)),
    Column("remarks", remarks),
)
TURNS_COLUMNS = (
    Column("server", name),
    Column("empty turn, us", figure("empty_turn_us", 2)),
    Column("10,000 idle, us", figure("empty_turn_crowded_us", 2)),
    Column("turn with 10 requests, us", figure("turn_us", 1)),
    Column("10,000 idle, us", figure("turn_crowded_us", 1)),
    Column("ratio", figure("turn_ratio", 3)),
    Column("wake-up p50, us", figure("wakeup_p50_us", 1)),
    Column("p99, us", figure("wakeup_p99_us", 1)),
    Column("timer of 20 ms, most, ms", figure("timer_most_ms", 1)),
    Column("SIGTERM to the end, most, ms", figure("signal_most_ms", 2)),
    Column("remarks", remarks),
)


def table(columns: Sequence[Column], rows: Sequence[RowDict]) -> list[str]:
    """A Markdown table; numbers stand to the right."""
    alignments = [
        "---" if column.heading in ("server", "remarks") else "---:" for column in columns
    ]
    alignments[0] = "---"
    lines = ["| " + " | ".join(column.heading for column in columns) + " |"]
    lines.append("| " + " | ".join(alignments) + " |")
    lines += ["| " + " | ".join(column.text(row) for column in columns) + " |" for row in rows]
    return lines


def columns_of(table_name: str) -> Sequence[Column]:
    """The columns of one of a result's tables."""
    special = {
        "ab": AB_COLUMNS,
        "store": STORE_COLUMNS,
        "cache": CACHE_COLUMNS,
        "idle": IDLE_COLUMNS,
        "held": HELD_COLUMNS,
        "ways": WAYS_COLUMNS,
        "storm": STORM_COLUMNS,
        "reload": RELOAD_COLUMNS,
        "tls": TLS_COLUMNS,
        "tls_held": HELD_COLUMNS,
        "tls_upgrade": UPGRADE_COLUMNS,
        "http2": HTTP2_COLUMNS,
        "http2_held": HTTP2_HELD_COLUMNS,
        "redis_held": REDIS_COLUMNS,
        "turns": TURNS_COLUMNS,
    }
    return special.get(table_name, LOAD_COLUMNS)


def ratios(standings: Sequence[Standing]) -> list[str]:
    """The targets this result measures, with their bounds."""
    lines = ["| figure | bound | measured | |", "|---|---:|---:|---|"]
    for entry in standings:
        if entry.value is None:
            continue
        unit = "" if entry.target.unit == "ratio" else f" {entry.target.unit}"
        lines.append(
            f"| {entry.target.figure} | {entry.target.bound}{unit} "
            f"| {number(entry.value)}{unit} | {entry.verdict} |"
        )
    return lines


def document(result: Result, standings: Sequence[Standing], plot: str | None) -> str:
    """The whole of `latest.md`."""
    method, machine = result["method"], result["machine"]
    lines = ["# Side by side", ""]
    lines.append(
        f"Measured {result['date'][:16].replace('T', ' ')}: {method['rounds']} rounds of "
        f"{method['seconds']} s, each after {method['warm_up_seconds']} s of warm-up, contenders "
        "in turn; medians. Made from the JSON of the run by `bench/run`; not edited by hand. "
        "The method is in [bench/README.md](../README.md)."
    )
    lines += ["", ", ".join(f"{key} {value}" for key, value in machine.items()) + "."]
    if result["kind"] != "full":
        lines += ["", f"**This was a {result['kind']} run: its numbers mean little.**"]
    if plot is not None:
        lines += ["", f"![CPU time per request]({plot})"]
    lines += ["", "## Figures", "", *ratios(standings)]
    for part in result["tables"]:
        lines += ["", f"## {part['title']}", "", *table(columns_of(part["name"]), part["rows"])]
    return "\n".join(lines) + "\n"
