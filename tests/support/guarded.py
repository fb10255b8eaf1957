"""An edge that asks its clients for certificates."""

from support.certificates import make_authority, make_client
from support.http import Connection
from support.secure import Secure
from support.wait import until

# Nothing here is to be cut off, however slow the machine is.
LIMITS = {"drain_timeout": "30s", "idle_timeout": "10m"}
ENDED = "the process before this one has ended"


class Client(Connection):
    """One connection under TLS, with the certificate of a client or without."""

    def __init__(self, secure, client=None, version=None, session=None):
        context = secure.context()
        if client:
            context.load_cert_chain(*client)
        if version:
            context.minimum_version = context.maximum_version = version
        self.socket = secure.connect(context=context)
        self.buffer = b""


class Guarded:
    """An edge that asks for certificates of an authority, with values for two clients."""

    def __init__(self, start_dwell, folder, routes, client_auth="optional", **sections):
        self.folder = folder
        self.authority = make_authority(folder, "ours")
        tls = {"client_auth": client_auth, **sections.pop("tls", {})}
        ca = str(self.authority[0])
        sections.setdefault("limits", LIMITS)
        self.secure = Secure(start_dwell, folder, client_ca=ca, tls=tls, route=routes, **sections)
        self.edge = self.secure.edge

    def client(self, name, **options):
        return make_client(self.folder, name, self.authority, **options)

    def connect(self, client=None, **options):
        return Client(self.secure, client, **options)

    def get(self, client, target="/me/", **options):
        with self.connect(client, **options) as connection:
            return connection.get(target)

    def await_end(self, count=1):
        """Waits until the processes of so many upgrades have ended."""
        until(lambda: self.edge.output().count(ENDED) == count, "it knows")
