// SPDX-License-Identifier: BSD-3-Clause
// Buffers of messages that a receiver reads by itself, without a registration of each: the owner
// sends its loan (loan.hpp) and the place of the buffer with the message.
//
//     owner                                     reader
//     lend(): loan, place --- a message -------> is the loan in force?
//                                                one copy of all the data
//                         <-- a message -------- is it still? then the data counts
//
// A long read goes on in progress, as a get does, and both sides copy chunks (both_copy.hpp): the
// reader's request for that has the owner's number of the buffer, by which the owner's program
// finds it among those that are lent at the moment.
//
// 1. The reader trusts no number of a loan. A key is an index into the owner's arena, whatever it
//    is; a place is checked against the arena's size, or is an address that the kernel checks.
// 2. A system call that reads another process reads the random word of that process, too, so no
//    byte is taken from a program that it has executed meanwhile.
// 3. A connection reads at most kReadBytesMax in one call of progress, and a step of a long read
//    besides, so a flood of one peer does not delay messages of others.
// 4. The owner writes nothing but what its program says it lends to this peer.
#pragma once

#include <cstddef>
#include <cstdint>

#include "uct/lending.hpp"
#include "uct/sm/iov.hpp"
#include "uct/sm/key_guard.hpp"

namespace tagwire::sm {

class SmEp;
class SmIface;
struct Link;

/// Bytes of a read within a call, and of all reads of a connection in one call of progress.
constexpr std::size_t kReadBytesMax = std::size_t{512} << 10;

/// A read so few calls of progress after another one is one of a stream.
constexpr std::uint64_t kCallsInStream = 16;

/// A place in the arena of the owner is its offset there with this bit, which no address has.
constexpr std::uint64_t kPlaceInArena = std::uint64_t{1} << 63;

class SmLending final : public uct::Lending {
  public:
    explicit SmLending(SmIface& owner) : iface_(owner) {}

    ucs_status_t lend(uct_ep_h ep, const void* buffer, std::size_t length,
                      tagwire_uct_loan_t* loan_p) override;
    ucs_status_t read(uct_ep_h ep, const uct_iov_t* iov, std::size_t iovcnt,
                      const tagwire_uct_loan_t& loan, uct_completion_t* comp) override;
    void set_handler(tagwire_uct_lent_cb_t callback, void* arg) override {
        handler_ = callback;
        handler_arg_ = arg;
    }
    /// The status of a read whose copies have ended with `status`.
    ucs_status_t end_of(const KeyGuard& guard, ucs_status_t status);
    /// The bytes of a buffer that is lent to the peer as number `id`. Null: there are none.
    const std::byte* find(const Link& link, std::uint32_t id, std::uint64_t address,
                          std::uint64_t length) const;

  private:
    bool may_read(Link& link, std::size_t bytes) const;
    bool is_in_stream(const Link& link) const;
    bool is_long(const Link& link, std::size_t iovcnt, std::size_t bytes,
                 const tagwire_uct_loan_t& loan) const;
    ucs_status_t begin_long(SmEp& ep, const uct_iov_t* iov, std::size_t iovcnt,
                            const tagwire_uct_loan_t& loan, const KeyGuard& guard,
                            uct_completion_t* comp);
    ucs_status_t copy(Link& link, IovCursor cursor, std::size_t bytes, std::uint64_t place);
    ucs_status_t copy_from_process(Link& link, IovCursor cursor, std::size_t bytes,
                                   std::uint64_t address);

    SmIface& iface_;
    tagwire_uct_lent_cb_t handler_ = nullptr;
    void* handler_arg_ = nullptr;
};

}  // namespace tagwire::sm
