#!/bin/sh
# The package starts no service: the administrator enables it when the configuration is written.
set -e
# Tokens may be in the file.
chown root:dwell /etc/dwell/dwell.toml
chmod 0640 /etc/dwell/dwell.toml
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
fi
