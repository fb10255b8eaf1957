#!/bin/sh
# The package starts no service: the administrator enables it when the configuration is written.
set -e
# Arch's tool takes the numbers of owners, and the group has another on each machine. What the
# administrator has set stays, also that the file is gone or a link.
file=/etc/dwell/dwell.toml
if [ -f "$file" ] && [ ! -L "$file" ] && [ "$(stat -c %U:%G:%a "$file")" = root:root:640 ]; then
    chgrp dwell "$file"
fi
# The configuration names a file there, and may be checked before the first start.
if [ ! -e /run/dwell ] && [ ! -L /run/dwell ]; then
    # A container may have no such folder, or one that cannot be written.
    install -d -m 755 -o dwell -g dwell /run/dwell || true
fi
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
fi
