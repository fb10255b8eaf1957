"""The command lines of `bench/run` and `bench/targets`."""

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any, NoReturn

from harness import (
    elsewhere,
    http2,
    machine,
    measure,
    plot,
    pollers,
    reloads,
    results,
    storeload,
    storm,
    tables,
    targets,
    tls,
    tracked,
    turns,
    upgrades,
    waiting,
    ways,
)
from harness.contenders import Contender, design2009
from harness.measure import Method, Row, say
from harness.paths import (
    ELSEWHERE_FILE,
    FIGURES_PAGE,
    REPOSITORY,
    RESULTS,
    SCRATCH_RESULTS,
    release_directory,
)
from harness.stage import LOAD_CORE, SERVER_CORE, ContenderError
from harness.suite import AB_CONTENDERS, IDLE_CONTENDERS, REQUEST_GROUPS

AB_TITLE = "The 2009 command: ab -c 50 -n 5000, a connection per request"
TURNS_TITLE = "Turns, wake-ups, timers and signals of a loop that is polled"
STORE_TITLE = "The memcached protocol: 8 connections, pipelined, 100-byte values"
CACHE_TITLE = "What 64 MiB keep: 1,000,000 keys by Zipf's law, without and with scans"
STORM_TITLE = "A storm of misses: everybody asks for one key that nobody has stored"
RELOAD_TITLE = "A new configuration five times a second, under wrk and with held polls"
PARTS = [group.name for group in REQUEST_GROUPS]
PARTS += ["ab", "store", "waiting", "storm", "reload", "tls", "http2", "redis", "turns"]
BUILDS = (
    ["-p", "dwell-bench-floor"],
    ["--bin", "dwell"],
    ["-p", "dwell-engine", "--example", "hello", "--example", "waiting"],
)

Table = dict[str, Any]


def run(arguments: Sequence[str]) -> int:
    """`bench/run`: measures, keeps the result, and makes the tables and the plot from it."""
    options = _run_options(arguments)
    _require_machine()
    if not options.no_build:
        _build()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    # The harness keeps off the server's core; what it starts is pinned by taskset.
    os.sched_setaffinity(0, {LOAD_CORE})

    method = _method(options)
    kind = "quick" if options.quick else "partial" if options.only else "full"
    result: results.Result = {
        "schema": results.SCHEMA,
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
        "kind": kind,
        "machine": machine.facts(),
        "method": asdict(method),
    }
    if result["machine"]["load_before"] > machine.QUIET_LOAD:
        say(f"note: the machine is busy (load {result['machine']['load_before']})")
    result["tables"] = _measure_all(options.only, method)
    _publish(result, keep=kind == "full" or options.keep)
    return 1 if any(row["problems"] for part in result["tables"] for row in part["rows"]) else 0


def show_targets(arguments: Sequence[str]) -> int:
    """`bench/targets`: prints every target figure with its newest measured value."""
    parser = argparse.ArgumentParser(prog="bench/targets", description=show_targets.__doc__)
    parser.add_argument(
        "--write",
        action="store_true",
        help=f"write them into {FIGURES_PAGE.name}, and those of other servers into the demo",
    )
    options = parser.parse_args(arguments)
    print(targets.report(targets.load(), results.load_all()))
    if options.write:
        _write_page()
    return 0


def _write_page() -> None:
    kept = results.load_all()
    targets.write_page(FIGURES_PAGE, targets.markdown(targets.load(), kept))
    elsewhere.write(ELSEWHERE_FILE, kept)


def _run_options(arguments: Sequence[str]) -> argparse.Namespace:
    names = [*PARTS, *_row_names()]
    parser = argparse.ArgumentParser(
        prog="bench/run",
        description="Measures Dwell and its peers side by side; bench/README.md is the method.",
        epilog=f"Names for --only: {', '.join(names)}.",
    )
    parser.add_argument(
        "--quick", action="store_true", help="one short round of everything: does it all work?"
    )
    parser.add_argument(
        "--only",
        action="append",
        metavar="NAME",
        choices=names,
        default=[],
        help="measure only this part or row; may be repeated",
    )
    parser.add_argument("--rounds", type=int, help="rounds per contender (default 3)")
    parser.add_argument(
        "--seconds", type=int, help="seconds of load per round, after the warm-up (default 5)"
    )
    parser.add_argument(
        "--keep", action="store_true", help="keep the result of a quick or partial run as well"
    )
    parser.add_argument("--no-build", action="store_true", help="measure what is already built")
    return parser.parse_args(arguments)


def _method(options: argparse.Namespace) -> Method:
    method = measure.QUICK if options.quick else Method()
    if options.rounds is not None:
        method = replace(method, rounds=options.rounds)
    if options.seconds is not None:
        method = replace(method, seconds=options.seconds)
    return method


def _require_machine() -> None:
    """Stops with a plain sentence where the machine cannot measure."""
    if missing := machine.missing_tools():
        tools = ", ".join(f"{tool} (Debian: {package})" for tool, package in missing.items())
        sys.exit(f"bench/run needs {tools}; bench/requirements installs them")
    if not {SERVER_CORE, LOAD_CORE} <= os.sched_getaffinity(0):
        sys.exit("bench/run needs two cores: 0 for the server, 1 for the load generator")


def _build() -> None:
    for build in BUILDS:
        say(f"cargo build --release {' '.join(build)}")
        done = subprocess.run(
            ["cargo", "build", "--release", "--quiet", "--locked", *build],
            cwd=REPOSITORY,
            check=False,
        )
        if done.returncode != 0:
            sys.exit(f"bench/run cannot build what it is to measure into {release_directory()}")
    if not storeload.build():
        sys.exit("bench/run cannot build bench/store")
    if not design2009.build():
        say(
            "note: cannot build bench/peers/design2009.c; bench/requirements installs what it needs"
        )


def _end(*_: object) -> NoReturn:
    """Ends by an exception, so that every stage stops its programs."""
    raise SystemExit("bench/run was told to stop")


def _row_names() -> list[str]:
    contenders = [contender.name for group in REQUEST_GROUPS for contender in group.contenders]
    small = [*storm.steps(Method()), *reloads.steps(Method())]
    contenders += [contender.name for contender in (*tls.CONTENDERS, *http2.CONTENDERS)]
    small += [*tls.held_steps(Method()), *upgrades.steps(Method()), *http2.held_steps(Method())]
    small += tracked.steps(Method())
    return [*contenders, *waiting.names(IDLE_CONTENDERS), *(row.name for row, _ in small)]


def _measure_all(only: Sequence[str], method: Method) -> list[Table]:
    found: list[Table] = []
    for group in REQUEST_GROUPS:
        contenders = _chosen(group.name, group.contenders, only)
        if contenders:
            say(group.title)
            rows = measure.in_turn(
                contenders,
                method.rounds,
                lambda running, row: measure.load_sample(running, method, row),
            )
            measure.trace(contenders, rows, method.trace_seconds)
            found.append(_table(group.name, group.title, rows))
    if not only or "ab" in only:
        say(AB_TITLE)
        rows = measure.in_turn(
            AB_CONTENDERS,
            method.rounds,
            lambda running, row: measure.ab_sample(running, method, row),
        )
        found.append(_table("ab", AB_TITLE, rows))
    if not only or "store" in only:
        say(STORE_TITLE)
        found.append(_table("store", STORE_TITLE, storeload.run(method)))
        say(CACHE_TITLE)
        found.append(_table("cache", CACHE_TITLE, storeload.run_caches(method)))
    found += _measure_waiting(only, method)
    if secure := _chosen("tls", tls.CONTENDERS, only):
        found.append(_measure_tls(secure, method))
    if speakers := _chosen("http2", http2.CONTENDERS, only):
        found.append(_measure_http2(speakers, method))
    if not only or "turns" in only:
        say(TURNS_TITLE)
        found.append(_table("turns", TURNS_TITLE, turns.run()))
    return found


def _measure_tls(contenders: Sequence[Contender], method: Method) -> Table:
    say(tls.TITLE)
    pollers.raise_descriptor_limit(method.tls_clients)
    by_name = {contender.name: contender for contender in tls.CONTENDERS}
    rows = measure.in_turn(
        contenders,
        method.rounds,
        lambda running, row: tls.sample(by_name[row.name], running, method, row),
    )
    return _table("tls", tls.TITLE, rows)


def _measure_http2(contenders: Sequence[Contender], method: Method) -> Table:
    say(http2.TITLE)
    by_name = {contender.name: contender for contender in http2.CONTENDERS}
    rows = measure.in_turn(
        contenders,
        method.rounds,
        lambda running, row: http2.sample(by_name[row.name], running, method, row),
    )
    return _table("http2", http2.TITLE, rows)


def _measure_waiting(only: Sequence[str], method: Method) -> list[Table]:
    clients = f"{method.waiting_clients:,}"
    parts = [
        (
            "waiting",
            "idle",
            f"{clients} idle keep-alive connections, after one request each",
            waiting.idle_steps(IDLE_CONTENDERS, method),
        ),
        (
            "waiting",
            "held",
            f"{clients} clients waiting for a write",
            waiting.held_steps(method),
        ),
        ("waiting", "ways", "Clients waiting on the engine, nothing happening", ways.steps(method)),
        ("storm", "storm", STORM_TITLE, storm.steps(method)),
        ("reload", "reload", RELOAD_TITLE, reloads.steps(method)),
        ("tls", "tls_held", tls.HELD_TITLE, tls.held_steps(method)),
        ("tls", "tls_upgrade", upgrades.TITLE, upgrades.steps(method)),
        ("http2", "http2_held", http2.HELD_TITLE, http2.held_steps(method)),
        ("redis", "redis_held", tracked.TITLE, tracked.steps(method)),
    ]
    found: list[Table] = []
    for part, name, title, steps in parts:
        chosen = [step for step in steps if not only or part in only or step[0].name in only]
        if not chosen:
            continue
        say(title)
        try:
            pollers.raise_descriptor_limit(method.waiting_clients)
        except ContenderError as error:
            say(f"  left out: {error}")
            continue
        found.append(_table(name, title, measure.one_by_one(chosen)))
    return found


def _chosen(part: str, contenders: Sequence[Contender], only: Sequence[str]) -> Sequence[Contender]:
    if not only or part in only:
        return contenders
    return [contender for contender in contenders if contender.name in only]


def _table(name: str, title: str, rows: Sequence[Row]) -> Table:
    return {"name": name, "title": title, "rows": [row.as_dict() for row in rows]}


def _publish(result: results.Result, *, keep: bool) -> None:
    """Saves the result; a full one becomes `latest.md` and `latest.svg`, others are printed."""
    directory = RESULTS if keep else SCRATCH_RESULTS
    path = results.save(result, directory)
    shown = directory if result["kind"] == "full" or not keep else SCRATCH_RESULTS
    shown.mkdir(parents=True, exist_ok=True)
    groups = plot.bar_groups(result)
    if groups:
        facts = result["machine"]
        source = f"{path.name}: {facts['cpu']}, Linux {facts['kernel']}, nginx {facts['nginx']}"
        (shown / "latest.svg").write_text(plot.svg(groups, source))
    standings = [targets.standing(target, [result]) for target in targets.load()]
    document = tables.document(result, standings, "latest.svg" if groups else None)
    (shown / "latest.md").write_text(document)
    print(document)
    if keep:
        _write_page()
    say(f"kept as {path.relative_to(REPOSITORY)}; tables in {shown.relative_to(REPOSITORY)}")
