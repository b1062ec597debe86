# SPDX-License-Identifier: BSD-3-Clause
"""Rows of connections by rdma_cm that thirdparty_mlx5.py does not have: its own, on the face that
the launcher takes by default, and perftest's -R on both."""
from dataclasses import replace

import thirdparty_cases as cases
import thirdparty_mlx5 as mlx5
from thirdparty_run import DEVICE, DRIVER_MLX5, Case


def over_tagwire(case):
    options = tuple(option for option in case.options if option not in DRIVER_MLX5)
    return replace(case, name=case.row, options=options, tier="full")


def perftest(program, *words):
    return Case(f"{program}-R" + "".join(words),
                [program, "-d", DEVICE, "-F", "-n", "50", "-R", *words], kind="perftest")


def lossy(case):
    return replace(case, name=f"lossy_{case.name}", options=("--loss", "0.05", "--seed", "7"))


PERFTEST = [perftest("ib_send_lat"), perftest("ib_write_bw"), perftest("ib_read_lat"),
            perftest("ib_send_lat", "-c", "UD"), perftest("ib_send_bw", "-q", "4")]
LIBRDMACM = [over_tagwire(case) for case in mlx5.RDMA_CM if case.words[0] != "rdma_xclient"]
LIBFABRIC = [cases.libfabric("-I", "20", "-S", "1024", provider="verbs", endpoint="msg"),
             cases.libfabric("-I", "10", "-c", "-S", "all", provider="verbs", endpoint="msg")]
LOSSY = [lossy(case) for case in LIBRDMACM if case.words[0] in ("rping", "rdma_client")]

RDMA_CM = [*LIBRDMACM, *PERFTEST,
           *(replace(mlx5.over_mlx5(case), tier="nightly") for case in PERFTEST)]

QUICK = """
rping-c-C20-v-V-S1000 rdma_client ib_send_lat-R ib_send_lat-R-cUD mlx5_ib_send_lat-R
""".split()
