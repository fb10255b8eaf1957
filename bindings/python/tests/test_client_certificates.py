"""Clients that show certificates: WSGI, ASGI, managers and ``python -m dwell``."""

from __future__ import annotations

import json
import re
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from dwell import Connection, Event, TlsOpts
from programs import Start
from servers import RunAsgi, RunWsgi, Scope, Send, respond, text
from support import Loop, port_of
from test_manager_tls import beside
from test_tls import served
from wire import TIMEOUT

DATA = Path(__file__).parents[3] / "crates" / "tls" / "tests" / "data"
SERVER = {"ssl_certfile": str(DATA / "certificate.pem"), "ssl_keyfile": str(DATA / "key.pem")}
CLIENT_CA = str(DATA / "client_ca.pem")
OPTIONAL = SERVER | {"ssl_ca_certs": CLIENT_CA, "ssl_cert_reqs": ssl.CERT_OPTIONAL}
REQUIRED = SERVER | {"ssl_ca_certs": CLIENT_CA, "ssl_cert_reqs": ssl.CERT_REQUIRED}
ALICE = ("client.pem", "client_key.pem")
EXPIRED = ("client_expired.pem", "client_key.pem")
OTHER = ("other.pem", "other_key.pem")
SUBJECT = "CN=alice,O=Example\\, Inc."
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


def get(
    port: int,
    shown: tuple[str, str] | None = None,
    version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
) -> Any:
    """What a server answers a client that shows this certificate, with httpx."""
    context = ssl.create_default_context(cafile=str(DATA / "certificate.pem"))
    context.minimum_version = context.maximum_version = version
    if shown is not None:
        context.load_cert_chain(*(DATA / name for name in shown))
    with httpx.Client(verify=context, timeout=TIMEOUT) as client:
        return client.get(f"https://127.0.0.1:{port}/").json()


def refused(port: int, shown: tuple[str, str] | None, version: ssl.TLSVersion) -> None:
    # TLS 1.3 tells a client of it when the client reads.
    with pytest.raises((httpx.ConnectError, httpx.ReadError, httpx.RemoteProtocolError)):
        get(port, shown, version)


async def asgi_app(scope: Scope, receive: Any, send: Send) -> None:
    assert scope["type"] == "http"
    tls = scope["extensions"].get("tls")
    await respond(send, json.dumps(tls and {**tls, "scheme": scope["scheme"]}).encode())


def wsgi_app(environ: dict[str, Any], start: Any) -> Any:
    names = ("HTTPS", "wsgi.url_scheme")
    seen = {name: value for name, value in environ.items() if name.startswith("SSL_")}
    return text(start, json.dumps(seen | {name: environ.get(name) for name in names}).encode())


@pytest.mark.parametrize("version", VERSIONS)
def test_asgi_has_the_extension(run_asgi: RunAsgi, version: ssl.TLSVersion) -> None:
    port = run_asgi(asgi_app, lifespan="off", **OPTIONAL).server.addresses[0][1]
    tls = get(port, ALICE, version)
    assert tls.pop("cipher_suite") in (0x1301, 0x1302, 0x1303, 0xC02B, 0xC02C, 0xCCA9)
    assert tls == {
        "scheme": "https",
        "server_cert": None,
        "client_cert_chain": [(DATA / "client.pem").read_text()],
        "client_cert_name": SUBJECT,
        "client_cert_error": None,
        "tls_version": version.value,
    }
    tls = get(port, None, version)
    assert (tls["client_cert_chain"], tls["client_cert_name"]) == ([], None)


def test_asgi_has_no_extension_without_tls(run_asgi: RunAsgi) -> None:
    port = run_asgi(asgi_app, lifespan="off", trusted_proxies=["*"]).server.addresses[0][1]
    url = f"http://127.0.0.1:{port}/"
    assert httpx.get(url, headers={"x-forwarded-proto": "https"}, timeout=TIMEOUT).json() is None


@pytest.mark.parametrize("version", VERSIONS)
def test_wsgi_has_the_names_of_mod_ssl(run_wsgi: RunWsgi, version: ssl.TLSVersion) -> None:
    port = run_wsgi(wsgi_app, **OPTIONAL).addresses[0][1]
    expected = {
        "HTTPS": "on",
        "wsgi.url_scheme": "https",
        "SSL_PROTOCOL": "TLSv1.3" if version == ssl.TLSVersion.TLSv1_3 else "TLSv1.2",
        "SSL_CLIENT_VERIFY": "NONE",
    }
    assert get(port, None, version) == expected
    assert get(port, ALICE, version) == expected | {
        "SSL_CLIENT_VERIFY": "SUCCESS",
        "SSL_CLIENT_CERT": (DATA / "client.pem").read_text(),
        "SSL_CLIENT_S_DN": SUBJECT,
    }


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("shown", [EXPIRED, OTHER])
def test_other_certificates_are_refused(
    run_asgi: RunAsgi, run_wsgi: RunWsgi, version: ssl.TLSVersion, shown: tuple[str, str]
) -> None:
    for options in (OPTIONAL, REQUIRED):
        refused(run_wsgi(wsgi_app, **options).addresses[0][1], shown, version)
        refused(
            run_asgi(asgi_app, lifespan="off", **options).server.addresses[0][1], shown, version
        )


@pytest.mark.parametrize("version", VERSIONS)
def test_a_certificate_is_required(run_wsgi: RunWsgi, version: ssl.TLSVersion) -> None:
    port = run_wsgi(wsgi_app, **REQUIRED).addresses[0][1]
    refused(port, None, version)
    assert get(port, ALICE, version)["SSL_CLIENT_VERIFY"] == "SUCCESS"


PROGRAM = """
def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "application/json")])
    return [b'"' + environ["SSL_CLIENT_VERIFY"].encode() + b'"']
"""


def test_flags_of_the_command(start: Start, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    files = ("--ssl-certfile", DATA / "certificate.pem", "--ssl-keyfile", DATA / "key.pem")
    flags = ("--ssl-ca-certs", CLIENT_CA, "--ssl-cert-reqs", "2")
    program = start("program:app", "--port", "0", *map(str, files), *flags)
    _, port = served(program)
    refused(port, None, ssl.TLSVersion.TLSv1_3)
    assert get(port, ALICE) == "SUCCESS"


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--ssl-cert-reqs", "2"], "ssl_cert_reqs needs ssl_certfile"),
        (["--ssl-ca-certs", CLIENT_CA], "ssl_ca_certs needs ssl_certfile"),
    ],
)
def test_flags_without_a_certificate(flags: list[str], reason: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "dwell", "program:app", "--port", "0", *flags]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert done.returncode != 0
    assert reason in done.stderr


def wrong_reqs(value: str) -> str:
    names = "ssl.CERT_NONE, CERT_OPTIONAL, CERT_REQUIRED"
    return re.escape(f"ssl_cert_reqs is 0, 1 or 2 ({names}): {value}") + "$"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (SERVER | {"ssl_cert_reqs": 2}, "ssl_cert_reqs needs ssl_ca_certs"),
        (SERVER | {"ssl_ca_certs": CLIENT_CA}, "ssl_ca_certs has no effect without ssl_cert_reqs"),
        (OPTIONAL | {"ssl_cert_reqs": 3}, wrong_reqs("3")),
        (OPTIONAL | {"ssl_cert_reqs": 256}, wrong_reqs("256")),
        (OPTIONAL | {"ssl_cert_reqs": -1}, wrong_reqs("-1")),
        (OPTIONAL | {"ssl_cert_reqs": 1 << 64}, wrong_reqs("18446744073709551616")),
        (OPTIONAL | {"ssl_cert_reqs": "2"}, wrong_reqs("'2'")),
        (OPTIONAL | {"ssl_cert_reqs": ""}, wrong_reqs("''")),
        (OPTIONAL | {"ssl_cert_reqs": 2.0}, wrong_reqs("2.0")),
        # An int, too, which would ask for a certificate and not require it.
        (OPTIONAL | {"ssl_cert_reqs": True}, wrong_reqs("True")),
        ({"ssl_cert_reqs": ""}, "ssl_cert_reqs needs ssl_certfile"),
        (OPTIONAL | {"ssl_ca_certs": SERVER["ssl_keyfile"]}, r"key\.pem: "),
        (OPTIONAL | {"ssl_ca_certs": "/no/such"}, "cannot read /no/such"),
    ],
)
def test_options_that_are_wrong(run_wsgi: RunWsgi, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        run_wsgi(wsgi_app, **options)


@pytest.mark.parametrize("name", ["ssl_certfile", "ssl_keyfile", "ssl_ca_certs"])
@pytest.mark.parametrize("file", [5, ["a.pem"]])
def test_options_that_are_no_paths(run_wsgi: RunWsgi, name: str, file: Any) -> None:
    reason = re.escape(f"{name} is the path of a file: {file!r}")
    with pytest.raises(TypeError, match=reason):
        run_wsgi(wsgi_app, **(OPTIONAL | {name: file}))


def test_paths_of_every_kind(run_wsgi: RunWsgi) -> None:
    options = {"ssl_certfile": DATA / "certificate.pem", "ssl_keyfile": bytes(DATA / "key.pem")}
    port = run_wsgi(wsgi_app, **options, ssl_cert_reqs=None).addresses[0][1]
    assert get(port)["SSL_CLIENT_VERIFY"] == "NONE"


def test_texts_of_certificates_are_made_once(run_asgi: RunAsgi, run_wsgi: RunWsgi) -> None:
    seen: list[Any] = []

    async def asgi(scope: Scope, receive: Any, send: Send) -> None:
        seen.append(scope["extensions"]["tls"]["client_cert_chain"])
        await respond(send, b"1")

    def wsgi(environ: dict[str, Any], start: Any) -> Any:
        seen.append(environ["SSL_CLIENT_CERT"])
        return text(start, b"1")

    ports = [
        run_asgi(asgi, lifespan="off", **OPTIONAL).server.addresses[0][1],
        run_wsgi(wsgi, threads=1, **OPTIONAL).addresses[0][1],
    ]
    for port in ports:
        seen.clear()
        get(port, ALICE)
        get(port, ALICE)
        assert len(seen) == 2
        assert seen[0] is seen[1]


def test_a_manager_requires_certificates() -> None:
    seen: list[tuple[bytes, ...]] = []

    def handler(conn: Connection, event: Event, data: Any) -> None:
        if event == Event.HTTP_MSG:
            seen.append(conn.peer_certificates)
            conn.reply(200, b"1")

    certificate, key = SERVER["ssl_certfile"], SERVER["ssl_keyfile"]
    with Loop(handler) as loop:
        tls = TlsOpts(ca=CLIENT_CA, cert=certificate, key=key)
        listener = loop.listen("https://127.0.0.1:0", tls=tls)
        assert listener.peer_certificates == ()
        port = port_of(listener)
        beside(loop, lambda: refused(port, None, ssl.TLSVersion.TLSv1_3))
        assert seen == []
        assert beside(loop, lambda: get(port, ALICE)) == 1
    assert seen == [(ssl.PEM_cert_to_DER_cert((DATA / "client.pem").read_text()),)]


def test_curl_shows_a_certificate(run_wsgi: RunWsgi) -> None:
    port = run_wsgi(wsgi_app, **REQUIRED).addresses[0][1]
    command = ["curl", "--silent", "--show-error", "--cacert", SERVER["ssl_certfile"]]
    shown = ["--cert", str(DATA / "client.pem"), "--key", str(DATA / "client_key.pem")]
    url = f"https://localhost:{port}/"

    def asked(*options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *options, url], capture_output=True, text=True, timeout=TIMEOUT, check=False
        )

    assert json.loads(asked(*shown).stdout)["SSL_CLIENT_S_DN"] == SUBJECT
    assert "certificate required" in asked().stderr
