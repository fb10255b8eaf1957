"""The memcached protocol to the byte: answers, error lines, framing."""

import socket

import pytest

from support.either import store_address  # noqa: F401 -- a fixture

LONGEST = b"k" * 250
TOO_LONG = b"k" * 251
FORMAT = b"CLIENT_ERROR bad command line format\r\n"
NO_NUMBER = b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"
BAD_DELTA = b"CLIENT_ERROR invalid numeric delta argument\r\n"
BAD_EXPTIME = b"CLIENT_ERROR invalid exptime argument\r\n"
BAD_CHUNK = b"CLIENT_ERROR bad data chunk\r\n"
TOO_LARGE = b"SERVER_ERROR object too large for cache\r\n"
HUGE = b"x" * 1_048_577

# What is sent and what comes back; where versions of memcached differ, all that may come back.
EXCHANGES = {
    # Retrieval.
    "miss": (b"get none\r\n", b"END\r\n"),
    "hit": (b"set a 0 0 3\r\nabc\r\nget a\r\n", b"STORED\r\nVALUE a 0 3\r\nabc\r\nEND\r\n"),
    "several": (
        b"set a 1 0 1\r\nx\r\nset b 2 0 1\r\ny\r\nget a none b a\r\n",
        b"STORED\r\nSTORED\r\nVALUE a 1 1\r\nx\r\nVALUE b 2 1\r\ny\r\nVALUE a 1 1\r\nx\r\nEND\r\n",
    ),
    "get_without_key": (b"get\r\n", (b"ERROR\r\n", FORMAT)),
    "gets_without_key": (b"gets\r\n", (b"ERROR\r\n", FORMAT)),
    "get_and_touch": (
        b"set a 3 0 1\r\nx\r\ngat 100 a none\r\n",
        b"STORED\r\nVALUE a 3 1\r\nx\r\nEND\r\n",
    ),
    "thousand_keys": (
        b"get " + b" ".join(b"key%05d" % n for n in range(1000)) + b"\r\n",
        b"END\r\n",
    ),
    # Lines.
    "lf_alone": (b"get none\n", b"END\r\n"),
    "blanks_at_the_end": (b"get none  \r\n", b"END\r\n"),
    "blanks_between": (b"set  a  0 0 1\r\n1\r\n", b"STORED\r\n"),
    "flush_with_blank": (b"flush_all \r\n", b"OK\r\n"),
    "unknown": (b"foo\r\n", b"ERROR\r\n"),
    "empty_line": (b"\r\n", b"ERROR\r\n"),
    "upper_case": (b"SET a 0 0 1\r\n", b"ERROR\r\n"),
    # Keys.
    "longest_key": (b"set " + LONGEST + b" 0 0 1\r\n1\r\n", b"STORED\r\n"),
    "too_long_key": (b"get " + TOO_LONG + b"\r\n", FORMAT),
    "too_long_key_set": (b"set " + TOO_LONG + b" 0 0 1\r\n1\r\n", (FORMAT, FORMAT + b"ERROR\r\n")),
    "too_long_key_delete": (b"delete " + TOO_LONG + b"\r\n", FORMAT),
    "utf8_key": (
        "set clé 0 0 1\r\n1\r\nget clé\r\n".encode(),
        "STORED\r\nVALUE clé 0 1\r\n1\r\nEND\r\n".encode(),
    ),
    "control_key": (
        b"set \x01\x02 0 0 1\r\n1\r\nget \x01\x02\r\n",
        b"STORED\r\nVALUE \x01\x02 0 1\r\n1\r\nEND\r\n",
    ),
    # Storage.
    "largest_flags": (
        b"set a 4294967295 0 1\r\n1\r\nget a\r\n",
        b"STORED\r\nVALUE a 4294967295 1\r\n1\r\nEND\r\n",
    ),
    "flags_too_large": (
        b"set a 4294967296 0 1\r\n1\r\n",
        (FORMAT, FORMAT + b"ERROR\r\n", b"STORED\r\n"),
    ),
    "flags_negative": (b"set a -1 0 1\r\n1\r\n", (FORMAT, FORMAT + b"ERROR\r\n")),
    "flags_text": (b"set a x 0 1\r\n1\r\n", (FORMAT, FORMAT + b"ERROR\r\n")),
    "exptime_text": (
        b"set a 0 x 1\r\n1\r\n",
        (FORMAT, FORMAT + b"ERROR\r\n", BAD_EXPTIME, BAD_EXPTIME + b"ERROR\r\n"),
    ),
    "length_negative": (b"set a 0 0 -1\r\n", FORMAT),
    "length_missing": (b"set a 0 0\r\n", (b"ERROR\r\n", FORMAT)),
    "data_too_long": (b"set a 0 0 3\r\nabcd\r\n", (BAD_CHUNK, BAD_CHUNK + b"ERROR\r\n")),
    "data_much_too_long": (b"set a 0 0 2\r\nabcdef\r\n", BAD_CHUNK + b"ERROR\r\n"),
    "empty_value": (b"set a 0 0 0\r\n\r\nget a\r\n", b"STORED\r\nVALUE a 0 0\r\n\r\nEND\r\n"),
    "add_twice": (b"add n1 0 0 1\r\n1\r\nadd n1 0 0 1\r\n1\r\n", b"STORED\r\nNOT_STORED\r\n"),
    "replace_nothing": (b"replace n2 0 0 1\r\n1\r\n", b"NOT_STORED\r\n"),
    "append_nothing": (b"append n2 0 0 1\r\n1\r\n", b"NOT_STORED\r\n"),
    "append_keeps_flags": (
        b"set a 7 0 1\r\n1\r\nappend a 9 0 1\r\n2\r\nget a\r\n",
        b"STORED\r\nSTORED\r\nVALUE a 7 2\r\n12\r\nEND\r\n",
    ),
    "cas_nothing": (b"cas n2 0 0 1 1\r\n1\r\n", b"NOT_FOUND\r\n"),
    # A server counts its unique numbers up from 1: no item has this one.
    "cas_other": (
        b"set a 0 0 1\r\n1\r\ncas a 0 0 1 9999999999\r\n2\r\n",
        b"STORED\r\nEXISTS\r\n",
    ),
    "cas_without_unique": (b"cas a 0 0 1\r\n", (b"ERROR\r\n", FORMAT)),
    "too_large": (b"set a 0 0 1048577\r\n" + HUGE + b"\r\n", TOO_LARGE),
    "too_large_noreply": (b"set a 0 0 1048577 noreply\r\n" + HUGE + b"\r\n", b""),
    "too_large_drops_the_old": (
        b"set q 0 0 1\r\n1\r\nset q 0 0 1048577\r\n" + HUGE + b"\r\nget q\r\n",
        b"STORED\r\n" + TOO_LARGE + b"END\r\n",
    ),
    "too_large_add_keeps_the_old": (
        b"set q 0 0 1\r\n1\r\nadd q 0 0 1048577\r\n" + HUGE + b"\r\nget q\r\n",
        b"STORED\r\n" + TOO_LARGE + b"VALUE q 0 1\r\n1\r\nEND\r\n",
    ),
    "noreply": (
        b"set a 0 0 1 noreply\r\n1\r\nadd a 0 0 1 noreply\r\n2\r\nget a\r\n",
        b"VALUE a 0 1\r\n1\r\nEND\r\n",
    ),
    "noreply_on_a_bad_line": (b"set a 0 0 x noreply\r\n", (FORMAT, b"")),
    # Arithmetic.
    "incr": (
        b"set n 0 0 2\r\n10\r\nincr n 5\r\nget n\r\n",
        b"STORED\r\n15\r\nVALUE n 0 2\r\n15\r\nEND\r\n",
    ),
    "incr_nothing": (b"incr n2 1\r\n", b"NOT_FOUND\r\n"),
    "incr_text": (b"set s 0 0 1\r\nx\r\nincr s 1\r\n", b"STORED\r\n" + NO_NUMBER),
    "incr_by_text": (b"set n 0 0 1\r\n1\r\nincr n x\r\n", b"STORED\r\n" + BAD_DELTA),
    "incr_by_less_than_nothing": (b"set n 0 0 1\r\n1\r\nincr n -1\r\n", b"STORED\r\n" + BAD_DELTA),
    "incr_wraps": (
        b"set n 0 0 20\r\n18446744073709551615\r\nincr n 1\r\n",
        b"STORED\r\n0\r\n",
    ),
    "incr_too_many_digits": (
        b"set n 0 0 21\r\n184467440737095516150\r\nincr n 1\r\n",
        b"STORED\r\n" + NO_NUMBER,
    ),
    "decr_stops_at_nothing": (b"set n 0 0 1\r\n5\r\ndecr n 9\r\n", b"STORED\r\n0\r\n"),
    "decr_keeps_the_length": (
        b"set n 0 0 2\r\n10\r\ndecr n 1\r\nget n\r\n",
        b"STORED\r\n9\r\nVALUE n 0 2\r\n9 \r\nEND\r\n",
    ),
    # Deletion, touch, flush.
    "delete": (
        b"set a 0 0 1\r\n1\r\ndelete a\r\ndelete a\r\n",
        b"STORED\r\nDELETED\r\nNOT_FOUND\r\n",
    ),
    "delete_0": (b"delete n2 0\r\n", b"NOT_FOUND\r\n"),
    "delete_noreply": (b"delete n2 noreply\r\n", b""),
    "touch": (
        b"set a 0 0 1\r\n1\r\ntouch a 10\r\ntouch n2 10\r\n",
        b"STORED\r\nTOUCHED\r\nNOT_FOUND\r\n",
    ),
    "touch_text": (b"touch a x\r\n", BAD_EXPTIME),
    "expired_at_birth": (b"set e 0 -1 1\r\n1\r\nget e\r\n", b"STORED\r\nEND\r\n"),
    "absolute_past": (b"set e 0 2592001 1\r\n1\r\nget e\r\n", b"STORED\r\nEND\r\n"),
    "flush": (b"set a 0 0 1\r\n1\r\nflush_all\r\nget a\r\n", b"STORED\r\nOK\r\nEND\r\n"),
    "flush_then_set": (
        b"flush_all\r\nset a 0 0 1\r\n1\r\nget a\r\n",
        b"OK\r\nSTORED\r\nVALUE a 0 1\r\n1\r\nEND\r\n",
    ),
    "flush_noreply": (b"flush_all noreply\r\n", b""),
    "flush_0_noreply": (b"flush_all 0 noreply\r\n", b""),
    "flush_text": (b"flush_all x\r\n", (BAD_EXPTIME, FORMAT)),
    # The rest.
    "verbosity": (b"verbosity 1\r\n", b"OK\r\n"),
    "cache_memlimit": (b"cache_memlimit 64\r\n", b"OK\r\n"),
    "stats_reset": (b"stats reset\r\n", b"RESET\r\n"),
    "stats_unknown": (b"stats foo\r\n", (b"ERROR\r\n", b"END\r\n")),
    # Meta commands.
    "mg_miss": (b"mg none v\r\n", b"EN\r\n"),
    "mg_quiet_miss": (b"mg none v q\r\n", b""),
    "mg_hit": (b"ms m 2\r\nhi\r\nmg m v\r\nmg m\r\n", b"HD\r\nVA 2\r\nhi\r\nHD\r\n"),
    "mg_flags": (
        b"ms m 2 F5 T0\r\nhi\r\nmg m s v t f k O123\r\n",
        b"HD\r\nVA 2 s2 t-1 f5 km O123\r\nhi\r\n",
    ),
    "mg_opaque_miss": (b"mg none v O9 k\r\n", (b"EN\r\n", b"EN O9 knone\r\n")),
    "ms_quiet": (b"ms m 2 q\r\nhi\r\n", b""),
    "ms_add": (b"ms m 1 MS\r\n1\r\nms m 1 ME\r\n2\r\n", b"HD\r\nNS\r\n"),
    "ms_replace_nothing": (b"ms n2 1 MR\r\n1\r\n", b"NS\r\n"),
    "ms_append": (b"ms m 1\r\n1\r\nms m 1 MA\r\n2\r\nmg m v\r\n", b"HD\r\nHD\r\nVA 2\r\n12\r\n"),
    "ms_prepend": (b"ms m 1\r\n1\r\nms m 1 MP\r\n2\r\nmg m v\r\n", b"HD\r\nHD\r\nVA 2\r\n21\r\n"),
    "ms_compare": (b"ms m 1\r\n1\r\nms m 1 C1\r\n2\r\n", b"HD\r\nEX\r\n"),
    "ms_compare_nothing": (b"ms n2 1 C1\r\n2\r\n", b"NF\r\n"),
    "ms_base64": (
        b"ms Zm9v 2 b\r\nhi\r\nget foo\r\nmg Zm9v b k v\r\n",
        b"HD\r\nVALUE foo 0 2\r\nhi\r\nEND\r\nVA 2 kZm9v b\r\nhi\r\n",
    ),
    "md": (b"ms m 1\r\n1\r\nmd m\r\nmd m\r\n", b"HD\r\nHD\r\nNF\r\n"),
    "md_quiet": (b"ms m 1 q\r\n1\r\nmd m q\r\n", b""),
    "ma_create": (
        b"delete cnt noreply\r\nma cnt N0 J13 v\r\nma cnt v\r\nma cnt MD D4 v\r\n",
        b"VA 2\r\n13\r\nVA 2\r\n14\r\nVA 2\r\n10\r\n",
    ),
    "ma_nothing": (b"ma n2 v\r\n", b"NF\r\n"),
    "ma_text": (b"ms m 1\r\nx\r\nma m\r\n", b"HD\r\n" + NO_NUMBER),
    "me_nothing": (b"me n2\r\n", b"EN\r\n"),
    "invalidate_and_win": (
        b"ms m 1\r\n1\r\nmd m I T30\r\nmg m v\r\nmg m v\r\n",
        (
            b"HD\r\nHD\r\nVA 1 W X\r\n1\r\nVA 1 X Z\r\n1\r\n",
            b"HD\r\nHD\r\nVA 1 X W\r\n1\r\nVA 1 Z X\r\n1\r\n",
        ),
    ),
    "vivify": (
        b"delete w noreply\r\nmg w N30 v\r\nmg w N30 v\r\n",
        b"VA 0 W\r\n\r\nVA 0 Z\r\n\r\n",
    ),
    "pipelined_quiet_gets": (
        b"ms m 1\r\n1\r\nmg n1x v q k\r\nmg m v q k\r\nmg n2x v q k\r\n",
        b"HD\r\nVA 1 km\r\n1\r\n",
    ),
}


class Session:
    """One connection; `mn` marks the end of what a request is answered with."""

    def __init__(self, address):
        self.socket = socket.create_connection(address, timeout=5)

    def exchange(self, data):
        self.socket.sendall(data + b"mn\r\n")
        answer = b""
        while not answer.endswith(b"MN\r\n"):
            chunk = self.socket.recv(65536)
            assert chunk, f"closed after {answer!r}"
            answer += chunk
        return answer[:-4]


@pytest.fixture
def session(store_address):  # noqa: F811
    session = Session(store_address)
    session.exchange(b"flush_all\r\n")
    yield session
    session.socket.close()


@pytest.mark.parametrize("name", EXCHANGES)
def test_an_exchange(session, name):
    data, expected = EXCHANGES[name]
    answer = session.exchange(data)
    if isinstance(expected, tuple):
        assert answer in expected
    else:
        assert answer == expected
    assert session.exchange(b"get none\r\n") == b"END\r\n"


@pytest.mark.parametrize(
    "name", ["hit", "several", "noreply", "mg_flags", "data_too_long", "cas_other"]
)
def test_an_exchange_a_byte_at_a_time(session, name):
    data, expected = EXCHANGES[name]
    session.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in data:
        session.socket.sendall(bytes([byte]))
    answer = session.exchange(b"")
    assert answer in (expected if isinstance(expected, tuple) else (expected,))


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"x" * 70_000,
        b"quit\r\n",
    ],
    ids=["http_get", "http_post", "endless_line", "quit"],
)
def test_what_ends_a_connection(session, data):
    session.socket.sendall(data)
    try:
        while session.socket.recv(65536):
            pass
    except ConnectionResetError:
        pass


def test_a_thousand_pipelined_requests_are_answered_in_order(session):
    data = b"".join(b"set p%d 0 0 4\r\n%04d\r\nget p%d\r\n" % (n, n, n) for n in range(1000))
    expected = b"".join(b"STORED\r\nVALUE p%d 0 4\r\n%04d\r\nEND\r\n" % (n, n) for n in range(1000))
    assert session.exchange(data) == expected


def test_the_largest_value(session):
    # The limit counts the item's own overhead, so the last bytes depend on the server.
    value = b"x" * (1024 * 1024 - 200)
    stored = session.exchange(b"set big 0 0 %d\r\n%s\r\n" % (len(value), value))
    assert stored == b"STORED\r\n"
    assert session.exchange(b"get big\r\n").count(b"x") == len(value)


def test_a_client_that_never_reads_slows_nobody(session, store_address):  # noqa: F811
    session.exchange(b"set big 0 0 1000000\r\n" + b"x" * 1_000_000 + b"\r\n")
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(store_address)
        deaf.sendall(b"get big\r\n" * 100)
        for _ in range(50):
            assert session.exchange(b"get none\r\n") == b"END\r\n"
