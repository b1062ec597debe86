// SPDX-License-Identifier: BSD-3-Clause
#include "atomic_messages.hpp"

#include <rdma/fi_errno.h>

#include <cstring>

namespace tagwire::fi {

namespace {

/// False: the counts are not what the header says, or one is 0.
bool read_segments(const AtomicHeader& header, AtomicBytes data, AtomicRequest* request) {
    std::memcpy(request->segments_room.data(), data.data(),
                header.segments * sizeof(AtomicSegment));
    request->segments = {request->segments_room.data(), header.segments};
    std::size_t left = header.count;
    for (const AtomicSegment& segment : request->segments) {
        if (segment.count == 0 || segment.count > left)
            return false;
        left -= segment.count;
    }
    return left == 0;
}

}  // namespace

int decode(AtomicBytes bytes, AtomicBytes data, AtomicRequest* request) {
    AtomicHeader header;
    if (bytes.size() != sizeof header)
        return FI_EINVAL;
    std::memcpy(&header, bytes.data(), sizeof header);
    request->id = header.id;
    if (header.kind > static_cast<std::uint8_t>(AtomicKind::kCompare))
        return FI_EINVAL;
    request->kind = static_cast<AtomicKind>(header.kind);
    request->apply = find_atomic(request->kind, header.op, header.datatype);
    if (request->apply == nullptr)
        return FI_EOPNOTSUPP;
    request->changes = header.op != FI_ATOMIC_READ;
    request->element_bytes = atomic_bytes_of(header.datatype);
    if (header.count > kAtomicBytesMax / request->element_bytes)
        return FI_EMSGSIZE;
    request->bytes = header.count * request->element_bytes;
    if (header.segments == 0 || header.segments > kAtomicSegmentsMax)
        return FI_EINVAL;
    const std::size_t head = header.segments * sizeof(AtomicSegment);
    const std::size_t operand_bytes = request->changes ? request->bytes : 0;
    const std::size_t compare_bytes = request->kind == AtomicKind::kCompare ? request->bytes : 0;
    if (data.size() != head + operand_bytes + compare_bytes ||
        !read_segments(header, data, request))
        return FI_EINVAL;
    request->operands = operand_bytes == 0 ? nullptr : data.data() + head;
    request->compares = compare_bytes == 0 ? nullptr : data.data() + head + operand_bytes;
    return 0;
}

}  // namespace tagwire::fi
