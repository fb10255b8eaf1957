"""Clients that follow keys over any transport, as programs do, and check what they are told."""

import base64
import contextlib
import dataclasses
import json
import random
import threading

from support.events import EventStream
from support.http import Connection
from support.websocket import WebSocket

FAILURES = (OSError, EOFError, ValueError, AssertionError)
WAIT_S = 0.4
POLLS = "/poll/"


@dataclasses.dataclass(frozen=True)
class Told:
    """What a client has of a key."""

    value: bytes
    cursor: str


class Watcher:
    """Follows `keys` at `address` until it is stopped; `values` are the newest it was told.

    It changes its transport from time to time, for one of the keys or for all of them, and goes on
    with the cursors it has. Which, is decided by `seed`. `faults` lists what no client should ever
    see. A key that has gone has no value.
    """

    def __init__(self, address, keys, seed):
        self.address, self.keys, self.seed = address, list(keys), seed
        self.told = 0
        self.faults = []
        self._has = dict.fromkeys(self.keys)
        self._random = random.Random(seed)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def values(self):
        """The value that it has of each key."""
        return {key: told and told.value for key, told in list(self._has.items())}

    def start(self):
        self._thread.start()
        return self

    def stop(self):
        """Ends it after the answer, event or frame that it waits for."""
        self._is_over.set()

    def join(self):
        self._thread.join(20)
        assert not self._thread.is_alive(), "a watcher does not end"

    def _run(self):
        turns = [
            *(self._poll, self._long_poll, self._stream, self._single_socket),
            *(self._poll_all, self._long_poll_all, self._stream_all, self._socket),
        ]
        while not self._is_over.is_set():
            try:
                self._random.choice(turns)()
            except FAILURES:
                self._is_over.wait(self._random.uniform(0.01, 0.2))

    def _fault(self, text):
        self.faults.append(f"{text} (the watcher with seed {self.seed})")

    def _take(self, key, told, may_repeat=False):
        """The news of a key has come; None is that it has gone."""
        if told == self._has[key] and not may_repeat:
            self._fault(f"{key} was told twice of {told}")
        self._has[key] = told
        self.told += 1

    def _take_json(self, key, content, may_repeat=False):
        """As `_take`, of the JSON of frames and of answers for several keys."""
        told = None
        if content and content["c"] is not None:
            value = content["v"].encode() if "v" in content else base64.b64decode(content["b64"])
            told = Told(value, content["c"])
        self._take(key, told, may_repeat)

    def _since(self, *keys):
        """The cursors of these keys as one."""
        return ".".join(self._has[key].cursor if self._has[key] else "" for key in keys)

    def _all(self):
        """The target of a request for all keys."""
        return POLLS + "?" + "&".join(f"k={key.removeprefix(POLLS)}" for key in self.keys)

    def _connect(self, timeout_s=2 * WAIT_S):
        return contextlib.closing(Connection(self.address, timeout_s=timeout_s))

    def _check_status(self, what, status):
        """Makes sure that an answer without news is one that clients have to expect."""
        if status in (404, 502, 503, 504):
            raise EOFError(f"status {status}")
        if status not in (204, 304):
            self._fault(f"{what}: status {status}")

    def _ask(self, connection, key, wait):
        answer = connection.get(f"{key}?wait={1000 * wait:.0f}ms&since={self._since(key)}")
        if answer.status == 404:
            self._has[key] = None
        if answer.status != 200:
            return self._check_status(key, answer.status)
        # What the application answers, it may answer again.
        is_cached = "hit" in answer.field("Cache-Status")
        told = Told(answer.body, answer.field("Poll-Cursor"))
        return self._take(key, told, may_repeat=not is_cached)

    def _ask_all(self, connection, wait):
        since = self._since(*self.keys)
        answer = connection.get(f"{self._all()}&wait={1000 * wait:.0f}ms&since={since}")
        if answer.status != 200:
            return self._check_status(self._all(), answer.status)
        content = json.loads(answer.body)
        for key in self.keys:
            name = key.removeprefix(POLLS)
            if name in content["values"]:
                self._take_json(key, content["values"][name])
        if content["cursor"] != self._since(*self.keys):
            self._fault(f"{content['cursor']} is not the cursor of what was told")
        return None

    def _poll(self):
        with self._connect() as connection:
            self._ask(connection, self._random.choice(self.keys), 0)
        self._is_over.wait(self._random.uniform(0.01, 0.1))

    def _poll_all(self):
        with self._connect() as connection:
            self._ask_all(connection, 0)
        self._is_over.wait(self._random.uniform(0.01, 0.1))

    def _long_poll(self):
        with self._connect(3 * WAIT_S) as connection:
            for _ in range(self._random.randrange(1, 3)):
                self._ask(connection, self._random.choice(self.keys), WAIT_S)
                if self._is_over.is_set():
                    return

    def _long_poll_all(self):
        with self._connect(3 * WAIT_S) as connection:
            for _ in range(self._random.randrange(1, 10)):
                self._ask_all(connection, WAIT_S)
                if self._is_over.is_set():
                    return

    def _open_stream(self, target, since):
        opened = EventStream(self.address, target, since, timeout_s=2 * WAIT_S)
        return contextlib.closing(opened)

    def _begin(self, stream):
        stream.begin()
        if stream.response.field("Content-Type") != "text/event-stream":
            raise EOFError(f"status {stream.response.status}")

    def _stream(self):
        key = self._random.choice(self.keys)
        with self._open_stream(key, self._since(key)) as stream:
            self._begin(stream)
            for _ in range(self._random.randrange(1, 20)):
                event = stream.event()
                if event is None or self._is_over.is_set():
                    return
                is_gone = event.type == "delete"
                self._take(key, None if is_gone else Told(event.data.encode(), event.id))

    def _stream_all(self):
        with self._open_stream(self._all(), self._since(*self.keys)) as stream:
            self._begin(stream)
            for _ in range(self._random.randrange(1, 20)):
                event = stream.event()
                if event is None or self._is_over.is_set():
                    return
                is_gone = event.type == "delete"
                key = POLLS + (event.data if is_gone else event.type)
                cursor = event.id.split(".")[self.keys.index(key)]
                self._take(key, None if is_gone else Told(event.data.encode(), cursor))
                if event.id != self._since(*self.keys):
                    self._fault(f"the id {event.id} is not what was told")

    def _open_socket(self, target, since):
        address = f"{target}{'&' if '?' in target else '?'}since={since}"
        opened = WebSocket(self.address, address, timeout_s=2 * WAIT_S)
        return contextlib.closing(opened)

    def _hear(self, socket):
        """The next frame; nothing where the connection ends or the watcher is to."""
        if socket.response.status != 101:
            raise EOFError(f"status {socket.response.status}")
        frame = socket.hear()
        if self._is_over.is_set() or isinstance(frame, int):
            return None
        if frame.get("error") == "shutting down":
            # It has asked for a key of a process that ends: the connection does so next.
            return None
        if "error" in frame:
            self._fault(f"{frame}")
        return frame

    def _single_socket(self):
        key = self._random.choice(self.keys)
        with self._open_socket(key, self._since(key)) as socket:
            for _ in range(self._random.randrange(1, 20)):
                if (frame := self._hear(socket)) is None:
                    return
                self._take_json(key, frame)

    def _socket(self):
        """A WebSocket for all keys, of which it gives one up and takes it up again."""
        said = {key: [] for key in self.keys}
        with self._open_socket(self._all(), self._since(*self.keys)) as socket:
            for _ in range(self._random.randrange(1, 20)):
                if (frame := self._hear(socket)) is None:
                    return
                key = POLLS + frame["k"]
                # What was on its way while it said what it has may come once more.
                stale = [cursor for cursor in said[key] if cursor != frame["c"]]
                self._take_json(key, frame, may_repeat=bool(stale))
                if self._random.random() < 0.3:
                    key = self._random.choice(self.keys)
                    name, since = key.removeprefix(POLLS), self._since(key)
                    said[key].append(since or None)
                    socket.say(unsubscribe=[name])
                    socket.say(subscribe=[name], since={name: since})
