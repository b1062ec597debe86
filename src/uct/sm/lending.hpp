// SPDX-License-Identifier: BSD-3-Clause
// Buffers of messages that a receiver reads by itself, without a registration of each: the owner
// sends its loan (loan.hpp) and the place of the buffer with the message.
//
//     owner                                     reader
//     lend(): loan, place --- a message -------> is the loan in force?
//                                                one copy of all the data
//                         <-- a message -------- is it still? then the data counts
//
// 1. The reader trusts no number of a loan. A key is an index into the owner's arena, whatever it
//    is; a place is checked against the arena's size, or is an address that the kernel checks.
// 2. A system call that reads another process reads the random word of that process, too, so no
//    byte is taken from a program that it has executed meanwhile.
// 3. A connection reads at most kReadBytesMax in one call of progress, so a flood of one peer does
//    not delay messages of others.
#pragma once

#include <cstddef>
#include <cstdint>

#include "uct/lending.hpp"
#include "uct/sm/iov.hpp"

namespace tagwire::sm {

class SmIface;
struct Link;

/// Bytes of one read, and of all reads of a connection in one call of progress.
constexpr std::size_t kReadBytesMax = std::size_t{512} << 10;

/// A place in the arena of the owner is its offset there with this bit, which no address has.
constexpr std::uint64_t kPlaceInArena = std::uint64_t{1} << 63;

class SmLending final : public uct::Lending {
  public:
    explicit SmLending(SmIface& owner) : iface_(owner) {}

    ucs_status_t lend(uct_ep_h ep, const void* buffer, std::size_t length,
                      tagwire_uct_loan_t* loan_p) override;
    ucs_status_t read(uct_ep_h ep, const uct_iov_t* iov, std::size_t iovcnt,
                      const tagwire_uct_loan_t& loan) override;

  private:
    bool may_read(Link& link, std::size_t bytes) const;
    ucs_status_t copy(Link& link, IovCursor cursor, std::size_t bytes, std::uint64_t place);
    ucs_status_t copy_from_process(Link& link, IovCursor cursor, std::size_t bytes,
                                   std::uint64_t address);

    SmIface& iface_;
};

}  // namespace tagwire::sm
