#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The guest's soft-RoCE devices. `wire.sh up` makes them, once:
#     rxed        alone, on a dummy netdev: its packets never leave the driver
#     rxe0, rxe1  the ends of a wire, a pair of veth netdevs, where packets can be lost
# All have MTU 4096, GID 0 is the link-local one, GID 1 the IPv4 address; on the wire use GID 1.
# `wire.sh run [--loss PERCENT] COMMAND...` runs COMMAND while the wire loses PERCENT (0) of the
# packets in each direction, and says how many these were.
set -euo pipefail

address=(10.9.0.1 10.9.0.2)  # of the wire's ends
ethernet_mtu=9000            # room for RoCE's 4096 and headers
steps_max=1000               # of 10 ms

die() { printf 'wire: %s\n' "$*" >&2; exit 1; }

set_v4() { echo "$3" >"/proc/sys/net/ipv4/conf/$1/$2"; }

# The kernel fills the table of GIDs behind our back.
await_gid() {
    local file=/sys/class/infiniband/$1/ports/1/gids/1 step
    for ((step = 0; step < steps_max; step++)); do
        if [[ -r $file && $(cat "$file") == *:ffff:* ]]; then
            return 0
        fi
        sleep 0.01
    done
    die "$1 has no GID of its IPv4 address"
}

add_alone() {
    ip link add dummy_rxed mtu "$ethernet_mtu" type dummy
    ip addr add 10.8.0.1/24 dev dummy_rxed
    ip link set dummy_rxed up
    rdma link add rxed type rxe netdev dummy_rxed
}

# soft-RoCE does not work in network name spaces, so both ends are in one, where the kernel would
# keep packets to its own addresses from the wire. Rules ahead of the local table send them out, and
# accept_local lets them in.
add_wire() {
    local end peer
    ip link add v0 mtu "$ethernet_mtu" type veth peer name v1 mtu "$ethernet_mtu"
    set_v4 all rp_filter 0
    for end in 0 1; do
        set_v4 "v$end" rp_filter 0
        set_v4 "v$end" accept_local 1
        ip addr add "${address[end]}/32" dev "v$end"
        ip link set "v$end" up
    done
    for end in 0 1; do
        peer=$((1 - end))
        ip neigh replace "${address[peer]}" lladdr "$(cat "/sys/class/net/v$peer/address")" \
            dev "v$end" nud permanent
        ip route add "${address[peer]}/32" dev "v$end" src "${address[end]}" table "$((100 + end))"
        ip rule add pref "$((10 + end))" iif lo from "${address[end]}" to "${address[peer]}" \
            lookup "$((100 + end))"
    done
    ip rule add pref 100 lookup local
    ip rule del pref 0
    rdma link add rxe0 type rxe netdev v0
    rdma link add rxe1 type rxe netdev v1
}

set_loss() {
    local end
    for end in 0 1; do
        # The test before this one may have been killed.
        tc qdisc del dev "v$end" root 2>/dev/null || true
        [[ $1 == 0 ]] || tc qdisc add dev "v$end" root netem limit 100000 loss "$1%"
    done
}

say_losses() {
    { tc -s qdisc show dev v0; tc -s qdisc show dev v1; } |
        sed -n 's/.* \([0-9]*\) pkt (dropped \([0-9]*\),.*/\1 \2/p' |
        awk '{passed += $1; lost += $2}
             END {printf "wire: %d of %d packets were lost\n", lost, passed + lost}'
}

run() {
    local loss=0 status=0
    if [[ ${1:-} == --loss ]]; then
        loss=${2:-}
        [[ $loss =~ ^[0-9]+(\.[0-9]+)?$ ]] || die "--loss takes a percentage, not '$loss'"
        shift 2
    fi
    (($#)) || die "run: which command?"
    set_loss "$loss"
    "$@" || status=$?
    [[ $loss == 0 ]] || say_losses
    set_loss 0
    return "$status"
}

case ${1:-} in
    up)
        ip link set lo up
        add_alone
        add_wire
        for device in rxed rxe0 rxe1; do
            await_gid "$device"
        done
        ;;
    run) shift; run "$@" ;;
    *) die "up, or run [--loss PERCENT] COMMAND...; not '${1:-}'" ;;
esac
