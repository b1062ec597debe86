// SPDX-License-Identifier: BSD-3-Clause
// Rendezvous: sends that wait for their end, and those whose data software reads.
#include <utility>

#include "ucs/debug/check.hpp"
#include "uct/completion.hpp"
#include "uct/ib/message_iface.hpp"

namespace tagwire::ib {

// ---- Rendezvous sends

RndvSend* MessageIface::new_rndv(MessageEp& ep, uct_completion_t* comp) {
    if (!rndv_room())
        return nullptr;
    if (rndv_free_ == nullptr) {
        // A buffer for the message that ends it is there before it begins.
        if ((has_ends_queue_ ? ends_ : receives_).want(1) != UCS_OK)
            return nullptr;
        rndvs_.push_back(std::make_unique<RndvSend>());
        rndv_free_ = rndvs_.back().get();
        rndv_free_->id = static_cast<std::uint32_t>(rndvs_.size() - 1);
        rndv_free_->next = nullptr;
    }
    RndvSend* send = rndv_free_;
    rndv_free_ = send->next;
    ++rndvs_under_way_;
    send->id += 1U << rndv_index_bits_;
    send->ep = &ep;
    send->comp = comp;
    send->serial = ++rndv_serial_;
    send->next = nullptr;
    if (ep.rndv_first_ == nullptr) {
        ep.rndv_first_ = send;
        send->prev = send;
    } else {
        send->prev = std::exchange(ep.rndv_first_->prev, send);
        send->prev->next = send;
    }
    return send;
}

void MessageIface::drop_rndv(RndvSend& send) {
    MessageEp& ep = *send.ep;
    RndvSend*& pointer = &send == ep.rndv_first_ ? ep.rndv_first_ : send.prev->next;
    pointer = send.next;
    RndvSend* behind = send.next != nullptr ? send.next : ep.rndv_first_;
    if (behind != nullptr)
        behind->prev = send.prev;
    send.ep = nullptr;
    send.next = rndv_free_;
    rndv_free_ = &send;
    --rndvs_under_way_;
}

RndvSend* MessageIface::rndv_of(std::uint32_t id) const {
    const std::uint32_t index = id & ((1U << rndv_index_bits_) - 1);
    RndvSend* send = index < rndvs_.size() ? rndvs_[index].get() : nullptr;
    return send != nullptr && send->ep != nullptr && send->id == id ? send : nullptr;
}

void MessageIface::deliver_fin(const MessageEp* from, std::uint32_t id) {
    RndvSend* send = rndv_of(id);
    if (send == nullptr || (from != nullptr && send->ep != from))
        return;  // cancelled meanwhile, or never ours
    MessageEp& ep = *send->ep;
    uct_completion_t* comp = send->comp;
    drop_rndv(*send);
    uct::invoke_completion(comp, UCS_OK);
    settle_flushes(ep);
}

void MessageEp::end_rendezvous(ucs_status_t status) {
    while (rndv_first_ != nullptr) {
        uct_completion_t* comp = rndv_first_->comp;
        owner().drop_rndv(*rndv_first_);
        uct::invoke_completion(comp, status);
    }
}

// ---- Rendezvous that software carries out: reads, then a message that tells the sender

void MessageIface::start_read(MessageEp& ep, SoftReceive& receive, uct_tag_t tag,
                              const ibv_tmh& head, const ibv_rvh& from) {
    RndvRead* read = reads_.create();
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
    if (read->length <= receive.capacity)
        read->wanted = read->length;
    else
        read->status = UCS_ERR_MESSAGE_TRUNCATED;  // nothing is read, and the sender is told
    count(MessageCounter::kSoftwareReads);
    receive.is_read = true;
    ++reads_under_way_;
    ++ep.reads_;
    if (!step_read(*read)) {
        reads_waiting_.push_back(read);
        has_work_ = true;
    }
}

// False: it waits for room. A read that failed tells the sender nothing: its endpoint fails, too.
bool MessageIface::step_read(RndvRead& read) {
    MessageEp& ep = *read.ep;
    while (ep.failure_ == UCS_OK && read.asked < read.wanted) {
        if (!gets_room(ep, 1))
            return read.under_way > 0;  // the next step comes with a completion
        SendOp* op = small_.get();
        if (op == nullptr) {
            gave_up(ep);
            ask_for_completions();
            return read.under_way > 0;
        }
        const std::size_t bytes = std::min(read.wanted - read.asked, message_max_);
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
    if (ep.failure_ != UCS_OK)
        read.status = ep.failure_;
    else if (!tell_end(read))
        return false;
    finish_read(read);
    return true;
}

bool MessageIface::tell_end(const RndvRead& read) {
    MessageEp& ep = *read.ep;
    if (!gets_room(ep, 1))
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

void MessageIface::finish_read(RndvRead& read) {
    SoftReceive& receive = *read.receive;
    const uct_tag_t tag = read.tag;
    const std::size_t length = read.length;
    const ucs_status_t status = read.status;
    --reads_under_way_;
    --read.ep->reads_;
    reads_.destroy(&read);
    complete(receive, tag, 0, length, status);
}

void MessageIface::read_part_done(RndvRead& read, ucs_status_t status) {
    --read.under_way;
    if (status != UCS_OK && read.status == UCS_OK)
        read.status = status;
    if (!step_read(read)) {
        reads_waiting_.push_back(&read);
        has_work_ = true;
    }
}

unsigned MessageIface::step_reads() {
    unsigned moved = 0;
    ucs::ReserveVector<RndvRead*> waiting;
    waiting.swap(reads_waiting_);
    for (RndvRead* read : waiting)
        if (step_read(*read))
            ++moved;
        else
            reads_waiting_.push_back(read);
    return moved;
}

void MessageIface::end_reads(MessageEp& ep) {
    ucs::ReserveVector<RndvRead*> ended;
    std::erase_if(reads_waiting_, [&](RndvRead* read) {
        if (read->ep == &ep)
            ended.push_back(read);
        return read->ep == &ep;
    });
    for (RndvRead* read : ended) {
        read->status = ep.failure_;
        finish_read(*read);
    }
}

}  // namespace tagwire::ib
