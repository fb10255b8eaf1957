"""A TLS client whose records a test writes by hand: tlslite-ng, opened up."""

import socket

from tlslite.api import HandshakeSettings, TLSConnection
from tlslite.constants import AlertDescription, ContentType
from tlslite.errors import TLSAbruptCloseError, TLSRemoteAlert
from tlslite.messages import Message

ALERT, HANDSHAKE, DATA = ContentType.alert, ContentType.handshake, ContentType.application_data
CHANGE_CIPHER_SPEC = ContentType.change_cipher_spec
# The end of a connection without an alert.
CLOSED = "closed"


class Raw(bytes):
    """Bytes that go to the socket as they are."""


class Client(TLSConnection):
    """One connection.

    `alter`, if given, gets each message of the handshake with this client. It returns the records
    that go instead, each `Raw` or a type with its content, or None to let the message go.
    """

    def __init__(self, address, alter=None, version=(3, 4)):
        self._alter = alter
        super().__init__(socket.create_connection(address, timeout=20))
        self.settings = HandshakeSettings()
        self.settings.minVersion = self.settings.maxVersion = version
        self.settings.keyShares = ["x25519"]

    def shake(self):
        """The handshake; returns this client."""
        self.handshakeClientCert(settings=self.settings, serverName="one.test")
        self._alter = None
        return self

    def _sendMsg(self, msg, *options, **named):
        altered = self._alter and self._alter(self, msg)
        if altered is None:
            yield from super()._sendMsg(msg, *options, **named)
            return
        if msg.contentType == HANDSHAKE:
            self._handshake_hash.update(msg.write())
        self.send_records(*altered)

    def send_records(self, *records):
        """Sends each record: `Raw`, or a pair of type and content."""
        for record in records:
            if isinstance(record, Raw):
                self.sock.flush()
                self.sock.sendall(record)
            else:
                kind, content = record
                message = Message(kind, bytearray(content))
                for _ in self._recordLayer.sendRecord(message):
                    pass
        self.sock.flush()

    def sealed(self, kind, content):
        """The record that would be sent, as bytes."""
        sent = bytearray()

        class Sink:
            def send(self, data):
                sent.extend(data)
                return len(data)

        wire = self._recordLayer._recordSocket
        wire.sock, kept = Sink(), wire.sock
        for _ in self._recordLayer.sendRecord(Message(kind, bytearray(content))):
            pass
        wire.sock = kept
        return Raw(sent)

    def update_keys(self):
        """Goes over to the next key for what is sent, and tells nothing."""
        session = self.session
        session.cl_app_secret, session.sr_app_secret = (
            self._recordLayer.calcTLS1_3KeyUpdate_reciever(
                session.cipherSuite, session.cl_app_secret, session.sr_app_secret
            )
        )

    def ask(self, target="/poll/a"):
        """The body of the response to one request."""
        self.send_records((DATA, request(target)))
        return self.answer()

    def answer(self):
        """The body of one response with a length."""
        received = bytearray()
        while b"\r\n\r\n" not in received:
            received += self._some()
        head, _, body = bytes(received).partition(b"\r\n\r\n")
        lines = head.decode().lower().split("\r\n")
        length = next(int(line.split(":")[1]) for line in lines if "content-length" in line)
        while len(body) < length:
            body += self._some()
        return body

    def _some(self):
        part = self.read(max=65536, min=1)
        assert part, "the connection has ended"
        return part

    def end(self):
        """The alert that ends the connection as its number, or `CLOSED`."""
        try:
            while self.read(max=65536, min=1):
                pass
        except TLSRemoteAlert as error:
            return error.description
        except (TLSAbruptCloseError, ConnectionError):
            return CLOSED
        return AlertDescription.close_notify


def request(target="/poll/a"):
    return f"GET {target} HTTP/1.1\r\nHost: one.test\r\n\r\n".encode()


def shaken_end(client):
    """The alert by which a handshake ends, or `CLOSED`; that of a connection which goes on."""
    try:
        client.shake()
    except TLSRemoteAlert as error:
        return error.description
    except (TLSAbruptCloseError, ConnectionError):
        return CLOSED
    return client.end()
