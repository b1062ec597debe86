# SPDX-License-Identifier: BSD-3-Clause
"""`tagwire perf` and others of its subcommands, each run as a process of its own."""
import json

from ucx_peer import TIMEOUT_S, run


class Tagwire:
    """cpus: "A,B", or empty for those that the command takes. launcher: what starts it."""

    def __init__(self, command, cpus="", launcher=()):
        self.command = command
        self.cpus = cpus
        self.launcher = launcher

    def results(self, tests, arguments=(), environment=None, timeout=TIMEOUT_S):
        """The results of `tagwire perf` as its JSON has them."""
        pinned = ["--cpu", self.cpus] if self.cpus else []
        return self.document(["perf", *tests, *arguments, *pinned], environment,
                             timeout)["results"]

    def document(self, words, environment=None, timeout=TIMEOUT_S):
        """The JSON that the command prints."""
        printed = run([*self.launcher, self.command, *words, "--json", "-"], environment, timeout)
        return json.loads(printed)

    def perf(self, test, arguments=(), environment=None):
        return self.results([test], arguments, environment)[0]

    def version(self):
        return run([self.command, "--version"]).split()[-1]
