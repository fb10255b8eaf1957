"""Writes a container image with one layer for each processor.

usage: image.py FOLDERS FILE VERSION COMMIT

FOLDERS has a folder for each processor, under its name, with the files of the layer. FILE is an OCI
image layout, with the manifest.json that `docker load` reads. Times are those of SOURCE_DATE_EPOCH.
"""

import datetime
import gzip
import hashlib
import io
import json
import os
import pathlib
import sys
import tarfile

USER = 65532
OWNED = ("var/lib/dwell",)
EPOCH = int(os.environ["SOURCE_DATE_EPOCH"])
OCI = "application/vnd.oci.image."
# manifest.json has no processors: an engine that reads no index gets this one.
FIRST = "amd64"


def entry(name, mode, size=None):
    info = tarfile.TarInfo(name)
    info.mode, info.mtime = mode, EPOCH
    if size is None:
        info.type = tarfile.DIRTYPE
    else:
        info.size = size
    return info


def layer(folder):
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted(folder.rglob("*")):
            name = str(path.relative_to(folder))
            if path.is_dir():
                info = entry(name, 0o1777 if name == "tmp" else 0o755)
                if name in OWNED:
                    info.uid = info.gid = USER
                tar.addfile(info)
            else:
                data = path.read_bytes()
                mode = 0o755 if os.access(path, os.X_OK) else 0o644
                tar.addfile(entry(name, mode, len(data)), io.BytesIO(data))
    return output.getvalue()


def configuration(diff, version, commit, architecture):
    second = 1_000_000_000
    return {
        "created": datetime.datetime.fromtimestamp(EPOCH, datetime.UTC).isoformat(),
        "architecture": architecture,
        "os": "linux",
        "config": {
            "User": f"{USER}:{USER}",
            "Entrypoint": ["/usr/bin/dwell"],
            "Cmd": ["serve"],
            "WorkingDir": "/var/lib/dwell",
            # In a container "every address" is that of the container. The store stays on loopback
            # until it is given a login or is allowed to be open.
            "Env": [
                "PATH=/usr/bin",
                "DWELL_SERVER_LISTEN=0.0.0.0:8080",
                "DWELL_SERVER_ADMIN=0.0.0.0:9090",
            ],
            "ExposedPorts": {"8080/tcp": {}, "9090/tcp": {}, "11211/tcp": {}},
            "StopSignal": "SIGTERM",
            "Healthcheck": {
                "Test": ["CMD", "/usr/bin/dwell", "health", "--live"],
                "Interval": 10 * second,
                "Timeout": 5 * second,
                "Retries": 3,
            },
            "Labels": {
                "org.opencontainers.image.title": "Dwell",
                "org.opencontainers.image.version": version,
                "org.opencontainers.image.revision": commit,
                "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{diff}"]},
    }


class Layout:
    """The blobs of an image, each under its hash."""

    def __init__(self):
        self.files = {}

    def blob(self, kind, data):
        digest = hashlib.sha256(data).hexdigest()
        self.files[f"blobs/sha256/{digest}"] = data
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}

    def write(self, output):
        with tarfile.open(output, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for folder in ("blobs", "blobs/sha256"):
                tar.addfile(entry(folder, 0o755))
            for name, data in sorted(self.files.items()):
                tar.addfile(entry(name, 0o644, len(data)), io.BytesIO(data))


def to_json(value):
    return json.dumps(value, separators=(",", ":")).encode()


def add(image, folder, version, commit):
    """The manifest, the configuration and the layer of one processor."""
    plain = layer(folder)
    packed = image.blob(OCI + "layer.v1.tar+gzip", gzip.compress(plain, mtime=0))
    diff = hashlib.sha256(plain).hexdigest()
    config = image.blob(
        OCI + "config.v1+json", to_json(configuration(diff, version, commit, folder.name))
    )
    manifest = {
        "schemaVersion": 2,
        "mediaType": OCI + "manifest.v1+json",
        "config": config,
        "layers": [packed],
    }
    named = image.blob(OCI + "manifest.v1+json", to_json(manifest))
    named["platform"] = {"architecture": folder.name, "os": "linux"}
    return named, config, packed


def index(manifests):
    return {"schemaVersion": 2, "mediaType": OCI + "index.v1+json", "manifests": manifests}


def main():
    folders, output, version, commit = sys.argv[1:]
    image = Layout()
    platforms = {
        folder.name: add(image, folder, version, commit)
        for folder in sorted(pathlib.Path(folders).iterdir())
    }
    # The name stands for an index of its own, from which an engine takes its processor's manifest.
    manifests = [manifest for manifest, _, _ in platforms.values()]
    named = image.blob(OCI + "index.v1+json", to_json(index(manifests)))
    named["annotations"] = {
        # The whole name: containerd looks for what `docker run dwell` is short for.
        "io.containerd.image.name": f"docker.io/library/dwell:{version}",
        "org.opencontainers.image.ref.name": version,
    }

    def place(blob):
        return "blobs/" + blob["digest"].replace(":", "/")

    _, config, packed = platforms[FIRST]
    for_docker = {
        "Config": place(config),
        "RepoTags": [f"dwell:{version}"],
        "Layers": [place(packed)],
    }
    image.files["oci-layout"] = to_json({"imageLayoutVersion": "1.0.0"})
    image.files["index.json"] = to_json(index([named]))
    image.files["manifest.json"] = to_json([for_docker])
    image.write(output)


main()
