// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/cost/op_names.hpp"

#include <fmt/format.h>

#include "protocols/api/tw_def.h"

namespace tagwire::proto {

std::string op_flag_names(std::uint32_t flags) {
    static constexpr struct {
        std::uint32_t flag;
        const char* name;
    } kFlags[] = {
        {TW_OP_COMPLETION, "TW_OP_COMPLETION"},
        {TW_OP_MORE, "TW_OP_MORE"},
        {TW_OP_INJECT, "TW_OP_INJECT"},
        {TW_OP_IMM, "TW_OP_IMM"},
        {TW_OP_TRANSMIT_COMPLETE, "TW_OP_TRANSMIT_COMPLETE"},
        {TW_OP_DELIVERY_COMPLETE, "TW_OP_DELIVERY_COMPLETE"},
        {TW_OP_MATCH_COMPLETE, "TW_OP_MATCH_COMPLETE"},
        {TW_OP_FENCE, "TW_OP_FENCE"},
        {TW_OP_URGENT, "TW_OP_URGENT"},
        {TW_OP_SENT_COMPLETE, "TW_OP_SENT_COMPLETE"},
        {TW_OP_QUEUE, "TW_OP_QUEUE"},
    };
    std::string names;
    for (const auto& [flag, name] : kFlags) {
        if ((flags & flag) != 0)
            names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
        flags &= ~flag;
    }
    if (flags != 0)
        names += fmt::format("{}{:#x}", names.empty() ? "" : ", ", flags);
    return names;
}

}  // namespace tagwire::proto
