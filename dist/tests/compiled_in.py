"""Reads the list of what is compiled into a program as scanners do.

usage: compiled_in.py PROGRAM PACKAGE...

The section `.dep-v0` holds JSON that zlib has compressed. Each PACKAGE has to be in it.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import zlib


def main():
    program, *expected = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        section, copy = f"{folder}/section", f"{folder}/copy"
        # This reads the sections of a program for any processor.
        command = ["objcopy", "--input-target=elf64-little", f"--dump-section=.dep-v0={section}"]
        subprocess.run([*command, program, copy], check=True)
        packages = json.loads(zlib.decompress(pathlib.Path(section).read_bytes()))["packages"]
    (root,) = (package for package in packages if package.get("root"))
    assert root["name"] == "dwell-cli", root
    # A package can depend on none but those of the list.
    assert all(place < len(packages) for package in packages for place in package["dependencies"])
    missing = set(expected) - {package["name"] for package in packages}
    assert not missing, missing
    print(f"compiled in: {len(packages)} packages")


main()
