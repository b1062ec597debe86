#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# check_packages.sh: makes the Debian packages, then installs and uses them in a minimal Debian of
# its own (clean_root.sh), where nothing of the checkout is but the examples. Needs to be root.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

./run package
with=()
for package in build/package/*.deb; do
    with+=(--with "$package")
done
exec contrib/clean_root.sh "${with[@]}" 'contrib/try_packages.sh /src/with'
