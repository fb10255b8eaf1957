"""The recipe for Docker Compose: each service is started as its file says, without a container."""

import ast
import contextlib
import datetime
import os
import re
import shutil
import subprocess
import sys
import tomllib

import pytest
import yaml

from support import ports, recipe
from support.dwell import BINARY, ROOT
from support.http import Connection
from support.memcached import store_client
from support.process import Process
from support.redis import RedisClient, program

PAGE = "compose.md"
FILES = recipe.files(PAGE)
VARIANTS = {
    "embedded": [],
    "memcached": ["compose.memcached.yaml"],
    "valkey": ["compose.valkey.yaml"],
}


def image():
    """The configuration of the image, as the script that writes it has it."""
    tree = ast.parse((ROOT / "dist/image.py").read_text())
    body = [node for node in tree.body if getattr(node, "name", None) == "configuration"]
    names = {"datetime": datetime, "EPOCH": 0, "USER": 65532}
    exec(compile(ast.Module(body, []), "image.py", "exec"), names)
    return names["configuration"]("0", "0.1.0", "0", "amd64")["config"]


def merged(base, over):
    """As Compose merges files: mappings by name, and of all else the last one."""
    if not (isinstance(base, dict) and isinstance(over, dict)):
        return over
    both = {name: merged(base[name], over[name]) for name in base.keys() & over.keys()}
    return {**base, **over, **both}


def composed(variant):
    result = yaml.safe_load(FILES["compose.yaml"])
    for name in VARIANTS[variant]:
        result = merged(result, yaml.safe_load(FILES[name]))
    return result


def merged_environment(file):
    """That of Dwell: what the image has, and what the file adds."""
    pairs = dict(pair.split("=", 1) for pair in image()["Env"])
    del pairs["PATH"]
    return {**pairs, **file["services"]["dwell"]["environment"]}


def seconds(text):
    (number,) = re.fullmatch(r"(\d+)s", text).groups()
    return int(number)


class Project:
    """The services of a variant, on free ports of this machine, in a folder for their volumes."""

    def __init__(self, variant, folder, cleanup):
        self.file = composed(variant)
        self.services = self.file["services"]
        self.folder, self.cleanup = folder, cleanup
        self.ports = {}
        for name in ("etc", "var"):
            (folder / name).mkdir()
        (folder / "etc/dwell.toml").write_text(FILES["dwell.toml"])

    def address(self, port):
        if port not in self.ports:
            self.ports[port] = ports.free_address()
        return self.ports[port]

    def here(self, text):
        """A text with addresses and folders of this machine."""
        names = "|".join(["0.0.0.0", r"172\.30\.0\.\d+", *self.services])
        text = re.sub(
            rf"\b(?:{names}):(\d+)\b", lambda match: ports.text(self.address(match[1])), text
        )
        text = text.replace("/etc/dwell/", f"{self.folder}/etc/")
        return text.replace("/var/lib/dwell/", f"{self.folder}/var/")

    def environment(self):
        return merged_environment(self.file)

    def start(self, name, program, arguments, *listening):
        arguments = [program, *map(self.here, arguments)]
        process = Process(arguments, self.folder / f"{name}.log", self.folder)
        self.cleanup.callback(process.stop)
        return process.start_listening(*map(self.address, listening))

    def start_dwell(self):
        words = [f"{name}={self.here(value)}" for name, value in self.environment().items()]
        arguments = [*words, BINARY, *self.services["dwell"]["command"]]
        store = ["11211"] if self.environment()["DWELL_STORE_LISTEN"] else []
        return self.start("dwell", "env", map(str, arguments), "8080", "9090", *store)

    def health(self):
        """The exit status of the health check."""
        kind, binary, *arguments = self.services["dwell"]["healthcheck"]["test"]
        assert (kind, [binary]) == ("CMD", image()["Entrypoint"])
        admin = self.here(self.environment()["DWELL_SERVER_ADMIN"])
        return subprocess.run(
            [BINARY, *arguments],
            env={**os.environ, "DWELL_SERVER_ADMIN": admin},
            capture_output=True,
            check=False,
        ).returncode

    def start_app(self):
        shutil.copy(ROOT / "examples/fastapi_inbox.py", self.folder)
        python, *arguments = self.services["app"]["command"]
        assert python == "python3"
        return self.start("app", sys.executable, arguments, "8000")

    def get(self, target, *arguments):
        with Connection(self.address("8080")) as connection:
            return connection.get(target, *arguments)


@pytest.fixture
def start_project(tmp_path, cleanup):
    return lambda variant: Project(variant, tmp_path, cleanup)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_options_have_no_mistake(variant, start_project, tmp_path):
    project = start_project(variant)
    environment = {
        # Addresses as they stand: whether the store may listen there is part of the check.
        name: value if name.endswith("_LISTEN") else project.here(value)
        for name, value in project.environment().items()
    }
    _, flag, file = project.services["dwell"]["command"]
    assert flag == "--config"
    arguments = ["bash", "-c", 'ulimit -n 1024; exec "$@"', "check"]
    checked = subprocess.run(
        [*arguments, BINARY, "check", project.here(file)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr
    # The limit of the container is enough; here it is lower on purpose.
    (needed,) = re.findall(r"the limit here is 1024, (\d+) are needed", checked.stderr)
    assert int(needed) <= project.services["dwell"]["ulimits"]["nofile"]
    warnings = [line for line in checked.stderr.splitlines() if "warning" in line]
    assert len(warnings) == 1, checked.stderr


def test_every_variable_is_that_of_an_option():
    printed = subprocess.run(
        [BINARY, "config", "print"], capture_output=True, text=True, check=True
    )
    options = {
        f"DWELL_{section}_{name}".upper()
        for section, names in tomllib.loads(printed.stdout).items()
        if isinstance(names, dict)
        for name in names
    }
    for variant in VARIANTS:
        variables = merged_environment(composed(variant))
        assert set(variables) <= options


def test_the_services_fit_the_image_and_each_other():
    of_image, file = image(), composed("embedded")
    dwell = file["services"]["dwell"]
    inside = {f"{port.rsplit(':', 1)[1]}/tcp" for port in dwell["ports"]}
    assert inside <= set(of_image["ExposedPorts"])
    # The folder of the volume is the one that the image gives to its user.
    mounted = dict(volume.split(":")[:2] for volume in dwell["volumes"])
    assert mounted["values"] == of_image["WorkingDir"]
    assert dwell["environment"]["DWELL_STORE_SNAPSHOT"].startswith(of_image["WorkingDir"] + "/")
    assert dwell["command"][-1].startswith(mounted["./dwell"] + "/")
    assert "/etc/dwell/dwell.toml" in dwell["command"]
    drain = seconds(dwell["environment"]["DWELL_LIMITS_DRAIN_TIMEOUT"])
    # The logs may need 4 seconds more.
    assert seconds(dwell["stop_grace_period"]) > drain + 4
    version = re.search(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.M)[1]
    assert dwell["image"] == f"dwell:{version}"
    for variant in VARIANTS:
        services = composed(variant)["services"]
        addresses = {
            service["networks"]["default"]["ipv4_address"]
            for service in services.values()
            if "networks" in service
        }
        named = re.findall(r"172\.30\.0\.\d+(?=:)", str(services["dwell"]["environment"]))
        assert set(named) <= addresses


def test_the_application_writes_and_a_stop_keeps_the_values(start_project):
    project = start_project("embedded")
    dwell = project.start_dwell()
    assert project.health() == 0
    project.start_app()
    assert project.get("/poll/inbox/alice").body == b"[]"
    assert project.get("/send/alice", "POST", (), b"lunch?").status == 200
    hit = project.get("/poll/inbox/alice")
    assert (hit.body, hit.field("Cache-Status")) == (b'["lunch?"]', "dwell; hit")
    assert hit.field("Content-Type") == "application/json"

    dwell.signal(15)
    assert dwell.wait(seconds(project.services["dwell"]["stop_grace_period"])) == 0
    assert project.health() == 1
    project.start_dwell()
    hit = project.get("/poll/inbox/alice")
    assert (hit.body, hit.field("Cache-Status")) == (b'["lunch?"]', "dwell; hit")


def test_values_in_memcached(start_project):
    project = start_project("memcached")
    binary, *arguments = project.services["memcached"]["command"]
    address = project.address("11211")
    user = ["-u", "root"] if os.geteuid() == 0 else []
    here = ["-l", address[0], "-p", str(address[1]), *user]
    project.start("memcached", binary, [*arguments, *here], "11211")
    project.start_dwell()
    assert project.health() == 0
    project.start_app()
    assert project.get("/send/alice", "POST", (), b"lunch?").status == 200
    assert project.get("/poll/inbox/alice").field("Cache-Status") == "dwell; hit"
    with contextlib.closing(store_client(address)) as client:
        assert client.get("/poll/inbox/alice") == b'["lunch?"]'


def test_values_in_valkey(start_project):
    project = start_project("valkey")
    name, *arguments = project.services["valkey"]["command"]
    address = project.address("6379")
    here = ["--bind", address[0], "--port", str(address[1]), "--save", ""]
    project.start("valkey", program(name), [*arguments, *here], "6379")
    project.start_dwell()
    assert project.health() == 0
    RedisClient(address).set("/poll/inbox/alice", b'["lunch?"]')
    hit = project.get("/poll/inbox/alice")
    assert (hit.body, hit.field("Cache-Status")) == (b'["lunch?"]', "dwell; hit")
