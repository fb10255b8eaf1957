"""Routes that take a token."""

import json
import subprocess
import time

import pytest

from support import ports
from support.dwell import BINARY, Dwell
from support.tokens import SECRET, KeyPair, hs256, unsigned
from support.wait import Stopwatch, until

LATER = int(time.time()) + 3600
ALICE = {"sub": "alice", "exp": LATER}
MALFORMED = "the token is malformed or its algorithm unknown"


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def start_guarded(start_dwell, tmp_path):
    """Starts an edge whose `/me/` is the inbox of whoever asks."""

    def start(jwt=None, route=(), **sections):
        secret = tmp_path / "secret"
        secret.write_text(SECRET + "\n")
        own = {"prefix": "/me/", "jwt": True, "key": "inbox:{claim.sub}", **dict(route)}
        jwt = {"secret_file": str(secret)} if jwt is None else jwt
        return start_dwell(route=[own], jwt=jwt, **sections)

    return start


@pytest.fixture
def edge(start_guarded):
    edge = start_guarded()
    edge.store().set("inbox:alice", b"for alice")
    edge.store().set("inbox:bob", b"for bob")
    return edge


def test_everybody_has_a_key_of_their_own(edge):
    for name in ("alice", "bob"):
        answer = edge.get("/me/", fields=bearer(hs256({"sub": name, "exp": LATER})))
        assert (answer.status, answer.body.decode()) == (200, f"for {name}")


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({}, None),
        ({"Authorization": "Basic YTpi"}, None),
        (bearer("x"), MALFORMED),
        (bearer(hs256(ALICE, "f" * 32)), "the signature is wrong"),
        (bearer(hs256(ALICE)[:-4] + "AAAA"), "the signature is wrong"),
        (bearer(hs256({"sub": "alice", "exp": 1})), "the token has expired"),
        (bearer(hs256({"sub": "alice", "nbf": LATER})), "the token is not valid yet"),
        (bearer(unsigned(ALICE)), MALFORMED),
        (bearer(unsigned(ALICE, "HS256")), "the signature is wrong"),
        (bearer(hs256(ALICE, alg="RS256")), "no key is for the token"),
        (bearer(hs256({**ALICE, "x": "y" * 8192})), "the token is too long"),
        (bearer(hs256(ALICE, crit=["exp"])), "the token has a critical extension"),
    ],
)
def test_a_token_that_is_not_good(edge, fields, error):
    answer = edge.get("/me/", fields=fields)
    assert answer.status == 401
    challenge = 'Bearer realm="dwell"'
    if error:
        challenge += f', error="invalid_token", error_description="{error}"'
    assert answer.field("WWW-Authenticate") == challenge
    assert b"alice" not in answer.body
    edge.await_metric(1, "dwell_polls_total", outcome="denied")


def test_a_token_in_the_query_is_written_nowhere(start_guarded, tmp_path):
    file = tmp_path / "access.log"
    secret = str(tmp_path / "secret")
    jwt = {"secret_file": secret, "query_parameter": "token"}
    edge = start_guarded(jwt=jwt, log={"access": str(file)})
    edge.store().set("inbox:alice", b"for alice")
    token = hs256(ALICE)
    # On one connection, so that one loop writes the lines in this order.
    with edge.connect() as connection:
        assert connection.get(f"/me/?token={token}&since=x").body == b"for alice"
        assert connection.get(f"/me/?%74oken={token}").status == 200
        assert connection.get(f"/page?token={token}").status == 404
    explain = [BINARY, "explain", f"/me/?token={token}", "--admin", ports.text(edge.admin_address)]
    for arguments in (explain, [*explain, "--json"], [*explain, "--config", edge.config]):
        ended = subprocess.run(arguments, capture_output=True, text=True, timeout=20, check=True)
        assert "/me/?token=redacted" in ended.stdout
        assert token not in ended.stdout
    edge.stop()
    targets = [json.loads(line)["target"] for line in file.read_text().splitlines()]
    assert targets == [
        "/me/?token=redacted&since=x",
        "/me/?%74oken=redacted",
        "/page?token=redacted",
    ]
    assert token not in edge.output()


def test_a_key_that_is_made_of_the_token_has_none_in_the_log(start_guarded, tmp_path):
    file = tmp_path / "access.log"
    jwt = {"secret_file": str(tmp_path / "secret"), "query_parameter": "token"}
    route = {"key": "box:{query.token}"}
    edge = start_guarded(jwt=jwt, route=route, log={"access": str(file)})
    token = hs256(ALICE)
    edge.store().set(f"box:{token}", b"for alice")
    answer = edge.get(f"/me/?token={token}")
    assert answer.body == b"for alice"
    cursor = answer.field("Poll-Cursor")
    assert edge.get(f"/me/?token={token}&since={cursor}&wait=10ms").status in (204, 304)
    edge.stop()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["key"] for line in lines] == ["box:redacted"] * 2
    assert token not in file.read_text()


@pytest.mark.parametrize("sub", ["a b", "a\r\nset x 0 0 1", "a\x00", "\x7f", "", "x" * 300])
def test_no_claim_makes_a_key_memcached_would_not_take(edge, sub):
    answer = edge.get("/me/", fields=bearer(hs256({"sub": sub, "exp": LATER})))
    assert answer.status in (400, 404, 414)
    assert answer.status == 404 or sub != ""
    assert edge.store().get("x") is None


def test_a_subject_that_is_no_text_makes_no_key(edge):
    # RFC 7519 section 4.1.2.
    for key in ("inbox:7", "inbox:true", "inbox:null", "inbox:"):
        edge.store().set(key, b"another's")
    for sub in ({"a": 1}, ["alice"], None, 7, 7.5, True):
        answer = edge.get("/me/", fields=bearer(hs256({"sub": sub, "exp": LATER})))
        assert answer.status == 401, sub
        assert 'error="invalid_token"' in answer.field("WWW-Authenticate")


def test_a_claim_that_is_no_text_number_or_truth_makes_no_key(start_guarded):
    edge = start_guarded(route={"key": "room:{claim.room}"})
    for room in (7, "seven", True):
        edge.store().set(f"room:{json.dumps(room).strip(chr(34))}", b"value")
        token = hs256({"sub": "alice", "room": room, "exp": LATER})
        assert edge.get("/me/", fields=bearer(token)).body == b"value"
    for room in (None, [7], {"a": 7}):
        token = hs256({"sub": "alice", "room": room, "exp": LATER})
        assert edge.get("/me/", fields=bearer(token)).status == 400


def test_a_token_that_never_ends_is_taken_only_where_that_is_said(start_guarded, tmp_path):
    endless = bearer(hs256({"sub": "alice"}))
    secret = str(tmp_path / "secret")
    for required, status in ((None, 401), (True, 401), (False, 200)):
        jwt = {"secret_file": secret}
        if required is not None:
            jwt["expiry_required"] = required
        edge = start_guarded(jwt=jwt)
        edge.store().set("inbox:alice", b"for alice")
        answer = edge.get("/me/", fields=endless)
        assert answer.status == status
        if status == 401:
            error = 'error_description="the token has no time at which it expires"'
            assert error in answer.field("WWW-Authenticate")
        assert edge.get("/me/", fields=bearer(hs256(ALICE))).status == 200


@pytest.mark.parametrize("kind", ["rsa", "ec"])
def test_public_keys(start_guarded, tmp_path, kind):
    pair = KeyPair(tmp_path, kind)
    edge = start_guarded(jwt={"public_key_file": str(pair.public)})
    edge.store().set("inbox:alice", b"for alice")
    good = pair.token(ALICE)
    for _ in range(2):
        assert edge.get("/me/", fields=bearer(good)).body == b"for alice"
    spoiled = good[:-8] + ("A" * 8)
    assert edge.get("/me/", fields=bearer(spoiled)).status == 401
    # The public key as a secret: the oldest of these tricks.
    for secret in (pair.public.read_text(), pair.public.read_text().strip()):
        assert edge.get("/me/", fields=bearer(hs256(ALICE, secret))).status == 401


def test_a_set_of_keys_that_changes(start_guarded, tmp_path):
    rsa, ec = KeyPair(tmp_path, "rsa"), KeyPair(tmp_path, "ec")
    path = tmp_path / "keys.json"

    def write(*keys):
        new = tmp_path / "new.json"
        new.write_text(json.dumps({"keys": keys}))
        new.rename(path)

    write(rsa.jwk(kid="one"))
    edge = start_guarded(jwt={"jwks_file": str(path)}, server={"pollers": 1})
    edge.store().set("inbox:alice", b"for alice")

    def status(token):
        return edge.get("/me/", fields=bearer(token)).status

    old, new = rsa.token(ALICE, kid="one"), ec.token(ALICE, kid="two")
    assert (status(old), status(new)) == (200, 401)
    assert status(rsa.token(ALICE, kid="two")) == 401
    write(ec.jwk(kid="two"))
    until(lambda: status(new) == 200, "the new keys are read", timeout_s=30)
    assert status(old) == 401
    path.write_text("nonsense")

    def is_told():
        assert status(new) == 200
        return "jwt keys stay as they were" in edge.log.read_text()

    until(is_told, "it is told", timeout_s=30)


def test_where_a_token_may_be(start_guarded, tmp_path):
    secret = tmp_path / "secret"
    jwt = {"secret_file": str(secret), "query_parameter": "token", "cookie": "session"}
    edge = start_guarded(jwt=jwt)
    edge.store().set("inbox:alice", b"for alice")
    good, other = hs256(ALICE), hs256({"sub": "bob", "exp": LATER})
    assert edge.get(f"/me/?token={good}").body == b"for alice"
    assert edge.get("/me/", fields={"Cookie": f"a=b; session={good}"}).body == b"for alice"
    both = edge.get(f"/me/?token={other}", fields=bearer(good))
    assert both.body == b"for alice", "the field wins"
    assert edge.get("/me/?access_token=x").status == 401


def test_issuer_and_audience(start_guarded, tmp_path):
    jwt = {"secret_file": str(tmp_path / "secret"), "issuer": "id", "audience": ["a", "b"]}
    edge = start_guarded(jwt={**jwt, "leeway": "1h"})
    edge.store().set("inbox:alice", b"for alice")

    def status(**claims):
        return edge.get("/me/", fields=bearer(hs256({**ALICE, **claims}))).status

    assert status(iss="id", aud=["x", "b"]) == 200
    assert status(iss="id", aud="a", exp=int(time.time()) - 1800) == 200
    assert status(iss="other", aud="a") == 401
    assert status(iss="id", aud="x") == 401
    assert status(iss="id", aud="a", exp=int(time.time()) - 7200) == 401


def test_what_is_held_ends_with_its_token(edge, cleanup):
    soon = bearer(hs256({"sub": "alice", "exp": int(time.time()) + 4}))
    cursor = edge.get("/me/", fields=soon).field("Poll-Cursor")
    with Stopwatch() as watch:
        poll = cleanup.enter_context(edge.connect())
        poll.ask(f"/me/?since={cursor}&wait=50", fields=soon)
        stream = cleanup.enter_context(edge.connect())
        stream.ask("/me/", fields={**soon, "Accept": "text/event-stream"})
        edge.await_waiters(2)
        assert poll.answer().status == 204
        assert b"for alice" in stream.answer().body
    assert watch.seconds < 20
    until(lambda: edge.get("/me/", fields=soon).status == 401, "the token has expired")


def test_keys_that_are_none_stop_the_start(tmp_path, cleanup):
    short = tmp_path / "short"
    short.write_text("short")
    route = {"prefix": "/me/", "jwt": True, "key": "inbox:{claim.sub}"}
    dwell = Dwell(tmp_path, route=[route], jwt={"secret_file": str(short)})
    cleanup.callback(dwell.stop)
    # It may listen for a moment before it ends.
    assert dwell.start().wait() != 0
    assert "at least 32 bytes" in dwell.output()


def test_the_application_gets_the_token(start_guarded, app):
    edge = start_guarded(upstream={"url": app.url})
    fields = bearer(hs256(ALICE))
    assert edge.get("/me/", fields=fields).body == b"from the app"
    assert app.requests[0].field("Authorization") == fields["Authorization"]
