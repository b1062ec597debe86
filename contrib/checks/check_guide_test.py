#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests of check_guide.py on small trees, each with one thing wrong."""
import tempfile
import unittest
from pathlib import Path

import check_guide

HEADER = """\
#define TW_ADDRESS_BYTES_MAX 256  ///< No address of a worker is longer.
#define TW_QUEUE_MAX ((size_t)1 << 24)
#define TW_BUSY 0x100U
#define TW_NAP_NS 100000  ///< Nanoseconds.
enum tw_flag {
    TW_FIRST = 1 << 0,
    TW_THIRD = 1 << 2,  ///< The third.
    TW_NEXT
};
int tw_send(void);
"""
PAGE = "An address of at most 256 bytes.\n"


def problems(check, page, path="docs/page.md", header=HEADER):
    """What a check says of a tree of this header and this page."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for folder in ("src/protocols/api", "src/uct/api", "examples", "contrib", "docs"):
            (root / folder).mkdir(parents=True)
        (root / "src/protocols/api/tw_def.h").write_text(header)
        (root / "README.md").write_text(PAGE)
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(page)
        return list(check(root))


class Values(unittest.TestCase):
    def wrong(self, page, **place):
        return problems(check_guide.wrong_values, page, **place)

    def test_a_value_of_the_header_passes(self):
        for page in ("`TW_QUEUE_MAX` (16 MiB)", "`TW_QUEUE_MAX` = 16777216", "| `TW_BUSY` | 256 |",
                     "`TW_BUSY` is 0x100", "16 777 216 (`TW_QUEUE_MAX`)", "`TW_NAP_NS` (100 us)",
                     "100 us (`TW_NAP_NS`)", "`TW_THIRD` (1 << 2)", "`TW_NEXT` = 5",
                     "`TW_FIRST`, 64 bits of it", "a key, 3 of `TW_FIRST`"):
            self.assertEqual(self.wrong(page), [], page)

    def test_another_value_is_found(self):
        for page in ("`TW_QUEUE_MAX` (8 MiB)", "`TW_QUEUE_MAX` = 16777215", "| `TW_BUSY` | 255 |",
                     "`TW_BUSY` is 0x10", "16 777 215 (`TW_QUEUE_MAX`)", "`TW_NAP_NS` (100 ns)",
                     "1 ms (`TW_NAP_NS`)", "`TW_THIRD` (1 << 3)", "`TW_NEXT` = 3"):
            self.assertEqual(len(self.wrong(page)), 1, page)

    def test_the_problem_names_page_words_and_value(self):
        self.assertEqual(self.wrong("`TW_QUEUE_MAX` (8 MiB)"),
                         ["docs/page.md: says 8 MiB; TW_QUEUE_MAX is 16777216"])

    def test_a_sentence_about_a_limit_is_found_in_pages_of_all_kinds(self):
        sentence = "Its address has at most 64 bytes."
        for path in ("docs/page.md", "CHANGELOG.md", "docs/man/tagwire.7", "contrib/x/README.md"):
            self.assertEqual(len(self.wrong(sentence, path=path)), 1, path)

    def test_decisions_and_formats_may_speak_of_other_addresses(self):
        sentence = "A device address has at most 64 bytes."
        for path in ("docs/internals/adr/0001-a.md", "docs/internals/formats/a.md"):
            self.assertEqual(self.wrong(sentence, path=path), [], path)

    def test_a_tree_without_a_value_is_a_problem(self):
        header = HEADER.replace("TW_ADDRESS_BYTES_MAX", "TW_OTHER")
        self.assertEqual(self.wrong("`TW_OTHER`", header=header), [])
        empty = problems(check_guide.wrong_values, "nothing", path="README.md")
        self.assertEqual(empty, ["no page says a limit"])


class Names(unittest.TestCase):
    def unknown(self, page):
        return problems(check_guide.unknown_names, page)

    def test_names_of_the_headers_pass(self):
        self.assertEqual(self.unknown("`TW_THIRD` of `tw_send()`; flags `TW_OP_*`, `tw_am_*`"), [])

    def test_names_that_nothing_has_are_found(self):
        self.assertEqual(self.unknown("`TW_GONE`"),
                         ["docs/page.md: names TW_GONE, which no source has"])
        self.assertEqual(self.unknown("`tw_gone()`"),
                         ["docs/page.md: names tw_gone, which no source has"])


class Examples(unittest.TestCase):
    HEADER = HEADER + "TAGWIRE_API const char* tw_send(int a,\n    int b);\n"

    def missing(self, example):
        return problems(check_guide.calls_without_example, example,
                        path="examples/manual_pages.c", header=self.HEADER)

    def test_a_call_without_an_example_is_found(self):
        self.assertEqual(self.missing("tw_send_other(); tw_send;"),
                         ["examples/manual_pages.c: no example of tw_send()"])

    def test_a_call_that_an_example_makes_passes(self):
        self.assertEqual(self.missing("check(tw_send(1, 2));"), [])


if __name__ == "__main__":
    unittest.main()
