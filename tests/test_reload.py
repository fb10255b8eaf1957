"""SIGHUP: the configuration is read anew, and nobody notices but by what it changes."""

import json
import signal
import socket

from support import ports
from support.crowd import Crowd
from support.http import Connection, request
from support.upstream import Upstream
from support.wait import accepts, until

KEY = "/poll/alice"


def reload(dwell, **sections):
    """Changes the file by `sections`, asks for it to be read, and waits until it is taken."""
    generation = dwell.metric("dwell_config_generation")
    dwell.rewrite(**sections)
    dwell.signal(signal.SIGHUP)
    dwell.await_metric(generation + 1, "dwell_config_generation")


def refuse(dwell):
    """Asks for the file to be read, and waits until it is refused."""
    refused = dwell.metric("dwell_config_reloads_total", outcome="refused")
    dwell.signal(signal.SIGHUP)
    dwell.await_metric(refused + 1, "dwell_config_reloads_total", outcome="refused")


def test_thousands_of_held_polls_live_through_it(start_dwell):
    dwell = start_dwell(limits={"waiters_max": 20000, "connections_max": 20000})
    store = dwell.store()
    store.set(KEY, b"old")
    etag = dwell.get(KEY).etag
    poll = request(f"{KEY}?wait=55", fields={"If-None-Match": etag})
    with Crowd(dwell.address, 8000) as crowd, dwell.connect() as kept:
        assert kept.get(KEY).body == b"old"
        crowd.send(poll)
        dwell.await_waiters(8000)
        for number in range(3):
            reload(dwell, route=[{"prefix": f"/other{number}/"}, {"prefix": "/poll/"}])
        dwell.await_metric(8000, "dwell_waits_held")
        assert kept.get(KEY).body == b"old", "the connection is the same"
        store.set(KEY, b"new")
        answers = crowd.answers(60)
        assert {(status, body) for status, _, body in answers} == {(200, b"new")}


def test_routes_change_and_held_polls_go_by_theirs(start_dwell):
    routes = [{"prefix": "/poll/"}, {"prefix": "/inbox/", "on_delete": "not-found"}]
    dwell = start_dwell(route=routes)
    store = dwell.store()
    store.set(KEY, b"value")
    store.set("/inbox/a", b"value")
    cursor = dwell.get(KEY).field("Poll-Cursor")
    with dwell.connect() as poll, dwell.connect() as inbox:
        poll.ask(f"{KEY}?since={cursor}&wait=30")
        inbox.ask(f"/inbox/a?since={cursor}&wait=30")
        dwell.await_waiters(2)
        reload(dwell, route=[{"prefix": "/score/"}, {"prefix": "/poll/", "content_type": "a/b"}])
        assert dwell.get("/inbox/a").status == 404, "no route has it now, and no app"
        store.set(KEY, b"new")
        answer = poll.answer()
        assert (answer.status, answer.body, answer.field("Content-Type")) == (200, b"new", "a/b")
        store.delete("/inbox/a")
        assert inbox.answer().status == 404, "by the rule of the route it came by"
    store.set("/score/7", b"1:0")
    assert dwell.get("/score/7").body == b"1:0"


def test_a_bad_file_is_refused_with_its_mistakes(lone_edge):
    good = lone_edge.config.read_text()
    lone_edge.config.write_text(good + "\n[limit]\nwaiters_max = 0\n")
    refuse(lone_edge)
    lone_edge.await_metric(0, "dwell_config_last_reload_successful")
    lone_edge.await_metric(1, "dwell_config_generation")
    # It is counted before it is told.
    lone_edge.await_output("did you mean `limits`?")
    lone_edge.await_output("the configuration before it stays")
    with lone_edge.connect() as connection:
        connection.ask(f"{KEY}?wait=20")
        lone_edge.await_waiters(1)
    lone_edge.config.unlink()
    refuse(lone_edge)
    lone_edge.config.write_text(good)
    lone_edge.signal(signal.SIGHUP)
    lone_edge.await_metric(2, "dwell_config_generation")
    # The loops may be quicker than the thread that counts.
    lone_edge.await_metric(1, "dwell_config_last_reload_successful")
    name = "dwell_config_last_reload_success_timestamp_seconds"
    assert lone_edge.metric(name) > 1_600_000_000


def test_limits_change_for_who_comes_next(lone_edge):
    with lone_edge.connect() as held:
        held.ask(f"{KEY}?wait=30")
        lone_edge.await_waiters(1)
        reload(lone_edge, limits={"waiters_max": 0})
        assert lone_edge.get(f"{KEY}?wait=30").status == 503
        assert lone_edge.metric("dwell_waits_held") == 1, "who waits goes on waiting"
        reload(lone_edge, limits={"waiters_max": 10})
        with lone_edge.connect() as other:
            other.ask(f"{KEY}?wait=30")
            lone_edge.await_waiters(2)


def test_the_application_changes_and_what_is_under_way_is_answered(edge, app, cleanup):
    other = Upstream().start()
    cleanup.callback(other.stop)
    app.hang()
    with edge.connect() as under_way:
        under_way.ask("/page")
        app.await_requests(1)
        reload(edge, upstream={"url": other.url})
        assert edge.get("/page").status == 200
        assert len(other.requests) == 1
        # What is under way may last for ever, so no further change waits for it.
        reload(edge, upstream={"url": "off"})
        until(lambda: edge.get("/page").status == 404, "there is no application any more")
        reload(edge, upstream={"url": other.url})
        until(lambda: edge.get("/page").status == 200, "the other is back")
        app.release()
        assert under_way.answer().body == b"from the app"
    assert len(app.requests) == 1


def test_listeners_come_and_go(lone_edge):
    before, after = lone_edge.address, ports.free_address()
    with lone_edge.connect() as kept:
        assert kept.get(KEY).status == 404
        reload(lone_edge, server={"listen": [ports.text(before), ports.text(after)]})
        with Connection(after) as new:
            assert new.get(KEY).status == 404
        reload(lone_edge, server={"listen": ports.text(after)})
        until(lambda: not accepts(before), "the old address is closed")
        assert kept.get(KEY).status == 404, "who came by it stays"
        with Connection(after) as new:
            assert new.get(KEY).status == 404


def test_a_taken_address_refuses_the_whole_file(lone_edge):
    listen = [ports.text(lone_edge.address), ports.text(lone_edge.admin_address)]
    lone_edge.rewrite(server={"listen": listen}, limits={"waiters_max": 0})
    refuse(lone_edge)
    with lone_edge.connect() as connection:
        connection.ask(f"{KEY}?wait=20")
        lone_edge.await_waiters(1)


def test_what_needs_a_restart_is_named_and_stays(lone_edge):
    reload(lone_edge, server={"pollers": 3}, store={"cas": False})
    for text in ("needs a restart", "server.pollers", "store.cas"):
        lone_edge.await_output(text)
    lone_edge.await_metric(2, "dwell_loops")


def test_the_log_level_changes(lone_edge):
    reload(lone_edge, log={"level": "error"})
    reload(lone_edge, limits={"waiters_max": 5})
    silent = int(lone_edge.metric("dwell_config_generation"))
    reload(lone_edge, log={"level": "info"})
    lone_edge.await_output(f"generation={silent + 1}")
    assert f"generation={silent}" not in lone_edge.output(), "what is read anew is no error"


def test_the_store_becomes_smaller(lone_edge):
    store = lone_edge.store()
    for number in range(300):
        store.set(f"key{number}", b"x" * 10_000)
    sections = {"bytes_max": "1MiB", "item_bytes_max": "100KiB"}
    reload(lone_edge, store=sections)
    # The loops have the new bound, and come to it over many turns.
    for name in ("dwell_store_bytes_max", "dwell_store_bytes"):
        until(lambda name=name: lone_edge.metric(name) <= 1 << 20, f"{name} is met")
    lone_edge.await_output("store.item_bytes_max")


def test_the_access_log_is_opened_anew(start_dwell, tmp_path):
    first, moved, second = (tmp_path / name for name in ("a.log", "a.log.1", "b.log"))
    dwell = start_dwell(log={"access": str(first)})

    def lines(path, count):
        until(lambda: path.exists() and len(path.read_text().splitlines()) == count, path)
        return [json.loads(line)["target"] for line in path.read_text().splitlines()]

    dwell.get("/poll/1")
    assert lines(first, 1) == ["/poll/1"]
    first.rename(moved)
    reload(dwell)
    dwell.get("/poll/2")
    assert lines(first, 1) == ["/poll/2"]
    assert lines(moved, 1) == ["/poll/1"]
    reload(dwell, log={"access": str(second)})
    dwell.get("/poll/3")
    assert lines(second, 1) == ["/poll/3"]
    reload(dwell, log={"access": "off"})
    dwell.get("/poll/4")
    assert lines(second, 2) == ["/poll/3", "/poll/4"], "turning it off needs a restart"
    dwell.await_output("log.access")


def test_many_signals_at_once_end_with_the_newest_file(lone_edge):
    for number in range(5):
        lone_edge.rewrite(limits={"waiters_max": number})
        lone_edge.signal(signal.SIGHUP)
    until(lambda: lone_edge.get(f"{KEY}?wait=1ms").status == 204, "the last one allows waits")


def test_who_may_use_the_store_is_read_again(start_dwell, tmp_path):
    users = tmp_path / "users"
    users.write_text("alice:old\n")
    dwell = start_dwell(store={"auth_file": str(users)})

    def login(token):
        with socket.create_connection(dwell.store_address, timeout=30) as client:
            client.sendall(b"set login 0 0 %d\r\n%s\r\n" % (len(token), token))
            return client.recv(1024) == b"STORED\r\n"

    assert login(b"alice old")
    users.write_text("alice:new\n")
    reload(dwell)
    assert login(b"alice new")
    assert not login(b"alice old")
    users.write_text("alice\n")
    refuse(dwell)
    assert login(b"alice new")
