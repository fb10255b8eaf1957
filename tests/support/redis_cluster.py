"""A real cluster of Redis or Valkey, and what is done to its slots."""

import binascii
import contextlib
import subprocess

from support import ports
from support.redis import Redis, RedisClient, Refused
from support.wait import until

SLOTS = 16_384
PRIMARIES = 3
# A primary that is silent for so long is replaced by its replica.
NODE_TIMEOUT_MS = 2000


def slot_of(key):
    """The slot of a key without braces."""
    return binascii.crc_hqx(key.encode(), 0) % SLOTS


class Node(Redis):
    """One server of a cluster."""

    def __init__(self, folder, server, pair=None):
        """With the `pair` of a certificate and its key, it speaks TLS on one more port."""
        self.bus_port, self.tls_port = ports.free_address()[1], None
        options = ["--cluster-enabled", "yes", "--cluster-port", self.bus_port]
        options += ["--cluster-config-file", f"nodes-{self.bus_port}.conf"]
        options += ["--cluster-node-timeout", NODE_TIMEOUT_MS, "--repl-diskless-sync-delay", 0]
        options += ["--cluster-require-full-coverage", "no"]
        options += ["--cluster-replica-validity-factor", 0]
        if pair:
            self.tls_port = ports.free_address()[1]
            options += ["--tls-cluster", "yes", "--tls-port", self.tls_port]
            options += ["--tls-cert-file", pair[0], "--tls-key-file", pair[1]]
            options += ["--tls-ca-cert-file", pair[0], "--tls-auth-clients", "no"]
        super().__init__(folder, *options, server=server)

    @property
    def tls_url(self):
        return f"rediss://{ports.text((ports.HOST, self.tls_port))}"

    @property
    def id(self):
        return self.client().ask("CLUSTER", "MYID").decode()

    def open_slots(self):
        """Slots that are about to move here, or away."""
        lines = self.client().ask("CLUSTER", "NODES").decode().splitlines()
        own = next(line for line in lines if "myself" in line)
        found = [word[1:-1] for word in own.split() if word.startswith("[")]
        return [word.partition("-")[0] for word in found]

    def info(self, section):
        """The facts of a section of INFO, or of CLUSTER INFO."""
        words = ["CLUSTER", "INFO"] if section == "cluster" else ["INFO", section]
        lines = self.client().ask(*words).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)


class Cluster:
    """Three primaries, each with a replica."""

    def __init__(self, folder, cleanup, server, replicas=1, pair=None):
        count = PRIMARIES * (1 + replicas)
        self.nodes = [Node(folder, server, pair) for _ in range(count)]
        for node in self.nodes:
            cleanup.callback(node.stop)
            node.start_ready()
        self._join(self.nodes[:PRIMARIES], self.nodes[PRIMARIES:])

    def _join(self, primaries, replicas):
        bounds = [SLOTS * place // PRIMARIES for place in range(PRIMARIES + 1)]
        for place, node in enumerate(primaries):
            client = node.client()
            client.ask("CLUSTER", "SET-CONFIG-EPOCH", place + 1)
            client.ask("CLUSTER", "ADDSLOTSRANGE", bounds[place], bounds[place + 1] - 1)
        first = self.nodes[0].client()
        for node in self.nodes[1:]:
            first.ask("CLUSTER", "MEET", *node.address, node.bus_port)
        known = str(len(self.nodes))
        until(
            lambda: all(
                node.info("cluster")["cluster_known_nodes"] == known for node in self.nodes
            ),
            "the servers have met",
        )
        for place, node in enumerate(replicas):
            primary = primaries[place % PRIMARIES]
            until(lambda node=node, of=primary.id: replicates(node, of), "it has become a replica")
        self.await_health()

    @property
    def urls(self):
        return [node.url for node in self.nodes[:PRIMARIES]]

    def await_health(self):
        """Waits until every slot has a primary, and every server knows so."""
        until(self._is_well, "the cluster is well")

    def _is_well(self):
        for node in self.nodes:
            cluster, replication = node.info("cluster"), node.info("replication")
            is_replica = replication["role"] == "slave"
            if (
                cluster["cluster_state"] != "ok"
                or cluster["cluster_slots_ok"] != str(SLOTS)
                or (is_replica and replication["master_link_status"] != "up")
            ):
                return False
        # Each knows the same primaries.
        return len({self._primaries(node) for node in self.nodes}) == 1

    def _primaries(self, node):
        entries = node.client().ask("CLUSTER", "SLOTS")
        return tuple(sorted((first, last, server[1]) for first, last, server, *_ in entries))

    def reset(self):
        """Makes it as it was at the start, but for which server is a primary."""
        for node in self.nodes:
            if not node.is_alive():
                node.start_ready()
        self.await_health()
        for node in self.primaries():
            for slot in node.open_slots():
                node.client().ask("CLUSTER", "SETSLOT", slot, "STABLE")
            node.client().flush_all()
        until(
            lambda: all(node.client().ask("DBSIZE") == 0 for node in self.nodes),
            "the replicas are empty as well",
        )

    def primaries(self):
        """The primaries, as one of the servers knows them."""
        found = []
        for node in self.nodes:
            with contextlib.suppress(OSError):
                if node.info("replication")["role"] == "master":
                    found.append(node)
        return found

    def primary_of(self, key):
        """The server that has a key."""
        slot = slot_of(key)
        for first, last, server, *_ in self.nodes[0].client().ask("CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return next(node for node in self.nodes if node.address[1] == server[1])
        raise AssertionError(f"nobody has the slot {slot}")

    def replica_of(self, node):
        port = str(node.address[1])
        return next(
            each for each in self.nodes if each.info("replication").get("master_port") == port
        )

    def other_primary(self, node):
        return next(each for each in self.primaries() if each is not node)

    def set(self, key, value):
        """Sets a key with the client of Redis, which follows redirections."""
        port = self.nodes[0].address[1]
        words = ["redis-cli", "-c", "-h", ports.HOST, "-p", str(port), "SET", key, value]
        ended = subprocess.run(words, capture_output=True, text=True, check=True)
        assert ended.stdout == "OK\n", ended

    def move(self, key):
        """Moves the slot of a key, with all keys in it, to another primary."""
        source = self.primary_of(key)
        target = self.other_primary(source)
        self.begin_move(key, source, target)
        self.move_keys(key, source, target)
        self.end_move(key, source, target)
        return source, target

    def begin_move(self, key, source, target):
        slot = slot_of(key)
        target.client().ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.client().ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)

    def move_keys(self, key, source, target):
        client = source.client()
        for name in client.ask("CLUSTER", "GETKEYSINSLOT", slot_of(key), 1000):
            client.ask("MIGRATE", *target.address, name, 0, 10_000)

    def end_move(self, key, source, target):
        for node in [target, source, *self.primaries()]:
            node.client().ask("CLUSTER", "SETSLOT", slot_of(key), "NODE", target.id)


def replicates(node, primary):
    """Whether a server has become the replica of another one, which it has to know."""
    with contextlib.suppress(Refused):
        return RedisClient(node.address).ask("CLUSTER", "REPLICATE", primary) == b"OK"
    return False
