// SPDX-License-Identifier: BSD-3-Clause
#include "ib/nonsense.hpp"

#include <endian.h>

#include <algorithm>
#include <cstring>

#include "ib/siege.hpp"
#include "uct/ib/message.hpp"

namespace tagwire::test {

namespace {

constexpr std::size_t kSegBytes = Siege::kSegBytes;

}  // namespace

Place place_of(const Entity& entity, const Buffer& buffer) {
    const RemoteKey key(entity, buffer.packed_rkey());
    return {buffer.address(), static_cast<std::uint32_t>(key.get())};
}

Message Nonsense::next() {
    Message message;
    switch (random_() % 9) {
        case 0:
            message.bytes.resize(random_() % 48);
            scribble(message.bytes, 0);
            break;
        case 1:
        case 2:
            message = untagged();
            break;
        case 3:
            message = tagged(IBV_TMH_FIN, 16 + (random_() % 4 == 0 ? random_() % 100 : 0));
            break;
        case 4:
            message = rendezvous();
            break;
        case 5:
            message = write();
            break;
        case 6:
            message = answer_to ? question() : untagged();
            break;
        default:
            message = tagged(random_() % 8 == 0 ? random_() : std::uint64_t{IBV_TMH_EAGER},
                             16 + random_() % (kSegBytes + 1));
            break;
    }
    if (random_() % 4 == 0)
        message.way.imm = random_() % 2 == 0 ? 0 : static_cast<std::uint32_t>(random_());
    if (random_() % 200 == 0)
        message.bytes.resize(kSegBytes + 17 + random_() % 100);  // longer than a buffer
    return message;
}

void Nonsense::scribble(std::vector<std::byte>& bytes, std::size_t from) {
    for (std::size_t i = from; i < bytes.size(); ++i)
        bytes[i] = static_cast<std::byte>(random_());
}

Message Nonsense::untagged() {
    Message message;
    message.bytes.resize(8 + random_() % (kSegBytes + 9));
    scribble(message.bytes, 8);
    const ib::Prefix head{IBV_TMH_NO_TAG, static_cast<ib::MessageKind>(random_() % 7),
                          static_cast<std::uint8_t>(random_() % 40),
                          static_cast<std::uint8_t>(random_() % 3 == 0 ? random_() : 0),
                          htobe32(static_cast<std::uint32_t>(random_() % 4 - 1))};
    std::memcpy(message.bytes.data(), &head, sizeof head);
    return message;
}

/// A question about the progress of an unknown endpoint.
Message Nonsense::question() {
    Message message;
    const ib::Prefix head{IBV_TMH_NO_TAG, ib::MessageKind::kAsk, 0, 0, 0};
    message.bytes.resize(sizeof head + 8);
    scribble(message.bytes, 0);
    std::memcpy(message.bytes.data(), &head, sizeof head);
    const Bytes to = answer_to();
    message.bytes.insert(message.bytes.end(), to.begin(), to.end());
    return message;
}

Message Nonsense::tagged(std::uint64_t opcode, std::size_t bytes) {
    Message message;
    message.bytes.resize(bytes);
    scribble(message.bytes, 0);
    ibv_tmh head{};
    head.opcode = static_cast<std::uint8_t>(opcode);
    head.reserved[0] = static_cast<std::uint8_t>(random_() % 3);
    head.app_ctx = htobe32(static_cast<std::uint32_t>(
        random_() % 2 == 0 ? random_() % 4 + (random_() % 4 << 16) : random_()));
    head.tag = htobe64(std::uint64_t{random_() % 8 + (random_() % 4 == 0 ? 1U << 20 : 0)});
    std::memcpy(message.bytes.data(), &head, sizeof head);
    return message;
}

Message Nonsense::rendezvous() {
    Message message = tagged(IBV_TMH_RNDV, 16 + random_() % 100);
    const bool is_right = random_() % 2 == 0;
    ibv_rvh from{};
    from.va = htobe64(is_right ? readable_().address : random_());
    from.rkey = htobe32(is_right ? readable_().rkey : static_cast<std::uint32_t>(random_()));
    from.len = htobe32(
        static_cast<std::uint32_t>(random_() % 3 == 0 ? random_() : random_() % (2 * kSegBytes)));
    std::memcpy(message.bytes.data() + 16, &from, std::min(sizeof from, message.bytes.size() - 16));
    if (answer_to && random_() % 4 != 0) {
        const Bytes to = answer_to();
        message.bytes.resize(std::max(message.bytes.size(), 32 + to.size()));
        std::copy(to.begin(), to.end(), message.bytes.begin() + 32);
    }
    return message;
}

/// Takes a receive buffer, and writes nothing to it.
Message Nonsense::write() {
    Message message = tagged(IBV_TMH_EAGER, random_() % 2 == 0 ? 16 : Stranger::kMessageBytesMax);
    message.way.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    message.way.imm = 0;
    message.way.remote_addr = writable_.address;
    message.way.rkey = writable_.rkey;
    return message;
}

}  // namespace tagwire::test
