// SPDX-License-Identifier: BSD-3-Clause
// Active messages of a test that come here over the messaging layer. All of a message is its data.
// A handler looks at data that is there, and receives other data into a buffer.
#pragma once

#include <tagwire.h>
#include <uct/api/uct.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "cli/failure.hpp"
#include "tools/loops.hpp"
#include "tools/msg_link.hpp"
#include "tools/msg_memory.hpp"
#include "tools/msg_post.hpp"
#include "tools/pattern.hpp"
#include "tools/sender.hpp"

namespace tagwire::tools {

class MsgAmArrivals {
  public:
    static constexpr unsigned kDataId = 1;
    static constexpr unsigned kAckId = 2;

    MsgAmArrivals(MsgLink& link, const Job& job)
        : link_(link),
          size_(job.size),
          validate_(job.validate),
          stream_(stream_from(other(link.side()), job)),
          incoming_(slots_of(job)),
          buffer_(link.context(), job.memory, buffer_bytes(job, incoming_.size())) {
        for (std::size_t i = 0; i < incoming_.size(); ++i)
            incoming_[i] = {this, buffer_.data() + i * stride_of(job), 0, false};
        set_handlers(&MsgAmArrivals::on_message, &MsgAmArrivals::on_ack);
    }

    ~MsgAmArrivals() {
        set_handlers(nullptr, nullptr);
        try_until(link_.worker(), [this] { return under_way_ == 0; });
    }

    MsgAmArrivals(const MsgAmArrivals&) = delete;
    MsgAmArrivals& operator=(const MsgAmArrivals&) = delete;

    std::uint64_t messages() const { return messages_; }
    std::uint64_t errors() const { return errors_; }
    /// Messages that the other side reported to have.
    std::uint64_t acked() const { return acked_; }

    ucs_status_t try_ack(std::uint64_t end) const {
        const tw_status_t status =
            tw_am_send(link_.endpoint(), kAckId, &end, sizeof end, nullptr, 0, nullptr, nullptr);
        if (status < 0 && status != TW_ERR_NO_RESOURCE)
            throw Failure(text("tw_am_send: %s", tw_status_string(status)));
        return status < 0 ? UCS_ERR_NO_RESOURCE : UCS_OK;
    }

  private:
    /// A message whose data is on its way.
    struct Incoming {
        MsgAmArrivals* arrivals = nullptr;
        std::uint8_t* data = nullptr;
        std::uint64_t sequence = 0;
        bool is_busy = false;
    };

    void set_handlers(tw_am_cb_t on_data, tw_am_cb_t on_acked) {
        tw_am_register(link_.worker(), kDataId, on_data, this);
        tw_am_register(link_.worker(), kAckId, on_acked, this);
    }

    static void on_message(void* arg, tw_am_t* am) {
        MsgAmArrivals& self = *static_cast<MsgAmArrivals*>(arg);
        const std::uint64_t sequence = self.begun_++;
        if ((am->flags & TW_AM_RNDV) != 0) [[unlikely]]
            return self.receive(*am, sequence);
        self.count(am->length, static_cast<const std::uint8_t*>(am->data), sequence);
    }

    static void on_ack(void* arg, tw_am_t* am) {
        if (am->header_length == sizeof(std::uint64_t))
            std::memcpy(&static_cast<MsgAmArrivals*>(arg)->acked_, am->header, am->header_length);
    }

    void count(std::size_t length, const std::uint8_t* data, std::uint64_t sequence) {
        const bool is_right =
            length == size_ && (!validate_ || Pattern(stream_, sequence).matches(data, length));
        errors_ += is_right ? 0 : 1;
        ++messages_;
    }

    /// No more of them are under way than the sender has slots.
    void receive(const tw_am_t& am, std::uint64_t sequence) {
        Incoming& place = incoming_[sequence % incoming_.size()];
        if (place.is_busy || am.length != size_) {
            ++errors_;
            ++messages_;
            return;
        }
        place.sequence = sequence;
        place.is_busy = true;
        ++under_way_;
        tw_op_t op{};
        op.flags = TW_OP_COMPLETION;
        op.mem = buffer_.handle();
        op.context = &place;
        op.complete = [](const tw_completion_t* done) {
            static_cast<Incoming*>(done->context)->arrivals->ended(*done);
        };
        const tw_status_t status =
            tw_message_recv(link_.worker(), am.message, place.data, size_, &op, nullptr);
        if (status == TW_INPROGRESS)
            return;
        place.is_busy = false;
        --under_way_;
        ++errors_;
        ++messages_;
    }

    void ended(const tw_completion_t& done) {
        Incoming& place = *static_cast<Incoming*>(done.context);
        place.is_busy = false;
        --under_way_;
        if (done.status == TW_OK) {
            count(done.length, place.data, place.sequence);
        } else {
            ++errors_;
            ++messages_;
        }
    }

    MsgLink& link_;
    std::size_t size_;
    bool validate_;
    std::uint64_t stream_;
    std::vector<Incoming> incoming_;
    MsgMemory buffer_;
    std::size_t under_way_ = 0;
    std::uint64_t begun_ = 0;
    std::uint64_t messages_ = 0;
    std::uint64_t errors_ = 0;
    std::uint64_t acked_ = 0;
};

}  // namespace tagwire::tools
