"""Conditional polls: the client says which value it has."""

from urllib.parse import quote

import pytest

KEY = "/poll/alice"


@pytest.fixture
def known(lone_edge):
    """The edge with a value, and the value's entity tag."""
    lone_edge.store().set(KEY, b"value")
    return lone_edge, lone_edge.get(KEY).etag


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    "written",
    [
        "{etag}",
        "W/{etag}",
        '"{bare}-gzip"',
        'W/"{bare}-gzip"',
        '"something-else", {etag}',
        '"something-else" , W/{etag} ,"third"',
        "*",
    ],
)
def test_the_known_value_is_304(known, method, written):
    dwell, etag = known
    written = written.format(etag=etag, bare=etag.strip('"'))
    with dwell.connect() as connection:
        response = connection.get(KEY, method, {"If-None-Match": written})
        assert (response.status, response.body, response.etag) == (304, b"", etag)
        assert response.field("Poll-Cursor") is not None
        assert connection.get(KEY).status == 200


@pytest.mark.parametrize("written", ['"AAAAAAAAAAA"', "garbage", '""', "W/", '"unclosed'])
def test_any_other_cursor_is_the_value(known, written):
    dwell, etag = known
    response = dwell.get(KEY, fields={"If-None-Match": written})
    assert (response.status, response.body, response.etag) == (200, b"value", etag)


def test_the_same_cursor_after_a_change_is_the_new_value(known):
    dwell, etag = known
    dwell.store().set(KEY, b"changed")
    response = dwell.get(KEY, fields={"If-None-Match": etag})
    assert (response.status, response.body) == (200, b"changed")
    assert response.etag != etag


@pytest.mark.parametrize("form", ["{etag}", "{bare}"])
def test_since_is_a_cursor_too(known, form):
    dwell, etag = known
    since = quote(form.format(etag=etag, bare=etag.strip('"')))
    response = dwell.get(f"{KEY}?since={since}")
    assert (response.status, response.etag) == (304, etag)
    assert dwell.get(f"{KEY}?since=AAAAAAAAAAA").body == b"value"


def test_the_second_field_can_be_sent_back_as_it_came(known):
    dwell, _ = known
    cursor = dwell.get(KEY).field("Poll-Cursor")
    assert dwell.get(f"{KEY}?a=b&since={quote(cursor)}&c=d").status == 304


def test_a_post_that_knows_the_value_is_204(known):
    dwell, etag = known
    response = dwell.get(f"{KEY}?since={quote(etag)}", "POST", body=b"a=1")
    assert (response.status, response.body, response.etag) == (204, b"", etag)
    assert response.field("Content-Length") is None


def test_a_post_ignores_if_none_match(known):
    dwell, etag = known
    response = dwell.get(KEY, "POST", {"If-None-Match": etag}, b"a=1")
    assert (response.status, response.body) == (200, b"value")


def test_equal_bytes_set_again_are_the_same_version(known):
    dwell, etag = known
    dwell.store().set(KEY, b"value")
    assert dwell.get(KEY, fields={"If-None-Match": etag}).status == 304


def test_flags_are_part_of_the_version(known):
    dwell, etag = known
    dwell.store().set(KEY, b"value", flags=7)
    assert dwell.get(KEY).etag != etag
