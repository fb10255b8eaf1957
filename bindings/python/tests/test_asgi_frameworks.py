"""FastAPI and Starlette, driven by httpx and websockets."""

from __future__ import annotations

import asyncio
import io
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from dwell import asgi

TIMEOUT = 20.0
CONTENT = bytes(range(256)) * 4000

starlette_applications = pytest.importorskip("starlette.applications")
fastapi = pytest.importorskip("fastapi")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file.bin"
    path.write_bytes(CONTENT)
    return path


@asynccontextmanager
async def lifespan(app: Any) -> AsyncIterator[dict[str, Any]]:
    yield {"pool": "the pool"}


async def numbers() -> AsyncIterator[str]:
    for number in range(1000):
        yield f"{number}\n"


def starlette_app(file: Path) -> Any:
    from starlette.middleware import Middleware
    from starlette.middleware.base import BaseHTTPMiddleware
    from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
    from starlette.routing import Route, WebSocketRoute

    async def hello(request: Any) -> Any:
        name, query = request.path_params["name"], request.query_params.get("q")
        return JSONResponse({"hello": name, "query": query, "pool": request.state.pool})

    async def form(request: Any) -> Any:
        async with request.form() as form:
            upload = await form["upload"].read()
            return JSONResponse({"field": form["field"], "size": len(upload)})

    async def echo(request: Any) -> Any:
        return Response(await request.body())

    async def fails(request: Any) -> Any:
        raise LookupError("on purpose")

    async def chat(socket: Any) -> None:
        if "token" in socket.query_params:
            await socket.send_denial_response(Response(b"not you", 401))
            return
        await socket.accept(subprotocol="chat")
        async for text in socket.iter_text():
            await socket.send_json({"you said": text})

    def blocking(request: Any) -> Any:
        return Response(threading.current_thread().name)

    async def add_header(request: Any, call_next: Any) -> Any:
        response = await call_next(request)
        response.headers["X-Middleware"] = "1"
        return response

    routes = [
        Route("/hello/{name}", hello),
        Route("/form", form, methods=["POST"]),
        Route("/echo", echo, methods=["POST"]),
        Route("/stream", lambda request: StreamingResponse(numbers())),
        Route("/file", lambda request: FileResponse(file)),
        Route("/fails", fails),
        Route("/blocking", blocking),
        WebSocketRoute("/chat", chat),
    ]
    middleware = [Middleware(BaseHTTPMiddleware, dispatch=add_header)]
    return starlette_applications.Starlette(routes=routes, middleware=middleware, lifespan=lifespan)


def fastapi_app(file: Path) -> Any:
    from starlette.responses import FileResponse, Response, StreamingResponse

    app = fastapi.FastAPI(lifespan=lifespan)

    async def hello(name: str, request: Any, q: str | None = None) -> Any:
        return {"hello": name, "query": q, "pool": request.state.pool}

    hello.__annotations__["request"] = fastapi.Request
    app.get("/hello/{name}")(hello)

    async def form(request: Any) -> Any:
        async with request.form() as form:
            upload = await form["upload"].read()
            return {"field": form["field"], "size": len(upload)}

    form.__annotations__["request"] = fastapi.Request
    app.post("/form")(form)

    async def echo(request: Any) -> Any:
        return Response(await request.body())

    echo.__annotations__ = {"request": fastapi.Request}
    app.post("/echo")(echo)

    async def chat(socket: Any) -> None:
        if "token" in socket.query_params:
            await socket.send_denial_response(Response(b"not you", 401))
            return
        await socket.accept(subprotocol="chat")
        async for text in socket.iter_text():
            await socket.send_json({"you said": text})

    chat.__annotations__ = {"socket": fastapi.WebSocket}
    app.websocket("/chat")(chat)

    @app.get("/fails")
    async def fails() -> None:
        raise LookupError("on purpose")

    app.get("/stream")(lambda: StreamingResponse(numbers()))
    app.get("/file")(lambda: FileResponse(file))
    app.get("/blocking")(lambda: Response(threading.current_thread().name))

    @app.middleware("http")
    async def add_header(request: Any, call_next: Any) -> Any:
        response = await call_next(request)
        response.headers["X-Middleware"] = "1"
        return response

    return app


@pytest.fixture(params=[starlette_app, fastapi_app], ids=["starlette", "fastapi"])
def url(request: Any, file: Path) -> Iterator[str]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def do(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(TIMEOUT)

    server = asgi.Server(request.param(file), "http://127.0.0.1:0", lifespan="on")
    do(server.start())
    yield server.url
    do(server.stop(5))
    loop.call_soon_threadsafe(loop.stop)
    thread.join(TIMEOUT)
    loop.close()


@pytest.fixture
def client(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, timeout=TIMEOUT) as client:
        yield client


def test_json_query_and_state(client: httpx.Client) -> None:
    answer = client.get("/hello/w%C3%B6rld", params={"q": "a b&c"})
    assert answer.json() == {"hello": "w\u00f6rld", "query": "a b&c", "pool": "the pool"}
    assert answer.headers["X-Middleware"] == "1"
    assert client.get("/nothing").status_code == 404


def test_forms(client: httpx.Client) -> None:
    pytest.importorskip("multipart")
    files = {"upload": ("name", io.BytesIO(CONTENT))}
    answer = client.post("/form", data={"field": "value"}, files=files)
    assert answer.json() == {"field": "value", "size": len(CONTENT)}


@pytest.mark.parametrize("size", [0, 10, 1_000_000])
def test_bodies(client: httpx.Client, size: int) -> None:
    body = CONTENT[:size] * 3
    assert client.post("/echo", content=body).content == body


def test_streams(client: httpx.Client) -> None:
    with client.stream("GET", "/stream") as answer:
        assert "".join(answer.iter_text()).split() == [str(number) for number in range(1000)]


def test_files(client: httpx.Client) -> None:
    answer = client.get("/file")
    assert answer.content == CONTENT
    part = client.get("/file", headers={"Range": "bytes=10-19"})
    assert (part.status_code, part.content) == (206, CONTENT[10:20])


def test_threads_for_what_blocks(client: httpx.Client) -> None:
    assert "AnyIO" in client.get("/blocking").text


def test_failures(client: httpx.Client) -> None:
    assert client.get("/fails").status_code == 500
    assert client.get("/blocking").status_code == 200


def test_clients_that_leave(url: str, client: httpx.Client) -> None:
    for _ in range(5):
        with httpx.stream("GET", url + "/stream") as answer:
            assert answer.status_code == 200
    assert client.get("/blocking").status_code == 200


def test_web_sockets(url: str) -> None:
    with connect(url.replace("http", "ws") + "/chat", subprotocols=["chat"]) as socket:
        assert socket.subprotocol == "chat"
        socket.send("hello")
        assert json.loads(socket.recv(TIMEOUT)) == {"you said": "hello"}
    with pytest.raises(InvalidStatus) as caught:
        connect(url.replace("http", "ws") + "/chat?token").__enter__()
    assert caught.value.response.status_code == 401
    with pytest.raises((InvalidStatus, ConnectionClosed)):
        connect(url.replace("http", "ws") + "/nothing").__enter__()
