"""The edge before real applications: much passes, and little is kept."""

import hashlib
import http.server
import os
import signal
import socket
import subprocess
import sys
import threading

import pytest

from support import ports
from support.http import request
from support.nginx import start as start_nginx
from support.process import Process
from support.wait import until

# Many times what may be kept of it.
MUCH = 256 << 20
PIECE = b"\x00\x01\xfe\xff" * 16384

APP = """
import hashlib, http.server, sys, time

PIECE = b"\\x00\\x01\\xfe\\xff" * 16384

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        size = int(self.path.rpartition("/")[2])
        self.send_response(200)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        for _ in range(0, size, len(PIECE)):
            self.wfile.write(PIECE)

    def do_PUT(self):
        left, digest = int(self.headers["Content-Length"]), hashlib.sha1()
        while left and (data := self.rfile.read1(min(left, 1 << 20))):
            left -= len(data)
            digest.update(data)
        body = digest.hexdigest().encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

Server((sys.argv[1], int(sys.argv[2])), Handler).serve_forever()
"""


@pytest.fixture
def python_app(tmp_path, cleanup):
    """An application of its own process."""
    (tmp_path / "app.py").write_text(APP)
    address = ports.free_address()
    arguments = [sys.executable, tmp_path / "app.py", address[0], address[1]]
    process = Process(arguments, tmp_path / "app.log")
    cleanup.callback(process.stop)
    process.address = address
    return process.start_listening(address)


@pytest.fixture
def edge(start_dwell, python_app):
    return start_dwell(upstream={"url": f"http://{ports.text(python_app.address)}"})


class Peak:
    """The most memory that the edge takes meanwhile."""

    def __init__(self, dwell):
        self.dwell = dwell
        self.before = dwell.memory_bytes()
        self.most = self.before

    def look(self):
        self.most = max(self.most, self.dwell.memory_bytes())

    @property
    def growth(self):
        return self.most - self.before


def test_much_that_comes_down_takes_no_memory(edge):
    with edge.connect(timeout_s=60) as client:
        client.send(request(f"/down/{MUCH}"))
        peak, digest, left = Peak(edge), hashlib.sha1(), MUCH
        assert client._head().field("Content-Length") == str(MUCH)
        digest.update(client.buffer)
        left -= len(client.buffer)
        client.buffer = b""
        while left and (data := client.socket.recv(1 << 20)):
            left -= len(data)
            digest.update(data)
            if not left % 1000:
                peak.look()
        peak.look()
        assert left == 0
        expected = hashlib.sha1()
        for _ in range(0, MUCH, len(PIECE)):
            expected.update(PIECE)
        assert digest.digest() == expected.digest()
        assert peak.growth < 8 << 20


def test_much_that_goes_up_takes_no_memory(edge):
    head = f"PUT /up HTTP/1.1\r\nHost: a\r\nContent-Length: {MUCH}\r\n\r\n"
    with edge.connect(timeout_s=60) as client:
        client.send(head.encode())
        peak, digest = Peak(edge), hashlib.sha1()
        for number in range(MUCH // len(PIECE)):
            client.send(PIECE)
            digest.update(PIECE)
            if number % 1000 == 0:
                peak.look()
        assert client.answer().body == digest.hexdigest().encode()
        assert peak.growth < 8 << 20


def test_an_application_killed_in_mid_answer(edge, python_app):
    with edge.connect() as client:
        client.send(request(f"/down/{MUCH}"))
        assert client._head().status == 200
        client._take(1 << 20)
        os.kill(python_app.pid, signal.SIGKILL)
        with pytest.raises((ConnectionResetError, EOFError)):
            client._take(MUCH)
    edge.await_metric(0, "dwell_upstream_connections_open")
    edge.await_connections(0)


def test_a_client_killed_in_mid_upload(edge):
    script = """
import socket, sys
client = socket.create_connection((sys.argv[1], int(sys.argv[2])))
client.sendall(b"PUT /up HTTP/1.1\\r\\nHost: a\\r\\nContent-Length: 10000000000\\r\\n\\r\\n")
while True:
    client.sendall(b"x" * 65536)
"""
    arguments = [sys.executable, "-c", script, edge.address[0], str(edge.address[1])]
    child = subprocess.Popen(arguments)
    try:
        until(lambda: edge.metric("dwell_upstream_connections_open") == 1, "it uploads")
    finally:
        child.kill()
        child.wait()
    edge.await_connections(0)
    edge.await_metric(0, "dwell_upstream_connections_open")


@pytest.fixture
def nginx(tmp_path, cleanup):
    """nginx with a folder of files, and one place that reads a body and drops it."""
    (tmp_path / "files").mkdir()
    address = ports.free_address()
    http = f"""
    client_max_body_size 1m;
    server {{ listen {ports.text(address)}; root {tmp_path}/files; }}
"""
    process = start_nginx(tmp_path, cleanup, http, address)
    process.url = f"http://{ports.text(address)}"
    process.files = tmp_path / "files"
    return process


def test_nginx_behind_the_edge(start_dwell, nginx):
    dwell = start_dwell(upstream={"url": nginx.url})
    body = os.urandom(4 << 20)
    (nginx.files / "large").write_bytes(body)
    (nginx.files / "small").write_bytes(b"small")
    with dwell.connect() as client:
        assert client.get("/small").body == b"small"
        assert client.get("/large").body == body
        part = client.get("/large", fields={"Range": "bytes=1000-1999"})
        assert (part.status, part.body) == (206, body[1000:2000])
        head = client.get("/large", "HEAD")
        assert (head.status, head.field("Content-Length")) == (200, str(len(body)))
        etag = client.get("/small").etag
        assert client.get("/small", fields={"If-None-Match": etag}).status == 304
        assert client.get("/missing").status == 404
        assert client.get("/small", "POST", body=b"x").status == 405
    with dwell.connect() as client:
        client.send(request("/small", "PUT", body=b"x" * (2 << 20)))
        assert client.answer().status == 413


def test_curl_gets_events_one_by_one(start_dwell, cleanup):
    gate = threading.Semaphore(0)

    class Events(http.server.BaseHTTPRequestHandler):
        def do_GET(self):  # noqa: N802
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            for number in range(5):
                self.wfile.write(b"data: %d\n\n" % number)
                gate.acquire(timeout=10)

        def log_message(self, *_):
            pass

    address = ports.free_address()
    server = http.server.ThreadingHTTPServer(address, Events)
    cleanup.callback(server.server_close)
    cleanup.callback(server.shutdown)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    dwell = start_dwell(upstream={"url": f"http://{ports.text(address)}"})
    arguments = ["curl", "-sN", dwell.url("/events")]
    curl = subprocess.Popen(arguments, stdout=subprocess.PIPE)
    cleanup.callback(curl.kill)
    for number in range(5):
        assert curl.stdout.readline() == b"data: %d\n" % number
        assert curl.stdout.readline() == b"\n"
        gate.release()
    assert curl.wait(10) == 0


def test_a_thousand_streams_of_quiet_clients_end_with_them(start_dwell, cleanup):
    listener = socket.create_server(ports.free_address(), backlog=1024)
    cleanup.callback(listener.close)
    url = f"http://{ports.text(listener.getsockname())}"
    dwell = start_dwell(upstream={"url": url, "connections_max": 2000})
    clients, applications = [], []
    for _ in range(1000):
        client = dwell.connect()
        client.send(request("/events"))
        connection, _ = listener.accept()
        connection.settimeout(10)
        assert b"GET /events" in connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        clients.append(client)
        applications.append(connection)
    for client in clients:
        assert client._head().status == 200
        client.close()
    for connection in applications:
        assert connection.recv(1) == b""
        connection.close()
    dwell.await_connections(0)
