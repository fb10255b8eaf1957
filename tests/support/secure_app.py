"""Applications behind the edge that speak TLS."""

import contextlib
import socket
import ssl
import threading

from support import ports
from support.upstream import Upstream


def server_context(certificate, key, version=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    if version is not None:
        context.minimum_version = context.maximum_version = version
    return context


class SecureUpstream(Upstream):
    """An application under TLS."""

    def __init__(self, context):
        super().__init__()
        self.context = context

    @property
    def url(self):
        return f"https://{ports.text(self.address)}"

    def start(self):
        super().start()
        # The handshake is done by the thread of the connection, which reads first.
        self._server.socket = self.context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        return self


class SecureScript:
    """Calls `play` with every connection, whose handshake is done by then, in a thread each."""

    def __init__(self, context, play):
        self.context = context
        self.play = play
        self.listener = socket.create_server(ports.free_address(), backlog=128)
        self.address = self.listener.getsockname()
        threading.Thread(target=self._run, daemon=True).start()

    @property
    def url(self):
        return f"https://{ports.text(self.address)}"

    def close(self):
        self.listener.close()

    def _run(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        connection.settimeout(20)
        with connection, contextlib.suppress(OSError):
            if self.context is None:
                self.play(connection)
                return
            with self.context.wrap_socket(connection, server_side=True) as secure:
                self.play(secure)
