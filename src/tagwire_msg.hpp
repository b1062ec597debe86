// SPDX-License-Identifier: BSD-3-Clause
//
// The C++ wrapper of the messaging layer: owners, spans and callables over <tagwire.h>. Header
// only, C++20; like that header it needs none of the transport API, and may be included beside
// tagwire.hpp.
//
//     tagwire::msg::Context context;
//     tagwire::msg::Worker worker(context);
//     tagwire::msg::Endpoint self(worker, worker.address());
//     auto print = [](const tw_completion_t& done) { ... };
//     worker.tag_recv(buffer, 7, 0, tagwire::msg::Op().on_complete(print));
//     while (self.tag_send(bytes, 7) == TW_ERR_NO_RESOURCE) worker.progress();
//
// Set-up throws tagwire::msg::Error, which carries the status; data-path calls answer statuses and
// never throw. Each is its C function, inline, and costs nothing more. Callables are referenced,
// not copied: they live as long as what they were given to, and must not throw. Owners are
// move-only; close in the opposite order of opening. Threads, lengths and every status: at the C
// function of the same name.
#ifndef TAGWIRE_MSG_HPP
#define TAGWIRE_MSG_HPP

#if __cplusplus < 202002L
#error "tagwire_msg.hpp needs C++20: compile with -std=c++20 or later"
#else

#include <protocols/api/cxx_msg_am.hpp>
#include <protocols/api/cxx_msg_base.hpp>
#include <protocols/api/cxx_msg_call.hpp>
#include <protocols/api/cxx_msg_completion.hpp>
#include <protocols/api/cxx_msg_context.hpp>
#include <protocols/api/cxx_msg_ep.hpp>
#include <protocols/api/cxx_msg_listen.hpp>
#include <protocols/api/cxx_msg_message.hpp>
#include <protocols/api/cxx_msg_op.hpp>
#include <protocols/api/cxx_msg_rma.hpp>
#include <protocols/api/cxx_msg_worker.hpp>

#endif  // C++20

#endif
