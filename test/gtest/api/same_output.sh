#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# same_output.sh UCX_PROGRAM UCX_ARGUMENTS OUR_PROGRAM OUR_ARGUMENTS: both succeed and print the
# same on standard output.
set -euo pipefail

# Word splitting of the argument strings is meant.
ucx=$(UCX_LOG_LEVEL=fatal "$1" $2) || { printf '%s\nFAILED: the UCX program\n' "$ucx"; exit 1; }
ours=$("$3" $4) || { printf '%s\nFAILED: our program\n' "$ours"; exit 1; }
[[ -n $ours ]]
diff <(printf '%s\n' "$ucx") <(printf '%s\n' "$ours") && printf '%s\n' "$ours" | tail -5
