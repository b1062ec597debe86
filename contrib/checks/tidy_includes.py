# SPDX-License-Identifier: BSD-3-Clause
"""Directions of includes: an include only points left, and it names a file of this tree."""
import os
import re

# The longest prefix comes first.
MODULES = [
    ("src/ucs", "ucs"),
    ("src/uct/api", "uct/api"),
    ("src/uct/sm", "sm"),
    ("src/uct/ib/rc", "ib/rc"),
    ("src/uct/ib/dc", "ib/dc"),
    ("src/uct/ib/ud", "ib/ud"),
    ("src/uct/ib", "ib"),
    ("src/uct/tcp", "tcp"),
    ("src/uct", "uct"),
    ("src/protocols", "protocols"),
    ("vhca/test", "test"),
    ("vhca/launcher", "launcher"),
    ("vhca", "vhca"),
    ("cli", "cli"),
    ("src/bootstrap", "bootstrap"),
    ("tools/test", "test"),
    ("tools", "tools"),
    ("contrib/libfabric", "libfabric"),
    ("src", "public"),  # wrappers, tw_* headers and the version, right in src
    ("bench", "bench"),
    ("examples", "examples"),
    ("test", "test"),
]
# module -> the modules whose headers it may include; itself is understood.
PUBLIC_API = {"ucs", "uct/api", "protocols", "public"}  # their *.h, and the wrappers
WRAPPERS = {"src/tagwire.hpp", "src/tagwire_bootstrap.hpp", "src/tagwire_msg.hpp"}
TRANSPORTS = {"sm", "ib", "ib/rc", "ib/dc", "ib/ud", "tcp"}
MAY_INCLUDE = {
    "ucs": {"public"},
    "uct/api": {"ucs"},
    "public": {"ucs", "uct/api", "protocols"},
    "uct": {"ucs", "uct/api", "public"},
    "sm": {"ucs", "uct/api", "uct"},
    "ib": {"ucs", "uct/api", "uct"},
    "ib/rc": {"ucs", "uct/api", "uct", "ib"},
    "ib/dc": {"ucs", "uct/api", "uct", "ib"},
    "ib/ud": {"ucs", "uct/api", "uct", "ib"},
    "tcp": {"ucs", "uct/api", "uct"},
    "protocols": {"ucs", "uct/api", "public"},
    "vhca": {"ucs"},
    "launcher": {"cli"},
    "cli": set(),
    "bootstrap": {"ucs", "public"},
    "tools": PUBLIC_API | {"cli"},
    "examples": PUBLIC_API,
    "libfabric": PUBLIC_API,
    "bench": PUBLIC_API | TRANSPORTS | {"uct"},
}
# Of the library these see public headers only.
PUBLIC_ONLY = {"uct/api", "tools", "examples", "libfabric"}
COMPOSITION_ROOT = "src/components.cc"  # above all of src

# Rooms of the messaging layer, from the ground up. A header includes those of its own room and of
# rooms below. A body may include the hubs as well, by which the parts of a worker reach each other.
ROOMS_OF = "src/protocols/"
ROOMS = ("wire", "port", "index", "cost", "completion", "request", "match", "connect", "transfer",
         "eager", "rndv", "rma", "am", "offload", "worker", "call", "cm", "facade")
HUBS = {"worker/endpoint.hpp", "worker/worker_core.hpp"}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
GENERATED = {"tagwire_version.h"}
# They measure UCX itself.
UCX_PROGRAMS = {"bench/ucp_threads.cc", "bench/ucp_exchange.cc", "bench/ucp_program.hpp"}


def module_of(path):
    for prefix, module in MODULES:
        if path.startswith(prefix + "/"):
            return module
    return None


def is_public(path):
    return path in WRAPPERS or path.startswith(("src/uct/api/", "src/protocols/api/")) or (
        path.startswith("src/") and path.endswith(".h"))


class Includes:
    def __init__(self, files):
        self.files = set(files)

    def check(self, path, lines):
        """Yields (line, text) for every include that breaks a rule."""
        for number, line in enumerate(lines, 1):
            if match := INCLUDE.match(line):
                for text in self.check_one(path, quoted=match[1] == '"', name=match[2]):
                    yield number, text

    def check_one(self, path, quoted, name):
        target = self.resolve(path, name)
        if target is not None:
            yield from direction(path, target)
        elif module_of(path) == "test" or path in UCX_PROGRAMS:
            return
        elif name.startswith(("ucs/", "uct/", "ucp/")):
            # Debian's UCX headers have the same spelling and would be taken in silence.
            yield f"{name} is not a file of this tree"
        elif quoted and name not in GENERATED:
            yield f"{name} is not a file of this tree; others in <>"

    def resolve(self, path, name):
        """The tracked file that an include names: from src, the folder of the products, a test
        root, or the own directory."""
        for base in ("src", "", "test/gtest", "test", os.path.dirname(path)):
            candidate = os.path.normpath(os.path.join(base, name))
            if candidate in self.files:
                return candidate
        return None


def direction(path, target):
    """Yields what is wrong with `path` including `target`."""
    module, other = module_of(path), module_of(target)
    if is_public(path) and not is_public(target):
        yield f"a public header includes a private one: {target}"
    elif module in (None, "test"):
        return
    elif other == module:
        yield from climb(path, target)
    elif path == COMPOSITION_ROOT:
        return
    elif other not in MAY_INCLUDE[module]:
        yield f"{module} must not include {other}: {target}"
    elif module in PUBLIC_ONLY and target.startswith("src/") and not is_public(target):
        yield f"{module} sees public headers only, not {target}"


def climb(path, target):
    """Yields what is wrong if an include runs up from one room to another."""
    if not (path.startswith(ROOMS_OF) and target.startswith(ROOMS_OF)):
        return
    path, target = path.removeprefix(ROOMS_OF), target.removeprefix(ROOMS_OF)
    room, other = path.split("/")[0], target.split("/")[0]
    if room not in ROOMS or other not in ROOMS or ROOMS.index(other) <= ROOMS.index(room):
        return
    if not path.endswith(".cc") or target not in HUBS:
        yield f"{room}/ is below {other}/ and must not include {target}"
