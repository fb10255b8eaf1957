"""Requests that are malformed or ambiguous: refused, the connection closed, nothing passed on."""

import pytest

from support.http import request

HOST = b"Host: edge.test\r\n"
# What a smuggler hides: it must never be taken for a request.
HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: edge.test\r\n\r\n"


def post(fields, body=b"", target=b"/poll/alice", host=HOST):
    return b"POST " + target + b" HTTP/1.1\r\n" + host + fields + b"\r\n" + body


def get(target=b"/poll/alice", version=b"HTTP/1.1", fields=b"", host=HOST):
    return b"GET " + target + b" " + version + b"\r\n" + host + fields + b"\r\n"


CHUNKED = b"Transfer-Encoding: chunked\r\n"

REFUSED = {
    # Two ways to end one body.
    "length_and_chunked": (400, post(b"Content-Length: 5\r\n" + CHUNKED, b"0\r\n\r\n")),
    "chunked_and_length": (400, post(CHUNKED + b"Content-Length: 5\r\n", b"0\r\n\r\n")),
    "two_lengths": (400, post(b"Content-Length: 4\r\nContent-Length: 5\r\n", b"12345")),
    "same_length_twice": (400, post(b"Content-Length: 5\r\nContent-Length: 5\r\n", b"12345")),
    "list_of_lengths": (400, post(b"Content-Length: 5, 5\r\n", b"12345")),
    "signed_length": (400, post(b"Content-Length: +5\r\n", b"12345")),
    "negative_length": (400, post(b"Content-Length: -5\r\n", b"12345")),
    "empty_length": (400, post(b"Content-Length:\r\n", b"12345")),
    "hexadecimal_length": (400, post(b"Content-Length: 0x5\r\n", b"12345")),
    "length_with_blank": (400, post(b"Content-Length: 1 2\r\n", b"12345")),
    "length_past_64_bits": (
        (400, 413),
        post(b"Content-Length: 18446744073709551621\r\n", b"12345"),
    ),
    # Codings.
    "unknown_coding": (501, post(b"Transfer-Encoding: gzip\r\n")),
    "coding_before_chunked": (501, post(b"Transfer-Encoding: gzip, chunked\r\n")),
    "chunked_not_last": ((400, 501), post(b"Transfer-Encoding: chunked, gzip\r\n")),
    "chunked_twice": ((400, 501), post(CHUNKED + CHUNKED, b"0\r\n\r\n")),
    "identity": ((400, 501), post(b"Transfer-Encoding: identity\r\n")),
    "coding_disguised": ((400, 501), post(b"Transfer-Encoding: xchunked\r\n")),
    "coding_with_control": (400, post(b"Transfer-Encoding: \x0bchunked\r\n")),
    "coding_in_1_0": (
        400,
        b"POST /poll/alice HTTP/1.0\r\n" + HOST + CHUNKED + b"\r\n0\r\n\r\n",
    ),
    # Chunks.
    "chunk_size_is_no_number": (400, post(CHUNKED, b"x\r\nhello\r\n0\r\n\r\n")),
    "chunk_size_is_empty": (400, post(CHUNKED, b"\r\nhello\r\n0\r\n\r\n")),
    "chunk_size_is_signed": (400, post(CHUNKED, b"+5\r\nhello\r\n0\r\n\r\n")),
    "chunk_size_has_prefix": (400, post(CHUNKED, b"0x5\r\nhello\r\n0\r\n\r\n")),
    "chunk_size_after_blank": (400, post(CHUNKED, b" 5\r\nhello\r\n0\r\n\r\n")),
    "chunk_size_past_64_bits": (400, post(CHUNKED, b"10000000000000005\r\nhello\r\n")),
    "chunk_size_ended_by_lf": (400, post(CHUNKED, b"5\nhello\r\n0\r\n\r\n")),
    "chunk_longer_than_said": (400, post(CHUNKED, b"5\r\nhello!\r\n0\r\n\r\n")),
    "chunk_data_ended_by_lf": (400, post(CHUNKED, b"5\r\nhello\n0\r\n\r\n")),
    "chunk_extension_with_lf": (400, post(CHUNKED, b"5;a\nb\r\nhello\r\n0\r\n\r\n")),
    "chunk_extension_is_empty": (400, post(CHUNKED, b"5;\r\nhello\r\n0\r\n\r\n")),
    "chunk_extension_is_no_token": (400, post(CHUNKED, b"5;a@b\r\nhello\r\n0\r\n\r\n")),
    "chunk_extension_quoted_in_part": (400, post(CHUNKED, b'5;a=b"c"\r\nhello\r\n0\r\n\r\n')),
    "trailer_folded": (400, post(CHUNKED, b"0\r\nX: 1\r\n Y: 2\r\n\r\n")),
    # Host.
    "no_host": (400, get(host=b"")),
    "two_hosts": (400, get(fields=b"Host: other.test\r\n")),
    "host_is_empty": (400, get(host=b"Host:\r\n")),
    "host_is_empty_in_1_0": (400, get(version=b"HTTP/1.0", host=b"Host:\r\n")),
    "host_is_a_port": (400, get(host=b"Host: :80\r\n")),
    "host_with_blank": (400, get(host=b"Host: edge test\r\n")),
    "host_with_path": (400, get(host=b"Host: edge.test/x\r\n")),
    "host_with_user": (400, get(host=b"Host: me@edge.test\r\n")),
    "host_with_bad_port": (400, get(host=b"Host: edge.test:8x\r\n")),
    # Lines and fields.
    "lf_after_the_request_line": (400, b"GET /poll/alice HTTP/1.1\n" + HOST + b"\r\n"),
    "lf_after_a_field": (400, get(host=b"Host: edge.test\n")),
    "lf_only": (400, b"GET /poll/alice HTTP/1.1\nHost: edge.test\n\n"),
    "cr_within_a_field": (400, get(fields=b"X: a\rb\r\n")),
    "cr_before_a_field": (400, get(fields=b"\rX: a\r\n")),
    "blank_before_colon": (400, get(fields=b"X : a\r\n")),
    "length_with_blank_before_colon": (400, post(b"Content-Length : 5\r\n", b"12345")),
    "blank_before_first_field": (400, b"GET /poll/alice HTTP/1.1\r\n " + HOST + b"\r\n"),
    "folded_field": (400, get(fields=b"X: a\r\n b\r\n")),
    "folded_by_tab": (400, get(fields=b"X: a\r\n\tb\r\n")),
    "field_without_colon": (400, get(fields=b"X\r\n")),
    "field_without_name": (400, get(fields=b": a\r\n")),
    "nul_in_a_value": (400, get(fields=b"X: a\x00b\r\n")),
    "control_in_a_value": (400, get(fields=b"X: a\x01b\r\n")),
    "control_in_a_name": (400, get(fields=b"X\x01: a\r\n")),
    "non_ascii_name": (400, get(fields=b"X\xc3\xa9: a\r\n")),
    "parenthesis_in_a_name": (400, get(fields=b"X(y): a\r\n")),
    # The request line.
    "control_in_the_target": (400, get(b"/poll/\x01")),
    "nul_in_the_target": (400, get(b"/poll/\x00")),
    "non_ascii_target": (400, get(b"/poll/\xc3\xa9")),
    "quote_in_the_target": (400, get(b'/poll/"')),
    "angle_in_the_target": (400, get(b"/poll/<x>")),
    "fragment_in_the_target": (400, get(b"/poll/alice#x")),
    "blank_in_the_target": (400, get(b"/poll/a b")),
    "tab_in_the_request_line": (400, b"GET\t/poll/alice\tHTTP/1.1\r\n" + HOST + b"\r\n"),
    "two_blanks": (400, b"GET  /poll/alice HTTP/1.1\r\n" + HOST + b"\r\n"),
    "blank_at_the_end": (400, b"GET /poll/alice HTTP/1.1 \r\n" + HOST + b"\r\n"),
    "relative_target": (400, get(b"poll/alice")),
    "no_target": (400, b"GET HTTP/1.1\r\n" + HOST + b"\r\n"),
    "no_version": (400, b"GET /poll/alice\r\n\r\n"),
    "control_in_the_method": (400, b"G\x01T /poll/alice HTTP/1.1\r\n" + HOST + b"\r\n"),
    "http_2": (505, get(version=b"HTTP/2.0")),
    "http_0_9": (505, get(version=b"HTTP/0.9")),
    "http_2_preface": ((400, 505), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "lower_case_version": ((400, 505), get(version=b"http/1.1")),
    "version_with_more_digits": ((400, 505), get(version=b"HTTP/1.10")),
    "memcached": (400, b"get /poll/alice\r\n\r\n"),
}


@pytest.fixture(scope="module")
def edge_and_app(tmp_path_factory):
    """One edge for the whole list: it must survive all of it."""
    from support.dwell import Dwell
    from support.upstream import Upstream

    app = Upstream().start()
    folder = tmp_path_factory.mktemp("bad_requests")
    dwell = Dwell(folder, upstream={"url": app.url}, limits={"header_timeout": "2s"})
    try:
        yield dwell.start_ready(), app
    finally:
        dwell.stop()
        app.stop()


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("prefix", [b"/poll/", b"/page/"], ids=["poll", "forward"])
def test_a_bad_request_is_refused_and_the_connection_closed(edge_and_app, name, prefix):
    dwell, app = edge_and_app
    expected, data = REFUSED[name]
    app.requests.clear()
    with dwell.connect() as connection:
        connection.send(data.replace(b"/poll/", prefix) + HIDDEN)
        response = connection.answer()
        allowed = expected if isinstance(expected, tuple) else (expected,)
        assert response.status in allowed
        assert response.closes
        assert connection.read_to_end() == b""
    assert [seen.target for seen in app.requests if seen.body or "hidden" in seen.target] == []
    assert dwell.is_alive()


def test_a_handshake_of_tls_ends_the_connection_without_an_answer(edge_and_app):
    dwell, app = edge_and_app
    app.requests.clear()
    with dwell.connect() as connection:
        connection.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + HIDDEN)
        assert connection.read_to_end() == b""
    assert app.requests == []


def test_a_bad_request_after_good_ones_does_not_take_their_answers(edge):
    edge.store().set("/poll/alice", b"value")
    with edge.connect() as connection:
        connection.send(request("/poll/alice") * 3 + b"BAD\r\n\r\n")
        assert [connection.answer().body for _ in range(3)] == [b"value"] * 3
        assert connection.answer().status == 400
        assert connection.is_ended()


def test_bad_requests_are_counted(edge):
    with edge.connect() as connection:
        connection.send(b"BAD\r\n\r\n")
        assert connection.answer().status == 400
    edge.await_metric(1, "dwell_bad_requests_total", status="400")
    edge.await_metric(0, "dwell_panics_total")


def test_an_expectation_nobody_knows_is_417(edge):
    fields = {"Expect": "the-unexpected"}
    assert edge.get("/poll/alice", "POST", fields, b"x").status == 417
