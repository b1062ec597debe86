#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""fi_pingpong between two processes: with and without tags, all sizes, data checked.

    pingpong.py FOLDER TRANSPORT
"""
import os
import socket
import subprocess
import sys
from pathlib import Path


def free_port():
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def is_listening(port):
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            words = line.split()
            if words[1].endswith(f":{port:04X}") and words[3] == "0A":
                return True
    return False


def play(kind, env):
    port = free_port()
    command = ["fi_pingpong", "-p", "tagwire", "-e", "rdm", "-m", kind, "-c", "-I", "5"]
    command += ["-S", "all"]
    with subprocess.Popen(command + ["-B", str(port)], env=env,
                          stdout=subprocess.DEVNULL) as server:
        try:
            while not is_listening(port):
                try:
                    return server.wait(0.05) or 1  # it ended before anybody came
                except subprocess.TimeoutExpired:
                    pass
            client = subprocess.run(command + ["-P", str(port), "127.0.0.1"], env=env, timeout=60,
                                    capture_output=True, text=True)
            print(f"{kind}:\n{client.stdout}{client.stderr}")
            # Every size has its line.
            return client.returncode or server.wait(60) or client.stdout.count("\n") < 40
        finally:
            server.kill()


def main():
    folder, transport = sys.argv[1:]
    env = dict(os.environ, FI_PROVIDER_PATH=folder, FI_TAGWIRE_TRANSPORTS=transport,
               TAGWIRE_CALIBRATION="none")
    failed = [kind for kind in ("msg", "tagged") if play(kind, env)]
    sys.exit(f"failed: {failed}" if failed else 0)


if __name__ == "__main__":
    main()
