import pytest

from harness import memcache_client

SUMMARY = """\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 60.00    0.000060           1        60           sendto
 40.00    0.000040           1        40         2 recvfrom
------ ----------- ----------- --------- --------- ----------------
100.00    0.000100           1       100         2 total
"""


def test_the_total_of_a_trace() -> None:
    assert memcache_client.calls_total(SUMMARY) == 100
    assert (
        memcache_client.calls_total(SUMMARY.replace("         2 total", "           total")) == 100
    )
    with pytest.raises(ValueError, match="no total"):
        memcache_client.calls_total("")


def test_the_table_has_a_row_for_each_contender() -> None:
    median = {"us": 1.0, "cpu_us": 0.5, "syscalls": 2.0, "switches": 1.0, "hole_s": 0.4}
    samples = [median, {"us": 0.5, "cpu_us": 0.6}]
    row = {"label": "it", "median": median, "samples": samples, "ends": {"hole_s": "error"}}
    last = memcache_client.report([row]).splitlines()[-1]
    assert last == "| it | 0.5 / 1.0 | 0.5 / 0.5 | 2.00 | 1.00 | - | 0.40 error |"
