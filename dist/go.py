"""Writes a Go module as a proxy serves it.

usage: go.py FOLDER MODULE VERSION PROXY

Times are that of SOURCE_DATE_EPOCH.
"""

import datetime
import json
import os
import pathlib
import sys
import time
import zipfile

EPOCH = int(os.environ["SOURCE_DATE_EPOCH"])


def main():
    folder, module, version, proxy = sys.argv[1:]
    source = pathlib.Path(folder)
    # The proxy's names of capital letters would need an escape.
    assert module == module.lower(), module
    place = pathlib.Path(proxy, module, "@v")
    place.mkdir(parents=True)
    when = datetime.datetime.fromtimestamp(EPOCH, datetime.UTC)
    (place / "list").write_text(f"{version}\n")
    (place / f"{version}.mod").write_bytes((source / "go.mod").read_bytes())
    about = {"Version": version, "Time": when.strftime("%Y-%m-%dT%H:%M:%SZ")}
    (place / f"{version}.info").write_text(json.dumps(about) + "\n")
    with zipfile.ZipFile(place / f"{version}.zip", "w") as made:
        for path in sorted(source.rglob("*")):
            if path.is_file():
                name = f"{module}@{version}/{path.relative_to(source)}"
                entry = zipfile.ZipInfo(name, time.gmtime(EPOCH)[:6])
                entry.external_attr = 0o100644 << 16
                entry.compress_type = zipfile.ZIP_DEFLATED
                made.writestr(entry, path.read_bytes())


main()
