// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/wire/cm_messages.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace tagwire::proto {

ReserveBytes encode(CmKind kind, CmVerdict verdict, WireBytes address, WireBytes private_data) {
    const CmHead head{kCmMagic,
                      kCmVersion,
                      kind,
                      verdict,
                      static_cast<std::uint16_t>(address.size()),
                      static_cast<std::uint16_t>(private_data.size())};
    ReserveBytes bytes(sizeof head);
    std::memcpy(bytes.data(), &head, sizeof head);
    bytes.insert(bytes.end(), address.begin(), address.end());
    bytes.insert(bytes.end(), private_data.begin(), private_data.end());
    return bytes;
}

std::size_t CmReader::wanted() const {
    return sizeof(CmHead) +
           (has_head_ ? std::size_t{message_.head.address_bytes} + message_.head.private_bytes : 0);
}

/// Another version may have anything behind the beginning of the head.
CmReader::State CmReader::take_head() {
    CmHead& head = message_.head;
    std::memcpy(&head, bytes_, sizeof head);
    if (head.magic != kCmMagic)
        return State::kForeign;
    if (head.version != kCmVersion)
        return State::kOtherVersion;
    has_head_ = true;
    const bool is_possible = head.kind == kind_ && head.verdict <= CmVerdict::kLast &&
                             head.address_bytes <= TW_ADDRESS_BYTES_MAX &&
                             head.private_bytes <= TW_PRIVATE_BYTES_MAX;
    return is_possible ? State::kMore : State::kForeign;
}

CmReader::State CmReader::read(int fd) {
    for (;;) {
        const ssize_t got = ::recv(fd, bytes_ + have_, wanted() - have_, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return State::kMore;
        if (got <= 0)
            return State::kForeign;
        have_ += static_cast<std::size_t>(got);
        if (have_ < wanted())
            continue;
        if (!has_head_) {
            if (const State state = take_head(); state != State::kMore)
                return state;
        }
        if (have_ == wanted())
            break;
    }
    const auto at = [this](std::size_t offset) { return bytes_ + sizeof(CmHead) + offset; };
    const CmHead& head = message_.head;
    message_.address.assign(at(0), at(head.address_bytes));
    message_.private_data.assign(at(head.address_bytes),
                                 at(head.address_bytes) + head.private_bytes);
    return State::kWhole;
}

}  // namespace tagwire::proto
