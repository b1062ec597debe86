// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/wire.hpp"

#include <algorithm>

namespace tagwire::tcp {

namespace {

std::size_t data_bytes_max(Kind kind) {
    switch (kind) {
        case Kind::kAm:
        case Kind::kTagEager:
        case Kind::kTagRequest:
        case Kind::kRts:
            return kSegBytesMax;
        case Kind::kPut:
        case Kind::kGetData:
            return kFrameDataMax;
        default:
            return 0;
    }
}

}  // namespace

Verdict check_hello(const Hello& hello, const Cookie& own) {
    if (hello.magic != kHelloMagic || hello.version_min > hello.version_max)
        return Verdict::kForeign;
    if (!is_equal(hello.wanted, own))
        return Verdict::kCookie;
    if (hello.version_max < kVersionMin || hello.version_min > kVersionMax)
        return Verdict::kVersion;
    if (hello.seg_bytes_max < kSegBytesMax)
        return Verdict::kLimits;
    return Verdict::kWelcome;
}

const char* sentence_of(Verdict verdict) {
    switch (verdict) {
        case Verdict::kWelcome:
            return "the peer is welcome";
        case Verdict::kCrossed:
            return "both sides opened a connection; that of the other side stands";
        case Verdict::kForeign:
            return "the first bytes are no greeting of this protocol: an address of a tagwire "
                   "interface was expected to lead here";
        case Verdict::kVersion:
            return "the two sides have no version of the protocol in common: use the same release "
                   "of tagwire on both";
        case Verdict::kCookie:
            return "the cookie is not that of the interface: connect by its present address, it "
                   "may have been opened anew";
        case Verdict::kLimits:
            return "the peer takes shorter messages than this version may send";
        case Verdict::kInstance:
            return "another peer has the name of this one: its cookie differs";
    }
    return "the peer's reply has an unknown verdict";
}

bool is_reply(const Reply& reply, std::uint64_t instance) {
    return reply.magic == kReplyMagic && reply.instance == instance;
}

std::uint16_t version_of(const Hello& hello) {
    return std::min(hello.version_max, kVersionMax);
}

std::size_t body_bytes(Kind kind) {
    switch (kind) {
        case Kind::kTagEager:
            return sizeof(TagEagerBody);
        case Kind::kTagRequest:
            return sizeof(TagRequestBody);
        case Kind::kRts:
            return sizeof(RtsBody);
        case Kind::kPut:
            return sizeof(PutBody);
        case Kind::kGetRequest:
            return sizeof(GetRequestBody);
        case Kind::kGetData:
            return sizeof(GetDataBody);
        case Kind::kDone:
            return sizeof(DoneBody);
        case Kind::kFlushRequest:
            return sizeof(FlushRequestBody);
        default:
            return 0;
    }
}

bool is_possible(const FrameHead& head) {
    const auto kind = static_cast<std::uint8_t>(head.kind);
    if (kind == 0 || kind > kKindMax || (head.kind == Kind::kAm && head.value >= UCT_AM_ID_MAX))
        return false;
    const std::size_t body = body_bytes(head.kind);
    return head.bytes >= body && head.bytes - body <= data_bytes_max(head.kind);
}

}  // namespace tagwire::tcp
