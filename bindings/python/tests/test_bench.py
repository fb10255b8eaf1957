"""`python -m dwell.bench`."""

from __future__ import annotations

import json
import xml.etree.ElementTree
from pathlib import Path

from dwell import bench


def test_the_poll_timeout_is_measured(tmp_path: Path, capsys):
    kept, picture = tmp_path / "figures.json", tmp_path / "plot.svg"
    arguments = ["poll-timeout", "--timeouts", "0,10000", "--seconds", "0.2"]
    assert bench.main([*arguments, "--json", str(kept), "--svg", str(picture)]) == 0
    [short, long] = json.loads(kept.read_text())["series"]["dwell"]
    for row in (short, long):
        assert row["requests_per_s"] > 100
        assert row["latency_p50_us"] <= row["latency_p99_us"]
        # Whatever the timeout: what ends the wait ends it.
        assert row["shutdown_ms"] < 9000
        assert 0 <= row["timer_late_ms"] < 9000
        assert row["wakeup_us"] < 9_000_000
    assert long["idle_cpu_percent"] < short["idle_cpu_percent"]
    assert "| poll(ms) | requests/s |" in capsys.readouterr().out
    assert xml.etree.ElementTree.parse(picture).getroot().tag.endswith("svg")
