#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""/dev/infiniband/rdma_cm between processes: how they end, fork, wait and lose messages. The
programs are Python's, with the commands of rdma_cm.py; TAGWIRE_TEST_DRIVER names the face."""
import errno
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import unittest

LAUNCHER = os.environ["TAGWIRE_TEST_COMMAND"]
OPTIONS = ["--driver", os.environ.get("TAGWIRE_TEST_DRIVER", "tagwire")]
FOLDER = pathlib.Path(__file__).resolve().parent
UDP = ["--fabric", "udp", "--address"]
LOSS = ["--loss", "0.2", "--seed"]


def own_address(number):
    low = (os.getpid() << 2) | number
    return f"127.{low >> 16 & 255}.{low >> 8 & 255}.{low & 255}"


class Processes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="vhca-cm-")
        self.addCleanup(folder.cleanup)
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": folder.name,
                            "PYTHONPATH": str(FOLDER), "PYTHONDONTWRITEBYTECODE": "1"}
        self.port = 10000 + os.getpid() % 20000

    def start(self, text, *options):
        """Runs as far as it prints a line, which is asked for with line()."""
        words = [LAUNCHER, "run", *OPTIONS, *options, "--", sys.executable, "-c",
                 "import os, signal, sys, time\nimport rdma_cm\nfrom rdma_cm import *\n"
                 f"port = {self.port}\n" + textwrap.dedent(text)]
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                   env=self.environment, start_new_session=True)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        """With its children: one of them would keep its standard output open."""
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.communicate()

    def line(self, process):
        return process.stdout.readline().strip()

    def finish(self, process, status=0):
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, status)

    SERVER = """
        channel = Channel()
        listener = channel.listening(port)
        print("listens", flush=True)
        number = channel.accepted()
        print("connected", flush=True)
        channel.expect(DISCONNECTED)
        channel.disconnect(number)
        print("disconnected", flush=True)
        """

    def client_ends(self, ending, status, server_options=(), client_options=(), host="127.0.0.1"):
        """However a client ends, its server hears of it."""
        server = self.start(self.SERVER, *server_options)
        self.assertEqual(self.line(server), "listens")
        client = self.start(f"""
            channel = Channel()
            number = channel.connected(port, "{host}")
            print("connected", flush=True)
            sys.stdin.readline()
            {ending}
            """, *client_options)
        self.assertEqual(self.line(client), "connected")
        self.assertEqual(self.line(server), "connected")
        self.finish(client, status)
        self.assertEqual(self.line(server), "disconnected")
        self.finish(server)

    def test_a_process_that_returns_disconnects(self):
        self.client_ends("pass", 0)

    def test_a_process_that_closes_the_channel_disconnects(self):
        self.client_ends("os.close(channel.fd)", 0)

    def test_a_process_that_ends_at_once_disconnects(self):
        self.client_ends("os._exit(3)", 3)

    def test_a_process_that_is_killed_disconnects(self):
        self.client_ends("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL)

    def test_a_process_that_becomes_another_program_disconnects(self):
        self.client_ends("os.execv('/bin/true', ['true'])", 0)

    def test_a_lost_good_bye_is_repeated(self):
        for seed in (1, 2):
            with self.subTest(seed=seed):
                self.client_ends("pass", 0, [*LOSS, str(seed)], [*LOSS, str(seed + 100)])

    def test_over_udp_a_process_that_returns_disconnects(self):
        server, client = own_address(0), own_address(1)
        self.client_ends("pass", 0, [*UDP, server, *LOSS, "7"], [*UDP, client, *LOSS, "8"], server)

    def test_a_request_that_waits_is_rejected_when_its_listener_is_killed(self):
        server = self.start("""
            channel = Channel()
            listener = channel.listening(port)
            print("listens", flush=True)
            channel.expect(CONNECT_REQUEST)
            print("asked", flush=True)
            time.sleep(100)
            """)
        self.assertEqual(self.line(server), "listens")
        client = self.start("""
            channel = Channel()
            number = channel.connecting(port)
            channel.expect(REJECTED, 8)
            """)
        self.assertEqual(self.line(server), "asked")
        server.kill()
        self.finish(client)

    def test_a_descriptor_that_does_not_wait_says_so(self):
        self.finish(self.start("""
            for channel in (Channel(os.O_NONBLOCK), Channel()):
                os.set_blocking(channel.fd, False)
                try:
                    channel.event()
                    raise SystemExit("an event out of nothing")
                except BlockingIOError:
                    pass
            channel = Channel(os.O_NONBLOCK)
            assert not os.get_blocking(channel.fd)
            assert os.get_blocking(Channel().fd)
            """))

    def test_a_child_of_fork_holds_no_port_and_no_connection(self):
        self.finish(self.start(f"""
            channel = Channel()
            listener = channel.listening(port)
            read_end, write_end = os.pipe()
            told, tells = os.pipe()
            child = os.fork()
            if child == 0:
                os.write(tells, b"x")  # fork() has returned: what was inherited is closed
                os.close(write_end)
                try:
                    channel.create()
                    os._exit(3)
                except OSError as error:
                    os._exit(0 if error.errno == {errno.EIO} and os.read(read_end, 1) else 4)
            os.read(told, 1)
            channel.destroy(listener)
            os.close(channel.fd)
            with open("/proc/net/unix") as sockets:
                assert f".{{(PS_TCP << 16) + port}}" not in sockets.read()
            Channel().listening(port)
            os.write(write_end, b"x")
            assert os.waitpid(child, 0)[1] == 0
            """))

    def test_a_child_of_fork_has_channels_of_its_own(self):
        self.finish(self.start("""
            channel = Channel()
            listener = channel.listening(port)
            child = os.fork()
            if child == 0:
                Channel().connected(port)
                os._exit(0)
            number = channel.accepted()
            channel.expect(DISCONNECTED)
            assert os.waitpid(child, 0)[1] == 0
            """))

    def test_a_port_belongs_to_one_process_as_long_as_that_lives(self):
        first = self.start("""
            channel = Channel()
            channel.listening(port)
            print("listens", flush=True)
            sys.stdin.readline()
            """)
        self.assertEqual(self.line(first), "listens")
        taken = f"""
            try:
                Channel().listening(port)
            except OSError as error:
                sys.exit(0 if error.errno == {errno.EADDRINUSE} else 4)
            sys.exit(3)
            """
        self.finish(self.start(taken))
        first.kill()
        first.wait()
        self.finish(self.start(taken), 3)

    def test_a_listener_that_comes_a_little_late_is_found(self):
        client = self.start("""
            channel = Channel()
            number = channel.connecting(port)
            print("asks", flush=True)
            server = Channel()
            server.listening(port)
            server.accepted_later = server.expect(CONNECT_REQUEST)
            """)
        self.assertEqual(self.line(client), "asks")
        self.finish(client)


if __name__ == "__main__":
    sys.exit(unittest.main())
