#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# page.sh HELP2MAN OUTPUT INCLUDE VERSION WHAT COMMAND [SUBCOMMAND]: the manual page of a command.
set -eu
help2man=$1 output=$2 include=$3 version=$4 what=$5
shift 5
"$help2man" --no-info --section=1 --manual=tagwire --source="tagwire $version" \
    --version-string="tagwire $version" --name="$what" --include="$include" "$*" >"$output.tmp"
gzip -9nc "$output.tmp" >"$output"
rm "$output.tmp"
