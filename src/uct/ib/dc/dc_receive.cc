// SPDX-License-Identifier: BSD-3-Clause
// The receiving half of dc. Anybody who knows the target's address and key can send to it, so
// every field of a message is checked before it is used.
#include <endian.h>

#include <cstring>

#include "ucs/log/log.hpp"
#include "uct/ib/dc/dc_iface.hpp"

namespace tagwire::dc {

using ib::MessageKind;

unsigned DcIface::progress() {
    return progress_by(
        [](std::uint32_t) { return static_cast<ib::MessageEp*>(nullptr); },
        [this](const ib::Completion& completion) { return deliver_common(completion); },
        [this](const ib::Completion& completion) { deliver(completion); });
}

// An active message.
[[gnu::always_inline]] inline bool DcIface::deliver_common(const ib::Completion& completion) {
    ib::Prefix head;
    if (!is_plain_am(completion, &head)) [[unlikely]]
        return false;
    std::byte* const message = receives.message(completion.wr_id);
    receives.consumed();
    deliver_am(nullptr, message, head.value, completion.byte_len - sizeof head);
    return true;
}

[[gnu::noinline]] void DcIface::deliver(const ib::Completion& completion) {
    std::byte* message = receives.message(completion.wr_id);
    receives.consumed();
    const std::size_t bytes = completion.byte_len;
    // The device counts what it hands over unmatched, garbage too, and wants to hear of each.
    if (completion.opcode == IBV_WC_TM_RECV)
        tag_list.count_unexpected(completion.flags);
    if (completion.status != IBV_WC_SUCCESS || bytes < ib::kMessageBytesMin ||
        completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM) [[unlikely]] {
        receives.put_back(message);
        if (completion.status == IBV_WC_SUCCESS)
            garbage("a message shorter than its header, or a write with an immediate");
        return;  // else its sender went within it
    }
    if (static_cast<std::uint8_t>(message[0]) != IBV_TMH_NO_TAG)
        deliver_tagged(message, bytes, completion);
    else if ((completion.flags & IBV_WC_WITH_IMM) == 0) [[likely]]
        deliver_untagged(message, bytes);
    else if (ib::BareHead::is_valid(completion.imm))
        deliver_bare(nullptr, message, ib::BareHead::of(completion.imm), bytes);
    else
        drop(message, "a message of an unknown kind");
}

void DcIface::drop(std::byte* message, const char* what) {
    receives.put_back(message);
    garbage(what);
}

void DcIface::deliver_untagged(std::byte* message, std::size_t bytes) {
    ib::Prefix head;
    std::memcpy(&head, message, sizeof head);
    const std::size_t length = bytes - sizeof head;
    switch (head.kind) {
        case MessageKind::kAm:
            if (head.value < UCT_AM_ID_MAX && head.padding <= length) [[likely]]
                return deliver_am(nullptr, message, head.value, length - head.padding);
            break;
        case MessageKind::kAsk:
            if (length == sizeof(Progress) + sizeof(ReturnAddress)) {
                flow_.take_question(message + sizeof head);
                return receives.put_back(message);
            }
            break;
        case MessageKind::kGrant:
            if (length == sizeof(Progress)) {
                flow_.take_grant(message + sizeof head);
                return receives.put_back(message);
            }
            break;
        default:
            break;
    }
    drop(message, "a message of an unknown kind");
}

void DcIface::deliver_tagged(std::byte* message, std::size_t bytes,
                             const ib::Completion& completion) {
    ibv_tmh head;
    std::memcpy(&head, message, sizeof head);
    const uct_tag_t tag = be64toh(head.tag);
    if (head.opcode == IBV_TMH_FIN) {
        receives.put_back(message);
        return deliver_fin(nullptr, be32toh(head.app_ctx));
    }
    if (head.opcode == IBV_TMH_EAGER && has_tag_callbacks()) [[likely]] {
        std::uint64_t imm = 0;
        if ((completion.flags & IBV_WC_WITH_IMM) != 0) {
            imm = std::uint64_t{be32toh(head.app_ctx)} << 32 | completion.imm;
            if (imm == 0)
                return deliver_request(nullptr, message, bytes, tag);
        }
        return deliver_eager(nullptr, message, bytes - sizeof head, tag, imm);
    }
    if (head.opcode == IBV_TMH_RNDV && has_tag_callbacks() &&
        bytes >= sizeof head + sizeof(ibv_rvh) + answer_to.size()) {
        const std::byte* from = message + sizeof head + sizeof(ibv_rvh);
        if (ib::MessageEp* ep = way_back({from, answer_to.size()}); ep != nullptr)
            return deliver_rndv(*ep, message, bytes, tag);
    }
    drop(message, "a tagged message of an unknown kind");
}

ib::MessageEp* DcIface::way_back(std::span<const std::byte> given) {
    ReturnAddress from = return_address_;
    std::memcpy(&from, given.data(), given.size());
    if (given.size() == sizeof(ReturnTarget)) {
        // In our subnet and partition, where its LID says.
        from.port.lid = from.target.lid;
        std::memset(from.port.gid + sizeof from.port.gid / 2, 0, sizeof from.port.gid / 2);
        from.port.check = 0;
        from.port.check = ib::checksum(std::as_bytes(std::span(&from.port, 1)));
    }
    DcEp* ep = endpoints_.way_back_to(from);
    return ep != nullptr && ep->failure == UCS_OK ? ep : nullptr;
}

}  // namespace tagwire::dc
