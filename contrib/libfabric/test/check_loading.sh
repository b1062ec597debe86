#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The provider exports its entry and nothing else, and libfabric lists it. libfabric itself says
# nothing of a provider that it cannot load.
#   check_loading.sh FOLDER
set -euo pipefail
folder=$1
library=$folder/libtagwire-fi.so

exported=$(nm -D --defined-only "$library" | awk '{print $NF}')
if [[ $exported != fi_prov_ini ]]; then
    printf 'exported are: %s\n' "$exported" >&2
    exit 1
fi
listed=$(FI_PROVIDER_PATH=$folder fi_info -p tagwire)
grep -q 'provider: tagwire' <<<"$listed"
grep -q 'type: FI_EP_RDM' <<<"$listed"
# Parameters are known to libfabric. awk reads all of it, so that fi_info is not stopped.
FI_PROVIDER_PATH=$folder fi_info -e | awk '/FI_TAGWIRE_TRANSPORTS/ {found = 1} END {exit !found}'
# Its own name may be asked for by the environment alone.
FI_PROVIDER=tagwire FI_PROVIDER_PATH=$folder fi_info | grep -c 'provider: tagwire' >/dev/null
