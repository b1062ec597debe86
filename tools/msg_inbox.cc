// SPDX-License-Identifier: BSD-3-Clause
#include "tools/msg_inbox.hpp"

#include <array>

namespace tagwire::tools {

MsgInbox::MsgInbox(MsgLink& link, MemoryKind memory, std::size_t message_bytes)
    : link_(link),
      control_offset_((message_bytes + 63) / 64 * 64),
      // Peers need a key, so ordinary memory has a handle here in any case.
      mine_(link.context(), memory == MemoryKind::kAlloc ? memory : MemoryKind::kMapped,
            control_offset_ + 64) {
    exchange_keys();
}

MsgInbox::~MsgInbox() {
    tw_key_free(key_);
}

void MsgInbox::exchange_keys() {
    std::array<std::uint8_t, TW_KEY_BYTES_MAX> key{};
    std::size_t length = key.size();
    check(tw_mem_pack(mine_.handle(), key.data(), &length), "tw_mem_pack");
    Encoder message;
    message.number(reinterpret_cast<std::uintptr_t>(mine_.data()))
        .number(mine_.bytes())
        .blob(key.data(), length);
    link_.channel().send(MessageType::kRegion, message);
    Decoder theirs = link_.channel().expect(MessageType::kRegion);
    remote_ = theirs.number();
    const std::uint64_t bytes = theirs.number();
    const Bytes packed = theirs.blob(TW_KEY_BYTES_MAX);
    theirs.end();
    if (bytes != mine_.bytes())
        throw Failure("the peer offered memory of another size than agreed");
    check(tw_key_unpack(link_.worker(), packed.data(), packed.size(), &key_), "tw_key_unpack");
}

ucs_status_t MsgInbox::try_put_control(std::uint64_t value) const {
    tw_op_t op{};
    op.flags = TW_OP_INJECT | TW_OP_FENCE;
    // SYNC msg_inbox(word): the layer's put is the store that load() of the other side sees.
    const tw_status_t status = tw_put(link_.endpoint(), &value, sizeof value,
                                      remote_ + control_offset_, key_, &op, nullptr);
    if (status < 0 && status != TW_ERR_NO_RESOURCE)
        throw Failure(text("tw_put: %s", tw_status_string(status)));
    return status >= 0 ? UCS_OK : UCS_ERR_NO_RESOURCE;
}

}  // namespace tagwire::tools
