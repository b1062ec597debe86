# SPDX-License-Identifier: BSD-3-Clause
"""Rows of the driver face (`--driver mlx5`), where the system's own libibverbs and libmlx5 run:
what thirdparty_cases.py has, with fewer iterations, and what only this face can run.

The program and the device's thread both poll. On few processors, a program that spins gives its
turn away only when the system takes it.
"""
from dataclasses import replace

import thirdparty_cases as cases
from thirdparty_run import DRIVER_MLX5, MLX5_PREFIX, Case

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
    words = fewer(case.words, SPINNING_ITERATIONS_MAX) if case.spins else case.words
    return replace(case, name=MLX5_PREFIX + case.name, words=words,
                   options=(*DRIVER_MLX5, *case.options), tier=tier or case.tier)


# Connections other than RC: what shows most of each.
CONNECTIONS_SHOWN = """
ib_send_lat-cUC ib_write_bw-cUC ib_send_lat-cUD ib_send_bw-cUD-e ib_send_bw-cUD--use-srq
ib_send_lat-cDC ib_send_bw-cDC-e ib_send_bw-cDC--use-srq ib_write_bw-cDC-q4 ib_read_lat-cDC-e
ib_atomic_lat-cDC
""".split()
# Tests of rdma-core that need seconds, or little of the device.
PYVERBS_NIGHTLY = ("addr", "cq", "cqex", "device", "fork", "mr", "pd", "relaxed_ordering", "qpex")


def is_nightly(case):
    """Long, or what other rows do, too."""
    if case.kind == "pyverbs":
        return case.name.removeprefix("pyverbs_") in PYVERBS_NIGHTLY
    is_again = case.kind == "perftest" and (
        "-b" in case.words or ("-c" in case.words and case.name not in CONNECTIONS_SHOWN))
    return case.takes_long or is_again


def tier_of(case):
    """Of perftest this face shows connections that the other one has at night."""
    if is_nightly(case):
        return "nightly"
    return "full" if case.kind == "perftest" else None


def shared(rows):
    """What a program refuses whatever the device is shows nothing new."""
    return [over_mlx5(case, tier_of(case)) for case in rows if not case.refused]


def shown_or_nightly(rows, shown):
    assert set(shown) <= {row.name for row in rows}, "a row that is none"
    return [row if row.name in shown else replace(row, tier="nightly") for row in rows]


RDMA_CORE = shared(cases.RDMA_CORE)
PERFTEST = shared(cases.PERFTEST)

# UCX's verbs transports do here what perftest does.
VERBS_SHOWN = ("uct_rc_verbs_am_lat-Dshort", "uct_rc_verbs_put_bw-Dzcopy-s2048",
               "uct_rc_verbs_fadd-s8", "uct_ud_verbs_am_lat-Dshort", "ucp_tag_lat",
               "ucp_tag_lat-Esleep")


def over_verbs(rows):
    return [over_mlx5(case, None if case.name in VERBS_SHOWN else "nightly")
            for case in rows if not case.refused]


NOT_OFFERED = [over_mlx5(case) for case in cases.NOT_OFFERED if case.name in (
    "ibv_xsrq_pingpong", "ib_send_bw-cXRC", "ib_write_bw--odp")]

# ---- UCX's transports that write the card's queues -----------------------------------------------

ONE_SIDED = ("put_lat", "put_bw")


def uct(transport, test, *arguments):
    return over_mlx5(cases.uct(transport, test, *arguments))


def uct_rows(transport, tests):
    return [uct(transport, test, *layout) for test in tests for layout in cases.LAYOUTS]


UCT_MLX5 = [
    *(row for transport in ("rc_mlx5", "dc_mlx5")
      for row in uct_rows(transport, ("am_lat", "am_bw", *ONE_SIDED))),
    *(uct(transport, "get", *layout)
      for transport in ("rc_mlx5", "dc_mlx5") for layout in cases.LAYOUTS[1:]),
    *(uct(transport, test, "-s", "8")
      for transport in ("rc_mlx5", "dc_mlx5") for test in ("add_lat", "add_mr", "fadd", "cswap")),
    *uct_rows("ud_mlx5", ("am_lat", "am_bw")),
]
UCT_SHOWN = """
rc_mlx5_am_lat-Dshort rc_mlx5_am_bw-Dbcopy-s2048 rc_mlx5_am_bw-Dzcopy-s2048
rc_mlx5_put_lat-Dshort rc_mlx5_put_bw-Dbcopy-s2048 rc_mlx5_put_bw-Dzcopy-s2048
rc_mlx5_get-Dbcopy-s2048 rc_mlx5_get-Dzcopy-s2048 rc_mlx5_fadd-s8 rc_mlx5_cswap-s8
dc_mlx5_am_lat-Dshort dc_mlx5_am_bw-Dzcopy-s2048 dc_mlx5_put_bw-Dzcopy-s2048
dc_mlx5_get-Dzcopy-s2048 dc_mlx5_fadd-s8
ud_mlx5_am_lat-Dshort ud_mlx5_am_bw-Dbcopy-s2048
""".split()
UCT = [*over_verbs(cases.UCT),
       *shown_or_nightly(UCT_MLX5, [f"{MLX5_PREFIX}uct_{name}" for name in UCT_SHOWN])]

# ---- UCX's protocols over them -------------------------------------------------------------------

TAG_MATCHING = {"UCX_RC_MLX5_TM_ENABLE": "y"}


def ucp(transport, test, *arguments, label="", **variables):
    case = cases.ucp(test, *arguments)
    environment = {**case.environment, "UCX_TLS": transport, **variables}
    named = replace(case, name=f"{label or transport}_{case.name}", environment=environment)
    return over_mlx5(named)


UCP_TESTS = ("tag_lat", "tag_bw", "tag_sync_lat", "ucp_put_lat", "ucp_put_bw", "ucp_get",
             "ucp_fadd", "ucp_cswap", "stream_lat", "stream_bw", "ucp_am_lat", "ucp_am_bw")

UCP_MLX5 = [
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

UCP_SHOWN = """
rc_x_ucp_tag_lat rc_x_ucp_tag_sync_lat rc_x_ucp_put_bw rc_x_ucp_get rc_x_ucp_fadd
rc_x_ucp_stream_bw rc_x_ucp_am_bw rc_x_ucp_tag_lat-Esleep rc_x_ucp_tag_bw-s1048576
dc_x_ucp_tag_lat dc_x_ucp_put_bw dc_x_ucp_get dc_x_ucp_am_bw dc_x_ucp_tag_lat-Esleep
ud_x_ucp_tag_lat ud_x_ucp_tag_lat-Esleep
tm_rc_x_ucp_tag_lat-s2048 tm_rc_x_ucp_tag_bw-s65536 tm_rc_x_ucp_tag_sync_lat-s2048
tm_rc_x_ucp_tag_lat-s2048-Esleep tm_rc_x_ucp_tag_lat-s2048-C
""".split()
UCP = [*over_verbs(cases.UCP),
       *shown_or_nightly(UCP_MLX5, [f"{MLX5_PREFIX}{name}" for name in UCP_SHOWN])]

MPI_MLX5 = [over_mlx5(case) for case in (
    cases.netpipe("netpipe_rc_x", "self,rc_x"), cases.netpipe("netpipe_dc_x", "self,dc_x"),
    cases.netpipe("netpipe_tm_rc_x", "self,rc_x", **TAG_MATCHING))]
MPI = [*over_verbs(cases.MPI), *shown_or_nightly(MPI_MLX5, ["mlx5_mpi_netpipe_rc_x"])]

# ---- rdma-core's tests of libmlx5 itself ---------------------------------------------------------

# Without DEVX there is no command that resets a stream, which one of test_mlx5_dc's wants.
DC_TESTS = [f"DCTest.test_dc_{name}" for name in (
    "rdma_write", "send", "rdma_write_stream", "send_stream_bad_flow_qp")]
PYVERBS = [
    *shared(case for case in cases.PYVERBS if case.name != "pyverbs_mlx5_dc"),
    over_mlx5(cases.pyverbs("mlx5_dc", *DC_TESTS)),
    *(over_mlx5(cases.pyverbs(module))
      for module in ("mlx5_cq", "mlx5_raw_wqe", "mlx5_huge_page")),
]

# ---- libfabric, over datagrams and over connections of rdma_cm -----------------------------------


def libfabric(*arguments, **kind):
    return over_mlx5(cases.libfabric(*arguments, **kind))


LIBFABRIC = [
    libfabric("-I", "20", "-S", "1024"), libfabric("-I", "20", "-m", "tagged", "-S", "1024"),
    # Software makes messages of 4 MiB of datagrams.
    replace(libfabric("-I", "2", "-c", "-S", "all"), tier="nightly", takes_long=True),
    libfabric("-I", "20", "-S", "1024", provider="verbs", endpoint="msg"),
    replace(libfabric("-I", "10", "-c", "-S", "all", provider="verbs", endpoint="msg"),
            tier="nightly", takes_long=True),
]

# ---- Programs that connect through rdma_cm -------------------------------------------------------


def rdma_cm(words, server_words=None, port=0):
    return over_mlx5(Case("".join(words), words, kind="rdma_cm", server_words=server_words,
                          port=port))


UDADDY_PORT = 7174
RPING = ["-C", "20", "-v", "-V", "-S", "1000"]
RDMA_CM = [
    rdma_cm(["rping", "-c", *RPING], ["rping", "-s", *RPING]),
    rdma_cm(["ucmatose", "-C", "20", "-S", "1000"]),
    rdma_cm(["ucmatose", "-c", "10"]),
    rdma_cm(["udaddy", "-c", "4", "-C", "20", "-S", "1000"], port=UDADDY_PORT),
    rdma_cm(["rdma_client"], ["rdma_server"]),
    rdma_cm(["rdma_xclient"], ["rdma_xserver"]),
    *(rdma_cm(["rstream", "-T", mode, "-I", "20", "-C", "5", "-S", "4096"]) for mode in ("b", "n")),
    rdma_cm(["riostream", "-T", "b", "-I", "20", "-C", "5", "-S", "4096"]),
]

# ---- Faults --------------------------------------------------------------------------------------

FAULTS = ("--loss", "0.01", "--dup", "0.01", "--reorder", "0.02", "--seed", "7")


def variant(case, label, *options, more=(), **variables):
    return replace(case, name=case.name.replace(MLX5_PREFIX, f"{MLX5_PREFIX}{label}_", 1),
                   options=(*case.options, *options), words=[*case.words, *more],
                   environment={**case.environment, **variables})


def with_faults(case, more=(), **variables):
    return variant(case, "faulty", *FAULTS, more=more, **variables)


# UCX waits a second before it asks again, unless it is told otherwise.
RC_TIMEOUT = {"UCX_RC_MLX5_TIMEOUT": "100ms"}
DC_TIMEOUT = {"UCX_DC_MLX5_RC_TIMEOUT": "100ms", "UCX_DC_MLX5_TIMEOUT": "100ms"}
FAULTY = [
    with_faults(rdma_cm(["rping", "-c", *RPING], ["rping", "-s", *RPING])),
    with_faults(rdma_cm(["rstream", "-T", "b", "-I", "20", "-C", "5", "-S", "4096"])),
    *(with_faults(over_mlx5(cases.perftest(verb, shape, "RC", [])), cases.PATIENT)
      for verb, shape in (("send", "lat"), ("write", "bw"), ("read", "bw"), ("atomic", "lat"))),
    with_faults(over_mlx5(cases.perftest("send", "lat", "DC", [])), cases.PATIENT),
    with_faults(ucp("rc_x", "tag_bw", "-s", "65536"), **RC_TIMEOUT),
    with_faults(ucp("dc_x", "tag_bw", "-s", "65536"), **DC_TIMEOUT),
    with_faults(ucp("ud_x", "tag_bw", "-s", "65536")),
    with_faults(ucp("rc_x", "tag_bw", "-s", "2048", label="tm_rc_x", **TAG_MATCHING),
                **RC_TIMEOUT),
]

# ---- Over UDP ------------------------------------------------------------------------------------

UDP_FABRIC = ("--fabric", "udp")
UDP = [
    *(over_mlx5(case) for case in cases.UDP),
    variant(over_mlx5(cases.perftest("send", "lat", "DC", [])), "udp", *UDP_FABRIC),
    *(variant(ucp(transport, test), "udp", *UDP_FABRIC) for transport in ("rc_x", "dc_x", "ud_x")
      for test in ("tag_lat", "ucp_get")),
    variant(ucp("rc_x", "tag_bw", "-s", "65536"), "udp", *UDP_FABRIC, *cases.LOSSY, **RC_TIMEOUT),
    variant(ucp("dc_x", "tag_bw", "-s", "65536"), "udp", *UDP_FABRIC, *cases.LOSSY, **DC_TIMEOUT),
]

# ---- Commands by ioctl, as kernels since 4.20 take them ------------------------------------------

IOCTL = [variant(case, "ioctl", "--driver-abi", "ioctl") for case in (
    over_mlx5(Case("ibv_devinfo-v", ["ibv_devinfo", "-v"], pair=False, kind="list")),
    *(over_mlx5(cases.pingpong(f"ibv_{kind}_pingpong", *option))
      for kind, option in (("rc", ["-e"]), ("uc", ["-e"]), ("ud", ["-e"]), ("srq", ["-e"]))),
    *(over_mlx5(cases.perftest(verb, shape, connection, option))
      for verb, shape, connection, option in (
          ("send", "lat", "RC", ["-e"]), ("write", "bw", "RC", []), ("read", "lat", "RC", ["-e"]),
          ("send", "bw", "UD", ["-e"]), ("send", "lat", "DC", []))),
    uct("rc_mlx5", "am_lat", *cases.LAYOUTS[1]), uct("dc_mlx5", "put_bw", *cases.LAYOUTS[2]),
    ucp("rc_x", "tag_lat", "-E", "sleep"), ucp("dc_x", "tag_lat", "-E", "sleep"),
    ucp("rc_x", "tag_lat", "-s", "2048", "-E", "sleep", label="tm_rc_x", **TAG_MATCHING),
    *(over_mlx5(cases.pyverbs(module)) for module in ("qp", "cq_events", "tag_matching")),
    rdma_cm(["rping", "-c", *RPING], ["rping", "-s", *RPING]),
)]

QUICK = """
mlx5_ibv_devinfo-v mlx5_ibv_rc_pingpong-e mlx5_ibv_ud_pingpong mlx5_ibv_srq_pingpong-e
mlx5_ib_send_lat mlx5_ib_write_bw mlx5_ib_read_lat-e mlx5_ib_atomic_lat mlx5_ib_send_lat-cDC
mlx5_uct_rc_mlx5_am_lat-Dshort mlx5_uct_dc_mlx5_put_bw-Dzcopy-s2048
mlx5_rc_x_ucp_tag_lat-Esleep mlx5_rping-c-C20-v-V-S1000 mlx5_pyverbs_qp mlx5_pyverbs_tag_matching
""".split()
