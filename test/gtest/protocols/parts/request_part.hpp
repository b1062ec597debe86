// SPDX-License-Identifier: BSD-3-Clause
// The table of requests over a fake worker, for its test and those of parts that make requests.
#pragma once

#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "protocols/cost/options.hpp"
#include "protocols/request/attention.hpp"
#include "protocols/request/request.hpp"
#include "protocols/request/request_table.hpp"

namespace tagwire::test {

inline constexpr unsigned kTableRequests = 8;
inline constexpr unsigned kTableExtras = 3;  // operations that TW_OP_QUEUE keeps
inline constexpr std::size_t kInjectBytes = 64;

/// In place of a worker. It ends a request as WorkerCore::finish() does.
struct FakeRequestWorker {
    explicit FakeRequestWorker(bool multi = false) : is_multi(multi) {
        proto::Options options{};
        options.requests_max = kTableRequests;
        options.queued_max = kTableExtras;
        options.inject_bytes = kInjectBytes;
        EXPECT_EQ(table.open(options), UCS_OK);
    }
    FakeRequestWorker(const FakeRequestWorker&) = delete;
    FakeRequestWorker& operator=(const FakeRequestWorker&) = delete;

    void finish(proto::Request& request, ucs_status_t status) {
        table.release_id(request);
        request.done.status = static_cast<tw_status_t>(status);
        if (request.in_call)
            request.has_ended = true;
        else
            table.report(request);
    }

    const bool is_multi;
    proto::Attention attention{is_multi};
    std::vector<std::pair<proto::Request*, ucs_status_t>> transmitted;
    std::vector<proto::Request*> rma_ends;
    unsigned extras = 0, notices = 0, left = 0, entered = 0, drops = 0;

  private:
    static FakeRequestWorker& of(void* owner) { return *static_cast<FakeRequestWorker*>(owner); }

  public:
    proto::RequestTable table{{
        .attention = attention,
        .worker = nullptr,
        .is_multi = is_multi,
        .owner = this,
        .transmitted =
            [](void* worker, proto::Request& request, ucs_status_t status) {
                of(worker).transmitted.push_back({&request, status});
            },
        .end_rma = [](void* worker,
                      proto::Request& request) { of(worker).rma_ends.push_back(&request); },
        .count_extra = [](void* worker) { ++of(worker).extras; },
        .add_notice = [](void* worker) { ++of(worker).notices; },
        .remove_notice = [](void* worker) { --of(worker).notices; },
        .leave = [](void* worker) { ++of(worker).left; },
        .enter_again = [](void* worker) { ++of(worker).entered; },
        .drop_kept = [](void* worker,
                        const proto::KeptReturns<proto::CompletionEnv>&) { ++of(worker).drops; },
    }};
};

}  // namespace tagwire::test
