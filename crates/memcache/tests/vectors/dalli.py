#!/usr/bin/env python3
"""Writes the vectors of dalli's ring beside this file, by its rule and without our code.

The rule (dalli 4.3.3, ring.rb): a server has servers * 160 * weight / total weight points, the
first 32 bits of the SHA-1 of `host:port:index`; a key belongs to the last point at or before its
CRC-32, or to the last of all. It was held against dalli itself, which needs Ruby, with 400 keys.
"""

import bisect
import hashlib
import pathlib
import zlib

KEYS = [f"key{i}" for i in range(200)] + [f"/poll/user{i}" for i in range(200)]
RINGS = {
    "dalli_equal": [("127.0.0.1", port, 1) for port in (22122, 22123, 22124)],
    "dalli_weighted": [("cache-1", 11211, 1), ("cache-2", 11211, 2), ("cache-3", 22122, 5)],
}


def points(ring: list[tuple[str, int, int]]) -> list[tuple[int, int]]:
    total = sum(weight for _, _, weight in ring)
    return sorted(
        (int(hashlib.sha1(f"{host}:{port}:{index}".encode()).hexdigest()[:8], 16), server)
        for server, (host, port, weight) in enumerate(ring)
        for index in range(len(ring) * 160 * weight // total)
    )


def main() -> None:
    here = pathlib.Path(__file__).parent
    for name, ring in RINGS.items():
        circle = points(ring)
        values = [value for value, _ in circle]
        lines = ["# Where dalli's rule puts 400 keys; made by dalli.py."]
        lines += [f"# server {i}: {host} {port} {w}" for i, (host, port, w) in enumerate(ring)]
        for key in KEYS:
            place = bisect.bisect_right(values, zlib.crc32(key.encode())) - 1
            lines.append(f"{key}\t{circle[place][1]}")
        (here / f"{name}.tsv").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
