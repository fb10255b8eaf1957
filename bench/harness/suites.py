"""Suites that are programs of their own, and what their output says.

Every reader of an output raises where it finds no case, or something that it does not know: a suite
that ran nothing must not look like one that found nothing.
"""

import collections
import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.paths import REPOSITORY, release_directory
from harness.stage import HOST, SERVER_CORE, Stage

TESTS = REPOSITORY / "tests"
MEMCCAPABLE_SECONDS = 60
# The states of a case that `wstest` reports, by what they count as.
FINE = {"OK", "INFORMATIONAL"}
NON_STRICT = "NON-STRICT"
BEHAVIOURS = FINE | {
    NON_STRICT,
    *("FAILED", "FAILED BY CLIENT", "WRONG CODE", "UNCLEAN", "UNIMPLEMENTED"),
}
SMUGGLING = [
    "test_bad_requests.py::test_a_bad_request_is_refused_and_the_connection_closed",
    "test_proxy_smuggling.py::test_an_ambiguous_head_is_refused_and_not_forwarded",
    "test_proxy_smuggling.py::test_an_ambiguous_body_is_refused_and_its_request_never_whole",
    "test_proxy_smuggling.py::test_an_ambiguous_answer_is_502",
    "test_engine_refusals.py::test_a_bad_request_is_refused_and_nothing_behind_it_is_read",
]
H2SPEC = ["test_h2spec.py"]
MEMORY = [
    "test_store_memory.py::test_the_process_stays_within_its_memory_whatever_the_sizes",
    "test_store_limits.py::test_the_store_never_takes_more_than_it_may",
]


class SuiteError(Exception):
    """A suite did not run, or its output is not what it should be; the message says how."""


@dataclass(frozen=True)
class Counted:
    """The counts of one row.

    Attributes:
        remarks: a line for each case that is not as it should be.
    """

    name: str
    counts: Mapping[str, float]
    remarks: Sequence[str] = field(default=())


def example(name: str) -> Path:
    """An example of the engine."""
    return release_directory() / "examples" / name


def start_store(stage: Stage, *flags: str) -> int:
    """Starts `dwell store`; returns its port."""
    port = stage.free_port()
    command = [str(release_directory() / "dwell"), "store", "-p", str(port), *flags]
    stage.start("store", command, SERVER_CORE, [port])
    return port


def memccapable() -> list[Counted]:
    """libmemcached's `memccapable` against the embedded store."""
    with Stage() as stage:
        port = start_store(stage)
        command = ["memccapable", "-h", HOST, "-p", str(port)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=MEMCCAPABLE_SECONDS, check=False
        )
    return [read_memccapable(done.stdout + done.stderr)]


def read_memccapable(output: str) -> Counted:
    """The tests that passed and those that did not.

    Raises:
        SuiteError: it ran none, or one of the protocols is missing.
    """
    found = re.findall(r"^((ascii|binary) .*?)\s+\[(\w+)\]$", output, re.MULTILINE)
    protocols = {protocol for _, protocol, _ in found}
    if protocols != {"ascii", "binary"}:
        raise SuiteError(f"memccapable ran {len(found)} tests: {output[-300:]!r}")
    failed = [f"{name}: {outcome}" for name, _, outcome in found if outcome != "pass"]
    counts = {"passed": len(found) - len(failed), "cases": len(found)}
    return Counted("memccapable", counts, failed)


def autobahn() -> list[Counted]:
    """The whole of the Autobahn test suite, as `make autobahn` runs it.

    Raises:
        SuiteError: it is not installed, or ended early.
    """
    suite = release_directory().parent / "autobahn"
    if not (suite / "installed").exists():
        raise SuiteError("the suite is not installed; see tests/autobahn/install")
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, str(TESTS / "autobahn" / "run.py"), "--suite", str(suite)]
        command += ["--echo", str(example("websocket_echo")), "--reports", directory]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        indexes = [json.loads(path.read_text()) for path in Path(directory).glob("*/index.json")]
    expected = json.loads((TESTS / "autobahn" / "expected.json").read_text())
    if len(indexes) != len(expected):
        raise SuiteError(f"{len(indexes)} of {len(expected)} runs ended: {done.stderr[-300:]}")
    cases = sum(agent["counts"]["all"] for agent in expected.values())
    return [read_autobahn(indexes, cases)]


def read_autobahn(indexes: Sequence[Mapping[str, Any]], expected: int) -> Counted:
    """The cases of some reports by their behaviour; a case that closes wrongly has failed.

    Raises:
        SuiteError: there are more or fewer cases than expected, or a behaviour is unknown.
    """
    failed, counts = [], collections.Counter[str]()
    for index in indexes:
        for agent, cases in index.items():
            for case, result in cases.items():
                ends = {result["behavior"], result["behaviorClose"]}
                if unknown := ends - BEHAVIOURS:
                    raise SuiteError(f"{agent} {case} has an unknown behaviour {unknown}")
                counts["cases"] += 1
                if ends - FINE - {NON_STRICT}:
                    failed.append(f"{agent} {case}: {', '.join(sorted(ends))}")
                elif NON_STRICT in ends:
                    counts["non_strict"] += 1
    if counts["cases"] != expected or not expected:
        raise SuiteError(f"{counts['cases']} cases of {expected} have a result")
    figures = {name: counts[name] for name in ("cases", "non_strict")}
    return Counted("autobahn", {"failed": len(failed), **figures}, failed)


def smuggling() -> list[Counted]:
    """Malformed and ambiguous messages, to the edge and to the engine alone."""
    tests = read_tests(run_tests(SMUGGLING))
    accepted = [name for name, test in tests.items() if not test.passed]
    counts = {"accepted": len(accepted), "cases": len(tests)}
    return [Counted("smuggling", counts, accepted)]


def memory() -> list[Counted]:
    """How often a store that is filled was above its bound when it was looked at."""
    return [read_memory(read_tests(run_tests(MEMORY)))]


@dataclass(frozen=True)
class Ran:
    """One test of pytest, and the numbers that it has recorded."""

    passed: bool
    numbers: Mapping[str, float]


def h2spec() -> list[Counted]:
    """Every case of h2spec, strict, against the edge with and without TLS and the engine alone."""
    return [read_h2spec(read_tests(run_tests(H2SPEC)))]


def read_h2spec(tests: Mapping[str, Ran]) -> Counted:
    """The cases that tests have recorded, and the servers that fail others than those listed.

    Raises:
        SuiteError: a test ran no case.
    """
    for name, test in tests.items():
        if not test.numbers.get("cases"):
            raise SuiteError(f"{name} ran no case")
    wrong = [name for name, test in tests.items() if not test.passed]
    counts = {
        name: sum(int(test.numbers[name]) for test in tests.values())
        for name in ("cases", "failed")
    }
    return Counted("h2spec", {"unexplained": len(wrong), **counts}, wrong)


def read_memory(tests: Mapping[str, Ran]) -> Counted:
    """The looks at the memory that tests have recorded.

    Raises:
        SuiteError: a test did not look, or failed without having seen too much.
    """
    looks, exceeded, remarks = 0, 0, []
    for name, test in tests.items():
        if not test.numbers.get("looks"):
            raise SuiteError(f"{name} has not looked at the memory")
        above = test.numbers["exceeded"]
        if not test.passed and not above:
            raise SuiteError(f"{name} failed for another reason")
        looks, exceeded = looks + int(test.numbers["looks"]), exceeded + int(above)
        remarks += [f"{name}: {above:g} times"] if above else []
    return Counted("memory", {"exceeded": exceeded, "looks": looks}, remarks)


def run_tests(chosen: Sequence[str]) -> str:
    """What pytest says in its XML of some of Dwell's own tests."""
    environment = os.environ | {
        "DWELL_BIN": str(release_directory() / "dwell"),
        "DWELL_HELLO": str(example("hello")),
        "DWELL_H2C": str(example("h2c")),
        "DWELL_H2SPEC": str(release_directory().parent / "h2spec" / "h2spec"),
    }
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "tests.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += [f"--junitxml={file}", *(str(TESTS / name) for name in chosen)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if not file.exists():
            raise SuiteError(f"pytest ended with {done.returncode}: {done.stderr[-300:]}")
        return file.read_text()


def read_tests(document: str) -> dict[str, Ran]:
    """The tests of a JUnit document by name.

    Raises:
        SuiteError: there is none, or one was skipped or could not be run.
    """
    tests: dict[str, Ran] = {}
    for case in ElementTree.fromstring(document).iter("testcase"):
        name = f"{case.get('classname', '').rpartition('.')[2]}: {case.get('name')}"
        for kind in ("skipped", "error"):
            if (found := case.find(kind)) is not None:
                raise SuiteError(f"{name} did not run: {found.get('message', kind)[:300]}")
        numbers = {
            str(each.get("name")): float(each.get("value", "nan")) for each in case.iter("property")
        }
        tests[name] = Ran(case.find("failure") is None, numbers)
    if not tests:
        raise SuiteError("pytest ran no test")
    return tests
