// SPDX-License-Identifier: BSD-3-Clause
// am_lat, am_bw and am_rate. A message is its first 8 bytes as the header of a short message and
// the rest as payload; shorter ones go as short messages without a header.
#include "tools/loops.hpp"
#include "tools/pattern.hpp"
#include "tools/sender.hpp"

namespace tagwire::tools {
namespace {

constexpr std::uint8_t kDataId = 1;
constexpr std::uint8_t kAckId = 2;

/// Counts of the arrivals on all interfaces.
struct AmCount {
    std::uint64_t messages = 0;
    std::uint64_t errors = 0;
    std::size_t size = 0;
    std::uint64_t stream = 0;
    std::uint64_t step = 1;  // between the sequence numbers of messages on one interface

    static ucs_status_t on_message(void* arg, void*, std::size_t, unsigned) {
        ++static_cast<AmCount*>(arg)->messages;
        return UCS_OK;
    }

    static ucs_status_t on_ack(void* arg, void* data, std::size_t length, unsigned) {
        if (length == sizeof(std::uint64_t))
            std::memcpy(arg, data, length);
        return UCS_OK;
    }
};

/// Checks what arrives on one interface, where order is kept.
struct AmChecker {
    AmCount* count;
    std::uint64_t sequence;

    static ucs_status_t on_message(void* arg, void* data, std::size_t length, unsigned) {
        auto* self = static_cast<AmChecker*>(arg);
        AmCount& count = *self->count;
        const bool right =
            length == count.size && Pattern(count.stream, self->sequence).matches(data, length);
        count.errors += right ? 0 : 1;
        self->sequence += count.step;
        ++count.messages;
        return UCS_OK;
    }
};

ucs_status_t post_short(uct_ep_h ep, std::uint8_t id, const std::uint8_t* data, std::size_t size) {
    if (size < sizeof(std::uint64_t)) {
        uct_iov_t iov{const_cast<std::uint8_t*>(data), size, UCT_MEM_HANDLE_NULL, 0, 1};
        return uct_ep_am_short_iov(ep, id, &iov, 1);
    }
    std::uint64_t header = 0;
    std::memcpy(&header, data, sizeof(header));
    return uct_ep_am_short(ep, id, header, data + sizeof(header),
                           static_cast<unsigned>(size - sizeof(header)));
}

ucs_status_t post_bcopy(uct_ep_h ep, std::uint8_t id, const std::uint8_t* data, std::size_t size) {
    Packed packed{data, size};
    return status_of(uct_ep_am_bcopy(ep, id, &Packed::pack, &packed, 0));
}

template <Op op>
class AmPort {
  public:
    static constexpr bool kReceives = true;

    AmPort(Link& link, const Job& job)
        : link_(link), validate_(job.validate), sender_(link, job, stream_from(link.side(), job)) {
        data_.size = job.size;
        data_.stream = stream_from(other(link.side()), job);
        data_.step = link.interfaces().size();
        for (std::size_t i = 0; i < link.interfaces().size(); ++i)
            checkers_.push_back({&data_, i});
        for (std::size_t i = 0; i < checkers_.size(); ++i) {
            if (job.validate)
                link.set_am_handler(i, kDataId, &AmChecker::on_message, &checkers_[i]);
            else
                link.set_am_handler(i, kDataId, &AmCount::on_message, &data_);
            link.set_am_handler(i, kAckId, &AmCount::on_ack, &acked_);
        }
    }

    ~AmPort() {
        for (std::size_t i = 0; i < checkers_.size(); ++i) {
            link_.set_am_handler(i, kDataId, nullptr, nullptr);
            link_.set_am_handler(i, kAckId, nullptr, nullptr);
        }
    }

    AmPort(const AmPort&) = delete;
    AmPort& operator=(const AmPort&) = delete;

    ucs_status_t try_send(std::uint64_t sequence) {
        return sender_.try_send<op == Op::kZcopy>(
            sequence, [this](uct_ep_h ep, std::uint8_t* data, uct_completion_t* completion) {
                if constexpr (op == Op::kShort) {
                    return post_short(ep, kDataId, data, sender_.size());
                } else if constexpr (op == Op::kBcopy) {
                    return post_bcopy(ep, kDataId, data, sender_.size());
                } else {
                    const uct_iov_t iov{data, sender_.size(), sender_.buffer().memh(), 0, 1};
                    return uct_ep_am_zcopy(ep, kDataId, nullptr, 0, &iov, 1, 0, completion);
                }
            });
    }

    bool arrived(std::uint64_t sequence) const { return data_.messages > sequence; }
    void prepare_next(std::uint64_t) {}
    void drain() { sender_.drain(); }
    void refresh(std::uint64_t sequence) { sender_.refresh(sequence); }

    ucs_status_t try_finish(std::uint64_t) { return UCS_OK; }
    bool received_all(std::uint64_t end) const { return data_.messages >= end; }
    bool acked(std::uint64_t end) const { return acked_ >= end; }

    ucs_status_t try_ack(std::uint64_t end) {
        std::uint8_t word[sizeof(end)];
        std::memcpy(word, &end, sizeof(end));
        const bool is_short = (link_.attr().cap.flags & UCT_IFACE_FLAG_AM_SHORT) != 0;
        return is_short ? post_short(link_.endpoint(0), kAckId, word, sizeof(word))
                        : post_bcopy(link_.endpoint(0), kAckId, word, sizeof(word));
    }

    Outcome outcome() const {
        return {validate_ ? data_.messages : 0, data_.errors + sender_.errors()};
    }

  private:
    Link& link_;
    bool validate_;
    Sender sender_;
    AmCount data_;
    std::vector<AmChecker> checkers_;
    std::uint64_t acked_ = 0;  // messages that the receiver reported to have
};

}  // namespace

std::unique_ptr<Test> make_am_test(Link& link, const Job& job) {
    return job.test == TestId::kAmLat ? make_for_op<PingPong, AmPort>(link, job)
                                      : make_for_op<Stream, AmPort>(link, job);
}

}  // namespace tagwire::tools
