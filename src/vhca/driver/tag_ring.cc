// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>

#include "vhca/driver/rings.hpp"

namespace tagwire::vhca::driver {

namespace {
constexpr std::uint32_t kNoHandle = ~std::uint32_t{0};  // of no receive: removing it fails
}

bool TagRing::carry_out(const Wqe& wqe, Srq& srq, Time now) {
    const TagCommand& command = wqe.tag;
    const bool has_buffer = command.sge.length != 0;
    TagWork work;
    work.flags = (command.wants_completion ? unsigned{IBV_OPS_SIGNALED} : 0U) |
                 (command.has_count ? unsigned{IBV_OPS_TM_SYNC} : 0U);
    work.unexpected_count = command.count;
    std::uint16_t index = 0;
    switch (command.kind) {
        case TagCommand::Kind::kNop:
            work.opcode = IBV_WR_TAG_SYNC;
            break;
        case TagCommand::Kind::kAppend:
            index = indices_.take(command.index);
            work.opcode = IBV_WR_TAG_ADD;
            work.tag = command.tag;
            work.mask = command.mask;
            work.sges = {&command.sge, has_buffer ? 1U : 0U};
            break;
        case TagCommand::Kind::kRemove: {
            index = command.index;
            const std::uint32_t* handle = indices_.find(index);
            work.opcode = IBV_WR_TAG_DEL;
            work.handle = handle == nullptr ? kNoHandle : *handle;
            break;
        }
    }
    work.wr_id = work.recv_wr_id = EntryName{index, 0}.pack();
    std::size_t failed = 0;
    if (srq.post_ops({&work, 1}, &failed, now) != 0) {
        return false;
    }
    if (command.kind == TagCommand::Kind::kAppend) {
        indices_.put(index, work.handle);
    }
    return true;
}

bool TagRing::look(Qp& qp, Srq& srq, Time now) {
    if (qp.state() < IBV_QPS_RTS) {
        return false;
    }
    unsigned taken = 0;
    bool has_sent = false;
    while (taken != SendRing::kEntriesPerLook && ring_.fetch()) {
        if (ring_.wqe_.is_tag_command) {
            ring_.is_gone_ = !carry_out(ring_.wqe_, srq, now);
        } else if (const int error = ring_.post(qp); error == ENOMEM) {
            break;
        } else {
            ring_.is_gone_ = error != 0;
            has_sent = has_sent || error == 0;
        }
        if (ring_.is_gone_) {
            break;
        }
        ring_.seen_ = static_cast<std::uint16_t>(ring_.seen_ + ring_.wqe_.blocks);
        ++taken;
    }
    if (has_sent) {
        qp.ring(now);
    }
    return taken != 0;
}

}  // namespace tagwire::vhca::driver
