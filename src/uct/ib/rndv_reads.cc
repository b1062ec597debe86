// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/rndv_reads.hpp"

#include <endian.h>

#include <algorithm>

#include "ucs/debug/check.hpp"
#include "uct/ib/message_receiver.hpp"

namespace tagwire::ib {

ucs_status_t RndvReads::init() {
    return pool_.init({.name = "rendezvous reads", .elements_per_chunk = 64});
}

void RndvReads::start(MessageEp& ep, SoftReceive& receive, uct_tag_t tag, const ibv_tmh& head,
                      const ibv_rvh& from) {
    RndvRead* read = pool_.create();
    TW_CHECK(read != nullptr);  // the pool has no limit
    *read = RndvRead{.receive = &receive,
                     .ep = &ep,
                     .tag = tag,
                     .remote_addr = be64toh(from.va),
                     .length = be32toh(from.len),
                     .wanted = 0,
                     .asked = 0,
                     .rkey = be32toh(from.rkey),
                     .id = head.app_ctx,
                     .under_way = 0,
                     .status = UCS_OK};
    if (read->length <= receive.capacity())
        read->wanted = read->length;
    else
        read->status = UCS_ERR_MESSAGE_TRUNCATED;  // nothing is read, and the sender is told
    owner_.count(MessageCounter::kSoftwareReads);
    receive.is_read = true;
    ++under_way_;
    ++ep.reads;
    if (!step(*read)) {
        waiting_.push_back(read);
        owner_.has_work = true;
    }
}

// False: it waits for room. A read that failed tells the sender nothing: its endpoint fails, too.
bool RndvReads::step(RndvRead& read) {
    MessageEp& ep = *read.ep;
    while (ep.failure == UCS_OK && read.asked < read.wanted) {
        if (!ep.gets_room(1))
            return read.under_way > 0;  // the next step comes with a completion
        SendOp* op = owner_.small.get();
        if (op == nullptr) {
            owner_.source->gave_up(ep);
            owner_.sends.ask_for_completions();
            return read.under_way > 0;
        }
        const std::size_t bytes = std::min(read.wanted - read.asked, owner_.limits.message_max);
        op->read = &read;
        ibv_sge sge{address_of(read.receive->buffer + read.asked),
                    static_cast<std::uint32_t>(bytes), read.receive->lkey};
        ibv_send_wr request{};
        request.sg_list = &sge;
        request.num_sge = 1;
        request.opcode = IBV_WR_RDMA_READ;
        request.wr.rdma.remote_addr = read.remote_addr + read.asked;
        request.wr.rdma.rkey = read.rkey;
        if (ep.post_op(op, SendOp::Kind::kRndvRead, request, nullptr) != UCS_OK)
            break;
        read.asked += bytes;
        ++read.under_way;
    }
    if (read.under_way > 0)
        return true;
    if (ep.failure != UCS_OK)
        read.status = ep.failure;
    else if (!tell_end(read))
        return false;
    finish(read);
    return true;
}

bool RndvReads::tell_end(const RndvRead& read) {
    MessageEp& ep = *read.ep;
    if (!ep.gets_room(1))
        return false;
    ibv_tmh end{};
    end.opcode = IBV_TMH_FIN;
    end.app_ctx = read.id;
    ibv_sge sge{address_of(&end), sizeof end, 0};
    ibv_send_wr request{};
    request.sg_list = &sge;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND;
    request.send_flags = IBV_SEND_INLINE;
    ep.post(request, false);
    return true;
}

void RndvReads::finish(RndvRead& read) {
    SoftReceive& receive = *read.receive;
    const uct_tag_t tag = read.tag;
    const std::size_t length = read.length;
    const ucs_status_t status = read.status;
    --under_way_;
    --read.ep->reads;
    pool_.destroy(&read);
    owner_.complete(receive, tag, 0, length, status);
}

void RndvReads::part_done(RndvRead& read, ucs_status_t status) {
    --read.under_way;
    if (status != UCS_OK && read.status == UCS_OK)
        read.status = status;
    if (!step(read)) {
        waiting_.push_back(&read);
        owner_.has_work = true;
    }
}

unsigned RndvReads::step_all() {
    unsigned moved = 0;
    ucs::ReserveVector<RndvRead*> waiting;
    waiting.swap(waiting_);
    for (RndvRead* read : waiting)
        if (step(*read))
            ++moved;
        else
            waiting_.push_back(read);
    return moved;
}

void RndvReads::end_all(MessageEp& ep) {
    ucs::ReserveVector<RndvRead*> ended;
    std::erase_if(waiting_, [&](RndvRead* read) {
        if (read->ep == &ep)
            ended.push_back(read);
        return read->ep == &ep;
    });
    for (RndvRead* read : ended) {
        read->status = ep.failure;
        finish(*read);
    }
}

}  // namespace tagwire::ib
