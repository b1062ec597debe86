// SPDX-License-Identifier: BSD-3-Clause
#include "letters.hpp"

#include <cstring>

#include "ep.hpp"
#include "flags.hpp"

namespace tagwire::fi {

tw_status_t Outbox::try_send(std::uint64_t worker_id, Letter id, const void* header,
                             std::size_t bytes) {
    tw_status_t status = TW_OK;
    tw_ep_h const ep = owner_.reply_to(worker_id, &status);
    if (ep == nullptr)
        return status;
    tw_op_t op;
    fill(op, 0);
    op.complete = [](const tw_completion_t*) {};  // the failure of its endpoint says it all
    return tw_am_send(ep, id, header, bytes, nullptr, 0, &op, nullptr);
}

void Outbox::send(std::uint64_t worker_id, Letter id, const void* header, std::size_t bytes) {
    tw_status_t status =
        waiting_.empty() ? try_send(worker_id, id, header, bytes) : TW_ERR_NO_RESOURCE;
    if (status == TW_ERR_NO_RESOURCE) {
        const int error = without_exceptions([&] {
            Waiting& last = waiting_.emplace_back();
            last.worker_id = worker_id;
            last.id = id;
            last.bytes = bytes;
            std::memcpy(last.header.data(), header, bytes);
            return 0;
        });
        status = error == 0 ? TW_OK : TW_ERR_NO_MEMORY;
        owner_.backlog_changed();
    }
    if (status != TW_OK && status != TW_INPROGRESS)
        FI_INFO(&provider, FI_LOG_EP_DATA, "a letter to a peer was lost: %s\n",
                tw_status_string(status));
}

void Outbox::flush() {
    while (!waiting_.empty()) {
        const Waiting& next = waiting_.front();
        if (try_send(next.worker_id, next.id, next.header.data(), next.bytes) == TW_ERR_NO_RESOURCE)
            return;
        waiting_.pop_front();
    }
}

}  // namespace tagwire::fi
