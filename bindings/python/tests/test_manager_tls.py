"""A manager whose listeners and connections are under TLS."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

from dwell import Connection, Event, Manager, TlsOpts
from support import Loop, port_of
from test_tls import DATA, der, get, offered, trusting

PAIR = {"cert": str(DATA / "certificate.pem"), "key": str(DATA / "key.pem")}
BIG = b"a line of a big answer\n" * 100_000


def answer(conn: Connection, event: Event, data: Any) -> None:
    if event == Event.HTTP_MSG and data.uri == "/socket":
        conn.ws_upgrade(data)
    elif event == Event.HTTP_MSG and data.uri == "/file":
        conn.serve_file(data, str(DATA / "certificate.pem"))
    elif event == Event.HTTP_MSG:
        assert conn.is_tls
        conn.reply(200, data.body_bytes + BIG)
    elif event == Event.WS_MSG:
        conn.ws_send(data.data)


def beside(loop: Loop, act: Any) -> Any:
    """Does something on another thread while the manager is polled."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(act()))
    thread.start()
    loop.until(lambda: not thread.is_alive())
    return results[0]


def test_clients_are_answered_under_tls() -> None:
    with Loop(answer) as loop:
        listener = loop.listen("https://127.0.0.1:0", tls=TlsOpts(**PAIR))
        assert listener.is_tls
        address = ("127.0.0.1", port_of(listener))
        assert beside(loop, lambda: get(address, "/", b"sent ")) == b"sent " + BIG
        file = (DATA / "certificate.pem").read_bytes()
        assert beside(loop, lambda: get(address, "/file")) == file

        def talk() -> Any:
            with connect(f"wss://127.0.0.1:{address[1]}/socket", ssl=trusting()) as client:
                client.send("hello")
                return client.recv(30)

        assert beside(loop, talk) == "hello"


def test_connections_verify_the_server() -> None:
    told: list[bytes] = []

    def handler(conn: Connection, event: Event, data: Any) -> None:
        if event == Event.HTTP_MSG and conn.is_client:
            told.append(data.body_bytes)
        elif event == Event.ERROR and conn.is_client:
            told.append(data.encode())
        elif event == Event.WS_MSG and conn.is_client:
            told.append(data.data)
        elif event == Event.CONNECT and not told:
            conn.http_request("GET", "/")
        elif event == Event.WS_OPEN and conn.is_client:
            conn.ws_send("hello")
        else:
            answer(conn, event, data)

    with Loop(handler) as loop:
        port = port_of(loop.listen("https://127.0.0.1:0", tls=TlsOpts(**PAIR)))
        own = TlsOpts(ca=(DATA / "certificate.pem").read_text())
        assert loop.manager.connect(f"https://localhost:{port}", tls=own).is_tls
        loop.until(lambda: told)
        assert told.pop() == BIG
        told.append(b"no request")
        loop.manager.ws_connect(f"wss://127.0.0.1:{port}/socket", tls=own)
        loop.until(lambda: len(told) > 1)
        assert told.pop() in (b"hello", "hello")
        # Without options, and with others, this server is not trusted.
        for tls in (
            None,
            TlsOpts(ca=str(DATA / "other.pem")),
            TlsOpts(ca=own_pem(), name="a.test"),
        ):
            told[:] = [b"no request"]
            loop.manager.connect(f"https://127.0.0.1:{port}", tls=tls)
            loop.until(lambda: len(told) > 1)
            assert b"handshake failed" in told[1]


def own_pem() -> bytes:
    return (DATA / "certificate.pem").read_bytes()


def test_certificates_are_read_again(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    shutil.copy(DATA / "certificate.pem", cert)
    shutil.copy(DATA / "key.pem", key)
    tls = TlsOpts(cert=cert, key=key)
    with Loop(answer) as loop:
        address = ("127.0.0.1", port_of(loop.listen("wss://127.0.0.1:0", tls=tls)))
        assert beside(loop, lambda: offered(address)) == der("certificate.pem")
        shutil.copy(DATA / "other.pem", cert)
        with pytest.raises(ValueError, match="does not belong"):
            tls.reload()
        shutil.copy(DATA / "other_key.pem", key)
        tls.reload()
        assert beside(loop, lambda: offered(address)) == der("other.pem")


def test_wrong_options_are_refused() -> None:
    with pytest.raises(ValueError, match="key needs cert"):
        TlsOpts(key="key.pem")
    with pytest.raises(ValueError, match="skip_verification is not supported"):
        TlsOpts(skip_verification=True)
    with pytest.raises(TypeError, match="neither PEM nor a path"):
        TlsOpts(ca=5)  # type: ignore[arg-type]
    with Manager() as manager:
        for tls, text in [
            (TlsOpts(), "needs cert and key"),
            (TlsOpts(cert="none.pem"), "cannot read none.pem"),
            (TlsOpts(ca="ca.pem", **PAIR), "cannot read ca.pem"),
            (
                TlsOpts(cert=PAIR["cert"], key=str(DATA / "encrypted_key.pem")),
                "decrypt it: openssl pkey",
            ),
        ]:
            with pytest.raises(ValueError, match=text):
                manager.listen("https://127.0.0.1:0", tls=tls)
        with pytest.raises(ValueError, match="a scheme with tls needs certificates"):
            manager.listen("https://127.0.0.1:0")
        with pytest.raises(ValueError, match="scheme is neither https nor wss"):
            manager.listen("http://127.0.0.1:0", tls=TlsOpts(**PAIR))
        with pytest.raises(ValueError, match=r"cannot read none\.pem"):
            manager.connect("https://127.0.0.1:1", tls=TlsOpts(ca="none.pem"))
        assert manager.connections == ()
