// SPDX-License-Identifier: BSD-3-Clause
#include "send_copy.hpp"

#include <cstring>
#include <memory>
#include <new>

#include "flags.hpp"

namespace tagwire::fi {

tw_status_t send_copy(tw_ep_h ep, Letter id, std::span<const std::byte> header,
                      std::span<const std::byte> data, const CopyOptions& options) {
    const bool is_short = header.size() + data.size() <= options.inject_bytes_max;
    tw_op_t op;
    fill(op, options.flags | flag_if(is_short, TW_OP_INJECT));
    op.complete = [](const tw_completion_t* done) {
        delete[] static_cast<std::byte*>(done->context);
    };
    std::unique_ptr<std::byte[]> copy;
    if (!is_short) {
        copy.reset(new (std::nothrow) std::byte[data.size()]);
        if (copy == nullptr)
            return TW_ERR_NO_MEMORY;
        std::memcpy(copy.get(), data.data(), data.size());
        op.context = copy.get();
        data = {copy.get(), data.size()};
    }
    const tw_status_t status =
        tw_am_send(ep, id, header.data(), header.size(), data.data(), data.size(), &op, nullptr);
    if (status != TW_INPROGRESS)
        return status;
    static_cast<void>(copy.release());  // the completion's
    return TW_OK;
}

}  // namespace tagwire::fi
