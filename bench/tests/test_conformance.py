from typing import Any

import pytest

from harness import conformance, exchanges, idle_objects, rings, suites, targets
from harness.exchanges import Exchange, Step
from harness.suites import Ran, SuiteError

MEMCCAPABLE = """\
ascii version                           [pass]
ascii decr noreply                      [pass]
binary noop                             [pass]
binary stat                             [pass]
All tests passed
"""


def test_memccapable_is_counted_by_its_lines() -> None:
    counted = suites.read_memccapable(MEMCCAPABLE)
    assert counted.counts == {"passed": 4, "cases": 4}
    failed = suites.read_memccapable(MEMCCAPABLE.replace("[pass]", "[FAIL]", 1))
    assert failed.counts == {"passed": 3, "cases": 4}
    assert failed.remarks == ["ascii version: FAIL"]


@pytest.mark.parametrize(
    "output", ["", "All tests passed\n", MEMCCAPABLE.replace("binary", "text"), "Failed to connect"]
)
def test_memccapable_that_ran_nothing_or_one_protocol_is_an_error(output: str) -> None:
    with pytest.raises(SuiteError, match="memccapable ran"):
        suites.read_memccapable(output)


def autobahn(**changes: tuple[str, str]) -> list[dict[str, Any]]:
    behaviours = {"1.1.1": ("OK", "OK"), "7.1.6": ("INFORMATIONAL", "OK")} | changes
    cases = {
        case: {"behavior": one, "behaviorClose": close} for case, (one, close) in behaviours.items()
    }
    return [{"plain": cases}, {"frames": {"1.1.1": cases["1.1.1"]}}]


def test_autobahn_is_counted_over_its_reports() -> None:
    counts = {"failed": 0, "cases": 3, "non_strict": 0}
    assert suites.read_autobahn(autobahn(), 3).counts == counts
    lax = suites.read_autobahn(autobahn(**{"6.4.1": ("NON-STRICT", "OK")}), 4)
    assert lax.counts == {"failed": 0, "cases": 4, "non_strict": 1}


@pytest.mark.parametrize(
    "ends", [("FAILED", "OK"), ("OK", "UNCLEAN"), ("UNIMPLEMENTED", "OK"), ("NON-STRICT", "FAILED")]
)
def test_autobahn_fails_by_either_behaviour(ends: tuple[str, str]) -> None:
    counted = suites.read_autobahn(autobahn(**{"2.1": ends}), 4)
    assert counted.counts["failed"] == 1
    assert counted.remarks[0].startswith("plain 2.1: ")


def test_autobahn_with_missing_cases_or_unknown_behaviours_is_an_error() -> None:
    with pytest.raises(SuiteError, match="3 cases of 4"):
        suites.read_autobahn(autobahn(), 4)
    with pytest.raises(SuiteError, match="0 cases of 0"):
        suites.read_autobahn([], 0)
    with pytest.raises(SuiteError, match="unknown behaviour"):
        suites.read_autobahn(autobahn(**{"2.1": ("FINE", "OK")}), 4)


def junit(*inside: str) -> str:
    cases = "".join(
        f'<testcase classname="a.test_x" name="{n}">{i}</testcase>' for n, i in enumerate(inside)
    )
    return f"<testsuites><testsuite>{cases}</testsuite></testsuites>"


def test_h2spec_is_counted_over_its_servers() -> None:
    tests = {
        "edge": Ran(True, {"cases": 146, "failed": 4}),
        "tls": Ran(False, {"cases": 146, "failed": 5}),
    }
    counted = suites.read_h2spec(tests)
    assert counted.counts == {"unexplained": 1, "cases": 292, "failed": 9}
    assert counted.remarks == ["tls"]
    with pytest.raises(SuiteError, match="edge ran no case"):
        suites.read_h2spec({"edge": Ran(False, {})})


RECORDED = (
    '<properties><property name="looks" value="24"/>'
    '<property name="exceeded" value="{}"/></properties>'
)
FAILURE = '<failure message="no"/>'


def test_tests_are_read_with_their_numbers() -> None:
    assert suites.read_tests(junit("", FAILURE, RECORDED.format(2))) == {
        "test_x: 0": Ran(True, {}),
        "test_x: 1": Ran(False, {}),
        "test_x: 2": Ran(True, {"looks": 24.0, "exceeded": 2.0}),
    }


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (junit(), "ran no test"),
        (junit("", '<skipped message="no memcached"/>'), "1 did not run: no memcached"),
        (junit('<error message="no program"/>'), "0 did not run: no program"),
    ],
)
def test_tests_that_did_not_run_are_an_error(document: str, message: str) -> None:
    with pytest.raises(SuiteError, match=message):
        suites.read_tests(document)


def test_looks_at_the_memory_are_counted() -> None:
    tests = suites.read_tests(junit(RECORDED.format(0), RECORDED.format(3) + FAILURE))
    assert suites.read_memory(tests).counts == {"exceeded": 3, "looks": 48}


@pytest.mark.parametrize(
    ("inside", "message"),
    [
        ("", "has not looked"),
        (RECORDED.format(0).replace("24", "0"), "has not looked"),
        (RECORDED.format(0) + FAILURE, "another reason"),
    ],
)
def test_a_test_that_did_not_look_at_the_memory_is_an_error(inside: str, message: str) -> None:
    with pytest.raises(SuiteError, match=message):
        suites.read_memory(suites.read_tests(junit(inside)))


def test_places_of_keys_are_compared_in_every_ring() -> None:
    theirs = {key: f"s{place % 3}" for place, key in enumerate(rings.KEYS)}
    ours = theirs | {rings.KEYS[5]: "s0"}
    same = rings.compare("ring", [(theirs, theirs)])
    assert same.counts == {"equal": 400, "cases": 400, "rings": 1}
    other = rings.compare("ring", [(theirs, theirs), (theirs, ours)])
    assert other.counts["equal"] == 399
    assert other.remarks == ["key5: s0, not s2"]
    assert rings.read_places("key0\t127.0.0.1:1\nnonsense\n") == {"key0": "127.0.0.1:1"}


def test_rings_that_tell_nothing_are_an_error() -> None:
    theirs = {key: f"s{place % 3}" for place, key in enumerate(rings.KEYS)}
    with pytest.raises(SuiteError, match="no ring"):
        rings.compare("ring", [])
    with pytest.raises(SuiteError, match="400 and 0 of 400"):
        rings.compare("ring", [(theirs, {})])
    with pytest.raises(SuiteError, match="holds no key"):
        rings.compare("ring", [(dict.fromkeys(rings.KEYS, "s"), theirs)])


EXCHANGES = """\
# A head.

storage
    set a 0 0 1\\r\\n1\\r\\n
  ! ERROR\\r\\n
    get a\\r\\n
"""


def test_exchanges_are_read_with_what_is_listed() -> None:
    (exchange,) = exchanges.read(EXCHANGES)
    assert exchange.name == "storage"
    assert exchange.steps == [
        Step(r"set a 0 0 1\r\n1\r\n", r"ERROR\r\n"),
        Step(r"get a\r\n"),
    ]


@pytest.mark.parametrize(
    "text", ["", "# only a head\n", "name\n", "    step\n", "name\n  ! reply\n"]
)
def test_files_without_exchanges_are_an_error(text: str) -> None:
    with pytest.raises(SuiteError):
        exchanges.read(text)


def test_a_reply_must_be_memcacheds_or_the_listed_one() -> None:
    exchange = Exchange("it", [Step("a"), Step("b", r"OK\r\n")])

    def differing(*ours: str) -> int:
        return len(exchanges.compare(exchange, ["A", "B"], ours, unescaped=True))

    assert differing("A", "OK\r\n") == 0
    assert differing("x", "OK\r\n") == 1
    assert differing("A", "B") == 1


def test_what_may_differ_is_taken_out_of_a_reply() -> None:
    assert exchanges.normal(b"VERSION 1.6\r\nVALUE a 0 1 77\r\nx\r\nEND\r\n") == (
        "VERSION\r\nVALUE a 0 1 CAS\r\nx\r\nEND\r\n"
    )
    assert exchanges.normal(b"VALUE n 0 2\r\n9 \r\nEND\r\n") == "VALUE n 0\r\n9\r\nEND\r\n"
    assert exchanges.normal(b"VALUE a 0 2\r\n9 \r\n") == "VALUE a 0 2\r\n9 \r\n"


def test_bytes_of_requests() -> None:
    assert exchanges.unescape(r"a\x01\t\xc3\r\n\\".removesuffix("\\\\")) == b"a\x01\t\xc3\r\n"
    with pytest.raises(SuiteError, match="unknown escape"):
        exchanges.unescape(r"a\q")
    sent = exchanges.request("01 00000005.00000000 a b*3 cas 9")
    assert sent[:4] == b"\x80\x01\0\x01" and sent[4] == 8
    assert sent[16:24] == b"\0\0\0\0\0\0\0\x09"
    assert sent[24:] == b"\0\0\0\x05\0\0\0\0abbb"


def test_a_binary_reply_is_shown_up_to_the_end_of_its_step() -> None:
    end = exchanges.frame(exchanges.NOOP, exchanges.BINARY_END, 0, b"", b"", b"")
    reply = exchanges.frame(0x0C, 7, 1, b"\0\x05", b"k", b"it's")
    stream = bytearray(reply + end)

    def take(count: int) -> bytes:
        taken = bytes(stream[:count])
        del stream[:count]
        return taken

    assert list(exchanges.shown(take)) == [r"0c 0 extras=[00, 05] key=k value=it\'s cas"]
    stream += reply
    assert list(exchanges.shown(take))[1:] == ["closed"]
    stream += reply[:-1]
    with pytest.raises(SuiteError, match="cut short"):
        list(exchanges.shown(take))


def test_growth_is_divided_by_the_clients() -> None:
    before = {"objects": 1000, "tasks": 3}
    after = {"objects": 1000 + 3 * idle_objects.CLIENTS, "tasks": 2}
    counted = idle_objects.per_connection("idle", before, after)
    assert counted.counts["objects_per_connection"] == 3
    assert counted.counts["tasks_per_connection"] == 0
    with pytest.raises(SuiteError, match="after"):
        idle_objects.per_connection("idle", {}, {})
    with pytest.raises(SuiteError, match="after"):
        idle_objects.per_connection("idle", before, {"objects": 1})


def test_a_part_that_cannot_be_counted_leaves_no_row(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails() -> list[suites.Counted]:
        raise SuiteError("it is not there")

    def counts() -> list[suites.Counted]:
        return [suites.Counted("memory", {"exceeded": 1, "looks": 2}, ["x"])]

    monkeypatch.setattr(conformance, "PARTS", {"bad": ("", fails), "good": ("", counts)})
    rows, complete = conformance.measure(["bad", "good"])
    assert not complete
    assert [row.median() for row in rows] == [{"exceeded": 1, "looks": 2}]
    assert "bad: NOT COUNTED: it is not there" in capsys.readouterr().out


def test_every_target_has_a_figure_that_measures_it() -> None:
    assert [target.figure for target in targets.load() if target.result is None] == []
