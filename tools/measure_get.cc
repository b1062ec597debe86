// SPDX-License-Identifier: BSD-3-Clause
// get_lat and get_bw: the driver reads the peer's memory.
#include "tools/inbox.hpp"
#include "tools/loops.hpp"

namespace tagwire::tools {
namespace {

template <Op op>
class GetPort {
  public:
    static constexpr bool kReceives = false;

    GetPort(Link& link, const Job& job)
        : job_(job),
          stream_(stream_from(Side::kPeer, job)),
          sender_(link, one_by_one(job), 0),
          inbox_(link, job.memory, job.size) {
        if (job.validate) {
            Pattern(stream_, 0).fill(inbox_.data(), job.size);
            sender_.set_on_slot_done(&GetPort::on_slot_done, this);
        }
    }

    GetPort(const GetPort&) = delete;
    GetPort& operator=(const GetPort&) = delete;

    ucs_status_t try_send(std::uint64_t sequence) {
        return sender_.try_send<true>(
            sequence, [this](uct_ep_h ep, std::uint8_t* data, uct_completion_t* completion) {
                return post(ep, data, completion);
            });
    }

    void drain() { sender_.drain(); }
    ucs_status_t try_finish(std::uint64_t) {
        return sender_.outstanding() == 0 ? UCS_OK : UCS_ERR_NO_RESOURCE;
    }
    bool acked(std::uint64_t) const { return true; }
    bool received_all(std::uint64_t) const { return true; }
    ucs_status_t try_ack(std::uint64_t) { return UCS_OK; }
    Outcome outcome() const { return {validated_, errors_ + sender_.errors()}; }

  private:
    static void unpack(void* arg, const void* data, std::size_t length) {
        std::memcpy(arg, data, length);
    }

    ucs_status_t post(uct_ep_h ep, std::uint8_t* data, uct_completion_t* completion) {
        if constexpr (op == Op::kShort) {
            return uct_ep_get_short(ep, data, static_cast<unsigned>(job_.size), inbox_.remote(),
                                    inbox_.rkey());
        } else if constexpr (op == Op::kBcopy) {
            return uct_ep_get_bcopy(ep, &GetPort::unpack, data, job_.size, inbox_.remote(),
                                    inbox_.rkey(), completion);
        } else {
            const uct_iov_t iov{data, job_.size, sender_.buffer().memh(), 0, 1};
            return uct_ep_get_zcopy(ep, &iov, 1, inbox_.remote(), inbox_.rkey(), completion);
        }
    }

    static void on_slot_done(void* arg, std::uint8_t* data) {
        auto* self = static_cast<GetPort*>(arg);
        self->errors_ += Pattern(self->stream_, 0).matches(data, self->job_.size) ? 0 : 1;
        ++self->validated_;
        std::memset(data, 0, self->job_.size);  // so that the next one cannot pass with these bytes
    }

    const Job job_;
    std::uint64_t stream_;
    Sender sender_;
    Inbox inbox_;
    std::uint64_t validated_ = 0;
    std::uint64_t errors_ = 0;
};

}  // namespace

std::unique_ptr<Test> make_get_test(Link& link, const Job& job) {
    return job.test == TestId::kGetLat ? make_for_op<Fetch, GetPort>(link, job)
                                       : make_for_op<Stream, GetPort>(link, job);
}

}  // namespace tagwire::tools
