import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

from harness import elsewhere, plot, results, tables
from harness.measure import Row
from harness.paths import ELSEWHERE_FILE
from harness.results import Result


def load_row(name: str, us_per_request: float, *, ours: bool = False) -> dict[str, Any]:
    row = Row(name, f"{name} & co", ours)
    row.samples = [
        {
            "us_per_request": us_per_request,
            "requests_per_second": 180_000.4,
            "p50_us": 500,
            "p99_us": 900,
            "bytes_per_answer": 78,
        }
    ]
    row.syscalls = {"total": 2.04, "sendto": 1.0, "turns": 0.5}
    return row.as_dict()


def failed_row() -> dict[str, Any]:
    row = Row("broken", "broken", ours=False, note="a note")
    row.problem("failed: it is not there")
    return row.as_dict()


def example() -> Result:
    rows = [load_row("floor", 4.25), load_row("engine", 4.5, ours=True), failed_row()]
    return {
        "schema": 1,
        "date": "2026-01-02T03:04:05+00:00",
        "kind": "full",
        "machine": {"cpu": "a CPU", "cores": 2},
        "method": {"rounds": 3, "seconds": 6, "warm_up_seconds": 2},
        "tables": [{"name": "answer", "title": "One answer", "rows": rows}],
    }


def test_table_shows_figures_and_says_what_failed() -> None:
    document = tables.document(example(), [], "latest.svg")
    engine = "| **engine & co** | 4.50 | 4.50-4.50 | 180,000 | 500 | 900 | 2.04 | 0.50 | 78 |  |"
    assert engine in document
    assert (
        "| broken | - | - | - | - | - | - | - | - | **failed: it is not there**; a note |"
        in document
    )
    assert "![CPU time per request](latest.svg)" in document
    assert "mean little" not in document


def test_quick_run_says_so() -> None:
    assert "quick run" in tables.document({**example(), "kind": "quick"}, [], None)


def test_plot_is_well_formed_and_has_a_bar_per_measured_row() -> None:
    groups = plot.bar_groups(example())
    picture = ElementTree.fromstring(plot.svg(groups, "a <source>"))
    bars = [
        element
        for element in picture.iter("{http://www.w3.org/2000/svg}rect")
        if element.get("class", "").startswith("bar")
    ]
    assert [bar.get("class") for bar in bars] == ["bar-floor", "bar-ours"]
    widths = [float(bar.get("width", 0)) for bar in bars]
    assert widths[1] == plot.BAR_WIDTH_MAX
    assert abs(widths[0] / widths[1] - 4.25 / 4.5) < 0.001


def test_result_is_kept_and_found_again(tmp_path: Path) -> None:
    path = results.save(example(), tmp_path)
    again = results.save(example(), tmp_path)
    assert path.name == "2026-01-02T0304.json"
    assert again != path
    assert results.load_all(tmp_path) == [example(), example()]
    assert json.loads(path.read_text())["schema"] == results.SCHEMA


def test_flat_figures() -> None:
    figures = results.figures(example())
    assert figures["engine.us_per_request"] == 4.5
    assert figures["floor.syscalls_per_request"] == 2.04
    assert figures["floor.turns_per_request"] == 0.5
    assert not any(name.startswith("broken") for name in figures)


def test_the_figures_of_other_servers_are_those_of_the_newest_whole_runs() -> None:
    """`bench/targets --write` writes them."""
    assert ELSEWHERE_FILE.read_text() == elsewhere.text(results.load_all())


def test_a_group_comes_from_one_whole_run_and_has_no_bar_without_a_figure() -> None:
    bars = {bar.figure for group in elsewhere.GROUPS[:2] for bar in group.bars}
    polls = {bar.figure for bar in elsewhere.GROUPS[0].bars}

    def measured(day: int, figures: set[str], value: float, kind: str = "full") -> Result:
        rows = [
            {"name": name, "median": {figure: value}, "syscalls": None}
            for name, figure in (figure.split(".") for figure in sorted(figures))
        ]
        facts = {"dwell": f"d{day}", "nginx": f"n{day}"}
        date = f"2026-01-0{day}T00:00:00+00:00"
        tables = [{"name": "held", "rows": rows}]
        return {"date": date, "kind": kind, "machine": facts, "tables": tables}

    kept = [
        measured(4, bars, 4.0, kind="partial"),
        # One of the two figures of the second group is missing.
        measured(2, bars - {"streams_nchan.bytes_per_client"}, 2.4),
        measured(3, polls - {"held_nchan.bytes_per_client"}, 3.0),
        measured(1, bars, 1.0),
    ]
    polls_found, streams_found = elsewhere.document(kept)["groups"]
    assert (polls_found["date"], streams_found["date"]) == ("2026-01-02", "2026-01-01")
    assert [bar["version"] for bar in polls_found["bars"]] == ["commit d2", "nginx n2"]
    assert [bar["bytes"] for bar in polls_found["bars"]] == [2, 2]
