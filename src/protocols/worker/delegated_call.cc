// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/worker/delegated_call.hpp"

#include "protocols/eager/receiver.hpp"
#include "protocols/worker/endpoint.hpp"
#include "protocols/worker/fast_path.hpp"
#include "protocols/worker/worker_core.hpp"
#include "ucs/debug/check.hpp"

namespace tagwire::proto {

namespace {

/// The caller was told that it is sent: if the endpoint has failed since, it had gone before.
void send(Endpoint& ep, const DelegatedCall& call) {
    const bool is_tagged = call.is_tagged != 0;
    if (ep.may_send_short(call.data_bytes) &&
        ep.try_send_short(call.data, call.data_bytes, call.tag, is_tagged))
        return;
    ep.note_sending();
    if (ep.failure() != UCS_OK)
        return;  // the program hears of it by the endpoint's failure, and by its close
    tw_op_t injected{};
    injected.flags = TW_OP_INJECT;
    Request* request =
        ep.begin({call.data, call.data_bytes, nullptr, 0, call.tag, is_tagged, &injected, nullptr});
    TW_CHECK(request != nullptr);
    ep.worker.requests().answer_later(*request);
}

void receive(WorkerCore& worker, const DelegatedCall& call) {
    const DelegatedReceive& wanted = call.receive;
    const bool is_tagged = call.is_tagged != 0;
    tw_op_t how{};
    how.flags = wanted.flags;
    how.complete = wanted.complete;
    how.context = wanted.context;
    if (!try_post_short(worker, wanted.buffer, call.length, call.tag, wanted.mask, is_tagged, how,
                        nullptr, kAnySource)) {
        worker.receiver().begin({wanted.buffer, call.length, nullptr, 0, call.tag, wanted.mask,
                                 is_tagged, &how, nullptr});
    }
}

}  // namespace

void carry_out(WorkerCore& worker, const DelegatedCall& call) {
    if (call.ep != nullptr)
        send(*call.ep, call);
    else
        receive(worker, call);
}

}  // namespace tagwire::proto
