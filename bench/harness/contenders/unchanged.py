"""Polls that have the newest value already, and are told so: 304."""

from dataclasses import replace

from harness import http
from harness.contenders.base import BODY, HIT_PATH, Contender, Running
from harness.contenders.nginx import start_nginx
from harness.stage import ContenderError, Stage

# As long as an entity tag of the edge.
SOME_TAG = '"Hello-World"'


class Unchanged(Contender):
    """Another contender, asked with the entity tag of its answer."""

    traced = True

    def __init__(self, name: str, label: str, contender: Contender, note: str = "") -> None:
        self.name = name
        self.label = label
        self.ours = contender.ours
        self.note = note
        self._contender = contender

    def start(self, stage: Stage) -> Running:
        """Starts the other, and asks it once for the tag."""
        running = self._contender.start(stage)
        answer = http.fetch(running.url)
        if "etag" not in answer.fields:
            raise ContenderError("an answer without an ETag")
        return replace(running, fields={"If-None-Match": answer.fields["etag"]})


class NginxFile(Contender):
    """A file of 13 bytes, kept open."""

    name = "nginx_file"
    label = "nginx, a file"

    def start(self, stage: Stage) -> Running:
        """Starts nginx on a directory with the file in it."""
        file = stage.directory / "files" / HIT_PATH.removeprefix("/")
        file.parent.mkdir(parents=True)
        file.write_bytes(BODY)
        file.parent.chmod(0o755)
        root = stage.directory / "files"
        locations = f"location / {{ root {root}; open_file_cache max=10 inactive=300s; }}"
        program, port = start_nginx(stage, "", locations)
        return Running(program, port, HIT_PATH)


class NginxReturn304(Contender):
    """`return 304`: nothing is compared."""

    name = "nginx_return_304"
    label = "nginx, return 304"
    traced = True
    note = "compares nothing"

    def start(self, stage: Stage) -> Running:
        """Starts nginx with the answer in its configuration."""
        program, port = start_nginx(stage, "", "location / { return 304; }")
        return Running(program, port, HIT_PATH, fields={"If-None-Match": SOME_TAG})
