#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# thirdparty.sh CASE: runs a known program on the first and the last device of TAGWIRE_IB_DEVICES,
# both of which may be the same. The test passes when both sides of the program end well.
set -euo pipefail

IFS=, read -ra devices <<<"${TAGWIRE_IB_DEVICES:?names no device}"
case_name=${1:?which case}
port=18515
steps_max=3000  # of 20 ms
servers=()
trap 'kill "${servers[@]}" 2>/dev/null || true; wait' EXIT

die() { printf 'thirdparty: %s\n' "$*" >&2; exit 1; }

is_listening() {
    grep -qs "$(printf ':%04X 0*:0000 0A' "$port")" /proc/net/tcp /proc/net/tcp6
}

# both PROGRAM ARGUMENT...: a server on the first device, and a client on the last. Programs of UCX
# read their device from the environment, the others take it as an option.
both() {
    local step device words
    for device in "${devices[0]}" "${devices[-1]}"; do
        words=("$@" -p "$port")
        [[ $1 == ucx_* ]] || words+=(-d "$device")
        export UCX_NET_DEVICES=$device:1
        if ((${#servers[@]} == 0)); then
            "${words[@]}" &
            servers+=($!)
            for ((step = 0; step < steps_max; step++)); do
                is_listening && break
                kill -0 "${servers[0]}" 2>/dev/null || die "the server ended"
                sleep 0.02
            done
            ((step < steps_max)) || die "the server does not listen"
        else
            "${words[@]}" 127.0.0.1 || die "the client ended with status $?"
        fi
    done
    wait "${servers[0]}" || die "the server ended with status $?"
    servers=()
}

devinfo() {
    local device
    for device in "${devices[@]}"; do
        ibv_devinfo -v -d "$device" | tee /dev/stderr | grep PORT_ACTIVE >/dev/null ||
            die "$device has no active port"
    done
}

case $case_name in
    devinfo) devinfo ;;
    rc_pingpong) both ibv_rc_pingpong -g 1 -n 200 ;;
    # -u 10: 4 ms until a lost packet is sent again, instead of 67.
    send_lat) both ib_send_lat -x 1 -u 10 -F -s 64 -n 500 ;;
    write_bw) both ib_write_bw -x 1 -u 10 -F -s 65536 -n 50 ;;
    # For wires that lose packets: of a write of several packets the kernel's requester may repeat
    # one as another opcode than it was (acknowledgements come while it goes back), and its
    # responder then refuses that as an invalid request.
    write_bw_packets) both ib_write_bw -x 1 -u 10 -F -s 4096 -n 400 ;;
    ucx_tag_lat)
        # soft-RoCE leaves out of a datagram's completion what UCX's filter of addresses looks at.
        export UCX_TLS=rc_v UCX_IB_GID_INDEX=1 UCX_UD_VERBS_ETH_DGID_CHECK=n
        export UCX_RC_VERBS_TIMEOUT=20ms
        both ucx_perftest -t tag_lat -s 8 -n 300 -w 20
        ;;
    *) die "no case '$case_name'" ;;
esac
