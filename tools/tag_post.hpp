// SPDX-License-Identifier: BSD-3-Clause
// One tagged send by each kind of operation.
#pragma once

#include <uct/api/uct.h>

#include "tools/sender.hpp"

namespace tagwire::tools {

template <Op op>
ucs_status_t post_tagged(uct_ep_h ep, uct_tag_t tag, std::uint8_t* data, const Sender& sender,
                         uct_completion_t* completion) {
    if constexpr (op == Op::kShort) {
        return uct_ep_tag_eager_short(ep, tag, data, sender.size());
    } else if constexpr (op == Op::kBcopy) {
        Packed packed{data, sender.size()};
        return status_of(uct_ep_tag_eager_bcopy(ep, tag, 0, &Packed::pack, &packed, 0));
    } else {
        const uct_iov_t iov{data, sender.size(), sender.buffer().memh(), 0, 1};
        if constexpr (op == Op::kZcopy)
            return uct_ep_tag_eager_zcopy(ep, tag, 0, &iov, 1, 0, completion);
        else
            return status_of(uct_ep_tag_rndv_zcopy(ep, tag, nullptr, 0, &iov, 1, 0, completion));
    }
}

constexpr bool completes(Op op) {
    return op == Op::kZcopy || op == Op::kRndv;
}

/// A whole 8-byte message outside of the measurement.
inline ucs_status_t try_post_word(const Link& link, uct_tag_t tag, std::uint64_t word) {
    if ((link.attr().cap.flags & UCT_IFACE_FLAG_TAG_EAGER_SHORT) != 0)
        return uct_ep_tag_eager_short(link.endpoint(0), tag, &word, sizeof(word));
    Packed packed{&word, sizeof(word)};
    return status_of(uct_ep_tag_eager_bcopy(link.endpoint(0), tag, 0, &Packed::pack, &packed, 0));
}

/// Makes `Loop<Port<op>>` for the job's op, rendezvous included.
template <template <class> class Loop, template <Op> class Port>
std::unique_ptr<Test> make_for_tag_op(Link& link, const Job& job) {
    if (job.op == Op::kRndv)
        return std::make_unique<Loop<Port<Op::kRndv>>>(link, job);
    return make_for_op<Loop, Port>(link, job);
}

}  // namespace tagwire::tools
