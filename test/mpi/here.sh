#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Stands for ssh: runs the command of a host on this machine, so that the hosts of a job are here.
shift
exec sh -c "$*"
