// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/wire/rma_messages.hpp"

namespace tagwire::proto {

bool decode(WireBytes bytes, PutMessage* message) {
    if (!take(&bytes, &message->head))
        return false;
    message->data = bytes;
    return message->head.is_last <= 1 && !bytes.empty();
}

bool decode(WireBytes bytes, RmaRequest* message) {
    if (!take_all(bytes, message))
        return false;
    if (message->kind == RmaKind::kGet || message->kind == RmaKind::kKeys)
        return message->length > 0 && message->op_id != 0;
    return message->kind == RmaKind::kAtomic && message->operation <= TW_ATOMIC_CSWAP &&
           message->type <= TW_INT64 && message->length == bytes_of_number(message->type);
}

bool decode(WireBytes bytes, GetMessage* message) {
    if (!take(&bytes, &message->head))
        return false;
    message->data = bytes;
    return message->head.op_id != 0 && !bytes.empty();
}

bool decode(WireBytes bytes, Notice* message) {
    return take_all(bytes, message) && message->kind == RmaKind::kPut && message->is_list <= 1;
}

}  // namespace tagwire::proto
