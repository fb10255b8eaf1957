"""Applications behind the edge that speak TLS."""

import contextlib
import ssl

from support import ports
from support.upstream import ConnectionServer, Upstream


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


class SecureScript(ConnectionServer):
    """Calls `play` with every connection, whose handshake is done by then."""

    SCHEME = "https"

    def __init__(self, context, play):
        self.context = context
        self.play = play
        super().__init__()

    def _serve(self, connection):
        connection.settimeout(20)
        with connection, contextlib.suppress(OSError):
            if self.context is None:
                self.play(connection)
                return
            with self.context.wrap_socket(connection, server_side=True) as secure:
                self.play(secure)
