#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# check_packages.sh: makes the Debian packages, then installs and uses them in a minimal Debian of
# its own (clean_root.sh), where nothing of the checkout is but the examples; first tagwire-vhca
# alone, as the container recipe does it. Needs to be root.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

./run package
twice=$(for package in build/package/*.deb; do
    dpkg-deb -c "$package" | awk '$1 !~ /^d/ {print $6}'
done | sort | uniq -d)
[[ -z $twice ]] || { echo "FAILED: in two packages: $twice"; exit 1; }
with=()
for package in build/package/*.deb; do
    with+=(--with "$package")
done
exec contrib/clean_root.sh "${with[@]}" 'contrib/container/replay.sh /src/with' \
    'contrib/try_packages.sh /src/with'
