"""Records that no proper client sends, to the running server, by another implementation of TLS."""

import os

import pytest
from tlslite.extensions import TLSExtension
from tlslite.messages import ChangeCipherSpec, ClientHello, Finished

from support.secure import Secure
from support.tls_client import (
    ALERT,
    CHANGE_CIPHER_SPEC,
    CLOSED,
    DATA,
    HANDSHAKE,
    Client,
    Raw,
    request,
    shaken_end,
)

CLOSE_NOTIFY, UNEXPECTED, BAD_RECORD, OVERFLOW = 0, 10, 20, 22
ILLEGAL, DECODE_ERROR, DECRYPT_ERROR = 47, 50, 51
UPDATE, UPDATE_REQUESTED = b"\x18\0\0\x01\0", b"\x18\0\0\x01\x01"
CONTENT_MAX = 1 << 14
EARLY_DATA = 42


@pytest.fixture
def secure(start_dwell, tmp_path):
    server = Secure(start_dwell, tmp_path)
    server.edge.store().set("/poll/a", "value")
    yield server
    assert Client(server.address).shake().ask() == b"value", "others are served as before"


def message(kind, body):
    return bytes([kind]) + len(body).to_bytes(3, "big") + body


def header(length, kind=DATA):
    return bytes([kind, 3, 3]) + length.to_bytes(2, "big")


AFTER = {
    "an empty handshake record": ([(HANDSHAKE, b"")], UNEXPECTED),
    "an empty alert": ([(ALERT, b"")], UNEXPECTED),
    "half an alert": ([(ALERT, b"\x01")], DECODE_ERROR),
    "two alerts in one record": ([(ALERT, b"\x01\0\x01\0")], DECODE_ERROR),
    "a heartbeat": ([(24, b"\x01\0\x01a")], UNEXPECTED),
    "an unknown type": ([(99, b"what")], UNEXPECTED),
    "no type": ([(0, b"")], UNEXPECTED),
    "nothing but padding": ([(0, bytes(500))], UNEXPECTED),
    "too much data": ([(DATA, b"a" * (CONTENT_MAX + 1))], OVERFLOW),
    "too much padding": ([(0, b"a" + bytes([DATA]) + bytes(CONTENT_MAX))], OVERFLOW),
    "the header of too long a record": ([Raw(header(CONTENT_MAX + 257))], OVERFLOW),
    "a record of 65,535 bytes": ([Raw(header(0xFFFF) + bytes(0xFFFF))], OVERFLOW),
    "a hello again": ([(HANDSHAKE, message(1, bytes(50)))], UNEXPECTED),
    "a hello request": ([(HANDSHAKE, message(0, b""))], UNEXPECTED),
    "the hello of a server": ([(HANDSHAKE, message(2, bytes(50)))], UNEXPECTED),
    "a ticket": ([(HANDSHAKE, message(4, bytes(50)))], UNEXPECTED),
    "the end of early data": ([(HANDSHAKE, message(5, b""))], UNEXPECTED),
    "a certificate": ([(HANDSHAKE, message(11, bytes(4)))], UNEXPECTED),
    "a request for a certificate": ([(HANDSHAKE, message(13, bytes(3)))], UNEXPECTED),
    "the proof of a certificate": ([(HANDSHAKE, message(15, bytes(8)))], UNEXPECTED),
    "a finish again": ([(HANDSHAKE, message(20, bytes(32)))], UNEXPECTED),
    "an unknown message": ([(HANDSHAKE, message(99, b""))], UNEXPECTED),
    "a key update without a request": ([(HANDSHAKE, message(24, b""))], DECODE_ERROR),
    "a key update of two bytes": ([(HANDSHAKE, message(24, b"\0\0"))], DECODE_ERROR),
    "a key update of 16 MiB": ([(HANDSHAKE, b"\x18\xff\xff\xff")], DECODE_ERROR),
    "a key update with request 2": ([(HANDSHAKE, message(24, b"\x02"))], ILLEGAL),
    "a key update with request 255": ([(HANDSHAKE, message(24, b"\xff"))], ILLEGAL),
    "two key updates in one record": ([(HANDSHAKE, UPDATE * 2)], UNEXPECTED),
    "data within a key update": ([(HANDSHAKE, UPDATE[:2]), (DATA, b"a")], UNEXPECTED),
    "an alert within a key update": ([(HANDSHAKE, UPDATE[:4]), (ALERT, b"\x01\0")], UNEXPECTED),
    "an empty part of a key update": ([(HANDSHAKE, UPDATE[:2]), (HANDSHAKE, b"")], UNEXPECTED),
    "33 records without data": ([(DATA, b"")] * 33, UNEXPECTED),
    "33 cancellations": ([(ALERT, b"\x01\x5a")] * 33, UNEXPECTED),
    "a change of the cipher": ([Raw(b"\x14\x03\x03\0\x01\x01")], UNEXPECTED),
    "an alert without protection": ([Raw(header(2, ALERT) + b"\x02\x28")], UNEXPECTED),
    "an end without protection": ([Raw(header(2, ALERT) + b"\x01\0")], UNEXPECTED),
    "an update without protection": ([Raw(header(5, HANDSHAKE) + UPDATE)], UNEXPECTED),
    "data without protection": ([Raw(header(60) + request()[:60].ljust(60))], BAD_RECORD),
    "an empty record": ([Raw(header(0))], BAD_RECORD),
    "a record of a tag alone": ([Raw(header(16) + bytes(16))], BAD_RECORD),
    "plain HTTP": ([Raw(request())], UNEXPECTED),
    "SSL 2.0": ([Raw(b"\x80\x2e\x01\0\x02")], UNEXPECTED),
    "a fatal alert": ([(ALERT, b"\x02\x28")], CLOSED),
    "a warning that is none": ([(ALERT, b"\x01\x64")], CLOSED),
    "an unknown alert": ([(ALERT, b"\x01\xff")], CLOSED),
    "the end": ([(ALERT, b"\x01\0")], CLOSE_NOTIFY),
    "the end as a fatal alert": ([(ALERT, b"\x02\0")], CLOSE_NOTIFY),
}


@pytest.mark.parametrize("asks", [False, True], ids=["at once", "after a request"])
def test_what_does_not_belong_there_is_refused(secure, asks):
    found = {}
    for name, (records, _) in AFTER.items():
        client = Client(secure.address).shake()
        if asks:
            assert client.ask() == b"value"
        client.send_records(*records)
        found[name] = client.end()
    assert found == {name: end for name, (_, end) in AFTER.items()}


def altered(record, at):
    changed = bytearray(record)
    changed[at] ^= 1
    return Raw(changed)


def test_a_record_is_opened_once_in_its_order_and_unaltered(secure):
    for at in (0, 1, 2, 4, 5, 20, -1):
        client = Client(secure.address).shake()
        client.send_records(altered(client.sealed(DATA, request()), at))
        # The type and the length are looked at first.
        assert client.end() == {0: UNEXPECTED}.get(at, BAD_RECORD), at
    client = Client(secure.address).shake()
    again = client.sealed(DATA, request())
    client.send_records(again)
    assert client.answer() == b"value"
    client.send_records(again)
    assert client.end() == BAD_RECORD
    client = Client(secure.address).shake()
    first, second = client.sealed(DATA, b"GET"), client.sealed(DATA, b" /")
    client.send_records(second, first)
    assert client.end() == BAD_RECORD


def test_a_change_of_keys_is_told_and_made(secure):
    client = Client(secure.address).shake()
    client.update_keys()
    client.send_records((DATA, request()))
    assert client.end() == BAD_RECORD, "it was not told"
    client = Client(secure.address).shake()
    client.send_records((HANDSHAKE, UPDATE), (DATA, request()))
    assert client.end() == BAD_RECORD, "it was not made"


def test_key_updates_are_answered(secure):
    client = Client(secure.address).shake()
    for count in (1, 2, 5, 30):
        for _ in range(count):
            client.send_records((HANDSHAKE, UPDATE_REQUESTED))
            client.update_keys()
        assert client.ask() == b"value"
    for cut in range(1, 5):
        parts = UPDATE_REQUESTED[:cut], UPDATE_REQUESTED[cut:]
        client.send_records(*((HANDSHAKE, part) for part in parts))
        client.update_keys()
        assert client.ask() == b"value"
    # In one segment with the request that follows.
    update = client.sealed(HANDSHAKE, UPDATE_REQUESTED)
    client.update_keys()
    client.send_records(Raw(update + client.sealed(DATA, request())))
    assert client.answer() == b"value"


def test_padding_is_accepted(secure):
    client = Client(secure.address).shake()
    for padding in (1, 100, CONTENT_MAX - len(request())):
        client.send_records((0, request() + bytes([DATA]) + bytes(padding - 1)))
        assert client.answer() == b"value"
        client.send_records((0, bytes([DATA]) + bytes(padding)), (DATA, request()))
        assert client.answer() == b"value"


def test_a_request_comes_in_records_of_any_size(secure):
    client = Client(secure.address).shake()
    client.send_records(*((DATA, bytes([byte])) for byte in request()))
    assert client.answer() == b"value"
    client.send_records(*[(DATA, b"")] * 32, (DATA, request()))
    assert client.answer() == b"value"
    client.send_records((ALERT, b"\x01\x5a"), (DATA, request()))
    assert client.answer() == b"value"
    long = b"X-Long: " + b"a" * 8000 + b"\r\n\r\n"
    client.send_records((DATA, request()[:-2] + long))
    assert client.answer() == b"value"


@pytest.mark.parametrize("version", [(3, 0), (3, 1), (0, 0), (255, 255)])
def test_the_version_of_a_record_is_ignored(secure, version):
    client = Client(secure.address).shake()
    client._recordLayer._recordSocket.version = version
    assert client.ask() == b"value"


def test_close_notify_is_answered(secure):
    for version in ((3, 3), (3, 4)):
        client = Client(secure.address, version=version).shake()
        assert client.ask() == b"value"
        client.send_records((ALERT, b"\x01\0"))
        assert client.end() == CLOSE_NOTIFY
        client = Client(secure.address, version=version).shake()
        client.send_records((DATA, request()), (ALERT, b"\x01\0"), Raw(b"what follows"))
        assert client.answer() == b"value", "who sends no more may still read"


def instead(kind, *records):
    """Sends these records instead of a message; those that are functions get its bytes."""

    def alter(client, sent):
        if not isinstance(sent, kind):
            return None
        content = bytes(sent.write())
        made = [record(content) if callable(record) else record for record in records]
        return [one for part in made for one in (part if isinstance(part, list) else [part])]

    return alter


def in_parts(size):
    return lambda content: [
        (HANDSHAKE, content[at : at + size]) for at in range(0, len(content), size)
    ]


def whole(content):
    return (HANDSHAKE, content)


def plain(content):
    return Raw(header(len(content), HANDSHAKE) + content)


def flipped(content):
    return (HANDSHAKE, content[:-1] + bytes([content[-1] ^ 1]))


FINISHED = {
    "the first byte is another": (
        [lambda content: (HANDSHAKE, content[:4] + bytes([content[4] ^ 1]) + content[5:])],
        DECRYPT_ERROR,
    ),
    "the last byte is another": ([flipped], DECRYPT_ERROR),
    "one byte is missing": (
        [lambda content: (HANDSHAKE, message(20, content[4:-1]))],
        DECRYPT_ERROR,
    ),
    "one byte is too much": (
        [lambda content: (HANDSHAKE, message(20, content[4:] + b"\0"))],
        DECRYPT_ERROR,
    ),
    "it is empty": ([(HANDSHAKE, message(20, b""))], DECRYPT_ERROR),
    "it is not protected": ([plain], BAD_RECORD),
    "an update is in its record": (
        [lambda content: (HANDSHAKE, content + UPDATE)],
        UNEXPECTED,
    ),
    "an update comes first": ([(HANDSHAKE, UPDATE), whole], UNEXPECTED),
    "data comes first": ([(DATA, request()), whole], UNEXPECTED),
    "a heartbeat comes first": ([(24, b"\x01\0\x01a"), whole], DECODE_ERROR),
    "it comes twice": ([whole, whole], BAD_RECORD),
    "an alert comes instead": ([(ALERT, b"\x02\x28")], CLOSED),
    "the end comes instead": ([(ALERT, b"\x01\0")], DECODE_ERROR),
    "too long a record comes first": ([Raw(header(CONTENT_MAX + 257))], OVERFLOW),
}


def test_a_wrong_finished_is_refused(secure):
    found = {
        name: shaken_end(Client(secure.address, instead(Finished, *records)))
        for name, (records, _) in FINISHED.items()
    }
    assert found == {name: end for name, (_, end) in FINISHED.items()}


def test_nothing_shares_the_record_of_finished(secure):
    # A request in the same segment is no part of the record, and belongs to the connection.
    for behind in (UPDATE, UPDATE_REQUESTED, b"\x18", message(1, bytes(9))):
        glued = instead(Finished, lambda content, behind=behind: (HANDSHAKE, content + behind))
        assert shaken_end(Client(secure.address, glued)) == UNEXPECTED, behind


@pytest.mark.parametrize("size", [1, 7, 20])
def test_a_handshake_comes_in_parts(secure, size):
    for kind in (ClientHello, Finished):
        client = Client(secure.address, instead(kind, in_parts(size))).shake()
        assert client.ask() == b"value"


def test_a_change_cipher_spec_is_dropped_in_the_handshake_only(secure):
    ccs = Raw(header(1, CHANGE_CIPHER_SPEC) + b"\x01")
    for count in (0, 1, 2):
        client = Client(secure.address, instead(ChangeCipherSpec, *[ccs] * count)).shake()
        assert client.ask() == b"value"
        client.send_records(ccs)
        assert client.end() == UNEXPECTED
    for wrong in (b"\x02", b"\0", b"\x01\x01"):
        raw = Raw(header(len(wrong), CHANGE_CIPHER_SPEC) + wrong)
        end = shaken_end(Client(secure.address, instead(ChangeCipherSpec, raw)))
        assert end in (UNEXPECTED, DECODE_ERROR), wrong


def test_early_data_is_skipped(secure):
    def early(count, size):
        def alter(client, sent):
            if not isinstance(sent, ClientHello):
                return None
            sent.extensions.insert(0, TLSExtension(extType=EARLY_DATA).create(bytearray()))
            garbage = [Raw(header(size) + os.urandom(size)) for _ in range(count)]
            # Early data is not protected by a key that the server has.
            return [(HANDSHAKE, bytes(sent.write())), *garbage]

        return alter

    for count, size in ((1, 50), (4, 400), (1, 8_000)):
        client = Client(secure.address, early(count, size)).shake()
        assert client.ask() == b"value"
    # The server may be gone before all is sent.
    assert shaken_end(Client(secure.address, early(3, 16_000))) in (BAD_RECORD, CLOSED)


TLS12 = {
    "a change of the cipher": ([(CHANGE_CIPHER_SPEC, b"\x01")], DECODE_ERROR),
    "a finish again": ([(HANDSHAKE, message(20, bytes(12)))], UNEXPECTED),
    "a heartbeat": ([(24, b"\x01\0\x01a")], DECODE_ERROR),
    "an altered record": ([Raw(header(60) + bytes(60))], BAD_RECORD),
    "too much data": ([(DATA, b"a" * (CONTENT_MAX + 1))], OVERFLOW),
    "a fatal alert": ([(ALERT, b"\x02\x28")], CLOSED),
    "the end": ([(ALERT, b"\x01\0")], CLOSE_NOTIFY),
}


def test_tls_1_2_refuses_what_does_not_belong_there(secure):
    found = {}
    for name, (records, _) in TLS12.items():
        client = Client(secure.address, version=(3, 3)).shake()
        assert client.ask() == b"value"
        client.send_records(*records)
        found[name] = client.end()
    for name, alter in {"a wrong finish": instead(Finished, flipped)}.items():
        found[name] = shaken_end(Client(secure.address, alter, version=(3, 3)))
    assert found == {name: end for name, (_, end) in TLS12.items()} | {
        "a wrong finish": DECRYPT_ERROR
    }


def test_tls_1_2_goes_on_after_a_warning_and_an_empty_record(secure):
    client = Client(secure.address, version=(3, 3)).shake()
    client.send_records((DATA, b""), (ALERT, b"\x01\x5a"), (DATA, request()))
    assert client.answer() == b"value"
