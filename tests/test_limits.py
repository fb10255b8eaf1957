"""Requests over a limit: each gets its own status, and the connection is closed."""

import pytest

from support.http import request

SECTION = {
    "head_bytes_max": "2kb",
    "target_bytes_max": "1kb",
    "header_count_max": 20,
    "body_bytes_max": "8kb",
    "poll_body_bytes_max": "4kb",
}


@pytest.fixture
def small(start_dwell, app):
    """An edge with small limits."""
    return start_dwell(limits=SECTION, upstream={"url": app.url})


def refused(dwell, data, status):
    with dwell.connect() as connection:
        connection.send(data)
        response = connection.answer()
        assert response.status == status
        assert response.closes
        # A client that is still sending may see a reset instead of the end.
        assert connection.is_ended()
    dwell.await_metric(1, "dwell_bad_requests_total", status=str(status))


@pytest.mark.parametrize(("target", "limit"), [("/poll/alice", 4096), ("/page", 8192)])
def test_a_body_at_the_limit_passes_and_one_over_it_is_413(small, app, target, limit):
    assert small.get(target, "POST", body=b"x" * limit).status == 200
    assert len(app.requests[0].body) == limit
    # The announcement is enough: no byte of the body needs to come.
    head = request(target, "POST", {"Content-Length": str(limit + 1)})
    refused(small, head, 413)
    assert len(app.requests) == 1


@pytest.mark.parametrize(("target", "limit"), [("/poll/alice", 4096), ("/page", 8192)])
def test_a_chunked_body_over_the_limit_is_413(small, app, target, limit):
    head = request(target, "POST", {"Transfer-Encoding": "chunked"})
    chunk = b"400\r\n" + b"x" * 1024 + b"\r\n"
    refused(small, head + chunk * (limit // 1024) + b"1\r\nx\r\n", 413)


def test_an_expected_body_over_the_limit_is_413_before_it_is_sent(small):
    fields = {"Expect": "100-continue", "Content-Length": "1000000"}
    refused(small, request("/poll/alice", "POST", fields), 413)


def test_a_target_over_the_limit_is_414(small):
    longest = "/page?" + "x" * (1024 - len("/page?"))
    assert small.get(longest).status == 200
    refused(small, request(longest + "x"), 414)


def test_a_target_that_never_ends_is_414_or_431(small):
    with small.connect() as connection:
        connection.send(b"GET /" + b"x" * 2048)
        assert connection.answer().status in (414, 431)
        assert connection.is_ended()


def test_a_method_that_never_ends_is_501(small):
    # One that ends is no other.
    refused(small, request("/page", "A" * 65), 501)
    assert small.get("/page", "A" * 64).status == 200
    with small.connect() as connection:
        connection.send(b"A" * 100_000)
        assert connection.answer().status == 501
        assert connection.is_ended()


def test_a_head_over_the_limit_is_431(small):
    empty = len(request("/page", fields={"X": ""}))
    assert small.get("/page", fields={"X": "x" * (2048 - empty)}).status == 200
    refused(small, request("/page", fields={"X": "x" * (2049 - empty)}), 431)


def test_a_head_that_never_ends_is_431(small):
    with small.connect() as connection:
        connection.send(b"GET /page HTTP/1.1\r\nHost: edge.test\r\nX: " + b"x" * 2048)
        assert connection.answer().status == 431
        assert connection.is_ended()


def test_too_many_fields_are_431(small):
    most = [(f"X-{place}", "1") for place in range(19)]
    assert small.get("/page", fields=most).status == 200
    refused(small, request("/page", fields=[*most, ("X", "1")]), 431)


def test_trailers_that_never_end_are_refused(small):
    head = request("/page", "POST", {"Transfer-Encoding": "chunked"})
    with small.connect() as connection:
        connection.send(head + b"0\r\n")
        try:
            for place in range(10_000):
                connection.send(b"X-%d: trailer\r\n" % place)
        except OSError:
            pass
        else:
            assert connection.answer().status in (400, 413, 431)
    assert small.get("/page").status == 200


def test_a_value_over_the_stores_limit_is_refused_by_the_store(small):
    client = small.store()
    client.set("/poll/alice", b"old")
    with pytest.raises(Exception, match="too large"):
        client.set("/poll/alice", b"x" * 1_048_577)
    # memcached drops the value that could not be replaced.
    assert client.get("/poll/alice") is None
