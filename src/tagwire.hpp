// SPDX-License-Identifier: BSD-3-Clause
//
// The C++ face of the transport API: owners, spans and callables over <uct/api/uct.h>. Header only,
// C++20.
//
//     tagwire::Resource shm = tagwire::find_resource("sm").value();
//     tagwire::MemoryDomain md(shm.component, shm.md_name);
//     tagwire::Worker worker;
//     tagwire::Interface iface(md, worker, tagwire::InterfaceOptions(shm.tl_name, shm.dev_name));
//     auto print = [](std::span<std::byte> data, unsigned) { ...; return UCS_OK; };
//     iface.set_am_handler(1, print);
//     tagwire::Endpoint self(iface, iface.address());
//     while (self.am_short(1, 42, bytes) == UCS_ERR_NO_RESOURCE) worker.progress();
//
// Set-up throws tagwire::Error, which carries the status; data-path calls answer statuses and never
// throw. Callables are referenced, not copied: they live as long as what they were given to, and
// must not throw. Owners are move-only; close in the opposite order of opening. Threads, lengths
// and every status: at the C function of the same name.
#ifndef TAGWIRE_TAGWIRE_HPP
#define TAGWIRE_TAGWIRE_HPP

#if __cplusplus < 202002L
#error "tagwire.hpp needs C++20: compile with -std=c++20 or later"
#else

#include <uct/api/cxx_base.hpp>
#include <uct/api/cxx_ep.hpp>
#include <uct/api/cxx_iface.hpp>
#include <uct/api/cxx_memory.hpp>

#endif  // C++20

#endif
