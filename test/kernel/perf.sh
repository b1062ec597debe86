#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# perf.sh TAGWIRE TL TEST [OPTION...]: a short validated measurement by the command TAGWIRE on the
# devices in TAGWIRE_IB_DEVICES: on one device, or with a server on the first and a client on the
# last.
set -euo pipefail

tagwire=$1 transport=$2 test_name=$3
shift 3
IFS=, read -ra devices <<<"$TAGWIRE_IB_DEVICES"
arguments=("$test_name" --tl "$transport" --validate --warmup 10 "$@")

if ((${#devices[@]} == 1)); then
    exec "$tagwire" perf "${arguments[@]}"
fi
exec {server}< <(TAGWIRE_IB_DEVICES=${devices[0]} exec "$tagwire" perf --server 0)
server_pid=$!
trap 'kill "$server_pid" 2>/dev/null || true' EXIT
read -r line <&"$server"  # "... port NUMBER"
export TAGWIRE_IB_DEVICES=${devices[-1]}
"$tagwire" perf "${arguments[@]}" --connect "127.0.0.1:${line##* }"
wait "$server_pid"
