#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Two processes with a virtual HCA each, in two network namespaces that a veth pair joins.

    udp_network_test.py PEER arrive          messages of every kind arrive
    udp_network_test.py PEER survive_drops   the same while nftables drops one packet in a hundred
    udp_network_test.py PEER dissect         tshark understands each packet; the CRCs are right

PEER is vhca_udp_peer. The namespaces have no name: they live as long as a process of this test
does, whose end of input is the end of this script, so nothing stays however it ends. Status 77:
this machine lacks something.
"""
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import zlib
from contextlib import ExitStack

SKIPPED = 77
ADDRESSES = ("10.93.7.1", "10.93.7.2")
TOOLS = {"arrive": [], "survive_drops": ["nft"], "dissect": ["tshark"]}
ROUNDS = {"arrive": 100, "survive_drops": 100, "dissect": 1}
FIRST_PSN = 0xfffffa
RULES = """table inet loss {
    chain in {
        type filter hook input priority 0;
        udp dport 4791 numgen random mod 100 < 1 counter drop
    }
}"""


def require(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


class Namespace:
    """A network namespace and the process that holds it."""

    def __init__(self, stack):
        self.holder = stack.enter_context(subprocess.Popen(
            ["unshare", "--net", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        stack.callback(self.holder.stdin.close)
        self.holder.stdin.write(b"\n")
        self.holder.stdin.flush()
        self.holder.stdout.read(1)  # from here on it is in a namespace of its own

    @property
    def pid(self):
        return str(self.holder.pid)

    def enter(self, *words):
        return ["nsenter", "--net", "--target", self.pid, *words]

    def run(self, *words, text=None):
        return subprocess.run(self.enter(*words), check=True, capture_output=True, text=True,
                              input=text).stdout


class Peer:
    def __init__(self, stack, program, namespace, address, role, rounds):
        self.process = stack.enter_context(subprocess.Popen(
            namespace.enter(program, address, role, str(rounds)), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True))
        stack.callback(self.process.kill)

    def hear(self):
        line = self.process.stdout.readline()
        require(line, "a peer ended before its time")
        return line

    def say(self, line):
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def end(self):
        self.process.stdin.close()
        require(self.process.wait() == 0, "a peer failed")


def make_network(stack):
    spaces = [Namespace(stack), Namespace(stack)]
    spaces[0].run("ip", "link", "add", "wire0", "type", "veth", "peer", "name", "wire1",
                  "netns", spaces[1].pid)
    for number, space in enumerate(spaces):
        space.run("ip", "address", "add", f"{ADDRESSES[number]}/24", "dev", f"wire{number}")
        space.run("ip", "link", "set", "lo", "up")
        space.run("ip", "link", "set", f"wire{number}", "up")
    return spaces


def talk(stack, program, spaces, rounds, before=lambda: None):
    """Returns what the peers said of themselves and, in the end, the active one's counters."""
    peers = [Peer(stack, program, space, address, role, rounds)
             for space, address, role in zip(spaces, ADDRESSES, ("active", "passive"))]
    lines = [peer.hear() for peer in peers]
    peers[0].say(lines[1])
    peers[1].say(lines[0])
    for peer in peers:
        require(peer.hear() == "ready\n", "a peer is not ready")
    before()
    peers[1].say("go\n")
    peers[0].say("go\n")
    counters = [int(word) for word in peers[0].hear().split()]
    peers[1].end()
    peers[0].end()
    names = [dict(zip(("qpn", "ud_qpn", "rkey", "base", "node"), map(int, line.split())))
             for line in lines]
    return names, dict(zip(("sent", "retransmits", "dropped"), counters))


def arrive(stack, program):
    _, counters = talk(stack, program, make_network(stack), ROUNDS["arrive"])
    require(counters["dropped"] == 0, f"good packets were dropped: {counters}")
    print(counters)


def drops_of(space):
    items = json.loads(space.run("nft", "--json", "list", "ruleset"))["nftables"]
    return sum(statement["counter"]["packets"] for item in items
               for statement in item.get("rule", {}).get("expr", []) if "counter" in statement)


def survive_drops(stack, program):
    spaces = make_network(stack)
    for space in spaces:
        space.run("nft", "--file", "-", text=RULES)
    _, counters = talk(stack, program, spaces, ROUNDS["survive_drops"])
    drops = sum(drops_of(space) for space in spaces)
    print(counters, "dropped by nftables:", drops)
    require(drops > 0, "nftables dropped nothing")
    require(counters["retransmits"] > 0, "nothing was sent again")


class Capture:
    """Everything that the wire carries, from now on. A socket remembers the namespace that it was
    made in; the thread that makes it comes back."""

    def __init__(self, stack, space):
        self.frames = []
        with open("/proc/self/ns/net", "rb") as home, \
                open(f"/proc/{space.pid}/ns/net", "rb") as there:
            set_namespace(there)
            try:
                self.socket = stack.enter_context(socket.socket(
                    socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)))
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
                self.socket.bind(("wire0", 0))
            finally:
                set_namespace(home)
        self.socket.setblocking(False)

    def take(self):
        """The frames so far that RoCE sent."""
        while True:
            try:
                frame = self.socket.recv(65536)
            except BlockingIOError:
                return self.frames
            if frame[12:14] == b"\x08\x00" and frame[23] == 17 and frame[36:38] == b"\x12\xb7":
                self.frames.append(frame)


def set_namespace(file):
    import ctypes  # os.setns() came with Python 3.12
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(file.fileno(), 0x40000000) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def write_pcap(path, frames):
    with open(path, "wb") as out:
        out.write(struct.pack("=IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, 65536, 1))
        for number, frame in enumerate(frames):
            out.write(struct.pack("=IIII", 1, number, len(frame), len(frame)) + frame)


def icrc(ip_packet):
    """Of what really travelled, written down independently of the library."""
    masked = bytearray(b"\xff" * 8 + ip_packet[:-4])
    for at in (1, 8, 10, 11, 26, 27, 32):
        masked[8 + at] = 0xff
    return zlib.crc32(masked).to_bytes(4, "little")


FIELDS = ["ip.src", "infiniband.bth.opcode", "infiniband.bth.destqp", "infiniband.bth.psn",
          "infiniband.reth.va", "infiniband.reth.r_key", "infiniband.reth.dmalen",
          "infiniband.aeth.syndrome", "infiniband.deth.q_key", "infiniband.deth.srcqp",
          "infiniband.immdt", "infiniband.atomiceth", "infiniband.atomicacketh.origremdt",
          "infiniband.invariant.crc", "_ws.malformed", "frame.len"]


def dissected(path):
    words = ["tshark", "-n", "-r", path, "-T", "fields", "-E", "separator=|", "-E",
             "occurrence=f"]
    for name in FIELDS:
        words += ["-e", name]
    output = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return [dict(zip((name.rpartition("infiniband.")[2] for name in FIELDS), line.split("|")))
            for line in output.splitlines()]


def number(text):
    return int(text, 16) if text.startswith("0x") else int(text)


def payload_packets(mtu, length):
    return (length + mtu - 1) // mtu


def wanted_requests(names, mtu):
    """What the active side sends in its round: opcode, RETH or not, its PSNs in order."""
    target = names[1]["base"] + 0x60000
    counter = names[1]["base"] + 0x70000
    reth = lambda length: {"reth.va": target, "reth.r_key": names[1]["rkey"],
                           "reth.dmalen": length}
    imm = {"immdt": 0x01020304}
    middles = payload_packets(mtu, 5000) - 2
    rows = [(0x04, {}, 1), (0x05, imm, 1),
            (0x00, {}, 1), *[(0x01, {}, 1)] * middles, (0x02, {}, 1),
            (0x06, reth(5000), 1), *[(0x07, {}, 1)] * middles, (0x08, {}, 1),
            (0x0b, {**reth(64), **imm}, 1), (0x0c, reth(5000), middles + 2),
            (0x14, {"atomiceth": (counter, names[1]["rkey"], 1, 0)}, 1),
            (0x13, {"atomiceth": (counter, names[1]["rkey"], 0, 1)}, 1)]
    psn = FIRST_PSN
    for opcode, fields, count in rows:
        yield {"bth.opcode": opcode, "bth.destqp": names[1]["qpn"], "bth.psn": psn, **fields}
        psn = (psn + count) & 0xffffff
    yield {"bth.opcode": 0x65, "bth.destqp": names[1]["ud_qpn"], "bth.psn": FIRST_PSN,
           "deth.q_key": 0x11111111, "deth.srcqp": names[0]["ud_qpn"], "immdt": 0xdadadada}


def check_row(row, wanted):
    for name, value in wanted.items():
        shown = row[name]
        require(shown, f"tshark shows no {name}: {row}")
        if name == "atomiceth":
            seen = struct.unpack("!QIQQ", bytes.fromhex(shown.replace(":", "")))
        elif name == "immdt":
            seen = int(shown.replace(":", ""), 16)
        else:
            seen = number(shown)
        require(seen == value, f"{name} is {shown}, not {value:#x}: {row}" if name != "atomiceth"
                else f"{name} is {seen}, not {value}: {row}")


def check_requests(rows, names, mtu):
    sent = [row for row in rows if row["ip.src"] == ADDRESSES[0]]
    requests = list(wanted_requests(names, mtu))
    require(len(sent) == len(requests), f"{len(sent)} requests, not {len(requests)}: {sent}")
    for row, wanted in zip(sent, requests):
        check_row(row, wanted)


def check_responses(rows, names):
    answers = [row for row in rows if row["ip.src"] == ADDRESSES[1]]
    opcodes = {number(row["bth.opcode"]) for row in answers}
    require(opcodes == {0x0d, 0x0e, 0x0f, 0x11, 0x12}, f"answers are {sorted(opcodes)}")
    for row in answers:
        require(number(row["bth.destqp"]) == names[0]["qpn"], f"an answer to another: {row}")
        has_aeth = number(row["bth.opcode"]) != 0x0e
        require(bool(row["aeth.syndrome"]) == has_aeth, f"AETH: {row}")
        require(not has_aeth or number(row["aeth.syndrome"]) == 0x1f, f"not an ACK: {row}")
    originals = [number(row["atomicacketh.origremdt"]) for row in answers
                 if number(row["bth.opcode"]) == 0x12]
    require(sorted(set(originals)) == [0, 1], f"atomics returned {originals}")


def record(program):
    """A round of which nothing was sent twice; a machine may be too busy for that at times."""
    for _ in range(5):
        with ExitStack() as stack:
            spaces = make_network(stack)
            capture = []
            names, counters = talk(stack, program, spaces, ROUNDS["dissect"],
                                   before=lambda: capture.append(Capture(stack, spaces[0])))
            if counters["retransmits"] == 0:
                return names, capture[0].take()
    sys.exit("FAILED: something was sent twice each time")


def dissect(stack, program):
    names, frames = record(program)
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    path = os.path.join(folder, "wire.pcap")
    write_pcap(path, frames)
    os.chmod(folder, 0o755)  # tshark gives up what root may
    rows = dissected(path)
    require(len(rows) == len(frames), "tshark counts other packets")
    for row, frame in zip(rows, frames):
        end = 14 + int.from_bytes(frame[16:18], "big")
        require(not row["_ws.malformed"], f"malformed: {row}")
        require(frame[14:end][-4:] == icrc(frame[14:end]), f"wrong CRC: {row}")
        require(number(row["invariant.crc"]) == int.from_bytes(frame[end - 4:end], "big"),
                f"tshark finds the CRC elsewhere: {row}")
        require(number(row["frame.len"]) <= 14 + 1500, f"fragmented: {row}")
    check_requests(rows, names, mtu=1024)
    check_responses(rows, names)
    print(f"{len(rows)} packets")


def lacking(case):
    if os.geteuid() != 0:
        return "root"
    for tool in ["ip", "unshare", "nsenter", *TOOLS[case]]:
        if shutil.which(tool) is None:
            return tool
    made = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False)
    return "network namespaces" if made.returncode != 0 else ""


def main():
    program, case = sys.argv[1:]
    if missing := lacking(case):
        print(f"skipped: needs {missing}")
        return 1 if os.environ.get("TAGWIRE_TEST_REQUIRE_ALL") == "1" else SKIPPED
    with ExitStack() as stack:
        globals()[case](stack, program)
    return 0


if __name__ == "__main__":
    sys.exit(main())
