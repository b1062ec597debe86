# SPDX-License-Identifier: BSD-3-Clause
"""Facts of this machine that figures depend on."""
import os
import platform
import time


def cpu_model(info="/proc/cpuinfo"):
    """Name, family and model: hypervisors shorten names, "AMD EPYC" stands for many."""
    found = {}
    with open(info, encoding="ascii", errors="replace") as file:
        for line in file:
            key, _, value = line.partition(":")
            found.setdefault(key.strip(), value.strip())
    if "model name" not in found:
        return platform.machine()
    numbers = [f"{key} {found[key]}" for key in ("cpu family", "model") if key in found]
    return " ".join([found["model name"], *([f"({', '.join(numbers)})"] if numbers else [])])


def allowed_cpus():
    return sorted(os.sched_getaffinity(0))


def two_cpus():
    """Those that `tagwire perf` takes, where none are named: of the side that measures, and of the
    other."""
    allowed = allowed_cpus()
    return allowed[0], allowed[min(1, len(allowed) - 1)]


def facts(cpus):
    return {"Date": time.strftime("%Y-%m-%d %H:%M %Z"),
            "Host": f"{platform.node()}, {cpu_model()}, {os.cpu_count()} cores; measured on cpus "
                    f"{cpus[0]} and {cpus[1]}",
            "Kernel": f"{platform.system()} {platform.release()}"}


def load_warning():
    """Empty while two cores are free."""
    load, cpus = os.getloadavg()[0], len(allowed_cpus())
    if cpus - round(load) >= 2:
        return ""
    return (f"Fewer than two cores were free at the beginning ({cpus} allowed, load {load:.1f}): "
            "both sides spin, so these figures may be 10 to 100 times worse than on an idle "
            "machine.")
