"""WebSockets."""

import contextlib
import json

from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from dwell_conformance.rule import Broken, Rules, expect

RULES = Rules("websocket.md")


class Socket:
    """Frames of one connection, as JSON."""

    def __init__(self, socket, timeout):
        self.socket = socket
        self.timeout = timeout

    def frame(self):
        try:
            return json.loads(self.socket.recv(timeout=self.timeout))
        except TimeoutError:
            raise Broken("no frame has come in time") from None

    def send(self, message):
        self.socket.send(json.dumps(message))

    def closed(self):
        """The code with which the server closes."""
        try:
            frame = self.socket.recv(timeout=self.timeout)
        except ConnectionClosed as closed:
            return closed.rcvd and closed.rcvd.code
        except TimeoutError:
            raise Broken("the connection is not closed in time") from None
        raise Broken(f"the connection is not closed: {frame!r} has come")


@contextlib.contextmanager
def opened(server, target, **options):
    url = f"ws://{server.authority}{target}"
    limits = {"open_timeout": server.timeout, "close_timeout": 1, "max_size": 1 << 20}
    with connect(url, proxy=None, **limits, **options) as socket:
        yield Socket(socket, server.timeout)


@RULES.of("websockets", "a connection begins with the value")
def _(server):
    name, cursor = server.value(b"good morning")
    with opened(server, server.path(name)) as socket:
        expect("the frame", socket.frame(), {"v": "good morning", "c": cursor})


@RULES.of("websockets", "a connection gets the next value, and none that the client has")
def _(server):
    name, cursor = server.value(b"before")
    with opened(server, server.path(name) + f"?since={cursor}") as socket:
        server.set(name, b"after")
        expect("the value", socket.frame()["v"], "after")


@RULES.of("websockets", "frames of several keys have their names")
def _(server):
    one, first = server.value(b"one")
    with opened(server, f"{server.prefix}?k={one}") as socket:
        expect("the frame", socket.frame(), {"k": one, "v": "one", "c": first})


@RULES.of("websockets", "a client subscribes to further keys, with the cursors that it has")
def _(server):
    one, _ = server.value(b"one")
    two, second = server.value(b"two")
    with opened(server, f"{server.prefix}?k={one}") as socket:
        expect("the first key", socket.frame()["k"], one)
        socket.send({"subscribe": [two], "since": {two: second}})
        server.set(two, b"two again")
        frame = socket.frame()
        expect("the frame", (frame["k"], frame["v"]), (two, "two again"))


@RULES.of("websockets", "a key that is not subscribed to cannot be unsubscribed")
def _(server):
    one, _ = server.value(b"one")
    other = server.name()
    with opened(server, f"{server.prefix}?k={one}") as socket:
        socket.frame()
        socket.send({"unsubscribe": [other]})
        expect("the frame", socket.frame(), {"error": "not subscribed", "k": other})


@RULES.of("websockets", "a key that is deleted has no cursor")
def _(server):
    one, _ = server.value(b"one")
    with opened(server, f"{server.prefix}?k={one}") as socket:
        socket.frame()
        server.delete(one)
        expect("the frame", socket.frame(), {"k": one, "c": None})


@RULES.of("websockets", "a binary frame ends the connection with 1003")
def _(server):
    name, _ = server.value()
    with opened(server, server.path(name)) as socket:
        socket.frame()
        socket.socket.send(b"\x00")
        expect("the code", socket.closed(), 1003)


@RULES.of("websockets", "a frame that is no message ends the connection with 1008")
def _(server):
    name, _ = server.value()
    with opened(server, server.path(name)) as socket:
        socket.frame()
        socket.socket.send("no message")
        expect("the code", socket.closed(), 1008)


@RULES.of("websockets", "a page of another origin cannot connect")
def _(server):
    name, _ = server.value()
    try:
        with opened(server, server.path(name), origin="http://elsewhere.example"):
            raise Broken("the connection is open")
    except InvalidStatus as refused:
        expect("the status", refused.response.status_code, 403)
