#!/bin/sh
# An upgrade keeps the service running. deb says what is done, rpm how many versions are left; Alpine
# and Arch run this for a removal alone, Arch with the version.
set -e
case "$1" in
    upgrade | failed-upgrade | deconfigure | [1-9] | [1-9][0-9])
        exit 0
        ;;
esac
if [ -d /run/systemd/system ]; then
    systemctl disable --now dwell.service dwell.socket || true
elif command -v rc-service >/dev/null; then
    rc-service --quiet --ifstarted dwell stop || true
    rc-update --quiet --all delete dwell || true
fi
