import os
import socket

import pytest

from harness import accounting

STAT = (
    "4242 (a (odd) name) S 17 4242 4242 0 -1 4194560 120 0 0 0 250 125 0 0 20 0 3 0 998877 "
    "1000000 500 18446744073709551615"
)


def test_stat_counts_fields_from_the_last_parenthesis() -> None:
    stat = accounting.parse_stat(STAT)
    assert (stat.pid, stat.parent, stat.start_ticks) == (4242, 17, 998877)
    assert stat.cpu_seconds == pytest.approx(375 / accounting.CLOCK_TICKS_PER_SECOND)


def test_descendants_are_the_children_of_children_and_nobody_else() -> None:
    def process(pid: int, parent: int) -> accounting.ProcessStat:
        return accounting.ProcessStat(pid, parent, 0, 0, 0)

    stats = [process(1, 0), process(30, 20), process(20, 10), process(10, 1), process(11, 1)]
    assert [stat.pid for stat in accounting.descendants(10, stats)] == [10, 20, 30]
    assert accounting.descendants(99, stats) == []


def test_field_is_found_by_its_whole_name() -> None:
    rollup = "5567-7ffe ---p 00000000 00:00 0 [rollup]\nRssAnon: 1 kB\nRss:     1234 kB\n"
    assert accounting.parse_field(rollup, "Rss") == 1234
    with pytest.raises(ValueError, match="no field Pss"):
        accounting.parse_field(rollup, "Pss")


def test_own_process_is_counted() -> None:
    pid = os.getpid()
    assert accounting.cpu_seconds(pid) > 0
    assert accounting.fine_cpu_seconds(pid) > 0
    assert accounting.user_bytes(pid) > 1_000_000
    assert accounting.thread_count(pid) >= 1
    assert accounting.wakeups(pid) >= 0


def test_process_that_has_ended_counts_nothing() -> None:
    missing = 2**22 + 1  # above the largest process id Linux gives
    assert accounting.read_stat(missing) is None
    assert accounting.cpu_seconds(missing) == 0


def test_a_listener_is_found_by_its_port_and_state() -> None:
    table = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"
        "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0\n"
        "   1: 0100007F:1F91 0100007F:D431 01 00000000:00000000 00:00000000 00000000     0\n"
    )
    assert accounting.has_listener(table, 8080)
    assert not accounting.has_listener(table, 8081)
    assert not accounting.has_listener(table, 80)


def test_a_listener_of_this_machine_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert accounting.is_listening(port)
