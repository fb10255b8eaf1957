import pytest

from harness import results, timers


def test_lines_become_rows_with_medians() -> None:
    lines = ["dwell ready_ns 3.0", "dwell ready_ns 5", "dwell ready_ns 4", "dwell extra_threads 0"]
    rows = timers.rows(timers.parse(lines))
    assert [row["name"] for row in rows] == list(timers.ROWS.values())
    result = {"tables": [{"name": "timers", "rows": rows}]}
    figures = results.figures(result)
    assert figures == {"timers_dwell.ready_ns": 4.0, "timers_dwell.extra_threads": 0.0}


def test_unknown_figures_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown figure: dwell speed"):
        timers.parse(["dwell speed 1"])


def test_report_shows_every_ratio_against_its_target() -> None:
    lines = [f"{name} {figure} 2" for name in timers.CONTENDERS for figure in timers.FIGURES]
    lines += ["pingora ready_ns 16", "pingora ready_ns 16"]
    rows = timers.rows(timers.parse(lines))
    report = timers.report({row["name"]: row["median"] for row in rows})
    (ready,) = [line for line in report.splitlines() if line.startswith("ready future")]
    assert ready.split()[2:] == ["1/8.00", "1/1.00", "1/8", "pass"]
    (cancel,) = [line for line in report.splitlines() if line.startswith("loop-local cancel")]
    assert cancel.split()[-1] == "MISS"
    (lost,) = [line for line in report.splitlines() if line.startswith("lost, dwell")]
    assert lost.split()[2:] == ["2", "2", "0", "MISS:", "2"]
