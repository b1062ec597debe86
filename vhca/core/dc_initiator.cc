// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/core/dc_initiator.hpp"

#include <algorithm>
#include <cerrno>
#include <new>

#include "ucs/log/log.hpp"
#include "vhca/core/device_impl.hpp"

namespace tagwire::vhca {

DcInitiator::DcInitiator(QueuePair& dci) : dci_(dci) {}
DcInitiator::~DcInitiator() = default;

std::vector<DcInitiator::Stream>::iterator DcInitiator::lookup(std::uint16_t id) {
    return std::find_if(streams_.begin(), streams_.end(),
                        [id](const Stream& stream) { return stream.id == id; });
}

DcInitiator::Stream* DcInitiator::make(std::uint16_t id) {
    if (streams_.size() == kStreamsMax) {
        const auto idle = std::find_if(streams_.begin(), streams_.end(), [](const Stream& stream) {
            return stream.qp->state() == IBV_QPS_RTS && stream.qp->requester().queue().used() == 0;
        });
        if (idle == streams_.end())
            return nullptr;
        idle->id = id;
        return &*idle;
    }
    QpConfig config = dci_.config;
    config.dc.has_streams = false;
    std::unique_ptr<QueuePair> qp(new (std::nothrow) QueuePair(dci_.device, config, &dci_));
    if (qp == nullptr || qp->allocate() != 0)
        return nullptr;
    start(*qp, streams_.size());
    streams_.push_back({id, std::move(qp)});
    return &streams_.back();
}

void DcInitiator::start(QueuePair& qp, std::size_t index) {
    qp.adopt(dci_.number(), dci_.state(), dci_.context().attr());
    qp.context().set_peer({}, 0, {0, static_cast<std::uint8_t>(index)});
    qp.requester().start(dci_.context().attr().sq_psn);
}

int DcInitiator::enqueue(const SendWork& work) {
    const std::uint32_t size = dci_.cap().max_send_wr;
    const bool shares_ring = !dci_.config.keeps_places;
    if (shares_ring && head_ - tail_ >= size)
        return ENOMEM;
    Stream* stream = last_ < streams_.size() ? &streams_[last_] : nullptr;
    if (stream == nullptr || stream->id != work.stream) {
        const auto found = lookup(work.stream);
        stream = found != streams_.end() ? &*found : make(work.stream);
        if (stream == nullptr)
            return ENOMEM;
        last_ = static_cast<std::size_t>(stream - streams_.data());
    }
    SendQueue& queue = stream->qp->requester().queue();
    const int error = queue.enqueue(work);
    if (error == 0 && shares_ring) {
        queue.newest().ring_place = head_++;
        if (streams_.size() > 1)  // requests of one stream end in the order of the ring
            overwrite(head_ - 1 - size);
    }
    return error;
}

void DcInitiator::overwrite(std::uint32_t ring_place) {
    for (Stream& stream : streams_) {
        Requester& requester = stream.qp->requester();
        SendQueue& queue = requester.queue();
        if (queue.has_undone() &&
            static_cast<std::int32_t>(queue.oldest().ring_place - ring_place) <= 0) {
            TW_LOG_ERROR(
                "a request of stream %u of DCI %u was overwritten before it ended: a completion of "
                "another stream had moved the tail of the DCI's ring beyond it",
                unsigned{stream.id}, dci_.number());
            requester.fail_overwritten();
        }
    }
}

void DcInitiator::cancel_enqueued() {
    for (Stream& stream : streams_) {
        SendQueue& queue = stream.qp->requester().queue();
        head_ -= queue.enqueued();
        queue.cancel_enqueued();
    }
}

void DcInitiator::ring(Time now) {
    for (Stream& stream : streams_)
        if (stream.qp->requester().queue().has_enqueued())
            stream.qp->ring(now);
}

int DcInitiator::reset_stream(std::uint16_t id) {
    const auto found = lookup(id);
    if (found == streams_.end() || found->qp->state() != IBV_QPS_ERR)
        return EINVAL;
    start(*found->qp, static_cast<std::size_t>(found - streams_.begin()));
    return 0;
}

void DcInitiator::note_failed() {
    const auto failed = std::count_if(streams_.begin(), streams_.end(), [](const Stream& stream) {
        return stream.qp->state() == IBV_QPS_ERR;
    });
    if (failed >= std::int64_t{1} << dci_.config.dc.errored_log)
        dci_.enter_error(false);
}

void DcInitiator::enter_error() {
    for (Stream& stream : streams_)
        stream.qp->enter_error(false);
}

void DcInitiator::reset() {
    for (Stream& stream : streams_)
        stream.qp->retire();
    streams_.clear();
    head_ = tail_ = 0;
}

}  // namespace tagwire::vhca
