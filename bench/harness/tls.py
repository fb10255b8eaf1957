"""What TLS costs: a request, a handshake, an idle connection, and clients that stall in it.

Both servers have one certificate (ECDSA, P-256) and answer a small value. `bench/run` names
`openssl.cnf` to all that have OpenSSL, so every connection is TLS 1.3 with
TLS_AES_128_GCM_SHA256 and X25519; each row checks that.
"""

import socket
import ssl
import subprocess
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from harness import accounting, http, memcached, wrk
from harness.boards import EdgeBoard, NchanBoard
from harness.contenders import BODY, Contender, Running
from harness.contenders.base import HIT_PATH
from harness.contenders.edge import start_edge
from harness.contenders.nginx import start_nginx
from harness.measure import Method, Row, Step, check_answer
from harness.pollers import SOCKET_TIMEOUT_SECONDS, Pollers
from harness.stage import HOST, ContenderError, Stage
from harness.waiting import SHARED_PATH, held, settle

TITLE = "TLS 1.3: requests, handshakes, idle connections, and clients that stall in the handshake"
HELD_TITLE = "Long-polls under TLS, and one write that wakes them all"
SUITE = "TLS_AES_128_GCM_SHA256"
NAME = "bench.test"
# Some of a hello, so that the server has begun and waits for the rest.
STALLED = bytes([22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3])
NGINX_TLS = """
        listen {host}:{port} ssl backlog=4096;
        ssl_certificate {certificate};
        ssl_certificate_key {key};
        ssl_protocols TLSv1.3;
        ssl_session_cache none;
        ssl_session_tickets on;
"""

Figures = dict[str, Any]
Wrap = Callable[[socket.socket], socket.socket]


def make_certificate(directory: Path) -> tuple[Path, Path]:
    """A certificate with its key, for this run alone."""
    certificate, key = directory / "certificate.pem", directory / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2", "-subj", f"/CN={NAME}", "-keyout", str(key)]
    command += ["-out", str(certificate), "-addext", f"subjectAltName=DNS:{NAME}"]
    command += ["-addext", "basicConstraints=critical,CA:FALSE"]
    made = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if made.returncode != 0:
        raise ContenderError(f"openssl made no certificate: {made.stderr[-200:]}")
    return certificate, key


def edge_options(stage: Stage, port: int) -> list[str]:
    """Has `dwell serve` listen under TLS as well."""
    certificate, key = make_certificate(stage.directory)
    values = {"listen": f"{HOST}:{port}", "certificate": certificate, "key": key}
    return [part for name, value in values.items() for part in ("--set", f"tls.{name}={value}")]


def nginx_directives(stage: Stage, port: int) -> str:
    """Has nginx listen under TLS as well."""
    certificate, key = make_certificate(stage.directory)
    return NGINX_TLS.format(host=HOST, port=port, certificate=certificate, key=key)


class Secure(Contender):
    """A server that answers one value, plain and under TLS; `port` is the plain one's.

    Attributes:
        secure_port: where it speaks TLS, once it is started.
    """

    secure_port: int

    def serve(self, stage: Stage, *, is_secure: bool) -> tuple[int, int]:
        """Starts it; its process, and its port for clients of one kind."""
        running = self.start(stage)
        return running.program.pid, self.secure_port if is_secure else running.port

    def settle(self, pid: int) -> None:
        """Waits until it does nothing more, before its memory is looked at."""
        settle(pid)


class SecureEdge(Secure):
    """`dwell serve` on its embedded store."""

    name = "tls_edge"
    label = "dwell edge, embedded store, one key"
    ours = True

    def start(self, stage: Stage) -> Running:
        """Starts the edge and stores the value."""
        self.secure_port = stage.free_port()
        edge = start_edge(stage, [], options=edge_options(stage, self.secure_port))
        memcached.fill(edge.store_port, [HIT_PATH], BODY)
        return Running(edge.program, edge.port, HIT_PATH)


class SecureNginx(Secure):
    """nginx with a constant answer."""

    name = "tls_nginx"
    label = "nginx, return 200"

    def start(self, stage: Stage) -> Running:
        """Starts nginx with the answer in its configuration."""
        self.secure_port = stage.free_port()
        answer = f'location / {{ return 200 "{BODY.decode()}"; }}'
        parts = nginx_directives(stage, self.secure_port) + answer
        program, port = start_nginx(stage, "", parts)
        return Running(program, port, HIT_PATH)


CONTENDERS: tuple[Secure, ...] = (SecureEdge(), SecureNginx())


class Client:
    """Connections under TLS, which trust any certificate."""

    def __init__(self) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._context.check_hostname = False
        self._context.verify_mode = ssl.CERT_NONE

    def wrap(self, connection: socket.socket) -> ssl.SSLSocket:
        """The handshake on a connection.

        Raises:
            ContenderError: the suite is another one.
        """
        return self._wrap(connection, None)

    def _wrap(self, connection: socket.socket, session: ssl.SSLSession | None) -> ssl.SSLSocket:
        secure = self._context.wrap_socket(connection, server_hostname=NAME, session=session)
        chosen = secure.cipher()
        if chosen is None or chosen[0] != SUITE or secure.version() != "TLSv1.3":
            raise ContenderError(f"the suite is {chosen}, not {SUITE}")
        return secure

    def answered(self, port: int, session: ssl.SSLSession | None = None) -> ssl.SSLSession | None:
        """One connection with one answer; its session for the next one.

        Raises:
            ContenderError: a session was given and not resumed.
        """
        plain = socket.create_connection((HOST, port), timeout=SOCKET_TIMEOUT_SECONDS)
        with self._wrap(plain, session) as connection:
            if session is not None and not connection.session_reused:
                raise ContenderError("a session was not resumed")
            connection.sendall(http.request(HIT_PATH))
            if http.receive(connection).body != BODY:
                raise ContenderError("an answer under TLS is another one")
            return connection.session


def sample(contender: Secure, running: Running, method: Method, row: Row) -> Figures:
    """One round of one server: everything but the crowd that is woken."""
    answer_bytes = check_answer(running)
    pid, port = running.program.pid, contender.secure_port
    client = Client()
    session = client.answered(port)
    url = f"https://{HOST}:{port}{HIT_PATH}"
    if method.warm_up_seconds:
        wrk.run(url, 1, None)
    cpu = accounting.fine_cpu_seconds(pid)
    report = wrk.run(url, method.tls_seconds, None)
    cpu = accounting.fine_cpu_seconds(pid) - cpu
    if report.failures:
        row.problem(f"errors: {report.errors}")
    figures = {
        "us_per_request": cpu / report.requests * 1e6,
        "requests_per_second": report.requests / report.seconds,
        "p99_us": report.p99_us,
        "bytes_per_answer": answer_bytes,
        "full_us": _handshakes(pid, method.tls_handshakes, lambda: client.answered(port)),
        "resumed_us": _handshakes(
            pid, method.tls_handshakes, lambda: client.answered(port, session)
        ),
    }
    figures |= idle(contender, method.tls_clients)
    return figures | _flood(contender, method)


def crowd(contender: Secure, method: Method) -> int:
    """How many idle clients a package's server gets: peers hold tens of kilobytes for each."""
    return method.tls_clients if contender.ours else method.tls_clients // 5


def idle(contender: Secure, clients: int) -> Figures:
    """User memory of an idle connection, plain and under TLS."""
    plain = _bytes_each(contender, None, clients)
    secure = _bytes_each(contender, Client().wrap, clients)
    return {"plain_bytes": plain, "secure_bytes": secure, "above_bytes": secure - plain}


def _handshakes(pid: int, count: int, connect: Callable[[], object]) -> float:
    """CPU of the server for one connection with its handshake and one request."""
    settle(pid)
    cpu = accounting.fine_cpu_seconds(pid)
    for _ in range(count):
        connect()
    return (accounting.fine_cpu_seconds(pid) - cpu) / count * 1e6


def _bytes_each(contender: Secure, wrap: Wrap | None, all_clients: int) -> float:
    """User memory per idle connection, of those beyond the first ones, on a server of its own."""
    first = all_clients // 3
    with Stage() as stage:
        pid, port = contender.serve(stage, is_secure=wrap is not None)
        with Pollers(port, [HIT_PATH] * all_clients, wrap=wrap) as clients:
            clients.open(first)
            contender.settle(pid)
            before = accounting.user_bytes(pid)
            clients.open()
            contender.settle(pid)
            grown = accounting.user_bytes(pid) - before
            clients.require_silence()
    return grown / (all_clients - first)


def _flood(contender: Secure, method: Method) -> Figures:
    """Memory of clients that stall in their handshake, and the p99 of others meanwhile."""
    stalled: list[socket.socket] = []
    with Stage() as stage:
        pid, port = contender.start(stage).program.pid, contender.secure_port
        Client().answered(port)
        settle(pid)
        before = accounting.user_bytes(pid)
        try:
            for _ in range(method.tls_stalled):
                stalled.append(socket.create_connection((HOST, port), SOCKET_TIMEOUT_SECONDS))
                stalled[-1].sendall(STALLED)
            settle(pid)
            each = (accounting.user_bytes(pid) - before) / method.tls_stalled
            report = wrk.run(f"https://{HOST}:{port}{HIT_PATH}", method.tls_seconds, None)
        finally:
            for connection in stalled:
                connection.close()
    return {"stalled_bytes": each, "stalled_p99_us": report.p99_us}


class SecureEdgeBoard(EdgeBoard):
    """The edge whose clients wait under TLS."""

    def __init__(self, stage: Stage) -> None:
        port = stage.free_port()
        super().__init__(stage, options=edge_options(stage, port))
        self.port, self.wrap = port, Client().wrap


class SecureNchanBoard(NchanBoard):
    """nchan whose clients wait under TLS."""

    def __init__(self, stage: Stage) -> None:
        port = stage.free_port()
        super().__init__(stage, directives=nginx_directives(stage, port))
        self.port, self.wrap = port, Client().wrap


def held_steps(method: Method) -> list[Step]:
    """A row for each server with clients that wait."""
    method = replace(method, idle_seconds=1)
    boards = (
        ("tls_held_edge", "dwell edge, long-polls under TLS on one key", SecureEdgeBoard),
        ("tls_held_nchan", "nginx with nchan, the same on one channel", SecureNchanBoard),
    )
    paths = [SHARED_PATH] * method.tls_held
    return [
        (
            Row(name, label, board is SecureEdgeBoard),
            partial(held, board, paths, method, fan_out=True),
        )
        for name, label, board in boards
    ]
