#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# page.sh HELP2MAN OUTPUT INCLUDE VERSION WHAT COMMAND [SUBCOMMAND]: the manual page of a command.
# help2man names the page after the command; a subcommand's has a name of its own: tagwire-perf.
set -eu
help2man=$1 output=$2 include=$3 version=$4 what=$5
shift 5
name=$(basename "$output" .1.gz)
title=$(printf '%s' "$name" | tr '[:lower:]' '[:upper:]')
roff=$(printf '%s' "$name" | sed 's/-/\\\\-/g')
"$help2man" --no-info --section=1 --manual=tagwire --source="tagwire $version" \
    --version-string="tagwire $version" --name="$what" --include="$include" "$*" >"$output.tmp"
sed -e "s/^\.TH [^ ]*/.TH $title/" -e "/^\.SH NAME/{n;s/^[^ ]* /$roff /;}" "$output.tmp" |
    gzip -9nc >"$output"
rm "$output.tmp"
