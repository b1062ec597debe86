#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What `tagwire vhca` and `tagwire-vhca` promise to scripts: exit statuses, the environment, and
their own errors."""
import ipaddress
import json
import os
import shutil
import socket
import subprocess
import sys
import unittest

LAUNCHER = [os.environ["TAGWIRE_TEST_COMMAND"],
            *os.environ.get("TAGWIRE_TEST_SUBCOMMAND", "").split()]


def launch(*words, environment=None):
    return subprocess.run([*LAUNCHER, *words], capture_output=True, text=True, check=False,
                          stdin=subprocess.DEVNULL, timeout=60,
                          env={**os.environ, **(environment or {})})


class Launcher(unittest.TestCase):
    def test_passes_the_exit_status_on(self):
        self.assertEqual(launch("run", "--", "sh", "-c", "exit 7").returncode, 7)

    def test_missing_program_is_127_and_is_named(self):
        done = launch("run", "--", "no-such-program-here")
        self.assertEqual(done.returncode, 127)
        self.assertIn("no-such-program-here", done.stderr)

    def test_options_become_variables(self):
        done = launch("run", "--loss", "0.25", "--seed", "9", "--", "sh", "-c",
                      "echo $TAGWIRE_VHCA_LOSS $TAGWIRE_VHCA_SEED")
        self.assertEqual(done.stdout.split(), ["0.25", "9"])

    def test_errors_begin_with_its_own_name_and_name_the_help(self):
        name = os.path.basename(LAUNCHER[0])
        done = launch("run", "--", "no-such-program-here")
        self.assertTrue(done.stderr.startswith(f"{name}: "), done.stderr)
        done = launch("run", "--no-such-option", "--", "true")
        self.assertEqual(done.returncode, 2)
        self.assertIn(f"Try '{' '.join([name, *LAUNCHER[1:]])} run --help'.", done.stderr)

    def test_version_and_help_are_no_errors(self):
        for words in [["--help"], ["run", "--help"], ["info", "--help"]]:
            done = launch(*words)
            self.assertEqual((done.returncode, done.stderr), (0, ""), words)
        version = subprocess.run([LAUNCHER[0], "--version"], capture_output=True, text=True,
                                 check=True, timeout=60).stdout
        self.assertRegex(version, rf"^{os.path.basename(LAUNCHER[0])} \d+\.\d+\.\d+\n$")

    def test_library_path_keeps_what_was_there(self):
        done = launch("run", "--", "sh", "-c", "echo $LD_LIBRARY_PATH",
                      environment={"LD_LIBRARY_PATH": "/opt/elsewhere"})
        self.assertTrue(done.stdout.strip().endswith(":/opt/elsewhere"), done.stdout)

    def test_nothing_to_run_is_wrong_usage(self):
        self.assertEqual(launch("run").returncode, 2)

    def test_program_is_not_started_with_a_bad_value(self):
        for words, named in [(("--loss", "2"), "TAGWIRE_VHCA_LOSS"),
                             (("--mtu", "4096,77"), "TAGWIRE_VHCA_MTU"),
                             (("--devices", "9"), "TAGWIRE_VHCA_DEVICES"),
                             (("--memlock", "some"), "TAGWIRE_VHCA_MEMLOCK")]:
            for driver in "tagwire", "mlx5":
                done = launch("run", "--driver", driver, *words, "--devices", "2", "--", "echo",
                              "started") if words[0] != "--devices" else launch(
                                  "run", *words, "--", "echo", "started")
                self.assertEqual((done.returncode, done.stdout), (2, ""), words)
                self.assertIn(named, done.stderr)

    def test_bad_network_class_is_told_with_a_good_one(self):
        for value in ["3", "3:", ":96", "16:0", "0:256", "3:96 ", "-1:0"]:
            done = launch("run", "--network-class", value, "--", "echo", "started")
            self.assertEqual((done.returncode, done.stdout), (2, ""), value)
            self.assertIn("3:96", done.stderr)

    def test_word_that_is_unknown_is_named_with_the_nearest(self):
        for words, told in [
                (("run", "--los", "0.1", "--", "true"), "'--los' is not an option of"),
                (("run", "--los", "0.1", "--", "true"), "did you mean '--loss'?"),
                (("run", "--los=0.1", "true"), "did you mean '--loss'?"),
                (("run", "--loss", "0.1", "--sed", "7", "true"), "did you mean '--seed'?"),
                (("inf",), "'inf' is not a command of"), (("inf",), "did you mean 'info'?"),
                (("run", "--wholly-strange", "--", "true"), "'--wholly-strange' is not an option"),
                (("run", "--loss", "0.1"), "program is required")]:
            done = launch(*words)
            self.assertEqual(done.returncode, 2, words)
            self.assertIn(told, done.stderr)
            self.assertEqual("did you mean" in done.stderr, "wholly" not in str(words) and
                             "required" not in told, done.stderr)

    def test_incidents_reach_a_program_that_runs(self):
        program = [*LAUNCHER, "run", "--", "ibv_asyncwatch", "-d", "vhca0"]
        if shutil.which("ibv_asyncwatch") is None:
            self.skipTest("no ibv_asyncwatch")
        with subprocess.Popen(program, stdout=subprocess.PIPE, text=True, bufsize=1,
                              stdin=subprocess.DEVNULL) as running:
            try:
                self.assertIn("async event FD", running.stdout.readline())
                pid = str(running.pid)
                for incident, told in [("port-down", "PORT_ERR"), ("port-up", "PORT_ACTIVE"),
                                       ("gid-change", "GID_CHANGE"),
                                       ("device-fatal", "DEVICE_FATAL")]:
                    done = launch("inject", pid, incident)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertIn(told, running.stdout.readline())
                done = launch("inject", pid, "port-up")
                self.assertEqual(done.returncode, 1)
                self.assertIn("is dead", done.stderr)
                self.assertIn("no process", launch("inject", pid, "port-up", "--device",
                                                   "3").stderr)
            finally:
                running.kill()

    def test_incident_that_is_none_is_told_with_those_that_are(self):
        done = launch("inject", str(os.getpid()), "port-up")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no process of that number has the device open", done.stderr)
        with subprocess.Popen([*LAUNCHER, "run", "--", "ibv_asyncwatch", "-d", "vhca0"],
                              stdout=subprocess.PIPE, text=True) if shutil.which(
                                  "ibv_asyncwatch") else self.skipTest("no program") as running:
            try:
                running.stdout.readline()
                done = launch("inject", str(running.pid), "port-sideways")
            finally:
                running.kill()
        self.assertEqual(done.returncode, 2)
        self.assertIn("there are device-fatal, port-down, port-up", done.stderr)

    def info(self, **settings):
        variables = {f"TAGWIRE_VHCA_{name}": str(value) for name, value in settings.items()}
        done = launch("info", "--json", "-", environment=variables)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["vhca"]

    def test_flags_become_variables(self):
        done = launch("run", "--no-atomics", "--profile", "soft-roce", "--", "sh", "-c",
                      "echo $TAGWIRE_VHCA_ATOMICS $TAGWIRE_VHCA_PROFILE")
        self.assertEqual(done.stdout.split(), ["n", "soft-roce"])

    def test_info_shows_what_holds(self):
        shown = self.info(QPS=77, QP_DEPTH=128, CQ_DEPTH=256, SRQ_DEPTH=64, SGES=5, INLINE=100,
                          READS=3, MTU=1024, ATOMICS="n", TM=50, TM_UNTAGGED_MIN=33,
                          SEND_PLACES="completed", LATE_EVENTS="20us", QPN_REUSE="y",
                          TIMER_STRETCH=4, SHUFFLE_READS="y")
        limits = {name: int(value) for name, value in shown["limits"].items()}
        self.assertEqual(limits, {
            "queue pairs": 77, "requests of a queue": 128, "sges": 5, "inline bytes": 100,
            "cqes": 256, "SRQ requests": 64, "SRQ sges": 5, "reads and atomics": 3,
            "message bytes": 1 << 30, "initiators of a DCT": 4096, "streams of a DCI": 64})
        self.assertEqual(shown["device"]["atomics"], "none")
        self.assertIn("50 receives", shown["device"]["tag matching"])
        self.assertEqual(int(shown["port 1"]["mtu"]), 1024)
        self.assertEqual(shown["strictness"]["send places"], "free when completed")
        self.assertEqual(int(shown["strictness"]["untagged minimum"]), 33)
        self.assertEqual(shown["strictness"]["late events"], "20000 ns")
        self.assertEqual(shown["strictness"]["QPN reuse"], "at once")
        self.assertEqual(int(shown["strictness"]["timer stretch"]), 4)
        self.assertEqual(shown["strictness"]["read data"], "in any order")

    def test_soft_roce_has_neither_tags_nor_a_vendor(self):
        shown = self.info(PROFILE="soft-roce", INLINE=64)
        self.assertEqual(shown["device"]["vendor"], "0xffffff")
        self.assertEqual(shown["device"]["tag matching"], "no")
        self.assertEqual(shown["device"]["transports"], "RC UC UD")
        self.assertEqual(shown["device"]["DC rendezvous"], "no")
        self.assertEqual(shown["port 1"]["link layer"], "Ethernet")
        self.assertEqual(int(shown["limits"]["cqes"]), 32767)
        self.assertEqual(int(shown["limits"]["inline bytes"]), 64)

    def test_infiniband_over_udp_is_refused(self):
        done = launch("run", "--fabric", "udp", "--link-layer", "infiniband", "--", "ibv_devinfo")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("link layer 'infiniband'", done.stderr)

    def test_limits_hold_for_programs(self):
        done = launch("run", "--cq-depth", "100", "--no-atomics", "--", "ibv_devinfo", "-v")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"max_cqe:\s+100\n")
        self.assertRegex(done.stdout, r"atomic_cap:\s+ATOMIC_NONE")

    def test_taken_address_is_named_with_the_option_that_helps(self):
        address = str(ipaddress.IPv4Address((127 << 24) | (os.getpid() << 2) | 1))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.bind((address, 4791))
            done = launch("run", "--fabric", "udp", "--address", address, "--", "ibv_devinfo")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(address, done.stderr)
        self.assertIn("--address", done.stderr)

    def test_udp_makes_a_roce_port(self):
        address = str(ipaddress.IPv4Address((127 << 24) | (os.getpid() << 2) | 2))
        done = launch("run", "--fabric", "udp", "--address", address, "--", "ibv_devinfo", "-v")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("Ethernet", done.stdout)
        self.assertIn(f"::ffff:{address}, RoCE v2", done.stdout)

    def test_info_shows_the_device_as_json(self):
        done = launch("info", "--json", "-")
        self.assertEqual(done.returncode, 0, done.stderr)
        shown = json.loads(done.stdout)["vhca"]
        self.assertEqual(shown["device"]["name"], "vhca0")
        self.assertTrue(os.path.exists(shown["libraries"]["device"]))


if __name__ == "__main__":
    sys.exit(unittest.main())
