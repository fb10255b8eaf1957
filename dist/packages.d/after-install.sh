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
    mkdir /run/dwell
    chown dwell:dwell /run/dwell
fi
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
fi
