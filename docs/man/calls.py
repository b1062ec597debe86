#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""calls.py XML OUT VERSION DATE: pages of section 3 from the comments of the public C headers.

Reads what Doxygen wrote into the folder XML. OUT gets one page for each call, each record or set
of values, and each header that programs include, and a link to its page for each constant. The page
of a call has a NAME of its own and the whole contract: its statuses, and those paragraphs of its
header (\\par Statuses, Lifetime, Threads, ...) that hold for each call there; and an example, the
first function of EXAMPLES that uses it. Every call of the messaging layer has one.
"""
import gzip
import re
import sys
import textwrap
import xml.etree.ElementTree as xml
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TYPEDEF = re.compile(r"^typedef (?:struct|enum) (\w+) (\w+);", re.MULTILINE)

# What programs include, what it is, and the headers behind it.
BUNDLES = {
    "tagwire.h": ("messages between workers",
                  ["tagwire.h", "tw_am.h", "tw_call.h", "tw_completion.h", "tw_context.h",
                   "tw_data.h", "tw_def.h", "tw_endpoint.h", "tw_explain.h", "tw_list.h",
                   "tw_listen.h", "tw_memory.h", "tw_message.h", "tw_rma.h", "tw_worker.h",
                   "tagwire_status.h"]),
    "tagwire_bootstrap.h": ("exchange data between the processes of a job",
                            ["tagwire_bootstrap.h"]),
    "uct/api/uct.h": ("operations of a transport",
                      ["uct.h", "uct_data.h", "uct_def.h", "uct_attr.h", "tl.h", "version.h"]),
    "uct/api/tagwire_uct.h": ("extensions of the transport API", ["tagwire_uct.h"]),
}
# Programs with examples, the first for the messaging layer; functions longer than this stay there.
EXAMPLES = ["examples/manual_pages.c", "examples/manual_pages_memory.h", "examples/am_ring.c"]
EXAMPLE_LINES_MAX = 40
FUNCTION = re.compile(r"^(?:// [^\n]*\n)*static [^;]*?\) \{\n.*?^\}\n", re.MULTILINE | re.DOTALL)
HELPERS = ("check", "finish")  # of the first program
OPERATION = "tw_op_t"        # a parameter of this type makes a call an operation ...
OPERATIONS = "tw_data.h"     # ... and what this header says of operations holds for it
STATUSES = "Statuses"        # the paragraph that goes into RETURN VALUE
SHARED = "Threads", "Arguments"  # paragraphs of an included header that hold for all of its calls


def escape(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)


def flat(node):
    """The text of a node, as one line of roff with fonts."""
    if node is None:
        return ""
    parts = [escape(node.text or "")]
    for child in node:
        inner = flat(child)
        if child.tag in ("computeroutput", "bold"):
            inner = f"\\fB{inner}\\fP"
        elif child.tag == "emphasis":
            inner = f"\\fI{inner}\\fP"
        parts += [inner, escape(child.tail or "")]
    return re.sub(r"\s+", " ", "".join(parts)).strip()


def plain(node):
    return re.sub(r"\s+", " ", "".join(node.itertext())).strip() if node is not None else ""


def listing(node):
    lines = [re.sub(r"\s+$", "", line) for line in "".join(node.itertext()).splitlines()]
    return ["", ".RS 4", ".nf", *map(escape, lines), ".fi", ".RE"]


def blocks(node):
    """What a description says, but for statuses and titled paragraphs, as lines of roff."""
    lines, words = [], []

    def end_of_words():
        text = re.sub(r"\s+", " ", "".join(words)).strip()
        words.clear()
        if text:
            lines.extend([".PP", text])

    for para in node.findall("para") if node is not None else []:
        words.append(escape(para.text or ""))
        for child in para:
            if child.tag in ("parameterlist", "simplesect"):
                end_of_words()
            elif child.tag == "itemizedlist":
                end_of_words()
                for item in child.findall("listitem"):
                    lines.extend([".IP \\(bu 2", " ".join(flat(p) for p in item.findall("para"))])
            elif child.tag in ("verbatim", "programlisting", "preformatted"):
                end_of_words()
                lines.extend(listing(child))
            else:
                inner = flat(child)
                words.append(f"\\fB{inner}\\fP" if child.tag in ("computeroutput", "bold")
                             else inner)
            words.append(escape(child.tail or ""))
        end_of_words()
    return lines


def titled(compound):
    """The paragraphs `\\par TITLE` of a header's comment."""
    description = compound.find("detaileddescription")
    return {plain(part.find("title")): part for part in description.iter("simplesect")
            if part.get("kind") == "par"}


def returns(member):
    lines = []
    for item in member.iter("parameteritem"):
        lines.extend([".TP", f".B {escape(plain(item.find('parameternamelist')))}",
                      flat(item.find("parameterdescription/para"))])
    for part in member.iter("simplesect"):
        if part.get("kind") == "return":
            lines.extend(blocks(part))
    return lines


def prototype(member):
    result = re.sub(r"\s*\*$", " *", plain(member.find("type")))
    head = f"{result}{'' if result.endswith('*') else ' '}{plain(member.find('name'))}("
    params = [parameter(param) for param in member.findall("param")] or ["void"]
    return textwrap.wrap(head + ", ".join(params) + ");", 76,
                         subsequent_indent=" " * min(len(head), 30))


def parameter(param):
    kind, name = plain(param.find("type")), plain(param.find("declname"))
    kind = re.sub(r"\s+\*", " *", kind)
    return f"{kind}{'' if kind.endswith('*') or not name else ' '}{name}"


def record(compound_or_enum):
    """Fields or values with their comments."""
    lines = []
    for field in [*compound_or_enum.iter("memberdef"), *compound_or_enum.iter("enumvalue")]:
        if field is compound_or_enum:
            continue
        name, kind = plain(field.find("name")), plain(field.find("type"))
        lines += [".TP", f".B {escape(f'{kind} {name}' if kind else name)}"
                  + escape(plain(field.find("argsstring")))]
        text = " ".join(filter(None, [flat(field.find("briefdescription/para")), *(
            flat(para) for para in field.findall("detaileddescription/para"))]))
        lines.append(text or "\\&")
    return lines


def name_line(brief):
    """The first sentence of a brief, as whatis(1) shows it."""
    what = re.split(r"\. |; ", brief, maxsplit=1)[0].rstrip(".")
    return what[:1].lower() + what[1:] if what[1:2].islower() or what[1:2] == " " else what


def example_functions():
    return [function for program in EXAMPLES
            for function in FUNCTION.findall((ROOT / program).read_text())
            if function.count("\n") <= EXAMPLE_LINES_MAX]


def example_of(name, functions):
    """The lines of an EXAMPLES section, none without an example."""
    function = next((text for text in functions if re.search(rf"\b{name}\(", text)), None)
    if function is None:
        return []
    used = [f"\\fB{helper}\\fP()" for helper in HELPERS
            if re.search(rf"^.+\b{helper}\(", function.partition("\n")[2], re.MULTILINE)
            and name.startswith("tw_")]
    lines = [".PP", f"{' and '.join(used)}: see \\fBtagwire.h\\fP(3)."] if used else []
    return [*lines, ".RS 4", ".nf", *map(escape, function.rstrip("\n").split("\n")), ".fi", ".RE"]


class Page:
    def __init__(self, name, what, header, version):
        self.name = name
        self.what = name_line(what)
        self.lines = [f'.TH "{name}" 3 "{DATE}" "tagwire {version}" tagwire', ".SH NAME",
                      f"{name} \\- {escape(self.what)}", ".SH SYNOPSIS", ".nf",
                      f".B #include <{escape(header)}>"]

    def synopsis(self, lines):
        self.lines += [".PP", *(f".B {escape(line)}" if line.strip() == line else
                                f"\\fB{escape(line)}\\fP" for line in lines)]

    def section(self, title, lines):
        if lines:
            lines = lines[1:] if lines[0] == ".PP" else lines
            self.lines += [f'.SH "{title.upper()}"', *lines]

    def see_also(self, pages):
        last = len(pages) - 1
        self.section("See also", [f".BR {escape(page)} (3){',' if at < last else ''}"
                                  for at, page in enumerate(pages)])

    def write(self, folder):
        write_page(folder, self.name, "\n".join(self.lines) + "\n")


def write_page(folder, name, text):
    with open(folder / f"{name}.3.gz", "wb") as file, gzip.GzipFile("", "wb", 9, file, 0) as out:
        out.write(text.encode())


def kin(name, names):
    """Calls that share the longest beginning with `name`, at most six."""
    def shared(other):
        parts, others = name.split("_"), other.split("_")
        return next((i for i, (a, b) in enumerate(zip(parts, others)) if a != b),
                    min(len(parts), len(others)))
    near = sorted((other for other in names if other != name and shared(other) > 1),
                  key=lambda other: (-shared(other), names.index(other)))
    return near[:6]


def flat_brief(member):
    return flat(member.find("briefdescription/para"))


class Bundle:
    def __init__(self, header, compounds, everything):
        self.header, (self.what, files) = header, BUNDLES[header]
        self.files = [compounds[file] for file in files if file in compounds]
        self.page_of_header = Path(header).name
        self.top = titled(self.files[0])
        self.operations = titled(compounds[OPERATIONS])
        self.everything = everything
        self.functions = example_functions()
        self.calls = [(file, member) for file in self.files for member in file.iter("memberdef")
                      if member.get("kind") == "function"]
        self.typedefs = dict(found for file in self.files for found in TYPEDEF.findall(
            (ROOT / file.find("location").get("file")).read_text()))
        self.names = [plain(member.find("name")) for _, member in self.calls]
        self.constants = [member for file in self.files for member in file.iter("memberdef")
                          if member.get("kind") == "define" and flat_brief(member)]
        self.types = {}

    def contract(self, file, member):
        """Titled paragraphs that hold for this call, by title."""
        found = titled(file)
        found |= {title: part for title, part in self.top.items()
                  if title in SHARED and title not in found}
        if any(OPERATION in plain(param.find("type")) for param in member.findall("param")):
            return {title: part for title, part in (self.operations | found).items()
                    if title != "Matching" or title in found}
        if OPERATIONS == plain(file.find("compoundname")):
            found.pop(STATUSES, None)
            found.pop("Matching", None)
            found.pop("Lifetime", None)
        return found

    def call_page(self, file, member, version):
        name = plain(member.find("name"))
        page = Page(name, plain(member.find("briefdescription")) or "not described", self.header,
                    version)
        page.synopsis(prototype(member))
        page.lines.append(".fi")
        page.section("Description", [".PP", flat(member.find("briefdescription/para")),
                                     *blocks(member.find("detaileddescription"))])
        contract = self.contract(file, member)
        common = contract.pop(STATUSES, None)
        lines = returns(member)
        if common is not None and "status" in plain(member.find("type")) + "ssize_t":
            lines += blocks(common)
        page.section("Return value", lines)
        for title, part in contract.items():
            page.section(title, blocks(part))
        page.section("Examples", example_of(name, self.functions))
        near = kin(name, self.names)
        near += [record for record in self.types if any(
            re.search(rf"\b{record}\b", plain(param.find("type")))
            for param in member.findall("param"))]
        if contract.get("Lifetime") is not None:
            near += ["tw_op_t", "tw_request_wait", "tw_worker_progress"]
        page.see_also([*dict.fromkeys(near), self.page_of_header])
        return page

    def header_page(self, version):
        page = Page(self.page_of_header, self.what, self.header, version)
        page.lines.append(".fi")
        first = self.files[0]
        page.section("Description", [".PP", flat(first.find("briefdescription/para")),
                                     *blocks(first.find("detaileddescription"))])
        for title, part in self.top.items():
            page.section(title, blocks(part))
        for file in self.files:
            calls = [member for of, member in self.calls if of is file]
            if calls:
                page.section(re.split(r"\.| of the ", plain(file.find("briefdescription")))[0], [
                    line for call in calls
                    for line in (".TP", f".BR {escape(plain(call.find('name')))} (3)",
                                 flat(call.find("briefdescription/para")) or "\\&")])
        page.section("Constants", [line for member in self.constants for line in (
            ".TP", f".B {escape(plain(member.find('name')))} "
            + escape(plain(member.find("initializer"))), flat_brief(member))])
        if self.page_of_header == "tagwire.h":
            page.section("Examples", [
                ".PP", "Examples of calls use these functions:", ".RS 4", ".nf",
                *(escape(line) for text in self.functions[:len(HELPERS)]
                  for line in text.split("\n")), ".fi", ".RE"])
        records = sorted(page.name for page in self.record_pages(version))
        if records:
            page.section("Types", [", ".join(f"\\fB{escape(name)}\\fP(3)" for name in records)])
        page.lines += [".SH SEE ALSO", ".BR tagwire (7)"]
        return page

    def record_pages(self, version):
        for file in self.files:
            for member in file.iter("memberdef"):
                name = plain(member.find("name"))
                if member.get("kind") == "enum" and flat_brief(member):
                    if not re.fullmatch(r"\w+", name):
                        raise SystemExit(f"calls.py: an enumeration has no name: "
                                         f"{flat_brief(member)}")
                    yield self.record_page(self.typedefs.get(name, name), member, version)
            for inner in file.findall("innerclass"):
                compound = self.everything.get(inner.get("refid"))
                if compound is not None and plain(compound.find("briefdescription")):
                    name = plain(compound.find("compoundname"))
                    yield self.record_page(self.typedefs.get(name, name), compound, version)

    def record_page(self, name, node, version):
        page = Page(name, plain(node.find("briefdescription")), self.header, version)
        page.lines.append(".fi")
        page.section("Description", [".PP", flat(node.find("briefdescription/para")),
                                     *blocks(node.find("detaileddescription"))])
        page.section("Values" if node.tag == "memberdef" else "Fields", record(node))
        page.values = [plain(value.find("name")) for value in node.iter("enumvalue")]
        page.see_also([self.page_of_header])
        return page


def main(source, folder, version):
    everything, compounds = {}, {}
    for path in sorted(source.glob("*.xml")):
        for compound in xml.parse(path).getroot().iter("compounddef"):
            everything[compound.get("id")] = compound
            if compound.get("kind") == "file":
                compounds[plain(compound.find("compoundname"))] = compound
    folder.mkdir(parents=True, exist_ok=True)
    for header in BUNDLES:
        bundle = Bundle(header, compounds, everything)
        records = list(bundle.record_pages(version))
        bundle.types = {page.name: page for page in records}
        for file, member in bundle.calls:
            page = bundle.call_page(file, member, version)
            if page.name.startswith("tw_") and '.SH "EXAMPLES"' not in page.lines:
                raise SystemExit(f"calls.py: {EXAMPLES[0]} has no example of {page.name}()")
            page.write(folder)
        for page in records:
            page.write(folder)
        bundle.header_page(version).write(folder)
        # So that man(1) finds a flag, a status, a limit.
        links = {value: page.name for page in records for value in page.values}
        links |= {plain(member.find("name")): bundle.page_of_header for member in bundle.constants}
        for name, page in links.items():
            if name.lower() not in map(str.lower, [*bundle.names, *bundle.types]):
                write_page(folder, name, f".so man3/{page}.3\n")


DATE = sys.argv[4]
main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
