# SPDX-License-Identifier: BSD-3-Clause
"""Programs nobody here wrote, with their options: the rows of the face that the launcher takes by
default. thirdparty_mlx5.py has what the driver face makes of them."""
from dataclasses import replace

from thirdparty_run import DEVICE, Case

# ---- rdma-core's examples ------------------------------------------------------------------------


def pingpong(program, *arguments):
    label = "".join(a for a in arguments if a.startswith("-"))
    return Case(f"{program}{label}", [program, "-d", DEVICE, "-n", "200", *arguments])


RDMA_CORE = [
    Case("ibv_devices", ["ibv_devices"], pair=False, kind="list"),
    Case("ibv_devinfo-v", ["ibv_devinfo", "-v"], pair=False, kind="list"),
    *(pingpong("ibv_rc_pingpong", *option)
      for option in ([], ["-e"], ["-c"], ["-N"], ["-t"])),
    *(pingpong(f"ibv_{kind}_pingpong", *option)
      for kind in ("uc", "ud", "srq") for option in ([], ["-e"], ["-c"])),
]

# ---- perftest: every test, connection and option -------------------------------------------------

OPTIONS = ([], ["-e"], ["--use-srq"], ["-q", "4"], ["-a"], ["-b"])


def refusal(verb, shape, connection, option):
    """What the program says to this combination, in the order in which it looks; empty: it runs."""
    if connection == "UD" and verb != "send":
        return "UD connection only possible in SEND verb"
    if connection == "UC" and verb in ("read", "atomic"):
        return "UC connection not possible in READ/ATOMIC verbs"
    if option == ["-e"] and verb == "write":
        return "Events feature not available on WRITE verb"
    if option == ["--use-srq"] and verb != "send":
        return "Using SRQ only avavilible in SEND tests."
    if option == ["-q", "4"] and shape == "lat":
        return "Multiple QPs only available on bw tests"
    if option == ["-a"] and verb == "atomic":
        return "Message size cannot be changed for Atomic tests"
    if option == ["-b"] and shape == "lat":
        return "Bidirectional is only available in BW test"
    return ""


def perftest(verb, shape, connection, option):
    words = ([] if connection == "RC" else ["-c", connection]) + option
    refused = refusal(verb, shape, connection, option)
    # For a DC connection it makes a CQ that it does not destroy, so its event channel is in use.
    complains = "Failed to close event channel" if connection == "DC" and option == ["-e"] else ""
    program = f"ib_{verb}_{shape}"
    return Case(program + "".join(words),
                [program, "-d", DEVICE, "-F", "-n", "5" if option == ["-a"] else "200", *words],
                kind="perftest", pair=not refused, refused=refused,
                complains="" if refused else complains, takes_long=option == ["-a"],
                tier="nightly" if refused or option and connection != "RC"
                or option == ["-a"] and (verb, shape) != ("write", "lat") else "full")


def perftest_rows(connection, verbs=("send", "write", "read", "atomic"), options=OPTIONS):
    return [perftest(verb, shape, connection, option)
            for verb in verbs for shape in ("lat", "bw") for option in options]


PERFTEST = [
    *perftest_rows("RC"),
    *perftest_rows("UC", ("send", "write")),
    *perftest_rows("UC", ("read", "atomic"), [[]]),
    *perftest_rows("UD", ("send",)),
    *perftest_rows("UD", ("write", "read", "atomic"), [[]]),
    *perftest_rows("DC"),
]

# ---- UCX's transports ----------------------------------------------------------------------------


LAYOUTS = (["-D", "short"], ["-D", "bcopy", "-s", "2048"], ["-D", "zcopy", "-s", "2048"])
ATOMICS = {"add_lat": "add", "add_mr": "add", "fadd": "fetch-add", "swap": "swap",
           "cswap": "cswap"}


def uct(transport, test, *arguments, refused=""):
    return Case(f"uct_{transport}_{test}" + "".join(arguments),
                ["ucx_perftest", "-x", transport, "-d", f"{DEVICE}:1", "-t", test, "-n", "200",
                 "-w", "20", *arguments],
                kind="ucx", server_words=["ucx_perftest"], refused=refused)


def uct_atomic(transport, test, size):
    """UCX's verbs transports have what the public verbs have: no exchange, 64 bits only."""
    lacks = transport == "ud_verbs" or size == "4" or test == "swap"
    bits = int(size) * 8
    return uct(transport, test, "-s", size,
               refused=f"does not support required {bits}-bit atomic: {ATOMICS[test]}"
               if lacks else "")


def uct_datagram(test, layout):
    """One-sided operations over UD, which has none."""
    return uct("ud_verbs", test, *layout,
               refused=f"does not support operation {test[:3]} {layout[1]}")


UCT = [
    *(uct("rc_verbs", test, *layout)
      for test in ("am_lat", "am_bw", "put_lat", "put_bw") for layout in LAYOUTS),
    *(uct("rc_verbs", "get", *layout) for layout in LAYOUTS[1:]),
    *(uct_atomic("rc_verbs", test, size) for test in ATOMICS for size in ("4", "8")),
    *(uct("ud_verbs", test, *layout) for test in ("am_lat", "am_bw") for layout in LAYOUTS),
    *(uct_datagram(test, layout) for test in ("put_lat", "put_bw") for layout in LAYOUTS),
    *(uct_datagram("get", layout) for layout in LAYOUTS[1:]),
    *(uct_atomic("ud_verbs", test, "8") for test in ATOMICS),
]

# ---- UCX's protocols -----------------------------------------------------------------------------


def ucp(test, *arguments, iterations="100"):
    return Case(f"ucp_{test}".replace("ucp_ucp", "ucp") + "".join(arguments),
                ["ucx_perftest", "-t", test, "-n", iterations, "-w", "20", *arguments],
                kind="ucx", server_words=["ucx_perftest"],
                environment={"UCX_TLS": "rc_verbs,ud_verbs", "UCX_NET_DEVICES": f"{DEVICE}:1"})


UCP = [
    *(ucp(test) for test in (
        "tag_lat", "tag_bw", "tag_sync_lat", "ucp_put_lat", "ucp_put_bw", "ucp_get", "ucp_add",
        "ucp_fadd", "ucp_swap", "ucp_cswap", "stream_lat", "stream_bw", "ucp_am_lat",
        "ucp_am_bw")),
    *(ucp(test, "-E", "sleep") for test in (
        "tag_lat", "tag_bw", "stream_lat", "stream_bw", "ucp_am_lat", "ucp_fadd")),
    *(ucp(test, "-s", "4194304", iterations="10") for test in (
        "tag_lat", "tag_bw", "ucp_put_bw", "ucp_get", "stream_lat", "stream_bw")),
]

# ---- libfabric -----------------------------------------------------------------------------------


def libfabric(*arguments, provider="verbs;ofi_rxd", endpoint="rdm"):
    label = "" if endpoint == "rdm" else f"_{endpoint}"
    return Case(f"fi_pingpong{label}" + "".join(arguments),
                ["fi_pingpong", "-p", provider, "-e", endpoint, *arguments],
                kind="libfabric")


LIBFABRIC = [libfabric("-I", "20", "-S", "1024"), libfabric("-I", "20", "-m", "tagged"),
             libfabric("-I", "10", "-c", "-S", "all")]

# ---- What the device does not offer, and how programs say so -------------------------------------


def not_offered(words, *arguments):
    program = arguments[0]
    kind = "perftest" if program.startswith("ib_") else "pingpong"
    common = ["-d", DEVICE, *(["-F"] if kind == "perftest" else []), "-n", "200"]
    return Case("".join(arguments), [program, *common, *arguments[1:]], kind=kind,
                pair=kind == "perftest", refused=words)


NOT_OFFERED = [
    not_offered("Couldn't Open the XRC Domain", "ibv_xsrq_pingpong"),
    not_offered("Error opening XRC domain", "ib_send_bw", "-c", "XRC"),
    not_offered("Unable to create QP", "ib_send_bw", "-c", "SRD"),
    not_offered("failed to create mr", "ib_write_bw", "--odp"),
    not_offered("Unable to query port 2 attributes", "ib_write_bw", "-O"),
    not_offered("failed to open UMAD port", "ib_send_lat", "-c", "UD", "-g"),
    uct("rc_mlx5", "am_lat", refused=f"Cannot use rc_mlx5/{DEVICE}:1"),
]

# ---- The device as something else ----------------------------------------------------------------


def with_gid(case):
    """rdma-core's ping-pongs use none, unless they are told to; on Ethernet they have to."""
    return replace(case, words=[*case.words, "-g", "0"])


def as_soft_roce(case):
    return replace(case, name=f"soft-roce_{case.name}", options=("--profile", "soft-roce"))


PROFILES = [as_soft_roce(case) for case in (
    with_gid(pingpong("ibv_rc_pingpong", "-e")), perftest("send", "bw", "RC", ["--use-srq"]),
    ucp("tag_lat"))]

# ---- Over UDP ------------------------------------------------------------------------------------

LOSSY = ("--loss", "0.01")
PATIENT = ["-u", "16"]  # perftest asks again after 67 ms, which is short on a busy machine


def over_udp(case, *faults, more=(), **variables):
    return replace(case, name=f"udp_{case.name}", options=("--fabric", "udp", *faults),
                   words=[*case.words, *more], environment={**case.environment, **variables})


# What ends without waiting for its peer cannot stand loss: nobody is there to give a lost last
# acknowledgement again. `ib_send_lat -e` counts on the acknowledgement being there before the
# answer. UCX waits a second before it asks again, unless it is told otherwise.
UDP = [
    over_udp(with_gid(pingpong("ibv_rc_pingpong", "-c"))),
    over_udp(with_gid(pingpong("ibv_ud_pingpong"))),
    *(over_udp(perftest(verb, shape, "RC", []), *LOSSY, more=PATIENT)
      for verb, shape in (("send", "lat"), ("write", "bw"), ("read", "lat"), ("atomic", "lat"))),
    over_udp(perftest("send", "lat", "RC", ["-e"])),
    over_udp(perftest("send", "lat", "UD", [])),
    over_udp(uct("rc_verbs", "am_lat"), *LOSSY, UCX_RC_VERBS_TIMEOUT="100ms"),
    over_udp(ucp("tag_lat", "-s", "4194304", iterations="10"), *LOSSY,
             UCX_RC_VERBS_TIMEOUT="100ms"),
]

# ---- rdma-core's own tests -----------------------------------------------------------------------


def pyverbs(module, *tests):
    names = [f"tests.test_{module}{'.' + test if test else ''}" for test in tests or ("",)]
    # CQs of four million entries.
    takes_long = module in ("cq", "cqex", "device")
    return Case(f"pyverbs_{module}", ["run_tests.py", "--dev", DEVICE, *names], pair=False,
                kind="pyverbs", takes_long=takes_long)


PYVERBS = [pyverbs(module) for module in (
    "addr", "atomic", "cq", "cq_events", "cqex", "device", "fork", "mr", "pd", "qp", "qpex",
    "relaxed_ordering", "tag_matching", "mlx5_dc")]

# ---- Open MPI over UCX ---------------------------------------------------------------------------


def netpipe(name, transports, **variables):
    """Checks every byte that arrives."""
    return Case(f"mpi_{name}",
                ["mpirun.openmpi", "--oversubscribe", "-np", "2", "--mca", "pml", "ucx", "--mca",
                 "osc", "^ucx", "NPopenmpi", "-i", "-u", "4096", "-n", "5", "-o", "/dev/null"],
                pair=False, kind="mpi",
                environment={"UCX_TLS": transports, "UCX_NET_DEVICES": f"{DEVICE}:1", **variables})


MPI = [netpipe("netpipe", "self,rc_verbs,ud_verbs")]
