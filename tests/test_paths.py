"""Paths that an application reads in another way than by their bytes, and routes that guard."""

import http.client
import json
import shutil
import subprocess
import sys
import textwrap

import pytest

from support import ports
from support.dwell import BINARY
from support.http import request
from support.process import Process
from support.tokens import SECRET
from support.upstream import Answer
from support.websocket import WebSocket

PUBLISHER = {"Authorization": "Bearer 3c1f0c5e9f6b4d1a"}
REFUSED = b"the path may be read as that of another route\n"

# Each of them is `/me/x` for some program.
DISGUISES = [
    *("/%6de/x", "/%6De/x", "/m%65/x", "/me%2fx", "/me%2Fx", "/%6d%65%2fx"),
    *("//me/x", "/./me/x", "/x/../me/x", "/poll/../me/x", "/poll/%2e%2e/me/x"),
    *("/poll/%2E./me/x", "/poll/..%2fme/x", "/poll/a/../../me/x", "/../me/x"),
    *("/poll/..;/me/x", "/me;a=b/x", "/;/me/x", "/%2fme/x", "///me/x"),
    *("/me\\x", "/poll\\..\\me\\x", "/poll/..%5cme/x", "/%5cme/x"),
    *("//host/me/x", "/%6de/x/../../poll/y", "/poll/%c0%ae%c0%ae/me/x"),
    *("http://h/%6de/x", "http://h//me/x", "http://h/poll/%2e%2e/me/x"),
]


@pytest.fixture
def guarded(start_dwell, app, tmp_path):
    """An edge whose `/me/` takes a token, before an application."""
    secret = tmp_path / "secret"
    secret.write_text(SECRET + "\n")
    routes = [{"prefix": "/me/", "jwt": True}, {"prefix": "/poll/"}]
    jwt = {"secret_file": str(secret)}
    return start_dwell(route=routes, jwt=jwt, upstream={"url": app.url})


@pytest.mark.parametrize("target", DISGUISES)
def test_a_guarded_path_is_not_reached_in_disguise(guarded, app, target):
    assert guarded.get("/me/x").status == 401
    answer = guarded.get(target)
    assert (answer.status, answer.body) == (400, REFUSED)
    posted = guarded.get(target, "POST", {}, b"x" * 100_000)
    assert (posted.status, posted.body) == (400, REFUSED)
    assert app.requests == []
    guarded.await_metric(2, "dwell_polls_total", outcome="ambiguous")


@pytest.mark.parametrize("target", ["/poll/?k=", "/poll/a/?k=", "/poll/x/y/?k="])
@pytest.mark.parametrize(
    "name", ["../me/x", "%2e%2e/me/x", "..%2fme/x", "%252e%252e/me/x", "..%255cme/x", "..;/me/x"]
)
def test_a_key_that_is_named_stays_below_its_path(guarded, app, target, name):
    for fields in ({}, {"Accept": "text/event-stream"}):
        answer = guarded.get(target + name, fields=fields)
        assert (answer.status, b"dot segment" in answer.body) == (400, True)
    with WebSocket(guarded.address, target + name) as refused:
        assert refused.response.status == 400
    assert app.requests == []


def test_a_websocket_names_no_key_elsewhere(guarded, app, cleanup):
    app.answer = lambda request: Answer(status=404)
    socket = cleanup.enter_context(WebSocket(guarded.address, "/poll/"))
    for name in ("../me/x", "%2e%2e/me/x", "..\\me\\x", "x/../y"):
        socket.say(subscribe=[name])
        assert "dot segment" in json.dumps(socket.hear())
    assert all(".." not in request.target for request in app.requests)


@pytest.mark.parametrize(
    "target",
    [
        "/files/a%2Fb%20c",
        "/files//a/../b;v=1",
        "/files/%E4%BD%A0%3F",
        "/files/%",
        "/poll/a%2Fb",
        "/poll/./a",
        "/ME/x",
    ],
)
def test_other_paths_reach_the_application_as_they_are(guarded, app, target):
    assert guarded.get(target).status == 200
    assert [request.target for request in app.requests] == [target]


def test_without_a_guard_no_path_is_refused(start_dwell, app):
    edge = start_dwell(upstream={"url": app.url})
    for target in ("/%70oll/x", "/x/../poll/x", "/poll/../x", "//poll/x"):
        assert edge.get(target).status == 200
    assert len(app.requests) == 4


ROUTES = {
    "auth": {"auth": "/may"},
    "rate": {"rate_per_address": "1/h"},
    "origins": {"allowed_origins": ["https://app.example"]},
    "cors": {"cors_origins": ["https://app.example"]},
    "publish": {"publish": True},
    "methods": {"methods": ["GET"]},
}


@pytest.mark.parametrize("guard", ROUTES)
def test_every_guard_is_kept_to(start_dwell, app, guard):
    routes = [{"prefix": "/me/", **ROUTES[guard]}, {"prefix": "/poll/"}]
    publish = {"token": "3c1f0c5e9f6b4d1a"}
    edge = start_dwell(route=routes, publish=publish, upstream={"url": app.url})
    preflight = {"Origin": "https://app.example", "Access-Control-Request-Method": "GET"}
    for method, fields in [
        ("GET", {}),
        ("PUT", PUBLISHER),
        ("DELETE", PUBLISHER),
        ("OPTIONS", preflight),
    ]:
        # In, and out again: what was let in there may not be read as another path either.
        for target in ("/%6de/x", "/poll/..%2fme/x", "/me/..%2fx", "/me/%2e%2e/poll/x"):
            answer = edge.get(target, method, fields)
            assert (answer.status, answer.body) == (400, REFUSED), (method, target)
            assert answer.field("Access-Control-Allow-Origin") is None
    assert app.requests == []


def test_a_refused_path_is_explained_and_written_down(start_dwell, app, tmp_path):
    log = tmp_path / "access.log"
    routes = [{"prefix": "/me/", "rate_per_address": "9/s"}]
    options = {"upstream": {"url": app.url}, "log": {"access": str(log)}}
    edge = start_dwell(route=routes, **options)
    command = [BINARY, "explain", "/x/..%2fme/x", "--admin", ports.text(edge.admin_address)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "400: " in ended.stdout
    assert "as /me/x it is for /me/" in ended.stdout
    assert edge.get("/x/..%2fme/x").status == 400
    edge.stop()
    assert "ambiguous" in log.read_text()


# Real programs, each with an area that is its own.

NGINX = """
daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log; worker_processes 1; user root;
events {{ }}
http {{
    access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p;
    fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
    server {{
        listen {address};
        location / {{ return 200 "public"; }}
        location /me/ {{ return 200 "secret"; }}
    }}
}}
"""

DJANGO = """
import sys
from wsgiref.simple_server import make_server
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse
from django.urls import re_path

settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], APPEND_SLASH=False)
urlpatterns = [
    re_path(r"^me/", lambda request: HttpResponse("secret")),
    re_path(r"", lambda request: HttpResponse("public")),
]
make_server(sys.argv[1], int(sys.argv[2]), get_wsgi_application()).serve_forever()
"""

NODE = """
const [host, port] = process.argv.slice(1);
require("http").createServer((request, response) => {
  const path = new URL(request.url, "http://localhost").pathname;
  response.end(path.startsWith("/me/") ? "secret" : "public");
}).listen(port, host);
"""


def nginx(address, folder):
    if shutil.which("nginx") is None:
        pytest.skip("nginx is not installed")
    text = NGINX.format(folder=folder, address=ports.text(address))
    (folder / "nginx.conf").write_text(text)
    return [shutil.which("nginx"), "-c", folder / "nginx.conf"]


def django(address, folder):
    script = folder / "areas.py"
    script.write_text(textwrap.dedent(DJANGO))
    return [sys.executable, script, address[0], str(address[1])]


def node(address, folder):
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    return ["node", "-e", NODE, address[0], str(address[1])]


@pytest.mark.parametrize("program", [nginx, django, node])
def test_what_a_program_serves_as_guarded_takes_a_token(start_dwell, tmp_path, cleanup, program):
    address = ports.free_address()
    application = Process(program(address, tmp_path), tmp_path / "application.log")
    cleanup.callback(application.stop)
    application.start_listening(address)
    secret = tmp_path / "secret"
    secret.write_text(SECRET + "\n")
    edge = start_dwell(
        route=[{"prefix": "/me/", "jwt": True}, {"prefix": "/poll/"}],
        jwt={"secret_file": str(secret)},
        upstream={"url": f"http://{ports.text(address)}"},
    )
    reached = 0
    for target in ["/me/x", *DISGUISES]:
        reached += body(address, target) == b"secret"
        assert edge.get(target).status in (400, 401), target
    # Otherwise the program would have shown nothing.
    assert reached > 2
    assert edge.get("/x").body == b"public"


def body(address, target):
    """The reading of a path by the program itself; nothing where it refuses it."""
    connection = http.client.HTTPConnection(*address, timeout=20)
    try:
        connection.connect()
        connection.sock.sendall(request(target, fields={"Connection": "close"}))
        answer = http.client.HTTPResponse(connection.sock)
        answer.begin()
        return answer.read()
    finally:
        connection.close()
