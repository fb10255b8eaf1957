import pytest

from harness import ab, h2load, storeload, syscalls, wrk
from harness.stage import ContenderError

WRK = """Running 1s test @ http://127.0.0.1:18999/a
  1 threads and 100 connections
Requests/sec: 149809.33
dwell-bench {"requests": 150067, "microseconds": 1001720, "bytes": 11705226, "p50_us": 333, \
"p99_us": 684, "errors": {"connect": 0, "read": 1, "write": 0, "timeout": 2, "status": 0}}
"""

AB = """This is ApacheBench, Version 2.3 <$Revision$>
Server Hostname:        127.0.0.1
Document Length:        13 bytes

Concurrency Level:      50
Time taken for tests:   0.310 seconds
Complete requests:      5000
Failed requests:        3
   (Connect: 0, Receive: 0, Length: 3, Exceptions: 0)
Non-2xx responses:      2
Requests per second:    16134.02 [#/sec] (mean)
Time per request:       3.099 [ms] (mean)
Time per request:       0.062 [ms] (mean, across all concurrent requests)

Percentage of the requests served within a certain time (ms)
  50%      3
  99%      5
 100%      6 (longest request)
"""

H2LOAD = """starting benchmark...
TLS Protocol: TLSv1.3
Cipher: TLS_AES_128_GCM_SHA256
Application protocol: h2
finished in 980.50ms, 72370.00 req/s, 5.66MB/s
requests: 72370 total, 72470 started, 72370 done, 72369 succeeded, 1 failed, 0 errored, 0 timeout
status codes: 72360 2xx, 9 3xx, 0 4xx, 0 5xx
traffic: 5.66MB (5935010) total, 3.52MB (3690870) headers (space savings 37.04%), 918KB data
"""

STRACE = """% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 62.52    0.126660           6     18597           sendto
 34.54    0.069969           3     18695         3 recvfrom
  2.23    0.004517          23       190           epoll_wait
------ ----------- ----------- --------- --------- ----------------
100.00    0.202602           5     37482         3 total
"""

PERF = """# started on Tue Jan  6 10:00:00 2026

2080,,raw_syscalls:sys_enter,8016337,100.00,,
190,,syscalls:sys_enter_epoll_wait,8016337,100.00,,
0,,syscalls:sys_enter_pselect6,8016337,100.00,,
<not supported>,,syscalls:sys_enter_epoll_pwait2,0,100.00,,
"""


def test_wrk_report_is_read_exactly() -> None:
    report = wrk.parse_report(WRK)
    assert report.requests == 150067
    assert report.seconds == pytest.approx(1.00172)
    assert (report.p50_us, report.p99_us, report.bytes_read) == (333, 684, 11705226)
    assert report.failures == 3


def test_wrk_without_a_report_repeats_its_words() -> None:
    with pytest.raises(ContenderError, match="unable to connect"):
        wrk.parse_report("unable to connect to 127.0.0.1:1 Connection refused\n")


def test_key_space_names_its_paths() -> None:
    keys = wrk.KeySpace("/poll/key-", 3)
    assert keys.paths() == ["/poll/key-0", "/poll/key-1", "/poll/key-2"]


def test_ab_report_adds_up_its_failures() -> None:
    report = ab.parse_report(AB)
    assert report.requests == 5000
    assert report.requests_per_second == pytest.approx(16134.02)
    assert (report.mean_ms, report.p99_ms) == (3.099, 5)
    assert report.failures == 5
    assert report.body_bytes == 13


def test_ab_report_without_wrong_answers() -> None:
    assert ab.parse_report(AB.replace("Non-2xx responses:      2\n", "")).failures == 3


def test_ab_that_gave_up_repeats_its_words() -> None:
    with pytest.raises(ContenderError, match="Connection refused"):
        ab.parse_report("apr_socket_recv: Connection refused (111)")


def test_strace_summary_without_its_total() -> None:
    calls = syscalls.parse_summary(STRACE)
    assert calls == {"sendto": 18597, "recvfrom": 18695, "epoll_wait": 190}
    assert syscalls.parse_summary("strace: attach: Operation not permitted") == {}


def test_counts_of_perf_without_calls_the_system_does_not_have() -> None:
    calls = syscalls.parse_counts(PERF)
    assert calls == {"total": 2080, "epoll_wait": 190}
    assert syscalls.parse_counts("Error: no permission") == {}


def test_turns_are_calls_that_wait() -> None:
    traced = syscalls.with_turns({"sendto": 100, "epoll_wait": 20, "poll": 5}, 100)
    assert (traced["total"], traced["turns"]) == (1.25, 0.25)
    counted = syscalls.with_turns({"total": 210, "epoll_wait": 20}, 100)
    assert (counted["total"], counted["turns"]) == (2.1, 0.2)


def test_rows_of_the_store_have_names_of_their_own() -> None:
    names = [storeload.name_of("store_edge", mode) for mode in storeload.MODES]
    assert names == ["store_edge", "store_edge_gets", "store_edge_sets", "store_edge_multi"]


def test_h2load_report() -> None:
    report = h2load.parse_report(H2LOAD)
    assert (report.protocol, report.suite) == ("h2", "TLS_AES_128_GCM_SHA256")
    assert (report.requests, report.seconds) == (72360, pytest.approx(0.9805))
    assert report.failures == {"failed": 1, "status": 9}
    plain = h2load.parse_report(H2LOAD.replace("Cipher: ", "").replace("980.50ms", "1.00s"))
    assert (plain.suite, plain.seconds) == ("", 1.0)


@pytest.mark.parametrize(
    "output", ["", H2LOAD.replace("72360 2xx", "0 2xx"), H2LOAD.replace("finished", "began")]
)
def test_h2load_that_got_no_answer_is_an_error(output: str) -> None:
    with pytest.raises(ContenderError, match="h2load failed"):
        h2load.parse_report(output)
