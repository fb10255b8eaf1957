"""Flask and Django, driven by httpx."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from dwell import wsgi

CONTENT = bytes(range(256)) * 4000


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file.bin"
    path.write_bytes(CONTENT)
    return path


def flask_app(file: Path) -> Any:
    flask = pytest.importorskip("flask")
    app = flask.Flask("sample")
    app.secret_key = "secret"

    @app.get("/hello/<name>")
    def hello(name: str) -> Any:
        return {"hello": name, "query": flask.request.args.get("q")}

    @app.post("/form")
    def form() -> Any:
        upload = flask.request.files["upload"].read()
        return {"field": flask.request.form["field"], "size": len(upload)}

    @app.post("/echo")
    def echo() -> Any:
        return flask.Response(flask.request.stream.read(), mimetype="application/octet-stream")

    @app.get("/stream")
    def stream() -> Any:
        return flask.Response((f"{number}\n" for number in range(1000)), mimetype="text/plain")

    @app.get("/file")
    def send() -> Any:
        return flask.send_file(file)

    @app.get("/session")
    def session() -> Any:
        flask.session["count"] = flask.session.get("count", 0) + 1
        return str(flask.session["count"])

    @app.get("/fails")
    def fails() -> Any:
        raise LookupError("on purpose")

    return app


def django_app(file: Path) -> Any:
    django = pytest.importorskip("django")
    from django.conf import settings
    from django.core.wsgi import get_wsgi_application
    from django.http import FileResponse, HttpResponse, JsonResponse, StreamingHttpResponse
    from django.urls import path

    def session(request: Any) -> Any:
        request.session["count"] = request.session.get("count", 0) + 1
        return HttpResponse(str(request.session["count"]))

    def form(request: Any) -> Any:
        upload = request.FILES["upload"].read()
        return JsonResponse({"field": request.POST["field"], "size": len(upload)})

    def hello(request: Any, name: str) -> Any:
        return JsonResponse({"hello": name, "query": request.GET.get("q")})

    def fails(request: Any) -> Any:
        raise LookupError("on purpose")

    class Urls:
        urlpatterns = [
            path("hello/<str:name>", hello),
            path("form", form),
            path("echo", lambda request: HttpResponse(request.body)),
            path(
                "stream",
                lambda request: StreamingHttpResponse(f"{number}\n" for number in range(1000)),
            ),
            path("file", lambda request: FileResponse(file.open("rb"))),
            path("session", session),
            path("fails", fails),
        ]

    if not settings.configured:
        settings.configure(
            ALLOWED_HOSTS=["*"],
            SECRET_KEY="secret",
            SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
            MIDDLEWARE=["django.contrib.sessions.middleware.SessionMiddleware"],
            DATA_UPLOAD_MAX_MEMORY_SIZE=None,
        )
        django.setup()
    settings.ROOT_URLCONF = Urls
    return get_wsgi_application()


@pytest.fixture(params=[flask_app, django_app], ids=["flask", "django"])
def client(request: Any, file: Path) -> Iterator[httpx.Client]:
    app = request.param(file)
    with (
        wsgi.Server(app, "http://127.0.0.1:0") as server,
        httpx.Client(base_url=server.url, timeout=20) as client,
    ):
        yield client


def test_json_and_query(client: httpx.Client) -> None:
    answer = client.get("/hello/w%C3%B6rld", params={"q": "a b&c"})
    assert answer.json() == {"hello": "w\u00f6rld", "query": "a b&c"}
    assert client.get("/nothing").status_code == 404


def test_forms(client: httpx.Client) -> None:
    files = {"upload": ("name", io.BytesIO(CONTENT))}
    answer = client.post("/form", data={"field": "value"}, files=files)
    assert answer.json() == {"field": "value", "size": len(CONTENT)}


@pytest.mark.parametrize("size", [0, 10, 3_000_000])
def test_bodies(client: httpx.Client, size: int) -> None:
    body = CONTENT[:size] * 3
    assert client.post("/echo", content=body).content == body


def test_streams(client: httpx.Client) -> None:
    with client.stream("GET", "/stream") as answer:
        assert list(answer.iter_lines()) == [str(number) for number in range(1000)]


def test_files(client: httpx.Client) -> None:
    answer = client.get("/file")
    assert answer.content == CONTENT
    assert answer.headers["Content-Length"] == str(len(CONTENT))
    assert client.head("/file").status_code == 200


def test_cookies(client: httpx.Client) -> None:
    assert [client.get("/session").text for _ in range(3)] == ["1", "2", "3"]


def test_failures(client: httpx.Client) -> None:
    assert client.get("/fails").status_code == 500
    assert client.get("/session").status_code == 200
