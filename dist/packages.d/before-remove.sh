#!/bin/sh
# An upgrade keeps the service running; deb says "remove", rpm 0.
set -e
case "$1" in
    remove | 0)
        if [ -d /run/systemd/system ]; then
            systemctl disable --now dwell.service dwell.socket || true
        fi
        ;;
esac
