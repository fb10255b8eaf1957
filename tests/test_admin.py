"""Health and metrics on the admin listener."""

import json
import re
import signal

from support.http import Connection
from support.wait import Stopwatch, until

KEY = "/poll/alice"
SAMPLE = re.compile(
    r'[a-z_][a-z0-9_]*(\{[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*\})? [-+0-9.eE]+(Inf)?( .*)?'
)


def test_health_says_ok(edge):
    response = edge.admin("/-/health")
    assert response.status == 200
    assert response.field("Content-Type").startswith("application/json")
    assert json.loads(response.body)["status"] == "ok"


def test_health_names_the_memcached_servers(start_dwell, memcached):
    dwell = start_dwell(memcached={"servers": [memcached.name]})
    dwell.get(KEY)
    assert memcached.name in dwell.admin("/-/health").body.decode()


def test_a_balancer_leaves_a_process_that_has_nothing_to_answer_with(start_dwell, memcached):
    alone = start_dwell(memcached={"servers": [memcached.name]})
    assert alone.admin("/-/ready").status == 200, "it has not been asked yet"
    memcached.kill()

    def statuses():
        alone.get(KEY)
        return [alone.admin(path).status for path in ("/-/health", "/-/ready")]

    until(lambda: statuses() == [200, 503], "the server is missed")
    memcached.start_ready()
    # No poll is sent: a balancer sends none to a process that is not ready.
    until(lambda: alone.admin("/-/ready").status == 200, "the server is back")


def test_with_an_application_a_process_stays_ready(start_dwell, memcached, app):
    dwell = start_dwell(memcached={"servers": [memcached.name]}, upstream={"url": app.url})
    memcached.kill()

    def is_degraded():
        dwell.get(KEY)
        return json.loads(dwell.admin("/-/ready").body)["status"] == "degraded"

    until(is_degraded, "the server is missed")
    assert dwell.admin("/-/ready").status == 200


def test_metrics_are_what_prometheus_reads(edge):
    edge.get(KEY)
    response = edge.admin("/-/metrics")
    assert response.status == 200
    assert response.field("Content-Type").startswith(("text/plain", "application/openmetrics-text"))
    lines = response.body.decode().splitlines()
    assert lines[-1] == "# EOF" or "openmetrics" not in response.field("Content-Type")
    families = set()
    for line in lines:
        if line.startswith("# TYPE "):
            family = line.split()[2]
            assert family not in families, f"{family} is described twice"
            families.add(family)
        elif not line.startswith("#"):
            assert SAMPLE.fullmatch(line), line
            assert any(line.startswith(family) for family in families), line


def test_polls_are_counted_by_how_they_ended(edge):
    def polls(outcome):
        return edge.metric("dwell_polls_total", outcome=outcome)

    store = edge.store()
    store.set(KEY, b"value")
    store.set("/poll/empty", b"")
    etag = edge.get(KEY).etag
    edge.get("/poll/empty")
    edge.get(KEY, fields={"If-None-Match": etag})
    edge.get("/poll/none")
    with edge.connect() as connection:
        connection.ask(f"{KEY}?wait=30", fields={"If-None-Match": etag})
        edge.await_waiters(1)
        store.set(KEY, b"new")
        connection.answer()
    outcomes = ("hit", "empty", "not_modified", "miss", "woken")
    until(
        lambda: {outcome: polls(outcome) for outcome in outcomes} == dict.fromkeys(outcomes, 1),
        lambda: {outcome: polls(outcome) for outcome in outcomes},
    )
    edge.await_metric(1, "dwell_waits_total")
    edge.await_metric(1, "dwell_wakeups_total", outcome="answered")


def test_a_wait_that_ends_is_counted(lone_edge):
    lone_edge.store().set(KEY, b"value")
    lone_edge.get(f"{KEY}?wait=1", fields={"If-None-Match": lone_edge.get(KEY).etag})
    lone_edge.await_metric(1, "dwell_polls_total", outcome="wait_ended")


def test_answers_are_counted(edge, app):
    before = edge.metrics()
    with edge.connect() as connection:
        for _ in range(10):
            connection.get("/page")
        edge.await_connections(1)

    def grown(name):
        return edge.metric(name) - sum(v for k, v in before.items() if k.startswith(name))

    until(lambda: grown("dwell_http_requests_total") == 10, "ten requests are counted")
    assert grown("dwell_connections_total") >= 1
    edge.await_metric(10, "dwell_upstream_requests_total", outcome="answered")


def test_the_time_to_the_head_of_an_answer_is_that_of_its_server(edge, app):
    name = "dwell_upstream_head_duration_seconds"
    assert edge.metric(f"{name}_count", server=app.url) == 0
    for _ in range(3):
        edge.get("/page")
    edge.await_metric(3, f"{name}_count", server=app.url)
    assert edge.metric(f"{name}_bucket", server=app.url, le="+Inf") == 3
    assert edge.metric(f"{name}_sum", server=app.url) > 0


def test_scrapes_do_not_count_as_clients(lone_edge):
    before = lone_edge.metric("dwell_http_requests_total")
    for _ in range(5):
        lone_edge.admin("/-/health")
    lone_edge.await_metric(before, "dwell_http_requests_total")
    lone_edge.await_connections(0)


def test_the_store_is_counted(lone_edge):
    store = lone_edge.store()
    store.set("k", b"value")
    store.get("k")
    store.get("none")
    lone_edge.await_metric(1, "dwell_store_items")
    assert lone_edge.metric("dwell_store_bytes") > 5
    lone_edge.await_metric(1, "dwell_store_sets_total")
    lone_edge.await_metric(1, "dwell_store_hits_total")
    lone_edge.await_metric(1, "dwell_store_misses_total")


def test_other_admin_paths_and_methods_are_refused(edge):
    assert edge.admin("/").status == 404
    assert edge.admin("/-/metrics/x").status == 404
    with Connection(edge.admin_address) as connection:
        assert connection.get("/-/health", "POST", body=b"").status == 405


def test_the_admin_listener_keeps_to_the_same_rules(edge):
    with Connection(edge.admin_address) as connection:
        connection.send(b"GET /-/health HTTP/1.1\r\n\r\n")
        assert connection.answer().status == 400
        assert connection.is_ended()


def admin(edge, target, method="GET", **fields):
    fields = {name.replace("_", "-"): value for name, value in fields.items()}
    with Connection(edge.admin_address) as connection:
        return connection.get(target, method, fields)


def test_a_name_that_somebody_made_mean_this_machine_is_not_answered(start_dwell):
    edge = start_dwell(server={"admin_hosts": ["dwell.internal"]})
    port = edge.admin_address[1]
    for host in ("localhost", f"127.0.0.1:{port}", f"[::1]:{port}", f"Dwell.Internal:{port}"):
        assert admin(edge, "/-/health", Host=host).status == 200, host
    for target in ("/-/", "/-/metrics", "/-/events", "/-/watched", "/-/keys/a", "/none"):
        refused = admin(edge, target, Host=f"evil.example:{port}")
        assert refused.status == 421, target
        assert b"admin_hosts" in refused.body
    assert edge.metric("dwell_admin_refused_total", reason="host") == 6
    edge.rewrite(server={"admin_hosts": ["evil.example"]})
    edge.signal(signal.SIGHUP)
    edge.await_metric(2, "dwell_config_generation")
    assert admin(edge, "/-/health", Host="evil.example").status == 200
    assert admin(edge, "/-/health", Host="dwell.internal").status == 421


def test_a_page_of_another_origin_changes_nothing(start_dwell):
    token = "0123456789abcdef"
    edge = start_dwell(publish={"token": token})
    bearer = {"Authorization": f"Bearer {token}"}
    for field in ({"Origin": "https://evil.example"}, {"Sec_Fetch_Site": "cross-site"}):
        assert admin(edge, "/-/keys/a", "DELETE", **bearer, **field).status == 403
        assert admin(edge, "/-/health", **field).status == 200
    assert edge.metric("dwell_admin_refused_total", reason="site") == 2
    own = {"Origin": f"http://localhost:{edge.admin_address[1]}"}
    host = {"Host": f"localhost:{edge.admin_address[1]}"}
    assert admin(edge, "/-/keys/a", "DELETE", **bearer, **own, **host).status == 404


def test_who_may_not_publish_is_told_so_whatever_the_length_of_the_value(start_dwell):
    edge = start_dwell(publish={"token": "0123456789abcdef"})
    with Connection(edge.admin_address) as connection:
        assert connection.get("/-/keys/a", "PUT", body=b"value").status == 401
    with Connection(edge.admin_address) as connection:
        fields = {"Authorization": "Bearer 0123456789abcdeg"}
        assert connection.get("/-/keys/a", "PUT", fields, body=b"x" * 100_000).status == 401
    with Connection(edge.admin_address) as connection:
        fields = {"Origin": "https://evil.example"}
        assert connection.get("/-/keys/a", "PUT", fields, body=b"value").status == 403


def test_a_scrape_is_quick_while_many_wait(lone_edge, cleanup):
    lone_edge.store().set(KEY, b"value")
    fields = {"If-None-Match": lone_edge.get(KEY).etag}
    for _ in range(200):
        cleanup.enter_context(lone_edge.connect()).ask(f"{KEY}?wait=30", fields=fields)
    lone_edge.await_waiters(200)
    with Stopwatch() as watch:
        assert lone_edge.metric("dwell_watched_keys") >= 1
    assert watch.seconds < 10, "it waits for none of them"
