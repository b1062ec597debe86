#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests of affected.py, on a tree made up for them and on this one."""
import contextlib
import io
import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import affected
import affected_tables

ROOT = Path(__file__).resolve().parents[2]
CODE = {
    "src/CMakeLists.txt": "",
    "src/components.cc": '#include "uct/tcp/tcp.hpp"\n#include "uct/sm/sm.hpp"\n',
    "src/tagwire.h": "",
    "src/ucs/clock.cc": '#include "ucs/clock.hpp"\n',
    "src/ucs/clock.hpp": "",
    "src/uct/base.hpp": "",
    "src/uct/tcp/tcp.cc": '#include "uct/tcp/tcp.hpp"\n',
    "src/uct/tcp/tcp.hpp": '#include "uct/base.hpp"\n',
    "src/uct/sm/sm.cc": '#include "uct/sm/sm.hpp"\n',
    "src/uct/sm/sm.hpp": '#include "uct/base.hpp"\n',
    "src/uct/ib/verbs.hpp": "",
    "src/uct/ib/rc/rc.cc": '#include "uct/ib/verbs.hpp"\n',
    "vhca/CMakeLists.txt": "set(services clock.cc\n  log.cc)\n"
        "list(TRANSFORM services PREPEND ${tw_tree}/src/ucs/)\n",
    "vhca/device.cc": "",
    "tools/main.cc": "#include <tagwire.h>\n",
    "contrib/libfabric/cq.cc": "#include <tagwire.h>\n",
    "README.md": "",
    "test/fuzz/README.md": "",
    "test/gtest/tcp/CMakeLists.txt": "tw_add_test(tcp SOURCES tcp_test.cc LABELS unit quick)\n",
    "test/gtest/tcp/tcp_test.cc": '#include "peer.hpp"\n#include "uct/tcp/tcp.hpp"\n',
    "test/gtest/tcp/peer.hpp": "",
    "test/gtest/sm/CMakeLists.txt": "tw_add_test(sm SOURCES sm_test.cc LABELS model tsan)\n",
    "test/gtest/sm/sm_test.cc": '#include "../tcp/peer.hpp"\n',
    "test/gtest/process/harness.cc": "",
}


def run_git(root, *words):
    settings = ("user.name=a", "user.email=a@b", "core.fsync=none", "gc.auto=0")
    options = [word for setting in settings for word in ("-c", setting)]
    subprocess.run(["git", "-C", str(root), *options, *words], check=True,
                   stdout=subprocess.DEVNULL)


class MadeUp(unittest.TestCase):
    def setUp(self):
        # A hook has names of another repository in its environment.
        clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        patch = mock.patch.dict(os.environ, clean, clear=True)
        patch.start()
        self.addCleanup(patch.stop)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        for path, text in CODE.items():
            self.write(path, text)
        run_git(self.root, "init", "-q")
        self.commit()

    def commit(self):
        run_git(self.root, "add", "-A")
        run_git(self.root, "commit", "-q", "-m", "one")

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def touch(self, *paths):
        for path in paths:
            self.write(path, CODE[path] + "// more\n")
        return affected.judge(self.root, "HEAD")

    def assert_everything(self, verdict, reason):
        self.assertIn(reason, verdict.everything)
        self.assertEqual(list(verdict.stages), list(affected_tables.STAGES))
        self.assertEqual(verdict.expression, "")

    def test_a_body_of_a_transport_touches_that_alone(self):
        verdict = self.touch("src/uct/tcp/tcp.cc")
        self.assertEqual((verdict.parts, verdict.folders), (["tcp"], []))
        self.assertEqual(verdict.expression, "^(check|uses-tcp)$")
        self.assertTrue({"kernel", "libfabric"}.isdisjoint(verdict.stages))
        self.assertTrue({"build", "test", "lint", "asan", "fuzz"} <= set(verdict.stages))

    def test_a_header_of_a_transport_touches_its_tests_and_not_who_names_it(self):
        verdict = self.touch("src/uct/tcp/tcp.hpp")
        self.assertEqual((verdict.parts, verdict.folders), (["tcp"], ["tcp"]))

    def test_a_base_header_touches_all_transports_that_include_it(self):
        verdict = self.touch("src/uct/base.hpp")
        self.assertEqual(verdict.parts, ["library", "sm", "tcp"])
        self.assertEqual(verdict.labels["uses-sm"], "src/uct/base.hpp <- src/uct/sm/sm.hpp")

    def test_shared_verbs_code_touches_all_transports_over_verbs(self):
        self.assertEqual(self.touch("src/uct/ib/verbs.hpp").parts, ["dc", "rc", "ud"])

    def test_a_header_that_another_part_includes_touches_both(self):
        self.write("src/uct/sm/sm.cc", '#include "uct/tcp/tcp.hpp"\n')
        self.commit()
        self.assertEqual(self.touch("src/uct/tcp/tcp.hpp").parts, ["sm", "tcp"])

    def test_a_part_stands_on_one_whose_headers_it_includes(self):
        self.write("src/uct/sm/sm.cc", '#include "uct/tcp/tcp.hpp"\n')
        self.commit()
        verdict = self.touch("src/uct/tcp/tcp.cc")
        self.assertEqual(verdict.parts, ["sm", "tcp"])
        self.assertIn("tsan", verdict.stages)

    def test_a_public_header_touches_the_provider_and_the_command(self):
        verdict = self.touch("src/tagwire.h")
        self.assertEqual(verdict.parts, ["command", "library", "provider"])
        self.assertIn("libfabric", verdict.stages)

    def test_a_page_touches_checks_of_pages(self):
        verdict = self.touch("README.md", "test/fuzz/README.md")
        self.assertEqual(verdict.expression, "^(uses-documents)$")
        self.assertEqual(list(verdict.stages), ["build", "test", "lint"])

    def test_the_provider_touches_its_tests_alone(self):
        verdict = self.touch("contrib/libfabric/cq.cc")
        self.assertEqual((verdict.parts, verdict.folders), (["provider"], []))
        self.assertIn("libfabric", verdict.stages)
        self.assertNotIn("aarch64", verdict.stages)

    def test_what_the_virtual_hca_compiles_of_the_library_touches_both(self):
        self.assertEqual(self.touch("src/ucs/clock.cc").parts, ["library", "vhca"])

    def test_a_header_of_tests_touches_the_folders_that_include_it(self):
        verdict = self.touch("test/gtest/tcp/peer.hpp")
        self.assertEqual((verdict.parts, verdict.folders), ([], ["sm", "tcp"]))

    def test_a_folder_without_raced_tests_needs_no_thread_sanitizer(self):
        self.assertNotIn("tsan", self.touch("test/gtest/tcp/tcp_test.cc").stages)
        self.assertIn("tsan", self.touch("test/gtest/sm/sm_test.cc").stages)

    def test_a_source_that_two_folders_compile_touches_both(self):
        entries = [{"directory": str(self.root / "build"), "output": f"{folder}/CMakeFiles/a.o",
                    "file": str(self.root / "test/gtest/process/harness.cc")}
                   for folder in ("test/gtest/process", "test/gtest/protocols", "test/gtest")]
        with tempfile.TemporaryDirectory() as build:
            Path(build, "compile_commands.json").write_text(json.dumps(entries))
            verdict = affected.judge(self.root, "HEAD", Path(build),
                                     ["test/gtest/process/harness.cc"])
        self.assertEqual(verdict.folders, ["process", "protocols"])

    def test_a_deleted_header_touches_those_that_include_it(self):
        (self.root / "test/gtest/tcp/peer.hpp").unlink()
        verdict = affected.judge(self.root, "HEAD")
        self.assertEqual(verdict.folders, ["sm", "tcp"])

    def test_a_renamed_file_counts_under_both_names(self):
        run_git(self.root, "mv", "src/uct/tcp/tcp.cc", "src/uct/sm/tcp.cc")
        self.assertEqual(affected.judge(self.root, "HEAD").parts, ["sm", "tcp"])

    def test_changes_of_commits_count(self):
        self.touch("vhca/device.cc")
        self.commit()
        self.assertEqual(affected.judge(self.root, "HEAD~1").parts, ["vhca"])
        verdict = affected.judge(self.root, "HEAD")
        self.assertEqual((verdict.files, verdict.stages, verdict.expression), ([], {}, ""))

    def test_an_untracked_file_that_nobody_knows_touches_everything(self):
        self.write("novelty.txt", "")
        self.assert_everything(affected.judge(self.root, "HEAD"), "novelty.txt")

    def test_what_decides_the_build_touches_everything(self):
        for path in ("src/CMakeLists.txt", "cmake/a.cmake", "CMakePresets.json", "run", ".ci/run",
                     "contrib/checks/affected_tables.py", "docs/CMakeLists.txt"):
            self.assert_everything(affected.judge(self.root, "HEAD", None, [path]), path)

    def test_a_commit_that_is_not_there_touches_everything(self):
        self.assert_everything(affected.judge(self.root, "0" * 40), "no commit")
        self.assert_everything(affected.judge(self.root, "--all"), "no commit")

    def test_bash_takes_the_verdict(self):
        for verdict, wanted in (
                (self.touch("src/uct/tcp/tcp.cc"), "0||tcp|build|^(check|uses-tcp)$"),
                (affected.judge(self.root, "it's"), "1|there is no commit it's||build|")):
            script = (affected.as_shell(verdict) +
                      '\necho "$everything|$reason|${parts[*]}|${stages[0]}|$labels"')
            done = subprocess.run(["bash", "-c", script], check=True, stdout=subprocess.PIPE,
                                  text=True)
            self.assertEqual(done.stdout.strip(), wanted)

    def test_programs_and_people_take_the_verdict(self):
        verdict = self.touch("src/uct/tcp/tcp.cc")
        found = json.loads(affected.as_json(verdict))
        self.assertEqual((found["parts"], found["everything"]), (["tcp"], None))
        self.assertIn("why: src/uct/tcp/tcp.cc: uses-tcp", affected.as_text(verdict))


@unittest.skipUnless((ROOT / ".git").exists(), "not a clone")
class ThisTree(unittest.TestCase):
    def parts_of(self, path):
        self.assertTrue((ROOT / path).is_file(), path)
        verdict = affected.judge(ROOT, "HEAD", None, [path])
        self.assertEqual(verdict.everything, "")
        return verdict.parts

    def test_each_file_is_known(self):
        unknown = [path for path in affected.git(ROOT, "ls-files", "-z")
                   if not affected_tables.EVERYTHING.fullmatch(path)
                   and affected_tables.labels_of(path) is None]
        self.assertEqual(unknown, [])

    def test_parts_are_told_apart(self):
        for path, parts in (("src/uct/tcp/tcp_iface.cc", ["tcp"]),
                            ("src/uct/ib/dc/dc_ep.cc", ["dc"]),
                            ("src/uct/ib/ib_md.cc", ["dc", "rc", "ud"]),
                            ("README.md", ["documents"]),
                            ("contrib/libfabric/cq.cc", ["provider"]),
                            ("tools/perf.cc", ["command"]),
                            ("src/ucs/config/config.cc", ["library", "vhca"]),
                            ("vhca/core/packet.cc", ["vhca"])):
            self.assertEqual(self.parts_of(path), parts, path)

    def test_the_base_of_transports_touches_all_of_them(self):
        self.assertLessEqual({"library", *affected_tables.TRANSPORTS},
                             set(self.parts_of("src/uct/base_iface.hpp")))

    def test_folders_include_headers_of_the_transports_that_their_tests_run_over(self):
        """As tw_own_transports() of cmake/TagwireParts.cmake has them."""
        own = {"sm": {"sm"}, "tcp": {"tcp"}, "rc": {"rc"}, "dc": {"dc"}, "ib": {"rc", "dc", "ud"},
               "ucs": set(), "match": set(), "bootstrap": set(), "process": set()}
        own |= {f"vhca-{room}": set() for room in ("cm", "core", "driver", "fabric", "face")}
        tree = affected.Tree(ROOT, [])
        for path, targets in tree.includes.items():
            folder = (affected_tables.labels_of(path) or ("",))[0].removeprefix("in-")
            named = {label.removeprefix("uses-") for target in targets
                     for label in affected_tables.labels_of(target) or ()}
            named &= set(affected_tables.TRANSPORTS)
            self.assertLessEqual(named, own.get(folder, set(affected_tables.TRANSPORTS)), path)

    def test_the_command_line_is_understood(self):
        words = ["affected.py", "HEAD", "--json"]
        with mock.patch("sys.argv", words), contextlib.redirect_stdout(io.StringIO()) as out:
            affected.main()
        self.assertEqual(json.loads(out.getvalue())["base"], "HEAD")


if __name__ == "__main__":
    unittest.main()
