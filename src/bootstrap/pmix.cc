// SPDX-License-Identifier: BSD-3-Clause
// Method PMIX: each call puts a frame under a key of its own, and a fence brings all of them to all
// ranks. The launcher keeps them until the job ends.
#include "bootstrap/pmix_library.hpp"

#include "bootstrap/method.hpp"

#if TW_HAVE_PMIX

#include <atomic>
#include <cstring>

#include "ucs/log/log.hpp"

namespace tagwire::bootstrap {
namespace {

/// For finding out who is missing, after the time is over.
constexpr std::uint64_t kSearchNs = 2'000'000'000;

class Pmix final : public Method {
  public:
    Result join(const Settings& settings);

    const char* name() const override { return "pmix"; }
    std::uint32_t rank() const override { return client_.rank(); }
    std::uint32_t size() const override { return size_; }
    Result allgather(const Step& step) override;

  private:
    Result take_all(const Step& step) const;
    Result name_missing(const Step& step, const Result& result) const;
    std::string key(const Step& step) const {
        return "tagwire." + std::to_string(instance_) + "." + std::to_string(step.number);
    }

    PmixClient client_;
    std::uint32_t size_ = 0;
    std::uint32_t instance_ = 0;
};

Result Pmix::join(const Settings& settings) {
    static std::atomic<std::uint32_t> instances{0};
    if (Result result = client_.open(); !result.ok())
        return result;
    if (Result result = client_.job_size(Deadline(settings.timeout_ns), &size_); !result.ok())
        return result;
    if (size_ == 0 || size_ > kRanksMax || rank() >= size_)
        return failed(UCS_ERR_IO_ERROR,
                      "the PMIx launcher reports rank %u of %u, which is impossible", rank(),
                      size_);
    if (settings.size != 0 && (settings.size != size_ || settings.rank != rank())) {
        return failed(UCS_ERR_INVALID_PARAM,
                      "this process is set to be rank %u of %u, but the PMIx launcher reports rank "
                      "%u of %u",
                      settings.rank, settings.size, rank(), size_);
    }
    instance_ = instances.fetch_add(1, std::memory_order_relaxed);
    return {};
}

Result Pmix::allgather(const Step& step) {
    const Frame frame = step.frame(FrameKind::kShare, rank(), size_);
    if (Result result = client_.put(key(step), with_payload(frame, step.mine)); !result.ok())
        return result;
    if (Result result = client_.fence(step.deadline); !result.ok())
        return name_missing(step, result);
    return take_all(step);
}

Result Pmix::take_all(const Step& step) const {
    const Frame mine = step.frame(FrameKind::kShare, rank(), size_);
    const Deadline deadline = step.deadline.with_grace();
    std::vector<std::byte> all(step.all.size());
    for (std::uint32_t other = 0; other < size_; ++other) {
        const auto bytes = client_.get(other, key(step), PmixClient::Look::kWait, deadline);
        if (!bytes)
            return failed(UCS_ERR_CONNECTION_RESET, "rank %u has left the job", other);
        const auto share = decode_whole(*bytes);
        if (!share || share->kind != FrameKind::kShare || share->rank != other)
            return failed(UCS_ERR_IO_ERROR, "rank %u published malformed data", other);
        if (Result result = check_share(*share, mine); !result.ok())
            return result;
        if (share->bytes != 0)
            std::memcpy(&all[std::size_t{other} * share->bytes], bytes->data() + kFrameBytes,
                        share->bytes);
    }
    if (!all.empty())
        std::memcpy(step.all.data(), all.data(), all.size());
    return {};
}

/// Asks who has put nothing for this call.
Result Pmix::name_missing(const Step& step, const Result& result) const {
    const Deadline deadline(kSearchNs);
    RankSet missing(size_);
    for (std::uint32_t other = 0; other < size_ && !deadline.is_over(); ++other)
        if (!client_.get(other, key(step), PmixClient::Look::kLocal, deadline))
            missing.add(other);
    const Frame call = step.frame(FrameKind::kShare, rank(), size_);
    return failed(result.status, "%s of %u did not call %s (%s)",
                  missing.is_empty() ? "some rank" : missing.text().c_str(), size_,
                  operation_text(call).c_str(), result.why.c_str());
}

}  // namespace

Result join_pmix(const Settings& settings, MethodPtr* method_p) {
    auto pmix = std::make_unique<Pmix>();
    Result result = pmix->join(settings);
    if (result.ok())
        *method_p = std::move(pmix);
    return result;
}

}  // namespace tagwire::bootstrap

#else

namespace tagwire::bootstrap {

Result join_pmix(const Settings&, MethodPtr*) {
    return failed(UCS_ERR_UNSUPPORTED,
                  "this tagwire was built without PMIx's header: use dir:PATH, or build it where "
                  "libpmix-dev is installed");
}

}  // namespace tagwire::bootstrap

#endif
