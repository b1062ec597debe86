#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Stands for ssh: runs the command of a host on this machine, so that the hosts of a job are here.
# Each has its own directory for temporary files, as on hosts: daemons of Open MPI that share one
# take each other's files away, and one in ten jobs does not start. With mpirun's
# --leave-session-attached the command lasts as long as the daemon.
shift
TMPDIR=$(mktemp -d) || exit 1
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
trap 'exit 143' HUP INT TERM
sh -c "$*"
