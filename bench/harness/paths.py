"""Where things are: the repository, the results, the built programs."""

import os
from pathlib import Path

BENCH = Path(__file__).resolve().parents[1]
REPOSITORY = BENCH.parent
RESULTS = BENCH / "results"
# Quick and partial runs land here; the directory is not under version control.
SCRATCH_RESULTS = RESULTS / "tmp"
FIGURES_PAGE = REPOSITORY / "docs" / "benchmarks.md"
# Built into the page of `dwell demo`.
ELSEWHERE_FILE = REPOSITORY / "crates" / "cli" / "src" / "demo" / "elsewhere.json"
TARGETS_FILE = BENCH / "targets.toml"
LUA = BENCH / "harness" / "lua"


def release_directory() -> Path:
    """The directory of `cargo build --release`."""
    target = os.environ.get("CARGO_TARGET_DIR")
    return (REPOSITORY / target if target else REPOSITORY / "target") / "release"
