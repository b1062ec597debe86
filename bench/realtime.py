# SPDX-License-Identifier: BSD-3-Clause
"""Real-time priority for what is measured, where this process may give it.

Measured programs run under SCHED_FIFO (chrt -f), so that others on the same CPUs hardly show. Where
the system does not throttle them, this process keeps a higher priority, else it could not end one
that spins for ever. Where it does, this process stays an ordinary one: it was seen in a loop of the
kernel (6.18) for as long as it had real-time priority, and ended at once without it.
"""
import os
import shutil
from pathlib import Path

PRIORITY = 10
KERNEL = Path("/proc/sys/kernel")


class Priority:
    """`launcher`: the words before each command that is measured; `note`: for the results."""

    def __init__(self, launcher, note):
        self.launcher = launcher
        self.note = note


def throttling(kernel=KERNEL):
    """How the system limits real-time processes, as words; None where it does not."""
    try:
        runtime, period = (int((kernel / f"sched_rt_{name}_us").read_text(encoding="ascii"))
                           for name in ("runtime", "period"))
    except (OSError, ValueError):
        return None
    if runtime < 0 or runtime >= period:
        return None
    return (f"throttled to {runtime / 1000:g} of {period / 1000:g} ms, "
            f"kernel.sched_rt_runtime_us = {runtime}")


def begin(wanted=True):
    """Raises this process, and returns the Priority of those that it starts."""
    if not wanted:
        return Priority([], "without real-time priority, as --no-realtime says")
    if shutil.which("chrt") is None:
        return Priority([], "without real-time priority: no chrt here (package util-linux)")
    limits = throttling()
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY + 1))
        if limits is not None:
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    except OSError as problem:
        return Priority([], f"without real-time priority: {problem.strerror}")
    return Priority(["chrt", "-f", str(PRIORITY)],
                    f"with real-time priority (chrt -f {PRIORITY}), " +
                    (limits or "not throttled (kernel.sched_rt_runtime_us)"))
