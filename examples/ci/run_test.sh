#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# run_test.sh: builds the test and runs it on the virtual HCA: undisturbed, on an Ethernet port,
# over the system's own libmlx5, and with faults of several seeds. Needs a C compiler, libibverbs'
# headers and tagwire-vhca; neither a card nor privileges.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

"${CC:-gcc}" -std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra rdma_test.c -o "$out/rdma_test" -libverbs

# on OPTIONS...: one run; says how to repeat it if it fails.
on() {
    timeout 120 tagwire-vhca run "$@" -- "$out/rdma_test" && return
    echo "FAILED, repeat with: tagwire-vhca run $* -- rdma_test" >&2
    exit 1
}

on
on --link-layer ethernet
on --driver mlx5
for seed in 1 2 3 4 5; do
    on --loss 0.02 --dup 0.01 --reorder 0.02 --seed "$seed"
done
