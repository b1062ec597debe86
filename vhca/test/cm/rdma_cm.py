# SPDX-License-Identifier: BSD-3-Clause
"""What librdmacm writes to /dev/infiniband/rdma_cm, for test programs: connections without queue
pairs."""
import ctypes
import os
import select
import socket
import struct

CREATE_ID, DESTROY_ID, BIND_IP, RESOLVE_IP, RESOLVE_ROUTE = range(5)
CONNECT, LISTEN, ACCEPT, REJECT, DISCONNECT = range(6, 11)
GET_EVENT = 12
(ADDRESS_RESOLVED, _, ROUTE_RESOLVED, _, CONNECT_REQUEST, CONNECT_RESPONSE, _, UNREACHABLE,
 REJECTED, ESTABLISHED, DISCONNECTED) = range(11)
PS_TCP = 0x106
EVENT_BYTES = 336
PATH = "/dev/infiniband/rdma_cm"


def ip6_room(host, port):
    """An IPv4 address in the room of an IPv6 one."""
    address = struct.pack("=H", socket.AF_INET) + struct.pack("!H", port) + socket.inet_aton(host)
    return address.ljust(28, b"\0")


def parameters():
    return struct.pack("=II256sBBBBBBBB", 0x123, 0, b"", 0, 0, 1, 1, 0, 7, 7, 1)


class Channel:
    def __init__(self, flags=0):
        self.fd = os.open(PATH, os.O_RDWR | os.O_CLOEXEC | flags)
        self.uid = 0

    def command(self, number, body, out_bytes=0):
        """Where the answer goes is said by `body`, a function of its address."""
        out = ctypes.create_string_buffer(max(out_bytes, 1))
        data = body(ctypes.addressof(out)) if callable(body) else body
        os.write(self.fd, struct.pack("=IHH", number, len(data), out_bytes) + data)
        return out.raw

    def create(self):
        self.uid += 1
        out = self.command(CREATE_ID, lambda to: struct.pack("=QQHB5x", self.uid, to, PS_TCP, 0), 4)
        return struct.unpack("=I", out)[0]

    def destroy(self, number):
        self.command(DESTROY_ID, lambda to: struct.pack("=QII", to, number, 0), 4)

    def listening(self, port):
        number = self.create()
        self.command(BIND_IP, bytes(8) + ip6_room("0.0.0.0", port) + struct.pack("=I", number))
        self.command(LISTEN, struct.pack("=II", number, 8))
        return number

    def event(self):
        """Its type, status and identity."""
        out = self.command(GET_EVENT, lambda to: struct.pack("=Q", to), EVENT_BYTES)
        number, kind, status = struct.unpack_from("=IIi", out, 8)
        return kind, status, number

    def expect(self, wanted, status=0, limit_s=30):
        """The identity of the event that comes next."""
        readable = select.select([self.fd], [], [], limit_s)[0]
        assert readable, f"no event {wanted} within {limit_s} s"
        kind, told, number = self.event()
        assert (kind, told) == (wanted, status), f"event {kind} of status {told}, not {wanted}"
        return number

    def connecting(self, port, host="127.0.0.1"):
        number = self.create()
        self.command(RESOLVE_IP, bytes(28) + ip6_room(host, port) +
                     struct.pack("=II", number, 2000))
        self.expect(ADDRESS_RESOLVED)
        self.command(RESOLVE_ROUTE, struct.pack("=II", number, 2000))
        self.expect(ROUTE_RESOLVED)
        self.command(CONNECT, parameters() + struct.pack("=II8x", number, 0))
        return number

    def connected(self, port, host="127.0.0.1"):
        number = self.connecting(port, host)
        self.expect(CONNECT_RESPONSE)
        self.command(ACCEPT, struct.pack("=Q", 0) + bytes(272) + struct.pack("=II8x", number, 0))
        return number

    def accepted(self):
        number = self.expect(CONNECT_REQUEST)
        self.uid += 1
        self.command(ACCEPT, struct.pack("=Q", self.uid) + parameters() +
                     struct.pack("=II8x", number, 0))
        self.expect(ESTABLISHED)
        return number

    def disconnect(self, number):
        self.command(DISCONNECT, struct.pack("=I", number))
