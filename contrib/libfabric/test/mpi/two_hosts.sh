#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Runs a command in the first of two network namespaces that a veth pair joins. For host_agent.sh
# they are the hosts "one" and "other" of a job. Ends with 77 where that is not permitted.
set -e

skip() {
    echo "skipped: $1"
    [ "$TAGWIRE_TEST_REQUIRE_ALL" = 1 ] && exit 1
    exit 77
}

unshare --net true 2>/dev/null || skip "network namespaces cannot be made here"
[ -x "$(command -v ip)" ] && [ -x "$(command -v nsenter)" ] || skip "needs ip(8) and nsenter(1)"

# A namespace lasts as long as its process: until the end of this one, or a while.
unshare --net sleep 300 &
HOST_ONE_PROCESS=$!
unshare --net sleep 300 &
HOST_OTHER_PROCESS=$!
export HOST_ONE_PROCESS HOST_OTHER_PROCESS
trap 'kill $HOST_ONE_PROCESS $HOST_OTHER_PROCESS' EXIT
for process in $HOST_ONE_PROCESS $HOST_OTHER_PROCESS; do
    while [ "$(readlink /proc/$process/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do
        sleep 0.01
    done
done

ip link add wire0 netns $HOST_ONE_PROCESS type veth peer name wire0 netns $HOST_OTHER_PROCESS
number=1
for process in $HOST_ONE_PROCESS $HOST_OTHER_PROCESS; do
    nsenter --net --target $process sh -ec "
        ip link set lo up
        ip address add 10.93.7.$number/24 dev wire0
        ip link set wire0 up"
    number=$((number + 1))
done
# A busy system tells of the carrier later, and until then an interface does not count.
for process in $HOST_ONE_PROCESS $HOST_OTHER_PROCESS; do
    until nsenter --net --target $process ip link show wire0 | grep -q LOWER_UP; do
        sleep 0.01
    done
done
nsenter --net --target $HOST_ONE_PROCESS "$@"
