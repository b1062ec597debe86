#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""`tagwire-vhca run --driver mlx5`: the system's own libraries, over files that do not exist."""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import unittest

LAUNCHER = os.environ["TAGWIRE_TEST_COMMAND"]
COMPILER = os.environ.get("TAGWIRE_TEST_CC", "cc")

HAS_DEVINFO = shutil.which("ibv_devinfo") is not None


class Driver(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="vhca-driver-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.runtime = os.path.join(folder.name, "run")
        os.mkdir(self.runtime, 0o700)

    def words(self, *words):
        return [LAUNCHER, "run", "--driver", "mlx5", *words]

    def environment(self, **more):
        return {**os.environ, "XDG_RUNTIME_DIR": self.runtime, **more}

    def launch(self, *words, **more):
        return subprocess.run(self.words(*words), capture_output=True, text=True, check=False,
                              stdin=subprocess.DEVNULL, timeout=60, env=self.environment(**more))

    def python(self, text, *options):
        return self.launch(*options, "--", sys.executable, "-c", textwrap.dedent(text))

    def trees(self):
        return sorted(os.listdir(self.runtime))

    def compiled(self, name, text, *flags):
        source, program = os.path.join(self.folder, name + ".c"), os.path.join(self.folder, name)
        with open(source, "w", encoding="ascii") as out:
            out.write(text)
        done = subprocess.run([COMPILER, "-o", program, source, *flags], capture_output=True,
                              text=True, check=False, timeout=60)
        if done.returncode != 0:
            self.skipTest("the compiler cannot make this: " + done.stderr)
        return program

    @unittest.skipUnless(HAS_DEVINFO, "no ibv_devinfo")
    def test_the_genuine_libraries_find_the_device(self):
        done = self.launch("--", "ibv_devinfo", "-v")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"hca_id:\s+vhca0\n")
        self.assertRegex(done.stdout, r"vendor_part_id:\s+4123\n")
        self.assertRegex(done.stdout, r"GID\[\s*0\]:\s+fe80:")
        self.assertEqual(self.trees(), [])

    @unittest.skipUnless(HAS_DEVINFO, "no ibv_devinfo")
    def test_there_are_as_many_devices_as_asked_for(self):
        done = self.launch("--devices", "3", "--", "ibv_devices")
        self.assertEqual([line.split()[0] for line in done.stdout.splitlines()[2:]],
                         ["vhca0", "vhca1", "vhca2"])

    @unittest.skipUnless(os.geteuid() == 0, "only root can remove folders of others")
    def test_folders_of_other_users_are_left_alone(self):
        space = os.stat("/proc/self/ns/pid").st_ino
        mine, others = (os.path.join(self.runtime, f"driver-face-{space}-4194304-{n}-x")
                        for n in (1, 2))
        for path in mine, others:  # of a process that there is not
            os.makedirs(os.path.join(path, "class"))
        os.chown(others, 65534, 65534)
        done = self.python("open('/sys/class/infiniband/vhca0/node_type').read()")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.trees(), [os.path.basename(others)])

    def test_libraries_are_the_systems(self):
        done = self.launch("--", "sh", "-c", "echo $LD_LIBRARY_PATH:$LD_PRELOAD",
                           LD_LIBRARY_PATH="/opt/elsewhere")
        path, preloaded = done.stdout.strip().split(":", 1)
        self.assertEqual(path, "/opt/elsewhere")
        self.assertTrue(preloaded.startswith("/"), preloaded)
        self.assertIn("libtagwire-vhca-kernel.so", preloaded)

    def test_exit_status_and_signals_are_passed_on(self):
        self.assertEqual(self.launch("--", "sh", "-c", "exit 7").returncode, 7)
        self.assertEqual(self.launch("--", "sh", "-c", "kill -9 $$").returncode, -signal.SIGKILL)
        done = self.launch("--", "no-such-program-here")
        self.assertEqual(done.returncode, 127)
        self.assertIn("no-such-program-here", done.stderr)

    def test_unknown_driver_is_wrong_usage(self):
        done = subprocess.run([LAUNCHER, "run", "--driver", "efa", "--", "true"],
                              capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual(done.returncode, 2)

    def test_profile_without_mlx5_is_refused(self):
        by_environment = {"TAGWIRE_VHCA_PROFILE": "soft-roce"}
        for words, more in [(["--profile", "soft-roce"], {}), ([], by_environment)]:
            done = self.launch(*words, "--", "true", **more)
            self.assertEqual(done.returncode, 1)
            self.assertIn("soft-roce", done.stderr)

    def test_static_program_is_named(self):
        program = self.compiled("alone", "int main(void) { return 0; }", "-static")
        done = self.launch("--", program)
        self.assertEqual(done.returncode, 1)
        self.assertIn(program + " is a static program", done.stderr)

    def test_sysfs_and_nodes_are_as_the_kernels(self):
        done = self.python("""
            import os, stat
            sys = os.path.realpath("/sys/class/infiniband/vhca0")
            assert sys.endswith("/infiniband/vhca0"), sys
            pci = os.path.dirname(os.path.dirname(sys))
            for name in ["vendor", "device", "modalias", "current_link_width"]:
                assert open(os.path.join(pci, name)).read().endswith("\\n"), name
            assert os.listdir("/sys/class/infiniband_verbs") != []
            assert open("/sys/class/infiniband/vhca0/ports/1/gids/7").read().count(":") == 7
            number = open("/sys/class/infiniband_verbs/uverbs0/dev").read().strip()
            for node in ["/dev/infiniband/uverbs0", "/dev//infiniband/./uverbs0",
                         "/dev/char/" + number]:
                shown = os.stat(node)
                assert stat.S_ISCHR(shown.st_mode), node
                got = "%d:%d" % (os.major(shown.st_rdev), os.minor(shown.st_rdev))
                assert got == number, got
                assert os.access(node, os.R_OK | os.W_OK)
                fd = os.open(node, os.O_RDWR | os.O_CLOEXEC)
                assert os.fstat(fd).st_rdev == shown.st_rdev
                os.close(fd)
            os.chdir("/dev/infiniband")
            assert stat.S_ISCHR(os.stat("uverbs0").st_mode)
            for missing in ["/dev/infiniband/uverbs1", "/dev/infiniband/uverbs00",
                            "/sys/class/infiniband/vhca1"]:
                assert not os.path.exists(missing), missing
            """)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.trees(), [])

    def test_descriptors_are_the_devices_as_long_as_they_are_open(self):
        done = self.python("""
            import fcntl, os, stat
            def is_device(fd):
                return stat.S_ISCHR(os.fstat(fd).st_mode)
            fd = os.open("/dev/infiniband/uverbs0", os.O_RDWR)
            others = [os.dup(fd), fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 100), os.dup2(fd, 200)]
            os.close(fd)
            assert all(is_device(one) for one in others)
            null = os.open("/dev/zero", os.O_RDWR)
            os.dup2(null, 200)
            assert os.fstat(200).st_rdev == os.stat("/dev/zero").st_rdev
            assert os.write(200, b"nothing") == 7
            try:
                os.write(others[0], b"nothing")
                raise SystemExit("a command of 7 bytes")
            except OSError:
                pass
            os.closerange(3, 300)
            assert os.open("/dev/zero", os.O_RDWR) == 3
            assert os.write(3, b"nothing") == 7
            """)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_child_of_fork_has_a_tree_of_its_own(self):
        done = self.python("""
            import os
            path = "/sys/class/infiniband/vhca0/ports/1/lid"
            fd = os.open("/dev/infiniband/uverbs0", os.O_RDWR)
            mine = open(path).read()
            child = os.fork()
            if child == 0:
                try:
                    os.write(fd, b"12345678")
                    os._exit(3)
                except OSError:
                    pass
                os.close(fd)
                os._exit(0 if open(path).read() != mine else 4)
            status = os.waitpid(child, 0)[1]
            assert status == 0, status
            assert open(path).read() == mine
            """)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_trees_of_killed_children_are_removed_by_the_parent(self):
        done = self.python("""
            import os, signal
            for number in (0, signal.SIGKILL):
                child = os.fork()
                if child == 0:
                    open("/sys/class/infiniband/vhca0/node_guid").read()
                    os.kill(os.getpid(), number)
                    os._exit(0)
                assert os.waitpid(child, 0)[1] == number
            print(len(os.listdir(os.environ["XDG_RUNTIME_DIR"])))
            """)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotEqual(done.stdout, "0\n")
        self.assertEqual(self.trees(), [])

    @unittest.skipUnless(HAS_DEVINFO, "no ibv_devinfo")
    def test_programs_of_the_program_have_the_device(self):
        done = self.python("""
            import os, subprocess
            fd = os.open("/dev/infiniband/uverbs0", os.O_RDWR)
            for _ in range(2):
                shown = subprocess.run(["ibv_devinfo"], capture_output=True, text=True).stdout
                assert "vhca0" in shown, shown
            import stat
            assert stat.S_ISCHR(os.fstat(fd).st_mode)
            os.execvp("ibv_devinfo", ["ibv_devinfo"])
            """)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("vhca0", done.stdout)
        self.assertEqual(self.trees(), [])

    def test_tree_of_a_killed_program_is_removed_by_the_next(self):
        text = """
            import os, sys
            print(open("/sys/class/infiniband/vhca0/node_guid").read(), flush=True)
            sys.stdin.read()
            """
        words = self.words("--", sys.executable, "-c", textwrap.dedent(text))
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                              env=self.environment()) as first:
            self.assertIn(":", first.stdout.readline())
            alive = self.trees()
            self.assertEqual(len(alive), 1)
            self.assertEqual(os.stat(os.path.join(self.runtime, alive[0])).st_mode & 0o777, 0o700)
            self.launch("--", "cat", "/sys/class/infiniband/vhca0/node_type")
            self.assertEqual(self.trees(), alive, "that of a living program stays")
            first.kill()
        self.assertEqual(self.trees(), alive)
        done = self.launch("--", "cat", "/sys/class/infiniband/vhca0/node_type")
        self.assertEqual(done.stdout, "1: CA\n")
        self.assertEqual(self.trees(), [])


if __name__ == "__main__":
    sys.exit(unittest.main())
