// SPDX-License-Identifier: BSD-3-Clause
// Messages to a tag-matching SRQ. The first packet decides:
//
//   no tag, or a FIN --------------------------> next receive of the SRQ (TM_NO_TAG)
//   eager, matches ----------------------------> tagged receive: its payload, without the header
//   rendezvous, matches, the data fit ---------> tagged receive: the device reads the data
//   rendezvous, matches, the data do not fit --> tagged receive: the request, for software
//   matches nothing ---------------------------> next receive of the SRQ (TM_RECV), counted
//
// A message that cannot be taken now is refused (RNR) before it was matched or counted.
#include "vhca/core/device_impl.hpp"
#include "vhca/core/tm_header.hpp"

namespace tagwire::vhca {

Responder::Verdict Responder::execute_tagged(const Packet& packet, Route from) {
    if (packet.has(kIsStart)) {
        if (const Verdict verdict = start_tagged(packet); verdict != Verdict::kDone) {
            tagged_ = {};
            return verdict;
        }
        offset_ = 0;
        message_ = Message::kSend;
    }
    if (tagged_.entry == nullptr)
        return fill_receive(packet, from);
    return tagged_.is_rendezvous ? start_rendezvous(packet, from) : fill_entry(packet, from);
}

Responder::Verdict Responder::start_tagged(const Packet& packet) {
    static_cast<SharedReceiveQueue*>(qp_.config.srq)->catch_up();
    if (!qp_.matching()->has_started())
        return Verdict::kNotReady;
    const auto header = read_header<TagHeader>(packet.payload);
    if (!header.has_tag())
        return take_receive() ? Verdict::kDone : Verdict::kNotReady;
    tagged_.tag = header.tag();
    tagged_.context = header.context();
    tagged_.has_tag = true;
    tagged_.is_rendezvous = header.is_rendezvous();
    return match(packet);
}

Responder::Verdict Responder::match(const Packet& packet) {
    if (tagged_.is_rendezvous) {
        const std::size_t bytes = packet.payload.size();
        const bool is_dc = qp_.config.type == IBV_QPT_DRIVER;
        if (!packet.has(kIsEnd) || bytes > kRendezvousBytesMax ||
            bytes < (is_dc ? kDcRendezvousBytes : kRendezvousBytes)) {
            return Verdict::kInvalid;
        }
        tagged_.request = read_rendezvous(packet.payload);
        if (!is_dc || qp_.device.config.has_dc_rendezvous) {
            tagged_.reader = qp_.dc().find_reader(tagged_.request.target.dctn());
            if (tagged_.reader == nullptr)
                return Verdict::kNotReady;  // even if software would have to carry it out
        }
    }
    tagged_.entry = qp_.matching()->match(tagged_.tag);
    if (tagged_.entry == nullptr && !take_receive()) {
        qp_.matching()->uncount_unexpected();
        return Verdict::kNotReady;
    }
    return Verdict::kDone;
}

Responder::Verdict Responder::fill_entry(const Packet& packet, Route from) {
    const bool is_start = packet.has(kIsStart), is_end = packet.has(kIsEnd);
    const auto data = is_start ? packet.payload.subspan(kTagHeaderBytes) : packet.payload;
    const ibv_sge& sge = tagged_.entry->sge;
    if (offset_ + data.size() > sge.length)
        return Verdict::kReceiveTooShort;
    if (!qp_.device.memory.scatter({&sge, 1}, receive_pd_, offset_, data.data(), data.size()))
        return Verdict::kReceiveFault;
    offset_ += data.size();
    if (is_start || is_end) {
        const unsigned flags = (is_start ? unsigned{IBV_WC_TM_MATCH} : 0U) |
                               (is_end ? unsigned{IBV_WC_TM_DATA_VALID} : 0U);
        complete_match(packet, from, flags, IBV_WC_SUCCESS);
    }
    message_ = is_end ? Message::kNone : Message::kSend;
    return Verdict::kDone;
}

Responder::Verdict Responder::start_rendezvous(const Packet& packet, Route from) {
    const RendezvousRequest request = tagged_.request;
    QueuePair* reader = tagged_.reader;
    if (reader == nullptr || request.source.length() > tagged_.entry->sge.length)
        return leave_to_software(packet, from);
    message_ = Message::kNone;
    const TagEntry& entry = *tagged_.entry;
    const Rendezvous rendezvous{entry.handle, request.source.length(), packet.solicited};
    complete_match(packet, from, IBV_WC_TM_MATCH, IBV_WC_SUCCESS);
    tagged_ = {};  // the receive is the requester's now
    reader->requester().queue().enqueue_rendezvous(rendezvous, entry.sge, from, request);
    return Verdict::kDone;
}

/// The request goes where the data should have gone. If not even that fits, it is like any message
/// that is too long: nobody could tell what to read.
Responder::Verdict Responder::leave_to_software(const Packet& packet, Route from) {
    const ibv_sge& sge = tagged_.entry->sge;
    const std::size_t bytes = packet.payload.size();
    if (bytes > sge.length)
        return Verdict::kReceiveTooShort;
    if (!qp_.device.memory.scatter({&sge, 1}, receive_pd_, 0, packet.payload.data(), bytes))
        return Verdict::kReceiveFault;
    offset_ = bytes;
    message_ = Message::kNone;
    complete_match(packet, from, IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID, IBV_WC_TM_RNDV_INCOMPLETE);
    return Verdict::kDone;
}

/// The completion of a match tells the header, that of the data their length.
void Responder::complete_match(const Packet& packet, Route from, unsigned flags,
                               ibv_wc_status status) {
    const bool is_final = (flags & IBV_WC_TM_DATA_VALID) != 0;
    Cqe cqe{};
    describe(cqe, packet, from);
    cqe.wc.status = status;
    cqe.wc.qp_num = qp_.number();
    cqe.wc.wc_flags |= flags;
    cqe.wc.byte_len = is_final ? static_cast<std::uint32_t>(offset_) : 0;
    cqe.from = from;
    cqe.is_solicited = packet.solicited;
    if ((flags & IBV_WC_TM_MATCH) != 0) {
        cqe.tm_tag = tagged_.tag;
        cqe.tm_priv = tagged_.context;
    }
    qp_.matching()->complete(*tagged_.entry, cqe, is_final);
    if (is_final)
        tagged_ = {};
}

void Responder::fail_tagged(ibv_wc_status status, Route from) {
    Cqe cqe{};
    cqe.wc.status = status;
    cqe.wc.qp_num = qp_.number();
    cqe.from = from;
    qp_.matching()->complete(*tagged_.entry, cqe, true);
    tagged_ = {};
}

/// An untagged receive was filled, or its message failed.
void Responder::complete_untagged(Cqe& cqe) {
    cqe.qp = nullptr;
    cqe.tag_srq_user = qp_.matching()->user();
    if (cqe.wc.status != IBV_WC_SUCCESS) {
        if (tagged_.has_tag)
            qp_.matching()->uncount_unexpected();
    } else if (cqe.wc.opcode == IBV_WC_RECV) {
        // Tag and context stand in the receive, with all of the message; the completion has none.
        cqe.wc.opcode = tagged_.has_tag ? IBV_WC_TM_RECV : IBV_WC_TM_NO_TAG;
        const bool is_urgent = tagged_.has_tag && qp_.matching()->is_overdue();
        cqe.wc.wc_flags |= is_urgent ? unsigned{IBV_WC_TM_SYNC_REQ} : 0U;
    }
    if (tagged_.has_tag)
        tagged_ = {};
}

/// The message under way will never be whole, and nobody is told.
void Responder::drop_tagged() {
    if (tagged_.entry != nullptr)
        qp_.matching()->drop(*tagged_.entry);
    else if (tagged_.has_tag)
        qp_.matching()->uncount_unexpected();
    tagged_ = {};
}

}  // namespace tagwire::vhca
