#!/bin/sh
# The user of the service. Each distribution has one of these tools.
set -e
if ! grep -q '^dwell:' /etc/group; then
    if command -v groupadd >/dev/null; then
        groupadd --system dwell
    else
        addgroup -S dwell
    fi
fi
if ! grep -q '^dwell:' /etc/passwd; then
    if command -v useradd >/dev/null; then
        useradd --system --gid dwell --home-dir /var/lib/dwell --no-create-home \
            --shell /bin/false dwell
    else
        adduser -S -D -H -G dwell -h /var/lib/dwell -s /bin/false dwell
    fi
fi
