# SPDX-License-Identifier: BSD-3-Clause
"""Tables of affected.py: what a path is a part of, and which stages of .ci/run a part needs.

Both speak of labels of ctest, as cmake/TagwireParts.cmake gives them to tests: uses-<part> for a
part that tests stand on, in-<folder> for sources of tests.
"""
import re

TRANSPORTS = ("sm", "rc", "dc", "ud", "tcp")
# What names the transports includes a header of each, and says nothing of what they do.
COMPOSITION_ROOT = "src/components.cc"
# Beside the folder of the file that includes.
INCLUDE_DIRS = ("src", "", "test/gtest", "test/gtest/contract", "test/fuzz", "contrib/libfabric",
                "contrib/libfabric/conformance", "contrib/libfabric/test/shmem")

# Folders whose lists of sources may name sources of others.
BORROWERS = ("src/", "vhca/")

# What decides how everything is built and run, and what is tested when.
EVERYTHING = re.compile(
    r"(?:.*/)?CMakeLists\.txt|.*\.cmake(?:\.in)?|cmake/.*|CMakePresets\.json|run|\.ci/.*|"
    r"\.github/.*|contrib/checks/affected\w*\.py")
# The first that matches counts. An empty tuple: no test and no build stands on it.
PATHS = [(re.compile(pattern), labels) for pattern, labels in (
    (r".*\.md|LICENSE|docs/.*", ("uses-documents",)),
    (r"vhca/.*", ("uses-vhca",)),
    (r"cli/.*", ("uses-command", "uses-vhca")),
    (r"tools/.*", ("uses-command",)),
    (r"src/uct/sm/.*", ("uses-sm",)),
    (r"src/uct/tcp/.*", ("uses-tcp",)),
    (r"src/uct/ib/rc/.*", ("uses-rc",)),
    (r"src/uct/ib/dc/.*", ("uses-dc",)),
    (r"src/uct/ib/ud/.*", ("uses-ud",)),
    (r"src/uct/ib/.*", ("uses-rc", "uses-dc", "uses-ud")),
    (r"src/.*", ("uses-library",)),
    (r"examples/.*", ("uses-examples",)),
    (r"bench/.*", ("uses-bench",)),
    (r"contrib/libfabric/test/[^/]+", ("in-provider",)),
    (r"contrib/libfabric/.*", ("uses-provider",)),
    (r"contrib/(container/.*|(check_packages|try_packages|clean_root)\.sh)|\.dockerignore",
     ("uses-packaging",)),
    (r"contrib/rxe_guest/.*", ("uses-guest",)),
    (r"contrib/aarch64_root\.sh", ("uses-aarch64-root",)),
    (r"contrib/checks/clang_rest\.py", ("uses-clang-rest", "uses-tree")),
    (r"contrib/(checks/)?[^/]+|\.clang-format|\.clang-tidy|\.editorconfig|\.gitignore",
     ("uses-tree",)),
)]
TEST_FOLDER = re.compile(r"(contrib/libfabric/(?:conformance|test/mpi|test/shmem)|"
                         r"(?:vhca|tools)/test/[a-z]+(?=/)|tools/test|test/gtest/[a-z]+|"
                         r"test/(?!gtest/)[a-z]+)/")

PRODUCTS = {"uses-library", "uses-vhca", "uses-provider", "uses-command", "uses-examples",
            *(f"uses-{transport}" for transport in TRANSPORTS)}
CODE = PRODUCTS | {"in-*"}


def transports(*names):
    return {f"uses-{name}" for name in names}


def folders(*names):
    return {f"in-{name}" for name in names}


# Stage -> the labels that need it, None for any, and why only these. `in-*` is any folder of tests.
STAGES = {
    "build": (None, "tests need it"),
    "libfabric": ({"uses-provider"} | folders("provider", "conformance", "shmem"),
                  "it compiles what includes libfabric's headers"),
    "test": (None, "its tests are chosen by label"),
    "thirdparty": (CODE | {"uses-packaging", "uses-tree"},
                   "foreign programs, installation and long tests, in the release build"),
    # Dc, too: it asks each device whether it can.
    "kernel": ({"uses-library", "uses-command", "uses-guest"} | transports("rc", "dc", "ud") |
               folders("common", "contract", "kernel"),
               "the guest has rc and ud on soft-RoCE, the contract suite and the command"),
    "lint": (None, "it looks at the whole tree"),
    "asan": (CODE | {"uses-bench", "uses-clang-rest"},
             "it builds all but benchmarks and MPI, and clang's stage needs its build directory"),
    "clang": (CODE | {"uses-bench", "uses-clang-rest"},
              "it parses every source that asan's build leaves out"),
    "tsan": (PRODUCTS - {"uses-command", "uses-examples"},
             "no test for ThreadSanitizer is of the command or an example"),
    # Char is unsigned there and alignments differ, so that a warning or a static_assert of any
    # part may come there alone.
    "aarch64": (PRODUCTS - {"uses-provider"} | {"uses-aarch64-root"} |
                folders("common", "contract", "ib", "ucs", "match", "sm"),
                "it compiles all but the provider, and runs tests of ucs, match and sm"),
    "fuzz": (PRODUCTS - {"uses-provider", "uses-examples"} |
             folders("fuzz", "vhca-fuzz", "tools-fuzz", "contract", "ib", "sm"),
             "its program includes parsers of these parts"),
}


def labels_of(path):
    """The labels of a path; None where it is not known what stands on it."""
    found = TEST_FOLDER.match(path)
    if found and not path.endswith(".md"):
        return (label_of_folder(found[1]),)
    for pattern, labels in PATHS:
        if pattern.fullmatch(path):
            return labels
    return None


def label_of_folder(folder):
    """As tw_label_folder() of cmake/TagwireParts.cmake."""
    place = re.sub(r"^(contrib/libfabric/)?(test/)?(gtest/)?|/test$", "", folder)
    place = re.sub(r"^(vhca|tools)/test/", r"\1/", place)
    return "in-" + place.replace("/", "-")


def needs(wanted, label):
    """Whether a label is one of those that a stage wants."""
    return wanted is None or label in wanted or ("in-*" in wanted and label.startswith("in-"))
