// SPDX-License-Identifier: BSD-3-Clause
// Requests of the peer: in which order they are accepted and executed.
#include "vhca/core/responder.hpp"

#include <cerrno>
#include <new>

#include "vhca/core/device_impl.hpp"
#include "vhca/core/sequence.hpp"

namespace tagwire::vhca {

int Responder::allocate() {
    receive_pd_ = qp_.config.pd;
    cq_ = static_cast<CompletionQueue*>(qp_.config.recv_cq);
    if (qp_.matching() != nullptr)
        cq_ = &qp_.matching()->cq();
    if (auto* srq = static_cast<SharedReceiveQueue*>(qp_.config.srq); srq != nullptr) {
        receives_ = &srq->queue;
        receive_pd_ = srq->pd;
        return 0;
    }
    own_receives_.reset(new (std::nothrow) ReceiveQueue);
    receives_ = own_receives_.get();
    return receives_ == nullptr
               ? ENOMEM
               : receives_->allocate(qp_.config.cap.max_recv_wr, qp_.config.cap.max_recv_sge,
                                     qp_.config.source);
}

void Responder::reset() {
    drop_tagged();
    if (receive_ != ReceiveQueue::kNone) {
        receives_->release(receive_);
        receive_ = ReceiveQueue::kNone;
    }
    if (own_receives_ != nullptr)
        own_receives_->drop_posted();
    message_ = Message::kNone;
    is_nak_sent_ = false;
    replies_.reset();
}

void Responder::start(std::uint32_t psn) {
    expected_ = kSequenceBase + (psn & kPsnMask);
    message_ = Message::kNone;
    is_nak_sent_ = false;
}

void Responder::abandon() {
    if (tagged_.entry != nullptr) {
        fail_tagged(IBV_WC_WR_FLUSH_ERR, {});
    } else if (receive_ != ReceiveQueue::kNone) {
        drop_tagged();
        receives_->put_back(receive_);
        receive_ = ReceiveQueue::kNone;
    }
    message_ = Message::kNone;
}

void Responder::flush() {
    if (receive_ != ReceiveQueue::kNone || tagged_.entry != nullptr)
        fail_message(IBV_WC_WR_FLUSH_ERR, {});
    if (own_receives_ == nullptr)
        return;  // the SRQ's receives serve others
    while ((receive_ = receives_->take()) != ReceiveQueue::kNone)
        complete_receive(IBV_WC_WR_FLUSH_ERR, nullptr, {});
}

void Responder::receive(const Packet& packet, Route from) {
    switch (qp_.config.type) {
        case IBV_QPT_RC:
            receive_reliable(packet, from);
            break;
        case IBV_QPT_UC:
            receive_uc(packet, from);
            break;
        default:
            receive_ud(packet, from);
    }
}

void Responder::receive_reliable(const Packet& packet, Route from) {
    const std::int32_t ahead = distance(packet.psn, expected_);
    if (ahead > 0) {
        if (!is_nak_sent_) {
            is_nak_sent_ = true;
            replies_.acknowledge(kNakSyndrome | kNakSequence, expected_);
        }
        return;
    }
    if (ahead < 0) {
        receive_duplicate(packet);
        return;
    }
    is_nak_sent_ = false;
    if (replies_.has_nak())
        replies_.acknowledge(kAckSyndrome, expected_ - 1);  // what the NAK asked for is here
    const Verdict verdict = execute(packet, from);
    if (verdict != Verdict::kDone) [[unlikely]] {
        refuse(verdict, from);
        return;
    }
    ++expected_;
    if (packet.has(kIsEnd))
        replies_.count_message();
    if (packet.wants_ack && packet.has(kHasPayload))
        replies_.acknowledge(kAckSyndrome, expected_ - 1);
}

void Responder::receive_duplicate(const Packet& packet) {
    ++qp_.device.counters.duplicates;
    if (!packet.has(kHasPayload)) {
        replies_.repeat(packet,
                        expected_ - static_cast<std::uint32_t>(-distance(packet.psn, expected_)));
    } else if (!replies_.has_acknowledgement()) {
        replies_.acknowledge(kAckSyndrome, expected_ - 1);
    }
}

/// A lost packet loses its message; the receive that it was for serves the next one.
void Responder::receive_uc(const Packet& packet, Route from) {
    if (packet.has(kIsStart)) {
        message_ = Message::kNone;
    } else if (message_ == Message::kNone || distance(packet.psn, expected_) != 0) {
        message_ = Message::kNone;
        return;
    }
    expected_ = kSequenceBase + packet.psn + 1;
    const Verdict verdict = execute(packet, from);
    if (verdict == Verdict::kReceiveTooShort || verdict == Verdict::kReceiveFault)
        refuse(verdict, from);
    else if (verdict != Verdict::kDone)
        message_ = Message::kNone;
}

void Responder::receive_ud(const Packet& packet, Route from) {
    const ibv_qp_attr& attr = qp_.context().attr();
    if (packet.qkey != attr.qkey || packet.payload.size() > qp_.context().mtu() ||
        attr.port_num != 1) {
        ++qp_.device.counters.misaddressed;
        return;
    }
    if (!take_receive())
        return;
    Receive& receive = receives_->at(receive_);
    const MemoryTable& memory = qp_.device.memory;
    const std::byte* grh = qp_.device.grh;
    offset_ = kGrhBytes + packet.payload.size();
    if (offset_ > receive.bytes) {
        refuse(Verdict::kReceiveTooShort, from);
    } else if (!memory.scatter(receive.sges(), receive_pd_, kGrhBytes, packet.payload.data(),
                               packet.payload.size()) ||
               (grh != nullptr &&
                !memory.scatter(receive.sges(), receive_pd_, 0, grh, kGrhBytes))) {
        refuse(Verdict::kReceiveFault, from);
    } else {
        complete_receive(IBV_WC_SUCCESS, &packet, from);
    }
}

bool Responder::is_well_formed(const Packet& packet) const {
    const bool is_start = packet.has(kIsStart);
    if (is_start != (message_ == Message::kNone))
        return false;
    if (packet.has(kHasIeth) && qp_.matching() != nullptr)
        return false;  // tag matching has no completion that could tell of it
    if (!is_start && packet.has(kIsSend) != (message_ == Message::kSend))
        return false;
    if (!packet.has(kHasPayload))
        return true;
    const std::size_t bytes = packet.payload.size();
    if (!packet.has(kIsEnd))
        return bytes == qp_.context().mtu();
    return bytes <= qp_.context().mtu() && (is_start || bytes != 0);
}

Responder::Verdict Responder::execute(const Packet& packet, Route from) {
    if (!is_well_formed(packet))
        return Verdict::kInvalid;
    if (packet.has(kIsSend)) {
        return qp_.matching() == nullptr ? execute_send(packet, from)
                                         : execute_tagged(packet, from);
    }
    if (packet.has(kIsWrite))
        return execute_write(packet, from);
    return packet.has(kHasReth) ? execute_read(packet) : execute_atomic(packet);
}

Responder::Verdict Responder::execute_send(const Packet& packet, Route from) {
    if (packet.has(kIsStart)) {
        if (!take_receive())
            return Verdict::kNotReady;
        offset_ = 0;
        message_ = Message::kSend;
    }
    return fill_receive(packet, from);
}

Responder::Verdict Responder::fill_receive(const Packet& packet, Route from) {
    Receive& receive = receives_->at(receive_);
    const std::size_t bytes = packet.payload.size();
    if (offset_ + bytes > receive.bytes)
        return Verdict::kReceiveTooShort;
    const bool is_in_cqe = goes_into_cqe(packet);
    if (!is_in_cqe && !qp_.device.memory.scatter(receive.sges(), receive_pd_, offset_,
                                                 packet.payload.data(), bytes)) {
        return Verdict::kReceiveFault;
    }
    offset_ += bytes;
    if (packet.has(kHasIeth) && !qp_.device.memory.invalidate(packet.imm, qp_.config.pd))
        return Verdict::kAccess;
    if (packet.has(kIsEnd)) {
        message_ = Message::kNone;
        complete_receive(IBV_WC_SUCCESS, &packet, from,
                         is_in_cqe ? packet.payload : std::span<const std::byte>());
    }
    return Verdict::kDone;
}

Responder::Verdict Responder::execute_write(const Packet& packet, Route from) {
    const MemoryTable& memory = qp_.device.memory;
    if (packet.has(kIsStart)) {
        if ((qp_.context().attr().qp_access_flags & IBV_ACCESS_REMOTE_WRITE) == 0 ||
            (packet.length != 0 && !memory.opens(packet.rkey, qp_.config.pd, packet.address,
                                                 packet.length, IBV_ACCESS_REMOTE_WRITE))) {
            return Verdict::kAccess;
        }
        offset_ = 0;
        write_address_ = packet.address;
        write_left_ = packet.length;
        write_key_ = packet.rkey;
    }
    const bool is_end = packet.has(kIsEnd);
    const std::size_t bytes = packet.payload.size();
    if (bytes > write_left_ || (is_end && bytes != write_left_))
        return Verdict::kInvalid;
    if (packet.has(kHasImm) && !take_receive())
        return Verdict::kNotReady;
    if (bytes != 0) {
        const std::byte* data = packet.payload.data();
        const auto copy = [&data](std::byte* to, std::size_t count) {
            const std::byte* part = data;
            data += count;
            return copy_into_region(to, part, count);
        };
        if (!memory.visit(write_key_, qp_.config.pd, write_address_, bytes, IBV_ACCESS_REMOTE_WRITE,
                          copy)) {
            return Verdict::kAccess;
        }
    }
    offset_ += bytes;
    write_address_ += bytes;
    write_left_ -= static_cast<std::uint32_t>(bytes);
    message_ = is_end ? Message::kNone : Message::kWrite;
    if (packet.has(kHasImm))
        complete_receive(IBV_WC_SUCCESS, &packet, from);
    return Verdict::kDone;
}

Responder::Verdict Responder::execute_read(const Packet& packet) {
    if ((qp_.context().attr().qp_access_flags & IBV_ACCESS_REMOTE_READ) == 0)
        return Verdict::kAccess;
    if (packet.length > kMessageBytesMax)
        return Verdict::kInvalid;
    if (packet.length != 0 && !qp_.device.memory.opens(packet.rkey, qp_.config.pd, packet.address,
                                                       packet.length, IBV_ACCESS_REMOTE_READ)) {
        return Verdict::kAccess;
    }
    const std::uint32_t packets = packets_of(packet.length, qp_.context().mtu());
    if (!replies_.add(packet, expected_, packets))
        return Verdict::kInvalid;
    expected_ += packets - 1;  // the caller adds one
    return Verdict::kDone;
}

Responder::Verdict Responder::execute_atomic(const Packet& packet) {
    if (!qp_.device.config.has_atomics)
        return Verdict::kInvalid;
    if ((qp_.context().attr().qp_access_flags & IBV_ACCESS_REMOTE_ATOMIC) == 0)
        return Verdict::kAccess;
    if (packet.address % sizeof(std::uint64_t) != 0)
        return Verdict::kInvalid;
    if (qp_.device.memory.resolve(packet.rkey, qp_.config.pd, packet.address, sizeof(std::uint64_t),
                                  IBV_ACCESS_REMOTE_ATOMIC) == nullptr) {
        return Verdict::kAccess;
    }
    return replies_.add(packet, expected_, 1) ? Verdict::kDone : Verdict::kInvalid;
}

void Responder::refuse(Verdict verdict, Route from) {
    switch (verdict) {
        case Verdict::kNotReady:
            is_nak_sent_ = true;
            replies_.acknowledge(kRnrSyndrome | qp_.context().attr().min_rnr_timer, expected_);
            return;
        case Verdict::kReceiveTooShort:
            fail_message(IBV_WC_LOC_LEN_ERR, from);
            replies_.acknowledge(kNakSyndrome | kNakInvalidRequest, expected_);
            qp_.enter_error(true);
            return;
        case Verdict::kReceiveFault:
            fail_message(IBV_WC_LOC_PROT_ERR, from);
            replies_.acknowledge(kNakSyndrome | kNakRemoteOperation, expected_);
            qp_.enter_error(true);
            return;
        case Verdict::kAccess:
            replies_.acknowledge(kNakSyndrome | kNakRemoteAccess, expected_);
            qp_.enter_error(true);
            qp_.report(IBV_EVENT_QP_ACCESS_ERR);
            return;
        default:
            replies_.acknowledge(kNakSyndrome | kNakInvalidRequest, expected_);
            qp_.enter_error(true);
            qp_.report(IBV_EVENT_QP_REQ_ERR);
    }
}

}  // namespace tagwire::vhca
