// SPDX-License-Identifier: BSD-3-Clause
// The two levels of a measurement behind one interface, so that each test is written once:
// `template <class Level> class Port`, for UctLevel<op> and for MsgLevel. A level has
//
//     Connection    Link or MsgLink: the object on which loops make progress
//     Sender        data and a window of operations: send_tagged(), send_am(), put(), get(), add(),
//                   fetch_and_add(), cswap(), has_ended(), drain(), refresh(), errors()
//     Receiver      receives of tagged messages: post(), try_post(), received(), errors(), data()
//     Inbox         memory that the other side writes: load(), control(), try_put_control()
//     AmArrivals    active messages that come here: messages(), acked(), try_ack(), errors()
//     Grants        what keeps a stream of tagged messages behind its receives
//
// and what a port must know of a connection: peers(), interfaces(), stream(), sending_side(),
// is_shared(), stray() and try_send_word().
#pragma once

#include <memory>

#include "tools/loops.hpp"
#include "tools/msg_level.hpp"
#include "tools/uct_level.hpp"

namespace tagwire::tools {

/// Makes `Loop<Port<level>>` for the level of the link, at level uct for the job's op.
template <template <class> class Loop, template <class> class Port>
std::unique_ptr<Test> make_for_level(Link& link, const Job& job) {
    switch (job.op) {
        case Op::kShort:
            return std::make_unique<Loop<Port<UctLevel<Op::kShort>>>>(link, job);
        case Op::kBcopy:
            return std::make_unique<Loop<Port<UctLevel<Op::kBcopy>>>>(link, job);
        default:
            return std::make_unique<Loop<Port<UctLevel<Op::kZcopy>>>>(link, job);
    }
}

template <template <class> class Loop, template <class> class Port>
std::unique_ptr<Test> make_for_level(MsgLink& link, const Job& job) {
    return std::make_unique<Loop<Port<MsgLevel>>>(link, job);
}

/// The same of operations that have one kind only.
template <template <class> class Loop, template <class> class Port>
std::unique_ptr<Test> make_of_one_kind(Link& link, const Job& job) {
    return std::make_unique<Loop<Port<UctLevel<Op::kShort>>>>(link, job);
}

template <template <class> class Loop, template <class> class Port>
std::unique_ptr<Test> make_of_one_kind(MsgLink& link, const Job& job) {
    return make_for_level<Loop, Port>(link, job);
}

/// The same of tagged messages, rendezvous included.
template <template <class> class Loop, template <class> class Port>
std::unique_ptr<Test> make_tagged_for_level(Link& link, const Job& job) {
    if (job.op == Op::kRndv)
        return std::make_unique<Loop<Port<UctLevel<Op::kRndv>>>>(link, job);
    return make_for_level<Loop, Port>(link, job);
}

template <template <class> class Loop, template <class> class Port>
std::unique_ptr<Test> make_tagged_for_level(MsgLink& link, const Job& job) {
    return make_for_level<Loop, Port>(link, job);
}

}  // namespace tagwire::tools
