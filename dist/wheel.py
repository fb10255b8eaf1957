"""Adds a program to a wheel: pip installs it beside the interpreter.

usage: wheel.py WHEEL TREE LICENCES SBOM FOLDER

TREE has the program and the licences of what is in it, LICENCES is the file of those of the package,
and SBOM the list of what is in the package.
"""

import base64
import csv
import hashlib
import io
import os
import pathlib
import sys
import time
import zipfile


def main():
    wheel, tree, licences, sbom, folder = map(pathlib.Path, sys.argv[1:])
    name = "-".join(wheel.name.split("-")[:2])
    when = time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))[:6]
    record = f"{name}.dist-info/RECORD"
    with zipfile.ZipFile(wheel) as given:
        files = {
            entry.filename: (given.read(entry), entry.external_attr)
            for entry in given.infolist()
        }
    del files[record]
    program = tree / "bin" / "dwell"
    files[f"{name}.data/scripts/{program.name}"] = program.read_bytes(), 0o100755 << 16
    of_program = tree / "share" / "doc" / "dwell" / licences.name
    for path, added in ((licences, licences.name), (of_program, f"{licences.name}-program")):
        data = path.read_bytes(), 0o100644 << 16
        files[f"{name}.dist-info/licenses/{added}"] = data
    # That of maturin names the folder of the build.
    listed = f"{name}.dist-info/sboms/dwell-python.cyclonedx.json"
    assert listed in files, wheel
    files[listed] = sbom.read_bytes(), 0o100644 << 16
    rows = io.StringIO()
    lines = csv.writer(rows, lineterminator="\n")
    for path, (data, _) in sorted(files.items()):
        digest = (
            base64.urlsafe_b64encode(hashlib.sha256(data).digest())
            .rstrip(b"=")
            .decode()
        )
        lines.writerow([path, f"sha256={digest}", len(data)])
    lines.writerow([record, "", ""])
    files[record] = rows.getvalue().encode(), 0o100644 << 16
    with zipfile.ZipFile(folder / wheel.name, "w", zipfile.ZIP_DEFLATED) as made:
        # The description of the package is last, as installers expect it.
        for path in sorted(files, key=lambda path: (".dist-info/" in path, path)):
            data, mode = files[path]
            entry = zipfile.ZipInfo(path, when)
            entry.external_attr, entry.compress_type = mode, zipfile.ZIP_DEFLATED
            made.writestr(entry, data)


main()
