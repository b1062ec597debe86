// SPDX-License-Identifier: BSD-3-Clause
// The two messages of a connection by host and port, over a TCP connection that ends behind them:
//
//   client | CmHead kRequest | address of its worker | private data
//   server | CmHead kReply   | address of its worker, if it accepts | private data
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "protocols/api/tw_listen.h"
#include "protocols/wire/reserve_bytes.hpp"
#include "protocols/wire/wire.hpp"

namespace tagwire::proto {

inline constexpr std::uint64_t kCmMagic = 0x0a6d636572697774;  // "twirecm\n"
inline constexpr std::uint16_t kCmVersion = 1;

enum class CmKind : std::uint8_t { kRequest = 1, kReply = 2 };

/// In a request: kAccepted.
enum class CmVerdict : std::uint8_t {
    kAccepted = 0,
    kRejected = 1,  // by the program
    kFailed = 2,    // the program has accepted, and the server cannot connect
    kVersion = 3,   // `version` is what the server speaks
    kExists = 4,    // the program has accepted, and has an endpoint to that worker
    kLast = kExists
};

struct CmHead {
    std::uint64_t magic;
    std::uint16_t version;
    CmKind kind;
    CmVerdict verdict;
    std::uint16_t address_bytes;
    std::uint16_t private_bytes;
};
static_assert(sizeof(CmHead) == 16);

struct CmMessage {
    CmHead head{};
    ReserveBytes address;
    ReserveBytes private_data;
};

ReserveBytes encode(CmKind kind, CmVerdict verdict, WireBytes address, WireBytes private_data);

/// Collects one message of a connection.
class CmReader {
  public:
    enum class State : std::uint8_t { kMore, kWhole, kForeign, kOtherVersion };

    explicit CmReader(CmKind kind) : kind_(kind) {}

    /// Reads what has come. An end of the connection before the whole message is foreign, too.
    State read(int fd);
    /// Behind kWhole, or kOtherVersion, whose head is the only part.
    const CmMessage& message() const { return message_; }

  private:
    State take_head();
    std::size_t wanted() const;

    const CmKind kind_;
    bool has_head_ = false;
    std::size_t have_ = 0;
    std::byte bytes_[sizeof(CmHead) + TW_ADDRESS_BYTES_MAX + TW_PRIVATE_BYTES_MAX];
    CmMessage message_;
};

}  // namespace tagwire::proto
