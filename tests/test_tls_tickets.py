"""Keys of session tickets in a file that several processes share: `tls.ticket_keys`."""

import base64
import signal
import subprocess

import pytest

from support.dwell import BINARY
from support.secure import Secure, is_resumed
from support.wait import until


def key():
    """One as the manual has them made."""
    command = ["openssl", "rand", "-base64", "48"]
    return subprocess.run(command, capture_output=True, check=True, timeout=60).stdout.decode()


def place(path, *lines):
    """Writes a file in one step, as its content is read at any time."""
    draft = path.with_suffix(".new")
    draft.write_text("".join(lines))
    draft.replace(path)


@pytest.fixture
def serve(start_dwell, tmp_path):
    """Starts a process with a certificate of its own and these keys; returns it and their file."""

    def start(name, *keys, **options):
        folder = tmp_path / name
        folder.mkdir()
        file = folder / "tickets"
        place(file, *keys)
        server = Secure(start_dwell, folder, tls={"ticket_keys": str(file)}, **options)
        server.edge.store().set("/poll/a", "value")
        return server, file

    return start


@pytest.mark.parametrize("version", ["tls1_2", "tls1_3"])
def test_a_session_of_one_process_is_resumed_by_another(serve, tmp_path, version):
    shared, other = key(), key()
    here, _ = serve("here", shared)
    there, _ = serve("there", "# next\n", other, "\n", shared)
    stranger, _ = serve("stranger", other)
    session = tmp_path / "session.pem"
    assert not is_resumed(here, version, "-sess_out", session)
    assert is_resumed(here, version, "-sess_in", session)
    assert is_resumed(there, version, "-sess_in", session)
    assert not is_resumed(stranger, version, "-sess_in", session)


def test_the_file_is_read_again_when_it_has_changed(serve, tmp_path):
    before, after = key(), key()
    server, file = serve("server", before, check_interval="1s")
    session = tmp_path / "session.pem"
    assert not is_resumed(server, "tls1_3", "-sess_out", session)
    place(file, "nonsense\n")
    until(lambda: "the keys before stay" in server.edge.output(), "the file is refused")
    assert is_resumed(server, "tls1_3", "-sess_in", session)
    place(file, after, before)
    until(lambda: "keys of tickets renewed" in server.edge.output(), "the file is taken")
    assert is_resumed(server, "tls1_3", "-sess_in", session)
    place(file, after)
    until(lambda: server.edge.output().count("keys of tickets renewed") == 2, "it is taken again")
    assert not is_resumed(server, "tls1_3", "-sess_in", session)


def test_a_reload_takes_another_file_or_refuses_it(serve, tmp_path):
    server, file = serve("server", key(), check_interval="1d")
    edge = server.edge
    session = tmp_path / "session.pem"
    assert not is_resumed(server, "tls1_3", "-sess_out", session)
    place(file, "nonsense\n")
    edge.signal(signal.SIGHUP)
    until(lambda: "is not taken" in edge.output(), "the reload is refused")
    assert "(tls.ticket_keys): line 1 is not base64 of 48 bytes; each line" in edge.output()
    assert is_resumed(server, "tls1_3", "-sess_in", session)
    place(file, key())
    edge.signal(signal.SIGHUP)
    until(lambda: edge.output().count("configuration read") == 1, "the reload is done")
    assert not is_resumed(server, "tls1_3", "-sess_in", session)
    # Without a file, keys are made.
    edge.rewrite(tls={"ticket_keys": "off"})
    edge.signal(signal.SIGHUP)
    until(lambda: edge.output().count("configuration read") == 2, "the reload is done")
    assert not is_resumed(server, "tls1_3", "-sess_out", session)
    assert is_resumed(server, "tls1_3", "-sess_in", session)


def test_check_says_what_is_wrong_with_the_file(tmp_path):
    keys, config = tmp_path / "tickets", tmp_path / "dwell.toml"
    config.write_text(f'[tls]\nticket_keys = "{keys}"\n')

    def check():
        command = [BINARY, "check", config]
        return subprocess.run(command, capture_output=True, timeout=60, check=False, text=True)

    assert f"{keys} (tls.ticket_keys): No such file" in check().stderr
    short = base64.b64encode(bytes(47)).decode()
    for content, words in [
        ("", "there is no key in the file; each line is one key: openssl rand -base64 48"),
        (f"# one\n{short}\n", "line 2 is not base64 of 48 bytes"),
    ]:
        place(keys, content)
        found = check()
        assert found.returncode != 0
        assert f"{keys} (tls.ticket_keys): {words}" in found.stderr
    place(keys, key())
    assert check().returncode == 0
    config.write_text(f'[tls]\nticket_keys = "{keys}"\nclient_ca = "{keys}"\n')
    assert "clients with certificates resume no session" in check().stderr
