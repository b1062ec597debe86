#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Stands for ssh: runs the command of a host in its network namespace (two_hosts.sh).
case $1 in
    one) process=$HOST_ONE_PROCESS ;;
    *) process=$HOST_OTHER_PROCESS ;;
esac
exec nsenter --net --target "$process" "$(dirname "$0")/here.sh" "$@"
