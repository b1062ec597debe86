# SPDX-License-Identifier: BSD-3-Clause
"""Tests of UCX's gtest program that contrib/ucx_gtest.py runs: groups, and failures to expect."""
import fnmatch
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Group:
    name: str
    title: str   # in the table
    filter: str  # gtest's
    options: tuple = ()  # of the launcher
    environment: dict = field(default_factory=dict)

    def with_filter(self, text):
        return replace(self, filter=text)


# UCX matches tags over DC by objects that it makes through DEVX.
DEVX = ("--driver-abi", "ioctl", "--devx")
# Newest UCX, where it makes no objects by DEVX, adds an offset for keys that it did not make to the
# address of a 64-bit atomic: eight times the low byte of the process id.
DIRECT_KEYS = {"UCX_IB_INDIRECT_ATOMIC": "n"}
# A test of UCP expects that 1000 receives are more than the list of the device holds.
SHORT_LIST = ("--tm", "127")


def over(transports, *patterns):
    return ":".join(f"{transport}/{pattern}" for transport in transports for pattern in patterns)


GROUPS = [
    Group("tag-uct", "UCT tag offload, verbs objects, `rc_mlx5`",
          over(("rc_mlx5",), "test_tag.*", "test_tag_stats.*")),
    Group("tag-uct-devx", "UCT tag offload, DEVX objects, `rc_mlx5` and `dc_mlx5`",
          over(("rc_mlx5", "dc_mlx5"), "test_tag.*", "test_tag_stats.*"), DEVX),
    Group("tag-ucp", "UCP tag offload, verbs objects, `rc_x`",
          "rcx/test_ucp_tag_offload*", SHORT_LIST),
    Group("tag-ucp-devx", "UCP tag offload, DEVX objects, `rc_x` and `dc_x`",
          "*test_ucp_tag_offload*", (*DEVX, *SHORT_LIST)),
    Group("atomics", "atomics, verbs objects, `rc_mlx5` and `dc_mlx5`",
          over(("rc_mlx5", "dc_mlx5"), "uct_amo_*"), environment=DIRECT_KEYS),
    Group("atomics-devx", "atomics, DEVX objects, `rc_mlx5` and `dc_mlx5`",
          over(("rc_mlx5", "dc_mlx5"), "uct_amo_*"), DEVX),
    Group("tag-mp", "UCT tag offload, multi-packet receive queues", "*test_tag_mp_xrq*", DEVX),
    *(Group(transport, f"all else of UCT, `{transport}`", f"{transport}/*-*test_tag*", DEVX)
      for transport in ("rc_mlx5", "dc_mlx5", "ud_mlx5")),
    Group("ucp-tag", "UCP tags, `rc_x`, `dc_x` and `ud_x`",
          over(("rcx", "dcx", "udx"), *(f"test_ucp_tag_{kind}.*" for kind in (
              "limits", "match", "match_rndv", "probe", "cancel", "nbx"))), DEVX),
]

# Pattern of names, reason.
EXPECTED = [
    ("*/test_rc_ece.ece_[!a]*",
     "UCX refuses its option RC_ECE where a device has no enhanced connection establishment"),
    ("dc_mlx5/test_uct_peer_failure_multiple.*",
     "as many peers as the send queue has places are found dead one after the other"),
]


def expected_failure(name):
    """Why `name` may fail; None: it may not."""
    return next((reason for pattern, reason in EXPECTED if fnmatch.fnmatchcase(name, pattern)),
                None)
