// SPDX-License-Identifier: BSD-3-Clause
// The ways by which a peer is asked first: pairs of one of its contacts and one of our rails, in
// waves. Those of a wave are tried at the same time, a wave when the one before has failed.
//
//  1. Contacts come in the order of the address. Ways of one transport over the kernel share a wave
//     of at most kAtOnceMax: an address that packets do not reach is silent for seconds.
//  2. A contact has the rails that the system's routes lead over, or, where they lead over none,
//     each rail that reaches it.
//  3. A way that is known to lead there is the first wave.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "protocols/wire/address.hpp"
#include "ucs/memory/reserve.hpp"

namespace tagwire::proto {

class Rail;

/// Appends that the transport on the device (may be empty) does not lead there; `why` may be null.
void add_reason(std::string* why, std::string_view transport, std::string_view device,
                std::string_view reason);

struct ContactWay {
    std::size_t contact;  // of the address
    Rail* rail;
};

class ContactPlan {
  public:
    static constexpr std::size_t kAtOnceMax = 8;

    /// `known_rail`: the rail by which the first contact is known to be reached. *why, which may be
    /// null, gets the reason for each contact and rail that is left out.
    void make(const Address& address, std::span<const std::unique_ptr<Rail>> rails,
              std::optional<std::size_t> known_rail, std::string* why);
    /// Empty: all have been tried.
    [[nodiscard]] std::span<const ContactWay> wave() const {
        return {ways_.data() + begin_, end_ - begin_};
    }
    /// The wave has been tried.
    void pass_wave();

  private:
    void find_end(bool first_is_known);

    ucs::ReserveVector<ContactWay> ways_;
    std::size_t begin_ = 0, end_ = 0;  // the wave
};

}  // namespace tagwire::proto
