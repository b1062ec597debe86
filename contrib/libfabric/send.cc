// SPDX-License-Identifier: BSD-3-Clause
// Completion of sends; posting is in datapath.hpp.
#include "ep.hpp"

namespace tagwire::fi {

ssize_t Ep::not_taken(tw_status_t status) {
    return status == TW_ERR_NO_RESOURCE ? try_again() : -error_of(status);
}

void Ep::on_send_end(const tw_completion_t* done) {
    auto& operation = *static_cast<Operation*>(done->context);
    Ep& ep = *operation.ep;
    ep.end_send(*done, operation.context, operation.flags, operation.is_reported);
    ep.operations_.put(operation);
}

void Ep::end_send(const tw_completion_t& done, void* user_context, std::uint64_t flags,
                  bool is_reported) {
    if (done.status != TW_OK)
        return fail(tx, done, user_context, flags);
    if (tx.cntr != nullptr)
        tx.cntr->count_success();
    if (is_reported)
        tx.cq->push() = {{user_context, flags, 0, nullptr, 0, 0}, FI_ADDR_NOTAVAIL};
}

}  // namespace tagwire::fi
