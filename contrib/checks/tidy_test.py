#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests of tidy.py on small trees, each with one thing wrong."""
import tempfile
import unittest
from pathlib import Path

import tidy

SPDX = "// SPDX-License-Identifier: BSD-3-Clause\n"


def rules(tree, warnings=False, head=SPDX):
    """The rules that a tree {path: text} breaks; `head` is put before every text."""
    with tempfile.TemporaryDirectory() as root:
        for path, text in tree.items():
            file = Path(root) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(head + text)
        findings = tidy.check_tree(root, tree)
        return [finding.rule for finding in findings if finding.warning == warnings]


class Includes(unittest.TestCase):
    def broken(self, includer, included):
        return rules({included: "", includer: f'#include "{included.removeprefix("src/")}"\n'})

    def test_an_include_that_points_left_passes(self):
        self.assertEqual(self.broken("src/uct/sm/a.cc", "src/ucs/log/log.hpp"), [])
        self.assertEqual(self.broken("src/uct/a.cc", "src/uct/api/uct.h"), [])
        self.assertEqual(self.broken("src/uct/ib/rc/a.cc", "src/uct/ib/md.hpp"), [])
        self.assertEqual(self.broken("src/protocols/a.cc", "src/ucs/log/log.hpp"), [])
        self.assertEqual(self.broken("src/protocols/a.cc", "src/uct/api/uct.h"), [])

    def test_an_include_that_points_right_fails(self):
        for includer, included in (
                ("src/ucs/a.cc", "src/uct/b.hpp"),
                ("src/ucs/a.cc", "src/uct/api/uct.h"),
                ("src/uct/a.cc", "src/uct/sm/b.hpp"),
                ("src/uct/sm/a.cc", "src/uct/ib/b.hpp"),
                ("src/uct/ib/rc/a.cc", "src/uct/ib/dc/b.hpp"),
                ("src/uct/ib/a.cc", "vhca/b.hpp"),
                ("src/protocols/a.cc", "src/uct/b.hpp"),
                ("src/protocols/a.cc", "src/uct/sm/b.hpp"),
                ("src/ucs/a.cc", "src/protocols/b.hpp"),
                ("src/uct/a.cc", "src/protocols/b.hpp"),
                ("src/uct/sm/a.cc", "src/protocols/b.hpp"),
                ("vhca/a.cc", "src/protocols/b.hpp"),
                ("vhca/a.cc", "cli/failure.hpp"),
                ("vhca/launcher/a.cc", "src/tagwire.h"),
                ("cli/a.cc", "src/tagwire.h"),
                ("vhca/a.cc", "src/uct/api/uct.h")):
            self.assertEqual(self.broken(includer, included), ["include"], (includer, included))

    def test_rooms_of_the_messaging_layer_look_down(self):
        place = "src/protocols/"
        for includer, included, is_right in (
                ("rndv/a.cc", "wire/b.hpp", True),
                ("worker/a.hpp", "rndv/b.hpp", True),
                ("rndv/a.cc", "worker/endpoint.hpp", True),
                ("rndv/a.hpp", "worker/endpoint.hpp", False),
                ("rma/a.hpp", "rndv/b.hpp", True),
                ("rma/a.hpp", "am/b.hpp", False),
                ("am/a.hpp", "worker/worker_core.hpp", False),
                ("eager/a.cc", "am/b.hpp", False),
                ("rndv/a.cc", "worker/worker.hpp", False),
                ("wire/a.cc", "request/b.hpp", False),
                ("cost/a.cc", "request/rail.hpp", False)):
            self.assertEqual(self.broken(place + includer, place + included),
                             [] if is_right else ["include"], (includer, included))

    def test_only_the_composition_root_names_transports(self):
        self.assertEqual(self.broken("src/components.cc", "src/uct/sm/sm.hpp"), [])
        self.assertEqual(self.broken("src/uct/component.cc", "src/uct/sm/sm.hpp"), ["include"])

    def test_tools_and_examples_see_the_public_api_only(self):
        for place in ("tools", "examples"):
            self.assertEqual(self.broken(f"{place}/a.cc", "src/uct/api/uct.h"), [])
            self.assertEqual(self.broken(f"{place}/a.cc", "src/tagwire.hpp"), [])
            self.assertEqual(self.broken(f"{place}/a.cc", "src/ucs/log/log.hpp"), ["include"])
            self.assertEqual(self.broken(f"{place}/a.cc", "src/protocols/a.hpp"), ["include"])

    def test_a_public_header_includes_public_headers_only(self):
        self.assertEqual(self.broken("src/ucs/a.h", "src/ucs/b.h"), [])
        self.assertEqual(self.broken("src/ucs/a.h", "src/ucs/b.hpp"), ["include"])

    def test_a_header_that_only_ucx_has_is_noticed(self):
        self.assertEqual(rules({"src/uct/a.cc": "#include <ucs/sys/math.h>\n"}), ["include"])
        ucp = "#include <ucp/api/ucp.h>\n"
        self.assertEqual(rules({"bench/instr_msg.cc": ucp}), ["include"])
        self.assertEqual(rules({"bench/ucp_threads.cc": ucp}), [])

    def test_tests_and_benchmarks_may_look_inside(self):
        self.assertEqual(self.broken("test/gtest/sm/a.cc", "src/uct/sm/b.hpp"), [])
        self.assertEqual(self.broken("bench/a.cc", "src/uct/sm/b.hpp"), [])
        self.assertEqual(self.broken("vhca/test/face/a.cc", "vhca/engine/b.hpp"), [])

    def test_a_product_sees_its_own_and_what_it_stands_on(self):
        for includer, included in (("vhca/face/a.cc", "vhca/core/b.hpp"),
                                   ("vhca/a.cc", "src/ucs/log/log.hpp"),
                                   ("vhca/launcher/a.cc", "cli/failure.hpp"),
                                   ("tools/a.cc", "cli/failure.hpp")):
            self.assertEqual(self.broken(includer, included), [], (includer, included))

    def test_private_headers_do_not_end_in_h(self):
        self.assertEqual(rules({"src/uct/sm/a.h": ""}), ["header-kind"])


class Confined(unittest.TestCase):
    def test_what_belongs_to_one_place_fails_elsewhere(self):
        for rule, text, home in (
                ("infiniband", "#include <infiniband/verbs.h>\n", "src/uct/ib/a.cc"),
                ("getenv", 'auto* x = std::getenv("A");\n', "src/ucs/config/a.cc"),
                ("mapping", "void* x = ::mmap(0, 1, 2, 3, 4, 5);\n", "src/ucs/sys/a.cc"),
                ("mapping", "int x = memfd_create(name, 0);\n", "src/ucs/sys/a.cc"),
                ("mapping", "header->cmsg_type = SCM_RIGHTS;\n", "src/ucs/sys/a.cc")):
            self.assertEqual(rules({"src/uct/sm/a.cc": text}), [rule])
            self.assertEqual(rules({home: text}), [])

    def test_prose_and_messages_may_name_them(self):
        text = '// as mmap() does\nlog("mmap(2) failed");\n'
        self.assertEqual(rules({"src/uct/a.cc": text}), [])


class Sync(unittest.TestCase):
    STORE = "x.store(1, std::memory_order_release);\n"

    def test_a_labelled_pair_passes(self):
        load = "y = x.load(std::memory_order_acquire);  // SYNC slot\n"
        self.assertEqual(rules({"src/ucs/a.hpp": "// SYNC slot: pairs with b\n" + self.STORE,
                                "src/ucs/b.hpp": load}), [])

    def test_a_lonely_label_fails(self):
        self.assertEqual(rules({"src/ucs/a.hpp": "// SYNC slot: here only\n"}), ["sync-pair"])

    def test_an_ordered_operation_needs_a_label_nearby(self):
        self.assertEqual(rules({"src/ucs/a.hpp": self.STORE}), ["sync-label"])
        far = "// SYNC slot: a\n// SYNC slot: b\n" + "f();\n" * (tidy.SYNC_REACH_LINES + 1)
        self.assertEqual(rules({"src/ucs/a.hpp": far + self.STORE}), ["sync-label"])

    def test_relaxed_needs_no_label_but_the_order_is_named(self):
        named = "x.fetch_add(1, std::memory_order_relaxed);\n"
        self.assertEqual(rules({"src/ucs/a.hpp": named}), [])
        self.assertEqual(rules({"src/ucs/a.hpp": "x.fetch_add(1);\n"}), ["memory-order"])


class Sizes(unittest.TestCase):
    def test_long_lines_and_files_fail(self):
        self.assertEqual(rules({"src/ucs/a.cc": "// " + "x" * 98 + "\n"}), ["line-length"])
        self.assertEqual(rules({"src/ucs/a.cc": "//\n" * tidy.FILE_LINES_MAX}), ["file-size"])
        self.assertEqual(rules({"src/uct/api/a.h": "//\n" * tidy.FILE_LINES_MAX}), [])

    def test_smells_are_warnings(self):
        long_file = {"src/ucs/a.cc": "//\n" * tidy.FILE_LINES_TARGET}
        self.assertEqual(rules(long_file, warnings=True), ["file-size"])
        body = "    g();\n" * (tidy.FUNCTION_LINES_MAX + 1)
        long_function = {"src/ucs/a.cc": "void f() {\n" + body + "}\n"}
        self.assertEqual(rules(long_function, warnings=True), ["function-size"])


class Layouts(unittest.TestCase):
    def test_a_table_that_was_run_together_fails(self):
        self.assertEqual(rules({"src/a.cc": "//   NO_RESOURCE   nothing happened: retry, or queue "
                                            "UNSUPPORTED     it lacks it\n"}), ["layout"])

    def test_tables_and_charts_pass(self):
        self.assertEqual(rules({"src/a.cc": "//   NO_RESOURCE   nothing happened: retry\n"
                                            "//   UNSUPPORTED   it lacks the operation\n"
                                            "//   one of four words   as long as it is\n"
                                            "//                       goes on here\n"
                                            "//   a --- chart that has words ---->    b\n"}), [])

    def test_prose_of_markdown_is_wrapped(self):
        words = "word " * 20 + "word\n"
        self.assertEqual(rules({"a.md": words}, head=""), ["line-length"])
        self.assertEqual(rules({"a.md": f"| {words}\n    {words}```\n{words}```\n"}, head=""), [])

    def test_a_torn_declaration_fails(self):
        torn = "struct A {\n    unsigned\n        paths;  // that there are\n};\n"
        self.assertEqual(rules({"src/a.cc": torn}), ["layout"])
        whole = "struct A {\n    // Paths that there are.\n    unsigned paths;\n};\n"
        self.assertEqual(rules({"src/a.cc": whole}), [])

    def test_braces_around_one_statement_fail(self):
        self.assertEqual(rules({"src/a.cc": "    if (a) {\n        b();\n    }\n"}), ["braces"])
        needed = "if (a) {\n    b();\n} else {\n    c();\n    d();\n}\n"
        self.assertEqual(rules({"src/a.cc": "if (a)\n    b();\n" + needed}), [])

    def test_a_check_after_an_if_stands_within_braces(self):
        self.assertEqual(rules({"test/a.cc": "if (a)\n    EXPECT_TRUE(b);\nc();\n"}), ["braces"])
        whole = "if (a) {\n    EXPECT_TRUE(b);\n}\nfor (int i : a)\n    EXPECT_EQ(i, 0);\n"
        self.assertEqual(rules({"test/a.cc": whole}), [])


class Openings(unittest.TestCase):
    def test_a_sentence_opens_with_its_subject(self):
        for text in ("// W" + "hat is sent.\n", "int a;  // W" + "ho asks.\n",
                     "// Sends. O" + "f all, the first.\n", "// ---- H" + "ow it ends\n"):
            self.assertEqual(rules({"src/a.cc": text + "int b;\n"}), ["opening"], text)

    def test_a_sentence_goes_on_with_any_word(self):
        text = "// Tells the peer\n// what is sent, and\n// How the peer takes it.\nint b;\n"
        self.assertEqual(rules({"src/a.cc": text}), [])


class Subjects(unittest.TestCase):
    def broken(self, text, path="src/uct/a.hpp"):
        return rules({path: text})

    def test_a_comment_that_begins_with_a_pronoun_fails(self):
        for text in ("/// It has ended.\nint b;\n", "int a;  // Its length.\n",
                     "// The same with a list.\nint b;\n", "int a;  ///< ... and its end\n",
                     "/// So many are allowed.\nint b;\n", "/// Those that wait.\nint b;\n"):
            self.assertEqual(self.broken(text), ["subject"], text)

    def test_pronouns_for_a_subject_that_was_named_pass(self):
        for text in ("/// The request. It has ended.\nint b;\n",
                     "/// The request has ended.\n/// Its length is known.\nint b;\n",
                     "/// Items are counted.\nint b;\n", "int its = 1;  // Sorted later.\n"):
            self.assertEqual(self.broken(text), [], text)

    def test_only_headers_of_the_library_are_looked_at(self):
        for path in ("src/uct/a.cc", "test/a.hpp", "contrib/libfabric/a.hpp"):
            self.assertEqual(self.broken("/// It has ended.\nint b;\n", path), [], path)


class Leftovers(unittest.TestCase):
    def test_notes_to_self_fail(self):
        for word in ("TO" + "DO", "FIX" + "ME", "X" + "XX"):
            self.assertEqual(rules({"src/ucs/a.cc": f"// {word} later\n"}), ["leftover"])

    def test_disabled_tests_fail(self):
        text = "TEST(A, DISABLED" + "_b) {}\n"
        self.assertEqual(rules({"test/gtest/a.cc": text}), ["disabled-test"])

    def test_cases_are_in_snake_case(self):
        self.assertEqual(rules({"test/a.cc": "TEST(Ring, IsFull) {\n"}), ["case-name"])
        self.assertEqual(rules({"test/a.cc": "TEST(Ring, is_full) {\n"}), [])

    def test_paths_of_one_machine_fail(self):
        for path in ("/ho" + "me/someone/x", "/ro" + "ot/x", "/wo" + "rk/x"):
            self.assertEqual(rules({"docs/a.md": f"see {path}\n"}), ["machine-path"], path)
        harmless = "see docs/work/x and https://example.org/home/\n"
        self.assertEqual(rules({"docs/a.md": harmless}), [])

    def test_the_licence_comes_first(self):
        self.assertEqual(rules({"a.py": "print()\n"}, head="#!/usr/bin/env python3\n"), ["spdx"])


if __name__ == "__main__":
    unittest.main()
