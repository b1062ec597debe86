# SPDX-License-Identifier: BSD-3-Clause
"""Rows of the driver face (`--driver mlx5`), where the system's own libibverbs and libmlx5 run:
what thirdparty_cases.py has, with fewer iterations, and what only this face can run.

The program and the device's thread both poll. On few processors, a program that spins gives its
turn away only when the system takes it.
"""
from dataclasses import replace

import thirdparty_cases as cases
from thirdparty_run import DRIVER_MLX5, MLX5_PREFIX

# ---- What both faces run -------------------------------------------------------------------------

SPINNING_ITERATIONS_MAX = 50


def fewer(words, iterations_max):
    """`words` with what follows -n cut."""
    words = list(words)
    if "-n" in words:
        place = words.index("-n") + 1
        words[place] = str(min(int(words[place]), iterations_max))
    return words


def over_mlx5(case, tier=None):
    is_spinning = "-e" not in case.words and "sleep" not in case.words
    words = fewer(case.words, SPINNING_ITERATIONS_MAX) if is_spinning else case.words
    return replace(case, name=MLX5_PREFIX + case.name, words=words,
                   options=(*DRIVER_MLX5, *case.options), tier=tier or case.tier)


def is_nightly(case):
    """Long, or the same again as other rows with another connection."""
    repeats = any(word in case.name for word in ("-cUC--", "-cUC-q", "-cDC-b"))
    return case.takes_long or repeats


# What a program refuses whatever the device is shows nothing new.
SHARED = [over_mlx5(case, "nightly" if is_nightly(case) else None)
          for case in [*cases.RDMA_CORE, *cases.PERFTEST, *cases.LIBFABRIC, *cases.PYVERBS]
          if not case.refused]

# UCX's verbs transports do here what perftest does.
VERBS_SHOWN = ("uct_rc_verbs_am_lat-Dshort", "uct_rc_verbs_put_bw-Dzcopy-s2048",
               "uct_rc_verbs_fadd-s8", "uct_ud_verbs_am_lat-Dshort", "ucp_tag_lat",
               "ucp_tag_lat-Esleep")
VERBS = [over_mlx5(case, None if case.name in VERBS_SHOWN else "nightly")
         for case in [*cases.UCT, *cases.UCP, *cases.MPI] if not case.refused]

NOT_OFFERED = [over_mlx5(case) for case in cases.NOT_OFFERED if case.name in (
    "ibv_xsrq_pingpong", "ib_send_bw-cXRC", "ib_write_bw--odp")]

UDP = [over_mlx5(case) for case in cases.UDP]

# ---- UCX's transports that write the card's queues -----------------------------------------------

ONE_SIDED = ("put_lat", "put_bw")


def uct(transport, test, *arguments, tier="full"):
    return over_mlx5(cases.uct(transport, test, *arguments), tier)


def uct_rows(transport, tests, tier="full"):
    layouts = [(test, layout) for test in tests for layout in cases.LAYOUTS]
    return [uct(transport, test, *layout, tier=tier) for test, layout in layouts]


UCT = [
    *(row for transport in ("rc_mlx5", "dc_mlx5")
      for row in uct_rows(transport, ("am_lat", "am_bw", *ONE_SIDED))),
    *(uct(transport, "get", *layout)
      for transport in ("rc_mlx5", "dc_mlx5") for layout in cases.LAYOUTS[1:]),
    *(uct(transport, test, "-s", "8")
      for transport in ("rc_mlx5", "dc_mlx5") for test in ("add_lat", "add_mr", "fadd", "cswap")),
    *uct_rows("ud_mlx5", ("am_lat", "am_bw")),
]

# ---- UCX's protocols over them -------------------------------------------------------------------

TAG_MATCHING = {"UCX_RC_MLX5_TM_ENABLE": "y"}


def ucp(transport, test, *arguments, label="", **variables):
    case = cases.ucp(test, *arguments)
    environment = {**case.environment, "UCX_TLS": transport, **variables}
    named = replace(case, name=f"{label or transport}_{case.name}", environment=environment)
    return over_mlx5(named)


UCP_TESTS = ("tag_lat", "tag_bw", "tag_sync_lat", "ucp_put_lat", "ucp_put_bw", "ucp_get",
             "ucp_fadd", "ucp_cswap", "stream_lat", "stream_bw", "ucp_am_lat", "ucp_am_bw")

UCP = [
    *(ucp(transport, test) for transport in ("rc_x", "dc_x") for test in UCP_TESTS),
    *(ucp("ud_x", test) for test in ("tag_lat", "stream_bw", "ucp_am_bw", "ucp_get")),
    *(ucp(transport, test, "-E", "sleep")
      for transport in ("rc_x", "dc_x", "ud_x") for test in ("tag_lat", "stream_lat")),
    *(ucp(transport, test, "-s", "1048576") for transport in ("rc_x", "dc_x")
      for test in ("tag_bw", "ucp_put_bw")),
    # The device matches: eager messages, and a rendezvous that it reads.
    *(ucp("rc_x", test, "-s", size, *more, label="tm_rc_x", **TAG_MATCHING)
      for test, size, more in (("tag_lat", "2048", ()), ("tag_bw", "2048", ()),
                               ("tag_lat", "65536", ()), ("tag_bw", "65536", ()),
                               ("tag_sync_lat", "2048", ()), ("tag_lat", "2048", ("-E", "sleep")),
                               ("tag_lat", "2048", ("-C",)), ("tag_lat", "2048", ("-U",)))),
]

MPI = [over_mlx5(case) for case in (
    cases.netpipe("netpipe_rc_x", "self,rc_x"), cases.netpipe("netpipe_dc_x", "self,dc_x"),
    cases.netpipe("netpipe_tm_rc_x", "self,rc_x", **TAG_MATCHING))]

# ---- rdma-core's tests of libmlx5 itself ---------------------------------------------------------

PYVERBS = [over_mlx5(cases.pyverbs(module)) for module in (
    "mlx5_cq", "mlx5_raw_wqe", "mlx5_huge_page", "mlx5_timestamp")]

# ---- Faults --------------------------------------------------------------------------------------

FAULTS = ("--loss", "0.01", "--dup", "0.01", "--reorder", "0.02", "--seed", "7")


def with_faults(case, more=(), **variables):
    return replace(case, name=case.name.replace(MLX5_PREFIX, f"{MLX5_PREFIX}faulty_"),
                   options=(*case.options, *FAULTS), words=[*case.words, *more],
                   environment={**case.environment, **variables})


RC_TIMEOUT = {"UCX_RC_MLX5_TIMEOUT": "100ms"}
DC_TIMEOUT = {"UCX_DC_MLX5_RC_TIMEOUT": "100ms", "UCX_DC_MLX5_TIMEOUT": "100ms"}
FAULTY = [
    with_faults(over_mlx5(cases.pingpong("ibv_srq_pingpong", "-e"))),
    *(with_faults(over_mlx5(cases.perftest(verb, shape, "RC", [])), cases.PATIENT)
      for verb, shape in (("send", "lat"), ("write", "bw"), ("read", "bw"), ("atomic", "lat"))),
    with_faults(over_mlx5(cases.perftest("send", "lat", "DC", [])), cases.PATIENT),
    with_faults(ucp("rc_x", "tag_bw", "-s", "65536"), **RC_TIMEOUT),
    with_faults(ucp("dc_x", "tag_bw", "-s", "65536"), **DC_TIMEOUT),
    with_faults(ucp("ud_x", "tag_bw", "-s", "65536")),
    with_faults(ucp("rc_x", "tag_bw", "-s", "2048", label="tm_rc_x", **TAG_MATCHING),
                **RC_TIMEOUT),
]

# Rows that were not yet seen to pass over this face run nightly, whatever they are meant for.
ALL = [replace(case, tier="nightly") for case in (
    *SHARED, *VERBS, *UCT, *UCP, *PYVERBS, *MPI, *NOT_OFFERED, *UDP, *FAULTY)]

QUICK = """
mlx5_ibv_devinfo-v mlx5_ibv_rc_pingpong-e mlx5_ibv_ud_pingpong mlx5_ibv_srq_pingpong-e
mlx5_ib_send_lat mlx5_ib_write_bw mlx5_ib_read_lat-e mlx5_ib_atomic_lat mlx5_ib_send_lat-cDC
mlx5_uct_rc_mlx5_am_lat-Dshort mlx5_uct_dc_mlx5_put_bw-Dzcopy-s2048
mlx5_rc_x_ucp_tag_lat-Esleep mlx5_pyverbs_qp mlx5_pyverbs_tag_matching
""".split()
