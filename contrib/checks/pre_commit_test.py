#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests of the hook pre-commit: in a repository of its own, with a clang-format that is none."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SKIPPED = 77
HERE = Path(__file__).resolve().parent
SPDX = "// SPDX-License-Identifier: BSD-3-Clause\n"
UGLY = SPDX + "int  a;\n"
NICE = SPDX + "int a;\n"
BAD = SPDX + "int a;  // TO" + "DO\n"
FORMATTER = """\
#!/bin/sh
if [ "$1" = --version ]; then
    echo "clang-format version {version}.0.6"
else
    shift
    exec sed -i 's/int  /int /' "$@"
fi
"""


class Hook(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tools = Path(folder.name) / "tools"
        self.tools.mkdir()
        self.install_formatter(14)
        outside = {name: value for name, value in os.environ.items()
                   if not name.startswith("GIT_")}
        self.environment = dict(
            outside, PATH=f"{self.tools}:{os.environ['PATH']}", HOME=folder.name,
            GIT_CONFIG_NOSYSTEM="1", GIT_AUTHOR_NAME="a", GIT_AUTHOR_EMAIL="a@example.org",
            GIT_COMMITTER_NAME="a", GIT_COMMITTER_EMAIL="a@example.org",
            TMPDIR=folder.name)
        self.root = Path(folder.name) / "a tree"
        self.root.mkdir()
        self.git("init", "-q", "-b", "main")
        (self.root / "contrib/checks").mkdir(parents=True)
        for name in ("pre-commit", "checks/tidy.py", "checks/tidy_includes.py"):
            shutil.copy(HERE.parent / name, self.root / "contrib" / name)
        self.write("kept.cc", NICE)
        self.git("add", ".")
        self.git("commit", "-q", "-m", "first")
        (self.root / ".git/hooks").mkdir(exist_ok=True)
        (self.root / ".git/hooks/pre-commit").symlink_to("../../contrib/pre-commit")

    def install_formatter(self, version):
        tool = self.tools / "clang-format-14"
        tool.write_text(FORMATTER.replace("{version}", str(version)))
        tool.chmod(0o755)
        shutil.copy(tool, self.tools / "clang-format")

    def git(self, *arguments, root=None):
        done = subprocess.run(["git", *arguments], cwd=root or self.root, env=self.environment,
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, (arguments, done.stderr))
        return done.stdout

    def commit(self, *arguments, root=None):
        """(whether it was made, what was said)."""
        done = subprocess.run(["git", "commit", "-q", "-m", "more", *arguments],
                              cwd=root or self.root, env=self.environment, capture_output=True,
                              text=True, check=False)
        return done.returncode == 0, done.stdout + done.stderr

    def write(self, name, text, root=None):
        file = (root or self.root) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def read(self, name):
        return (self.root / name).read_text()

    def committed(self, name, root=None):
        return self.git("show", f"HEAD:{name}", root=root)

    def assert_clean(self, root=None):
        self.assertEqual(self.git("status", "--porcelain", root=root), "")

    def assert_refused(self, outcome, *words):
        made, said = outcome
        self.assertFalse(made, said)
        for word in words:
            self.assertIn(word, said)
        self.assertEqual(self.git("log", "-1", "--format=%s").strip(), "first")

    def assert_made(self, outcome):
        self.assertTrue(*outcome)


class Formatting(Hook):
    def test_a_staged_source_is_formatted_and_staged_again(self):
        self.write("a.cc", UGLY)
        self.git("add", "a.cc")
        self.assert_made(self.commit())
        self.assertEqual(self.committed("a.cc"), NICE)
        self.assertEqual(self.read("a.cc"), NICE)
        self.assert_clean()

    def test_names_and_modes_stay(self):
        for name in ("with blank.cc", "-dash.hpp", "\u00fc 'quoted' \"twice\".c", "line\nbreak.h"):
            self.write(name, UGLY)
        (self.root / "with blank.cc").chmod(0o755)
        self.git("add", ".")
        self.assert_made(self.commit())
        for name in ("with blank.cc", "-dash.hpp", "\u00fc 'quoted' \"twice\".c", "line\nbreak.h"):
            self.assertEqual(self.committed(name), NICE)
        self.assertTrue(os.access(self.root / "with blank.cc", os.X_OK))
        self.assert_clean()

    def test_other_files_and_links_are_left_as_they_are(self):
        self.write("a.txt", UGLY)
        (self.root / "link.cc").symlink_to("a.txt")
        self.git("add", ".")
        self.assert_made(self.commit())
        self.assertEqual(self.committed("a.txt"), UGLY)
        self.assertEqual(self.committed("link.cc"), "a.txt")

    def test_commit_all_and_amend_format_too(self):
        self.write("kept.cc", UGLY + "int  b;\n")
        self.assert_made(self.commit("-a"))
        self.assertEqual(self.committed("kept.cc"), NICE + "int b;\n")
        self.assert_clean()
        self.write("kept.cc", UGLY + "int  c;\n")
        self.git("add", "kept.cc")
        self.assert_made(self.commit("--amend"))
        self.assertEqual(self.committed("kept.cc"), NICE + "int c;\n")
        self.assert_clean()

    def test_another_clang_format_changes_nothing(self):
        self.install_formatter(19)
        self.write("a.cc", UGLY)
        self.git("add", "a.cc")
        made, said = self.commit()
        self.assertTrue(made)
        self.assertIn("no clang-format 14", said)
        self.assertEqual(self.committed("a.cc"), UGLY)

    def test_the_first_commit_of_a_repository_passes(self):
        self.git("update-ref", "-d", "HEAD")
        self.write("a.cc", UGLY)
        self.git("add", ".")
        self.assert_made(self.commit())
        self.assertEqual(self.committed("a.cc"), NICE)


class Parts(Hook):
    def test_edits_that_are_not_staged_stay(self):
        self.write("a.cc", NICE)
        self.git("add", "a.cc")
        self.write("a.cc", BAD)
        self.write("kept.cc", BAD)
        self.write("new.cc", BAD)
        self.assert_made(self.commit())
        self.assertEqual(self.committed("a.cc"), NICE)
        self.assertEqual(self.committed("kept.cc"), NICE)
        for name in ("a.cc", "kept.cc", "new.cc"):
            self.assertEqual(self.read(name), BAD)

    def test_a_part_that_is_not_formatted_is_refused_and_nothing_changes(self):
        self.write("a.cc", UGLY)
        self.write("other.cc", UGLY)
        self.git("add", ".")
        self.write("a.cc", UGLY + "int  more;\n")
        self.assert_refused(self.commit(), "a.cc is not formatted", "a part")
        self.assertEqual(self.read("a.cc"), UGLY + "int  more;\n")
        self.assertEqual(self.read("other.cc"), UGLY)
        self.assertEqual(self.git("show", ":a.cc"), UGLY)
        self.assertEqual(self.git("show", ":other.cc"), UGLY)

    def test_a_staged_file_that_is_gone_from_the_work_tree_is_not_made(self):
        self.write("a.cc", UGLY)
        self.git("add", "a.cc")
        (self.root / "a.cc").unlink()
        self.assert_refused(self.commit(), "a.cc is not formatted")
        self.assertFalse((self.root / "a.cc").exists())

    def test_commit_of_a_named_file_is_refused_until_it_is_formatted(self):
        self.write("kept.cc", UGLY + "int  b;\n")
        self.assert_refused(self.commit("kept.cc"), "kept.cc is not formatted")
        self.assertEqual(self.read("kept.cc"), UGLY + "int  b;\n")
        self.write("kept.cc", NICE + "int b;\n")
        self.write("other.cc", UGLY)
        self.git("add", "other.cc")
        self.assert_made(self.commit("kept.cc"))
        self.assertEqual(self.committed("kept.cc"), NICE + "int b;\n")
        self.assertEqual(self.git("status", "--porcelain"), "A  other.cc\n")


class Rules(Hook):
    def test_a_broken_rule_is_refused_and_nothing_changes(self):
        self.write("a.cc", BAD)
        self.write("b.cc", UGLY)
        self.git("add", ".")
        self.assert_refused(self.commit(), "a.cc:2: error: leftover", "nothing has been changed")
        self.assertEqual(self.read("b.cc"), UGLY)
        self.assertEqual(self.git("show", ":b.cc"), UGLY)

    def test_the_staged_content_counts_and_not_the_work_tree(self):
        self.write("a.cc", BAD)
        self.git("add", "a.cc")
        self.write("a.cc", NICE)
        self.assert_refused(self.commit(), "a.cc:2: error: leftover")

    def test_no_verify_commits_all_the_same(self):
        self.write("a.cc", BAD)
        self.git("add", "a.cc")
        self.assert_made(self.commit("--no-verify"))

    def test_without_staged_files_nothing_is_looked_at(self):
        (self.root / "contrib/checks/tidy.py").unlink()
        self.assert_made(self.commit("--allow-empty"))
        made, said = self.commit()
        self.assertFalse(made)
        self.assertNotIn("pre-commit", said)

    def test_a_file_that_is_only_meant_to_be_added_is_left_alone(self):
        self.write("src/later.cc", "int later;\n")
        self.git("add", "-N", "src/later.cc")
        self.write("src/now.cc", "// SPDX-License-Identifier: BSD-3-Clause\nint now;\n")
        self.git("add", "src/now.cc")
        self.assert_made(self.commit())

    def test_deleted_and_renamed_files_pass(self):
        self.write("b.cc", NICE + "int b;\n")
        self.git("add", "b.cc")
        self.assert_made(self.commit())
        self.git("rm", "-q", "kept.cc")
        self.git("mv", "b.cc", "to here.cc")
        self.assert_made(self.commit())
        self.git("mv", "to here.cc", "c.cc")
        self.write("c.cc", UGLY + "int  b;\n")
        self.git("add", "c.cc")
        self.assert_made(self.commit())
        self.assertEqual(self.git("ls-files", "*.cc"), "c.cc\n")
        self.assertEqual(self.committed("c.cc"), NICE + "int b;\n")
        self.assert_clean()


class Places(Hook):
    def test_a_work_tree_beside_the_first_has_the_hook_too(self):
        other = self.root.parent / "beside it"
        self.git("worktree", "add", "-q", str(other), "-b", "beside")
        self.write("a.cc", UGLY, root=other)
        self.git("add", "a.cc", root=other)
        self.assert_made(self.commit(root=other))
        self.assertEqual(self.committed("a.cc", root=other), NICE)
        self.assertEqual((other / "a.cc").read_text(), NICE)
        self.assert_clean(root=other)
        self.assertFalse((self.root / "a.cc").exists())
        self.assert_clean()

    def test_a_commit_from_a_folder_is_the_same(self):
        self.write("folder/a.cc", UGLY)
        self.git("add", ".")
        self.assert_made(self.commit(root=self.root / "folder"))
        self.assertEqual(self.committed("folder/a.cc"), NICE)
        self.assert_clean()

    def test_no_copy_is_left(self):
        self.write("a.cc", BAD)
        self.git("add", "a.cc")
        self.assert_refused(self.commit())
        self.assertEqual(list(self.root.parent.glob("tagwire-pre-commit-*")), [])


def main():
    if shutil.which("git") is None:
        print("skipped: there is no git (package git)")
        return 1 if os.environ.get("TAGWIRE_TEST_REQUIRE_ALL") == "1" else SKIPPED
    return unittest.main()


if __name__ == "__main__":
    sys.exit(main())
