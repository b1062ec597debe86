// SPDX-License-Identifier: BSD-3-Clause
// Active messages of a test that come here over a transport. A message is its first 8 bytes as the
// header of a short message and the rest as payload; shorter ones go as short messages without a
// header.
#pragma once

#include <uct/api/uct.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "tools/link.hpp"
#include "tools/loops.hpp"
#include "tools/pattern.hpp"
#include "tools/sender.hpp"

namespace tagwire::tools {

class UctAmArrivals {
  public:
    static constexpr std::uint8_t kDataId = 1;
    static constexpr std::uint8_t kAckId = 2;

    UctAmArrivals(Link& link, const Job& job)
        : link_(link),
          size_(job.size),
          stream_(stream_from(other(link.side()), job)),
          step_(link.interfaces().size()) {
        for (std::size_t i = 0; i < step_; ++i)
            checkers_.push_back({this, i});
        for (std::size_t i = 0; i < step_; ++i) {
            if (job.validate)
                link.set_am_handler(i, kDataId, &Checker::on_message, &checkers_[i]);
            else
                link.set_am_handler(i, kDataId, &UctAmArrivals::on_message, this);
            link.set_am_handler(i, kAckId, &UctAmArrivals::on_ack, &acked_);
        }
    }

    ~UctAmArrivals() {
        for (std::size_t i = 0; i < step_; ++i) {
            link_.set_am_handler(i, kDataId, nullptr, nullptr);
            link_.set_am_handler(i, kAckId, nullptr, nullptr);
        }
    }

    UctAmArrivals(const UctAmArrivals&) = delete;
    UctAmArrivals& operator=(const UctAmArrivals&) = delete;

    std::uint64_t messages() const { return messages_; }
    std::uint64_t errors() const { return errors_; }
    /// Messages that the other side reported to have.
    std::uint64_t acked() const { return acked_; }

    ucs_status_t try_ack(std::uint64_t end) const {
        std::uint8_t word[sizeof(end)];
        std::memcpy(word, &end, sizeof(end));
        const bool is_short = (link_.attr().cap.flags & UCT_IFACE_FLAG_AM_SHORT) != 0;
        return is_short ? post_short(link_.endpoint(0), kAckId, word, sizeof(word))
                        : post_bcopy(link_.endpoint(0), kAckId, word, sizeof(word));
    }

    static ucs_status_t post_short(uct_ep_h ep, std::uint8_t id, const std::uint8_t* data,
                                   std::size_t size) {
        if (size < sizeof(std::uint64_t)) {
            uct_iov_t iov{const_cast<std::uint8_t*>(data), size, UCT_MEM_HANDLE_NULL, 0, 1};
            return uct_ep_am_short_iov(ep, id, &iov, 1);
        }
        std::uint64_t header = 0;
        std::memcpy(&header, data, sizeof(header));
        return uct_ep_am_short(ep, id, header, data + sizeof(header),
                               static_cast<unsigned>(size - sizeof(header)));
    }

    static ucs_status_t post_bcopy(uct_ep_h ep, std::uint8_t id, const std::uint8_t* data,
                                   std::size_t size) {
        Packed packed{data, size};
        return status_of(uct_ep_am_bcopy(ep, id, &Packed::pack, &packed, 0));
    }

  private:
    /// Checks what arrives on one interface, where order is kept.
    struct Checker {
        UctAmArrivals* all;
        std::uint64_t sequence;

        static ucs_status_t on_message(void* arg, void* data, std::size_t length, unsigned) {
            auto* self = static_cast<Checker*>(arg);
            UctAmArrivals& all = *self->all;
            const bool right =
                length == all.size_ && Pattern(all.stream_, self->sequence).matches(data, length);
            all.errors_ += right ? 0 : 1;
            self->sequence += all.step_;
            ++all.messages_;
            return UCS_OK;
        }
    };

    static ucs_status_t on_message(void* arg, void*, std::size_t, unsigned) {
        ++static_cast<UctAmArrivals*>(arg)->messages_;
        return UCS_OK;
    }

    static ucs_status_t on_ack(void* arg, void* data, std::size_t length, unsigned) {
        if (length == sizeof(std::uint64_t))
            std::memcpy(arg, data, length);
        return UCS_OK;
    }

    Link& link_;
    std::size_t size_;
    std::uint64_t stream_;
    std::size_t step_;  // between the sequence numbers of messages on one interface
    std::vector<Checker> checkers_;
    std::uint64_t messages_ = 0;  // on all interfaces
    std::uint64_t errors_ = 0;
    std::uint64_t acked_ = 0;
};

}  // namespace tagwire::tools
