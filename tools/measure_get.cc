// SPDX-License-Identifier: BSD-3-Clause
// get_lat and get_bw: the driver reads the peer's memory.
#include <cstring>

#include "tools/levels.hpp"
#include "tools/pattern.hpp"

namespace tagwire::tools {
namespace {

template <class Level>
class GetPort {
  public:
    using Connection = typename Level::Connection;
    static constexpr bool kReceives = false;

    GetPort(Connection& link, const Job& job)
        : job_(job),
          stream_(stream_from(Side::kPeer, job)),
          sender_(link, one_by_one(job), 0),
          inbox_(link, job.memory, job.size) {
        if (job.validate)
            Pattern(stream_, 0).fill(inbox_.data(), job.size);
    }

    ucs_status_t try_send(std::uint64_t sequence) {
        if (unchecked_ != nullptr && !try_check()) [[unlikely]]
            return UCS_ERR_NO_RESOURCE;
        std::uint8_t* place = nullptr;
        const ucs_status_t status = sender_.get(sequence, inbox_, &place);
        unchecked_ = job_.validate && status == UCS_OK ? place : nullptr;
        return status;
    }

    void drain() {
        sender_.drain();
        if (unchecked_ != nullptr) [[unlikely]]
            try_check();
    }

    ucs_status_t try_finish(std::uint64_t) {
        return sender_.has_ended() ? UCS_OK : UCS_ERR_NO_RESOURCE;
    }

    bool acked(std::uint64_t) const { return true; }
    bool received_all(std::uint64_t) const { return true; }
    ucs_status_t try_ack(std::uint64_t) { return UCS_OK; }
    Outcome outcome() const { return {validated_, errors_ + sender_.errors()}; }

  private:
    bool try_check() {
        if (!sender_.has_ended())
            return false;
        errors_ += Pattern(stream_, 0).matches(unchecked_, job_.size) ? 0 : 1;
        ++validated_;
        std::memset(unchecked_, 0, job_.size);  // so that the next one cannot pass with these bytes
        unchecked_ = nullptr;
        return true;
    }

    const Job job_;
    std::uint64_t stream_;
    typename Level::Sender sender_;
    typename Level::Inbox inbox_;
    std::uint8_t* unchecked_ = nullptr;  // the bytes of the last get
    std::uint64_t validated_ = 0;
    std::uint64_t errors_ = 0;
};

}  // namespace

template <class AnyLink>
std::unique_ptr<Test> make_get_test(AnyLink& link, const Job& job) {
    return job.test == TestId::kGetLat ? make_for_level<Fetch, GetPort>(link, job)
                                       : make_for_level<Stream, GetPort>(link, job);
}

template std::unique_ptr<Test> make_get_test(Link& link, const Job& job);
template std::unique_ptr<Test> make_get_test(MsgLink& link, const Job& job);

}  // namespace tagwire::tools
