"""The application's answers fill the cache, where they and the route allow it."""

import pytest

from support.upstream import Answer
from support.wait import until

KEY = "/poll/alice"


@pytest.fixture(params=["embedded", "memcached", "redis"])
def filling(request, start_dwell, app):
    """An edge that fills its cache, and a client of that cache."""

    def start(**rules):
        route = [{"prefix": "/poll/", "fill": True, **rules}]
        sections = {"upstream": {"url": app.url}, "route": route, "server": {"pollers": 1}}
        if request.param == "embedded":
            dwell = start_dwell(**sections)
            return dwell, dwell.store()
        if request.param == "redis":
            redis = request.getfixturevalue("start_redis")()
            return start_dwell(redis={"url": redis.url}, **sections), redis.client()
        memcached = request.getfixturevalue("memcached")
        servers = {"servers": [memcached.name], "sweep_interval": "50ms"}
        return start_dwell(memcached=servers, **sections), memcached.client()

    return start


def answering(*controls, body=b"made", fields=()):
    control = tuple(("Cache-Control", control) for control in controls)
    return lambda request: Answer(body, fields=control + fields)


def test_an_answer_that_may_be_kept_is_a_hit_next(filling, app):
    dwell, cache = filling()
    app.answer = answering("max-age=60")
    missed = dwell.get(KEY)
    until(lambda: cache.get(KEY) == b"made", "the cache has it")
    hit = dwell.get(KEY)
    assert (hit.body, hit.field("Cache-Status")) == (b"made", "dwell; hit")
    assert hit.field("Poll-Cursor") == missed.field("Poll-Cursor")
    assert len(app.requests) == 1
    dwell.await_metric(1, "dwell_fills_total")


@pytest.mark.parametrize(
    "answer",
    [
        answering(),
        answering("max-age=0"),
        answering("max-age=60, s-maxage=0"),
        answering("private, max-age=60"),
        answering("no-store, max-age=60"),
        answering("no-cache, max-age=60"),
        answering("max-age=60", fields=(("Age", "60"),)),
        answering("max-age=60", fields=(("Set-Cookie", "a=b"),)),
        answering("max-age=60", fields=(("Vary", "Accept-Language"),)),
        answering("max-age=60", fields=(("Content-Encoding", "br"),)),
        lambda request: Answer(b"no", 404, (("Cache-Control", "max-age=60"),)),
    ],
    ids=[
        "silent",
        "zero",
        "shared_zero",
        "private",
        "no_store",
        "no_cache",
        "aged",
        "cookie",
        "vary",
        "coded",
        "not_found",
    ],
)
def test_what_may_not_be_kept_is_not(filling, app, answer):
    dwell, cache = filling()
    app.answer = answer
    for _ in range(2):
        before = len(app.requests)
        dwell.get(KEY)
        assert len(app.requests) > before
    assert cache.get(KEY) is None
    dwell.await_metric(0, "dwell_fills_total")


def test_nothing_of_a_client_decides_what_fills_the_cache(filling, app):
    dwell, cache = filling()

    def link(request):
        names = [request.field(name) or "" for name in ("Host", "X-Forwarded-Host", "X-Bad")]
        text = " ".join([*names, request.target])
        return Answer(text.encode(), fields=(("Cache-Control", "max-age=60"),))

    app.answer = link
    hostile = {"X-Forwarded-Host": "evil", "X-Bad": "1", "Host": "evil"}
    assert dwell.get(f"{KEY}?callback=evil", fields=hostile).body.endswith(b"?callback=evil")
    assert dwell.get(KEY, fields=hostile).body == b"localhost   /poll/alice"
    until(lambda: cache.get(KEY) == b"localhost   /poll/alice", "the cache has it")
    dwell.await_metric(1, "dwell_fills_total")


def test_who_comes_with_a_name_of_their_own_fills_nothing(filling, app):
    dwell, cache = filling()
    app.answer = answering("max-age=60")
    dwell.get(KEY, "GET", {"Authorization": "Bearer x"})
    dwell.get(KEY, "POST", body=b"x")
    assert cache.get(KEY) is None
    assert len(app.requests) == 2


def test_what_the_application_stores_by_itself_wins(filling, app):
    dwell, cache = filling()

    def answer(request):
        cache.set(KEY, b"stored by the application")
        return Answer(b"made", fields=(("Cache-Control", "max-age=60"),))

    app.answer = answer
    assert dwell.get(KEY).body == b"made"
    dwell.await_metric(1, "dwell_fills_total")
    assert dwell.get(KEY).body == b"stored by the application"


def test_what_fills_the_cache_ends_with_its_time(filling, app):
    dwell, cache = filling()
    app.answer = answering("max-age=1")
    dwell.get(KEY)
    until(lambda: cache.stats()[b"cmd_set"] == 1, "the cache has had it")
    until(lambda: cache.get(KEY) is None, "its time is over")
    app.answer = answering("max-age=60", body=b"made anew")
    assert dwell.get(KEY).body == b"made anew"


def test_a_stream_and_a_held_poll_get_what_fills_the_cache(filling, app):
    dwell, cache = filling(on_delete="keep-waiting")
    cache.set(KEY, b"old")
    cursor = dwell.get(KEY).field("Poll-Cursor")
    with dwell.connect() as held:
        held.ask(f"{KEY}?since={cursor}&wait=25")
        dwell.await_waiters(1)
        cache.delete(KEY)
        app.answer = answering("max-age=60", body=b"new")
        assert dwell.get(KEY).body == b"new"
        assert held.answer().body == b"new"


def test_a_stale_value_is_given_while_a_newer_one_is_fetched(filling, app):
    dwell, cache = filling(stale_while_revalidate="1h")
    app.answer = answering("max-age=1")
    dwell.get(KEY)
    until(lambda: cache.stats()[b"cmd_set"] == 1, "the cache has had it")
    until(lambda: cache.get(KEY) is None, "its time is over")
    app.answer = answering("max-age=60", body=b"newer")
    app.hang()
    with dwell.connect() as connection:

        def is_asked_again():
            stale = connection.get(KEY)
            assert (stale.status, stale.body) == (200, b"made")
            assert stale.field("Cache-Status").startswith("dwell; hit; ttl=-")
            return len(app.requests) == 2

        # One that has come less than a second ago is not asked for again.
        until(is_asked_again, "a newer one is asked for")
    app.release()
    until(lambda: dwell.get(KEY).body == b"newer", "it is fetched")
    assert len(app.requests) == 2


def test_a_held_poll_outlasts_what_it_has_and_gets_the_newer_one(filling, app):
    dwell, cache = filling(stale_while_revalidate="1h")
    app.answer = answering("max-age=1")
    cursor = dwell.get(KEY).field("Poll-Cursor")
    dwell.await_metric(1, "dwell_fills_total")
    with dwell.connect() as held:
        held.ask(f"{KEY}?since={cursor}&wait=25")
        dwell.await_waiters(1)
        app.answer = answering("max-age=60", body=b"newer")
        # Somebody else asks, as the embedded store tells nobody of an end of time.
        until(lambda: dwell.get(KEY).body == b"newer", "it is fetched")
        assert held.answer().body == b"newer"


def test_a_newer_one_that_cannot_be_had_leaves_the_stale_one(filling, app):
    dwell, cache = filling(stale_while_revalidate="1h")
    app.answer = answering("max-age=1")
    dwell.get(KEY)
    dwell.await_metric(1, "dwell_fills_total")
    app.stop()
    until(lambda: cache.get(KEY) is None, "its time is over")
    for _ in range(5):
        assert dwell.get(KEY).body == b"made"


def test_paths_that_nobody_asks_for_again_evict_nothing_that_was_published(start_dwell, app):
    dwell = start_dwell(
        upstream={"url": app.url},
        route=[{"prefix": "/poll/", "fill": True}],
        store={"bytes_max": "2MiB"},
    )
    store = dwell.store()
    app.answer = answering("max-age=60", body=b"v" * 4000)
    published = [f"/poll/published-{number}" for number in range(100)]
    for key in published:
        store.set(key, b"nobody has read it yet")
    with dwell.connect() as connection:
        for number in range(900):
            assert connection.get(f"/poll/random-{number}").status == 200
    dwell.await_metric(900, "dwell_fills_total")
    evictions = store.stats()[b"evictions"]
    assert evictions > 300, evictions
    assert len(store.get_many(published)) == len(published)


def test_the_scheme_may_be_in_the_key(start_dwell, app):
    """Without `{scheme}` the first answer is everybody's, whatever the scheme of its client."""

    def told(request):
        proto = dict(request.fields)["X-Forwarded-Proto"]
        return Answer(proto.encode(), fields=(("Cache-Control", "max-age=60"),))

    app.answer = told
    https = (("X-Forwarded-Proto", "https"),)
    for key, expected in [("{path}", [b"http", b"http"]), ("{scheme}:{path}", [b"http", b"https"])]:
        dwell = start_dwell(
            server={"pollers": 1, "trusted_proxies": ["127.0.0.1"]},
            upstream={"url": app.url},
            route=[{"prefix": "/poll/", "fill": True, "key": key}],
        )
        for _ in range(2):
            bodies = [dwell.get(KEY, fields=fields).body for fields in [(), https]]
            assert bodies == expected
        cache = dwell.store()
        names = [KEY] if key == "{path}" else [f"http:{KEY}", f"https:{KEY}"]
        assert all(cache.get(name) for name in names)


def test_a_client_that_is_no_trusted_proxy_has_the_scheme_of_its_connection(start_dwell, app):
    app.answer = answering("max-age=60")
    dwell = start_dwell(
        upstream={"url": app.url},
        route=[{"prefix": "/poll/", "fill": True, "key": "{scheme}:{path}"}],
    )
    dwell.get(KEY, fields=(("X-Forwarded-Proto", "https"),))
    cache = dwell.store()
    until(lambda: cache.get(f"http:{KEY}") == b"made", "the cache has it")
    assert cache.get(f"https:{KEY}") is None
