#!/bin/sh
# The user and its files stay, as values may be in /var/lib/dwell.
set -e
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
fi
