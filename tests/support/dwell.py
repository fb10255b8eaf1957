"""The program under test."""

import json
import os
import pathlib
import re

from support import ports
from support.http import Connection
from support.memcached import store_client
from support.process import Process
from support.wait import until

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ.get("DWELL_BIN", ROOT / "target" / "debug" / "dwell"))


class Dwell(Process):
    """`dwell serve` with a configuration of its own.

    `sections` are those of the configuration file as dictionaries; `route` is a list of them.
    Every address is a free one on loopback unless a section says otherwise. `program` is another
    name of it.
    """

    def __init__(self, folder, program=BINARY, **sections):
        self.address = ports.free_address()
        self.admin_address = ports.free_address()
        self.store_address = ports.free_address()
        defaults = {
            "server": {
                "listen": ports.text(self.address),
                "admin": ports.text(self.admin_address),
                "pollers": 2,
            },
            "limits": {"drain_timeout": "2s"},
            "log": {"level": "debug"},
        }
        remote = next((name for name in ("memcached", "redis") if name in sections), None)
        if remote is None:
            defaults["store"] = {"listen": ports.text(self.store_address)}
        else:
            # Long: a machine that halts for a moment must not look like a server that fails.
            defaults[remote] = {"timeout": "5s", "connect_timeout": "5s"}
        for name, default in defaults.items():
            sections[name] = {**default, **sections.get(name, {})}
        self.config = folder / f"dwell-{self.address[1]}.toml"
        self.sections = sections
        self.config.write_text(toml(sections))
        self.has_store = remote is None
        arguments = [program, "serve", "--config", self.config]
        super().__init__(arguments, folder / f"dwell-{self.address[1]}.log")

    def start_ready(self):
        store = [self.store_address] if self.has_store else []
        return self.start_listening(self.address, self.admin_address, *store)

    def rewrite(self, **sections):
        """Changes the file that the process was started with."""
        for name, section in sections.items():
            is_list = isinstance(section, list)
            known = {} if is_list else self.sections.get(name, {})
            self.sections[name] = section if is_list else {**known, **section}
        # In one step: a file that is read while it is written says half of what is meant.
        draft = self.config.with_suffix(".new")
        draft.write_text(toml(self.sections))
        draft.replace(self.config)

    def connect(self, **options):
        return Connection(self.address, **options)

    def get(self, target, method="GET", fields=(), body=None):
        """One request on a connection of its own."""
        with self.connect() as connection:
            return connection.get(target, method, fields, body)

    def admin(self, target):
        """One request to the admin listener."""
        with Connection(self.admin_address) as connection:
            return connection.get(target)

    def url(self, target):
        return f"http://{ports.text(self.address)}{target}"

    def store(self):
        """A pymemcache client of the embedded store."""
        return store_client(self.store_address)

    def metrics(self):
        """Every sample by name and labels, as written."""
        text = self.admin("/-/metrics").body.decode()
        samples = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in samples}

    def metric(self, name, **labels):
        """The sum of all samples of `name` that carry `labels`."""
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        return sum(
            value
            for sample, value in self.metrics().items()
            if re.split(r"[{ ]", sample)[0] == name and all(label in sample for label in wanted)
        )

    def await_metric(self, value, name, **labels):
        until(
            lambda: self.metric(name, **labels) == value,
            lambda: f"{name}{labels or ''} is {value}; it is {self.metric(name, **labels)}",
        )

    def await_waiters(self, count):
        """Waits until exactly `count` polls are held."""
        self.await_metric(count, "dwell_waits_held")

    def await_misses(self, app, count):
        """Waits until `count` misses have reached the application or joined one that has."""

        def reached():
            joined = self.metric("dwell_upstream_requests_total", outcome="coalesced")
            return len(app.requests) + joined >= count

        until(reached, f"{count} misses are under way")

    def await_connections(self, count):
        """Waits until exactly `count` clients are connected."""
        self.await_metric(count, "dwell_connections_open")


def toml(sections):
    """Writes sections as TOML; JSON's scalars and arrays are TOML's too."""
    lines = []
    for name, value in sections.items():
        tables = value if isinstance(value, list) else [value]
        header = f"[[{name}]]" if isinstance(value, list) else f"[{name}]"
        for table in tables:
            lines.append(header)
            lines += [f"{key} = {json.dumps(setting)}" for key, setting in table.items()]
    return "\n".join(lines) + "\n"
