#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# check_ci_example.sh BIN CC: carries out examples/ci as a user's continuous integration does, with
# the programs of BIN. Then the faults have to be real: a test that asks for no retries must fail.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../examples/ci"
export PATH=$1:$PATH CC=$2 CCACHE_DISABLE=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

./run_test.sh

"$CC" -std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra -Wpedantic -Werror rdma_test.c \
    -o "$work/rdma_test" -libverbs
tagwire-vhca run -- "$work/rdma_test" 0
status=0
timeout 60 tagwire-vhca run --loss 0.02 --seed 1 -- "$work/rdma_test" 0 2>"$work/error" || status=$?
if ((status != 1)) || ! grep -q 'retry counter exceeded' "$work/error"; then
    cat "$work/error"
    echo "FAILED: with lost packets and no retries the test ended with status $status, not 1"
    exit 1
fi
