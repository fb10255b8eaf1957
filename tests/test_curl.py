"""What a person types: curl against the edge."""

import subprocess

import pytest

KEY = "/poll/alice"


def curl(*arguments, **options):
    """Runs curl and returns what it wrote."""
    command = ["curl", "--silent", "--show-error", "--max-time", "20", *arguments]
    return subprocess.run(command, check=True, capture_output=True, timeout=30, **options).stdout


@pytest.fixture
def hit(edge):
    edge.store().set(KEY, b"value")
    return edge


def test_get(hit):
    assert curl(hit.url(KEY)) == b"value"


def test_head(hit):
    head = curl("--head", hit.url(KEY)).decode()
    assert head.startswith("HTTP/1.1 200 OK\r\n")
    assert "etag:" in head.lower()


def test_a_large_post_miss(hit, app, tmp_path):
    body = tmp_path / "body"
    body.write_bytes(bytes(range(256)) * 200)
    upload = f"@{body}"
    assert curl("--data-binary", upload, hit.url("/poll/none")) == b"from the app"
    # curl asks with Expect: 100-continue before it sends this much.
    assert curl("-H", "Expect: 100-continue", "--data-binary", upload, hit.url("/up")) != b""
    chunked = ["-H", "Transfer-Encoding: chunked", "--data-binary", upload]
    assert curl(*chunked, hit.url("/poll/none")) == b"from the app"
    assert [seen.body for seen in app.requests] == [body.read_bytes()] * 3


def test_one_connection_serves_many_requests(hit):
    urls = [hit.url(f"{KEY}?{place}") for place in range(10)]
    written = curl(
        "--write-out", "%{num_connects}\n", *[a for u in urls for a in (u, "-o/dev/null")]
    )
    assert written.decode().split() == ["1"] + ["0"] * 9


def test_conditional(hit, tmp_path):
    saved = str(tmp_path / "etag")
    assert curl("--etag-save", saved, hit.url(KEY)) == b"value"
    arguments = ["--etag-compare", saved, "--write-out", "%{http_code}"]
    assert curl(*arguments, hit.url(KEY)) == b"304"


def test_http_1_0(hit):
    assert curl("--http1.0", hit.url(KEY)) == b"value"
    assert curl("--http1.0", hit.url("/page")) == b"from the app"


def test_an_offer_of_http_2_is_declined(hit):
    # curl sends Upgrade: h2c, which a server may ignore.
    assert curl("--http2", hit.url(KEY)) == b"value"


def test_a_long_poll_in_the_background(hit):
    etag = hit.get(KEY).etag
    command = ["curl", "--silent", "-H", f"If-None-Match: {etag}", hit.url(f"{KEY}?wait=30")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as poll:
        try:
            hit.await_waiters(1)
            hit.store().set(KEY, b"news")
            assert poll.communicate(timeout=10)[0] == b"news"
        finally:
            poll.kill()


def test_a_long_poll_that_is_interrupted(hit):
    etag = hit.get(KEY).etag
    command = ["curl", "--silent", "-H", f"If-None-Match: {etag}", hit.url(f"{KEY}?wait=30")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as poll:
        try:
            hit.await_waiters(1)
        finally:
            poll.kill()
    hit.await_waiters(0)
    hit.await_connections(0)
