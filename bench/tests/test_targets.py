from pathlib import Path
from typing import Any

import pytest

from harness import (
    conformance,
    go_package,
    http2,
    memcache_client,
    python_package,
    reloads,
    storeload,
    storm,
    suite,
    targets,
    timers,
    tls,
    tracked,
    upgrades,
    waiting,
    ways,
)
from harness.measure import Method
from harness.targets import Target, TargetsError

RATIO: dict[str, Any] = {
    "figure": "engine / floor",
    "unit": "ratio",
    "at_most": 1.1,
    "interim": 1.2,
    "result": "engine.us",
    "over": "floor.us",
}


def document(**changes: float | str | None) -> dict[str, Any]:
    return {"section": [{"title": "1. One request", "target": [RATIO | changes]}]}


def result(date: str, **values: float) -> dict[str, Any]:
    rows = [
        {"name": name, "median": {"us": value}, "syscalls": {}} for name, value in values.items()
    ]
    return {"date": date, "tables": [{"name": "answer", "rows": rows}]}


def test_ratio_comes_from_the_newest_run_that_has_both_sides() -> None:
    (target,) = targets.parse(document())
    kept = [
        result("2026-01-03T00:00:00+00:00", engine=1.0),
        result("2026-01-02T00:00:00+00:00", engine=4.4, floor=4.0),
        result("2026-01-01T00:00:00+00:00", engine=9.0, floor=4.0),
    ]
    standing = targets.standing(target, kept)
    assert standing.value == pytest.approx(1.1)
    assert (standing.date, standing.verdict) == ("2026-01-02", "holds")


@pytest.mark.parametrize(("engine", "verdict"), [(4.0, "holds"), (4.6, "interim"), (5.0, "misses")])
def test_verdict(engine: float, verdict: str) -> None:
    (target,) = targets.parse(document())
    kept = [result("2026-01-01T00:00:00+00:00", engine=engine, floor=4.0)]
    assert targets.standing(target, kept).verdict == verdict


def test_nothing_measured() -> None:
    (target,) = targets.parse(document())
    assert targets.standing(target, []).verdict == "not measured"


def test_lower_and_exact_bounds() -> None:
    at_least = Target("5", "memccapable", "of 54", at_least=54)
    assert at_least.holds(54)
    assert not at_least.holds(53)
    exact = Target("4", "calls", "calls", at_most=2.0, at_least=2.0)
    assert exact.holds(2.0)
    assert not exact.holds(2.01)
    assert not exact.holds(1.99)
    assert (at_least.bound, exact.bound) == (">= 54", "= 2")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"atmost": 1}, "unknown key atmost"),
        ({"at_most": None}, "neither at_most nor at_least"),
        ({"result": None}, "over without result"),
    ],
)
def test_wrong_file_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TargetsError, match=message):
        targets.parse(document(**changes))


def test_report_counts_what_holds() -> None:
    kept = [result("2026-01-01T00:00:00+00:00", engine=4.0, floor=4.0)]
    report = targets.report(targets.parse(document()), kept)
    assert report.startswith("1. One request\n  engine / floor  ")
    assert "2026-01-01  holds" in report
    assert report.endswith("1 figures: 1 holds")


def test_figures_of_a_page_are_written_between_its_marks(tmp_path: Path) -> None:
    kept = [result("2026-01-01T00:00:00+00:00", engine=5.2, floor=4.0)]
    tables = targets.markdown(targets.parse(document()), kept)
    row = "| engine / floor | <= 1.1 | 1.30 | 2026-01-01 | **misses** |\n"
    assert tables.startswith("### 1. One request\n") and tables.endswith(row)
    page = tmp_path / "page.md"
    page.write_text(f"before\n{targets.PAGE_BEGIN}old\n{targets.PAGE_END}after\n")
    for _ in range(2):
        targets.write_page(page, tables)
        assert page.read_text().startswith(f"before\n{targets.PAGE_BEGIN}\n### 1.")
        assert page.read_text().endswith(f"{row}\n{targets.PAGE_END}after\n")
    page.write_text("nothing\n")
    with pytest.raises(TargetsError, match="no place"):
        targets.write_page(page, tables)


def test_numbers_are_short() -> None:
    assert [targets.number(value) for value in (10000, 384.4, 14.71, 1.0849, 0.0423)] == [
        "10,000",
        "384",
        "14.7",
        "1.08",
        "0.0423",
    ]


def test_every_figure_of_the_file_names_a_row_of_the_suite() -> None:
    rows = {contender.name for group in suite.REQUEST_GROUPS for contender in group.contenders}
    rows |= {f"ab.{contender.name}" for contender in suite.AB_CONTENDERS}
    rows |= set(waiting.names(suite.IDLE_CONTENDERS))
    small = (ways.steps, storm.steps, reloads.steps, tls.held_steps, upgrades.steps)
    small += (http2.held_steps, tracked.steps)
    rows |= {row.name for steps in small for row, _ in steps(Method())}
    for server in ("store_edge", "store_memcached"):
        rows |= {storeload.name_of(server, mode) for mode in storeload.MODES}
    rows |= {contender.name for contender in storeload.CACHES}
    rows |= {"manager"}
    rows |= set(timers.ROWS.values())
    rows |= {f"memcache_{name}" for name in memcache_client.CONTENDERS}
    rows |= {contender.name for contender in python_package.CONTENDERS}
    rows |= {contender.name for contender in go_package.CONTENDERS} | {"go_conformance"}
    rows |= conformance.ROWS
    rows |= {contender.name for contender in (*tls.CONTENDERS, *http2.CONTENDERS)}
    for target in targets.load():
        for name in filter(None, (target.result, target.over)):
            assert name.rpartition(".")[0] in rows, target.figure


def test_names_of_the_suite_are_unique() -> None:
    names = [contender.name for group in suite.REQUEST_GROUPS for contender in group.contenders]
    assert len(names) == len(set(names))
