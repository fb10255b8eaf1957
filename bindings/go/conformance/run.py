#!/usr/bin/env python3
"""Runs the server tests of Go's own net/http against this package.

The installed GOROOT is linked into a directory of its own, the package is put beside net/http, and
httptest's servers are made to serve by it. Nothing of Go's sources is kept. Each test runs in a
process of its own, in its HTTP/1 mode. Those that reach a plain TCP server of httptest are counted;
what becomes of each is compared with expected.txt. What the package says it does not serve is
served by net/http: three tests have listeners of their own.
"""

import argparse
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).resolve().parent
FILES = ["serve_test", "clientserver_test", "fs_test", "responsecontroller_test", "sniff_test"]
HOOK = """
    if s.TLS == nil {
        if name := os.Getenv("DWELL_REACHED"); name != "" {
            os.WriteFile(name, nil, 0o600)
        }
        if os.Getenv("DWELL_OFF") == "" {
            if _, isNot := dwell.Serve(s.Listener, s.Config).(*dwell.UnsupportedError); !isNot {
                return
            }
        }
    }
    s.Config.Serve(s.Listener)
"""


def prepare(place: Path, library: Path) -> Path:
    """Makes the tree and builds the test program in it."""
    goroot = Path(subprocess.check_output(["go", "env", "GOROOT"], text=True).strip())
    tree = place / "goroot"
    shutil.rmtree(tree, ignore_errors=True)
    place.mkdir(parents=True, exist_ok=True)
    if subprocess.run(["cp", "-al", goroot, tree], check=False, capture_output=True).returncode:
        shutil.rmtree(tree, ignore_errors=True)
        subprocess.run(["cp", "-a", goroot, tree], check=True)
    package = tree / "src" / "dwell"
    package.mkdir()
    for source in HERE.parent.glob("*.go"):
        if not source.name.endswith("_test.go"):
            shutil.copy(source, package)
    (package / "lib").mkdir()
    shutil.copy(library, package / "lib")
    headers = tree / "src" / "capi" / "include"
    headers.mkdir(parents=True)
    shutil.copy(HERE.parent.parent / "capi/include/dwell.h", headers)
    server = tree / "src/net/http/httptest/server.go"
    text = server.read_text()
    hooked = re.sub(r"\n\t+s\.Config\.Serve\(s\.Listener\)\n", lambda _: HOOK, text, count=1)
    if hooked == text:
        sys.exit("httptest has changed: there is no call of s.Config.Serve")
    hooked = hooked.replace("import (", 'import (\n\t"dwell"', 1)
    server.unlink()
    server.write_text(hooked)
    program = place / "http.test"
    command = [tree / "bin/go", "test", "-vet=off", "-c", "-o", program, "net/http"]
    environment = os.environ | {"GOROOT": str(tree), "GOFLAGS": "", "CGO_ENABLED": "1"}
    subprocess.run(command, check=True, env=environment, cwd=tree / "src")
    return program


def names(place: Path) -> list[str]:
    """The tests of the five files."""
    found = []
    for file in FILES:
        text = (place / "goroot/src/net/http" / f"{file}.go").read_text()
        found += re.findall(r"^func (Test\w+)\(", text, re.MULTILINE)
    return found


def run(place: Path, test: str, off: bool) -> tuple[bool, bool, str]:
    """Runs one test: whether it reached a server, whether it passed, and what it said."""
    reached = place / f"reached-{test}"
    reached.unlink(missing_ok=True)
    environment = os.environ | {"DWELL_REACHED": str(reached)}
    if off:
        environment["DWELL_OFF"] = "1"
    command = [place / "http.test", "-test.short", f"-test.run=^{test}$/^h1$", "-test.timeout=20s"]
    cwd = place / "goroot/src/net/http"
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, env=environment, cwd=cwd, timeout=120
    )
    was_reached = reached.exists()
    reached.unlink(missing_ok=True)
    return was_reached, done.returncode == 0, done.stdout + done.stderr


def expectations() -> dict[str, str]:
    """What is expected of each test: `pass`, or the reason why not."""
    expected = {}
    for line in (HERE / "expected.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            name, _, what = line.partition(" ")
            expected[name] = what.strip()
    return expected


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--place", type=Path, required=True, help="directory to work in")
    parser.add_argument("--library", type=Path, default=HERE.parent / "lib/libdwell.a")
    parser.add_argument("--only", help="a regular expression of tests, whose output is shown")
    parser.add_argument("--off", action="store_true", help="let net/http serve, for comparison")
    parser.add_argument("--keep", action="store_true", help="do not build anew")
    parser.add_argument("--results", type=Path, help="where `make targets` finds the count")
    arguments = parser.parse_args()
    place = arguments.place.resolve()
    if not arguments.keep:
        prepare(place, arguments.library)
    expected = expectations()
    tests = names(place)
    if arguments.only:
        tests = [test for test in tests if re.search(arguments.only, test)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(lambda test: run(place, test, arguments.off), tests))
    passed, surprises, count = 0, 0, 0
    for test, (reached, ok, output) in zip(tests, outcomes, strict=True):
        if not reached and test not in expected:
            continue
        count += 1
        passed += ok
        what = expected.get(test, "unlisted")
        # What depends on how fast a client is may go either way, and does not count as passed.
        may_pass = what.startswith("sometimes: ")
        passed -= ok and may_pass
        is_expected = may_pass or ok == (what == "pass")
        surprises += not is_expected
        mark = "" if is_expected else "   <-- not as expected"
        print(f"{test} {'pass' if ok else 'fail'}{mark}" + ("" if ok else f" ({what})"))
        if arguments.only and not ok:
            print(output)
    print(f"{passed} of {count} pass; {surprises} not as expected")
    if arguments.results and not arguments.only and not arguments.off:
        save(arguments.results, {"passed": passed, "reached": count})
    return 1 if surprises else 0


def save(directory: Path, counts: dict[str, int]) -> None:
    """Keeps the counts in the form of the results of `make bench`."""
    now = datetime.now(UTC)
    row = {"name": "go_conformance", "median": counts, "samples": [counts], "syscalls": {}}
    result = {
        "schema": 1,
        "date": now.isoformat(timespec="seconds"),
        "tables": [{"name": "go_conformance", "title": "Go's own tests", "rows": [row]}],
    }
    path = directory / f"go-conformance-{now:%Y-%m-%dT%H%M}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
