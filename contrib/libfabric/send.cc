// SPDX-License-Identifier: BSD-3-Clause
// Completion of sends; posting is in datapath.hpp.
#include "datapath.hpp"

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
        tx.cq->push({user_context, flags, 0, nullptr, 0, 0});
}

void Ep::on_usual_send(const tw_completion_t* done) {
    auto& operation = *static_cast<Operation*>(done->context);
    Ep& ep = *operation.ep;
    ep.end_send(*done, operation.context, operation.flags, true);
    ep.operations_.put(operation);
}

void Ep::begin_usual_send(void* user_context, std::uint64_t flags) {
    auto& operation = *static_cast<Operation*>(usual_.send.context);
    operations_.begin_kept(operation, OperationKind::kSend, user_context, flags, usual_.sent);
    prepare_usual_send();
}

void Ep::prepare_usual_send() {
    Operation* const operation = operations_.keep();
    if (operation == nullptr)
        usual_.no_sends = 1;  // from now on each send looks for an operation itself
    usual_.send.context = usual_.send_imm.context = operation;
}

void Ep::on_usual_inject(const tw_completion_t* done) {
    auto& ep = *static_cast<Ep*>(done->context);
    const std::uint64_t kind = (done->flags & TW_DONE_TAGGED) != 0 ? FI_TAGGED : FI_MSG;
    ep.end_send(*done, nullptr, FI_SEND | kind, false);
}

}  // namespace tagwire::fi
