"""A client of event streams, as the WHATWG standard has it."""

import dataclasses

from support.http import Connection, request


@dataclasses.dataclass
class Event:
    """One event."""

    data: str
    id: str
    type: str = "message"


class EventStream(Connection):
    """One stream on one connection; `id` and `retry_ms` are what the client has been told."""

    def __init__(self, address, target, last_event_id="", **options):
        super().__init__(address, **options)
        self.id, self.retry_ms = last_event_id, None
        self.text, self.has_ended = b"", False
        fields = {"Accept": "text/event-stream"}
        if last_event_id:
            fields["Last-Event-ID"] = last_event_id
        self.send(request(target, fields=fields))

    def begin(self):
        """Reads the head; the answer, whole where it is not a stream."""
        self.response = self._head()
        if self.response.field("Content-Type") != "text/event-stream":
            self.response.body = self._body(self.response, "GET")
        return self

    def block(self):
        """The lines up to the next empty one; None when the stream has ended in order."""
        while b"\n\n" not in self.text:
            size = int(self._line(), 16)
            self.text += self._take(size)
            assert self._line() == ""
            if size == 0:
                assert self.text == b"", "an event that was cut off"
                self.has_ended = True
                return None
        block, _, self.text = self.text.partition(b"\n\n")
        return block.decode()

    def event(self):
        """The next event; None when the stream has ended in order."""
        while (block := self.block()) is not None:
            data, kind = [], "message"
            for line in block.split("\n"):
                name, _, value = line.partition(":")
                value = value.removeprefix(" ")
                if name == "data":
                    data.append(value)
                elif name == "id":
                    self.id = value
                elif name == "event":
                    kind = value
                elif name == "retry":
                    self.retry_ms = int(value)
            if data:
                return Event("\n".join(data), self.id, kind)
        return None
