"""What the tools of others find: GnuTLS, OpenSSL, sslyze and testssl.sh.

Tests skip where a tool is missing; `make conformance-tls` installs them all.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys

import pytest

from support import ports
from support.secure import Secure, read_to_end

REQUEST = b"GET /poll/a HTTP/1.1\r\nHost: one.test\r\n\r\n"
LAST_REQUEST = b"GET /poll/a HTTP/1.1\r\nHost: one.test\r\nConnection: close\r\n\r\n"


def needs(program):
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"{program} is missing")


@pytest.fixture
def secure(start_dwell, tmp_path):
    server = Secure(start_dwell, tmp_path)
    server.edge.store().set("/poll/a", "value")
    return server


@pytest.fixture
def gnutls(secure):
    host, port = secure.address
    return ["gnutls-cli", "--port", str(port), "--x509cafile", secure.certificate, "--sni-hostname",
            "one.test", "--verify-hostname", "one.test", host]  # fmt: skip


@needs("gnutls-cli")
def test_gnutls_changes_its_keys(gnutls):
    command = [*gnutls, "--inline-commands"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0
    ) as client:
        seen = read_to_end(client, b"Simple Client Mode:\n\n")
        for _ in range(3):
            client.stdin.write(REQUEST)
            seen = read_to_end(client, b"\r\n\r\nvalue")
            client.stdin.write(b"^rekey^\n")
            seen = read_to_end(client, b"Rekey was completed\n")
        client.stdin.write(LAST_REQUEST)
        seen, _ = client.communicate(timeout=20)
    assert b"\r\n\r\nvalue" in seen
    assert b"Peer has closed the GnuTLS connection" in seen, "in order, by close_notify"


@needs("gnutls-cli")
@pytest.mark.parametrize("version", ["1.2", "1.3"])
def test_gnutls_resumes_its_session(gnutls, version):
    command = [*gnutls, "--resume", "--priority", f"NORMAL:-VERS-ALL:+VERS-TLS{version}"]
    # The first connection waits for a ticket; the second one has the request.
    done = subprocess.run(command, input=LAST_REQUEST, capture_output=True, timeout=60, check=False)
    assert b"This is a resumed session" in done.stdout, done.stdout + done.stderr
    assert b"\r\n\r\nvalue" in done.stdout


def test_openssl_resumes_its_session_and_sends_no_early_data(secure, tmp_path):
    session, early = tmp_path / "session.pem", tmp_path / "early"
    early.write_bytes(LAST_REQUEST)
    command = ["openssl", "s_client", "-connect", ports.text(secure.address), "-servername",
               "one.test", "-CAfile", secure.certificate, "-verify_return_error",
               "-ign_eof"]  # fmt: skip

    def run(*options):
        done = subprocess.run(
            [*command, *options], input=LAST_REQUEST, capture_output=True, timeout=60, check=False
        )
        assert b"\r\n\r\nvalue" in done.stdout, done.stdout + done.stderr
        return done.stdout

    first = run("-sess_out", session)
    assert b"New, TLSv1.3" in first
    assert b"Max Early Data: 0" in first
    again = run("-sess_in", session, "-early_data", early)
    assert b"Reused, TLSv1.3" in again
    assert b"Early data was not sent" in again


@pytest.mark.skipif(importlib.util.find_spec("sslyze") is None, reason="sslyze is missing")
def test_sslyze_finds_modern_suites_and_no_known_fault(secure, tmp_path):
    report = tmp_path / "sslyze.json"
    command = [sys.executable, "-m", "sslyze", f"--json_out={report}", "--mozilla_config=disable",
               "--sslv2", "--sslv3", "--tlsv1", "--tlsv1_1", "--tlsv1_2", "--tlsv1_3",
               "--compression", "--openssl_ccs", "--heartbleed", "--robot", "--reneg", "--ems",
               "--fallback", "--early_data", "--elliptic_curves",
               ports.text(secure.address)]  # fmt: skip
    subprocess.run(command, capture_output=True, timeout=110, check=True)
    scanned = json.loads(report.read_text())["server_scan_results"][0]["scan_result"]
    results = {name: scan["result"] for name, scan in scanned.items()}

    def suites(version):
        accepted = results[f"{version}_cipher_suites"]["accepted_cipher_suites"]
        return {each["cipher_suite"]["name"] for each in accepted}

    old = ("ssl_2_0", "ssl_3_0", "tls_1_0", "tls_1_1")
    assert {version: suites(version) for version in old} == dict.fromkeys(old, set())
    assert suites("tls_1_2") == {
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    }
    assert suites("tls_1_3") == {
        "TLS_AES_128_GCM_SHA256",
        "TLS_AES_256_GCM_SHA384",
        "TLS_CHACHA20_POLY1305_SHA256",
    }
    assert not results["tls_compression"]["supports_compression"]
    assert not results["openssl_ccs_injection"]["is_vulnerable_to_ccs_injection"]
    assert not results["heartbleed"]["is_vulnerable_to_heartbleed"]
    assert results["robot"]["robot_result"] == "NOT_VULNERABLE_RSA_NOT_SUPPORTED"
    assert not results["session_renegotiation"]["is_vulnerable_to_client_renegotiation_dos"]
    assert results["session_renegotiation"]["supports_secure_renegotiation"]
    assert results["tls_extended_master_secret"]["supports_ems_extension"]
    assert results["tls_fallback_scsv"]["supports_fallback_scsv"]
    assert not results["tls_1_3_early_data"]["supports_early_data"]


# Of the certificate of this test and its names: what the server does is not in it. Suites are all
# good ones, so the choice is the client's.
NOT_OURS = {"engine_problem", "cipher_order", "DNS_CAArecord", "HSTS"}


@needs("testssl")
@pytest.mark.skipif("DWELL_LONG" not in os.environ, reason="2 minutes: make conformance-tls")
@pytest.mark.timeout(500)
def test_testssl_finds_no_known_fault(secure, tmp_path):
    report = tmp_path / "testssl.json"
    command = ["testssl", "--quiet", "--warnings", "off", "--color", "0", "--jsonfile", report,
               "--protocols", "--std", "--server-preference", "--fs", "--vulnerable",
               ports.text(secure.address)]  # fmt: skip
    subprocess.run(command, capture_output=True, timeout=480, check=False, cwd=tmp_path)
    found = json.loads(report.read_text())
    good = {each["id"] for each in found if each["severity"] == "OK"}
    bad = {
        each["id"]: each["finding"]
        for each in found
        if each["severity"] not in ("OK", "INFO") and each["id"] not in NOT_OURS
    }
    assert bad == {}
    assert {"TLS1_2", "TLS1_3", "SSLv3", "ROBOT", "heartbleed", "ticketbleed", "CCS"} <= good
