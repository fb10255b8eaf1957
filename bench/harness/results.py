"""Result files: one JSON document per run, raw samples included, never rewritten."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

from harness.paths import RESULTS

SCHEMA = 1

Result = dict[str, Any]


def save(result: Result, directory: Path) -> Path:
    """Writes a result under the minute it was started."""
    directory.mkdir(parents=True, exist_ok=True)
    started = datetime.fromisoformat(result["date"])
    path = directory / f"{started:%Y-%m-%dT%H%M}.json"
    if path.exists():
        path = directory / f"{started:%Y-%m-%dT%H%M%S}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    return path


def load_all(directory: Path = RESULTS) -> list[Result]:
    """All kept results, newest first."""
    return [json.loads(path.read_text()) for path in sorted(directory.glob("*.json"), reverse=True)]


def figures(result: Result) -> dict[str, float]:
    """Every figure of a result under its flat name, `ROW.FIGURE`."""
    found: dict[str, float] = {}
    for table in result["tables"]:
        prefix = "ab." if table["name"] == "ab" else ""
        for row in table["rows"]:
            name = prefix + row["name"]
            found |= {f"{name}.{figure}": value for figure, value in row["median"].items()}
            if row["syscalls"]:
                found[f"{name}.syscalls_per_request"] = row["syscalls"]["total"]
                if "turns" in row["syscalls"]:
                    found[f"{name}.turns_per_request"] = row["syscalls"]["turns"]
    return found
