// SPDX-License-Identifier: BSD-3-Clause
// The limits of an interface of messages: options as far as the device can follow them, the side
// that matches tags, and the capabilities that follow from both.
//
//   choose_matching() -> fit_depths() -> set() -> take_inline() -> query()
//
// Threads: none at set-up; constant afterwards.
#pragma once

#include <ucs/type/status.h>
#include <uct/api/uct.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "uct/ib/address.hpp"
#include "uct/ib/device.hpp"
#include "uct/ib/message_ep.hpp"
#include "uct/ib/message_options.hpp"

namespace tagwire::ib {

struct MessageLimits {
    /// `option_prefix` is that of the options' names: "RC".
    MessageLimits(const char* option_prefix, const MessageOptions& wanted)
        : options(wanted), prefix(option_prefix) {}

    // ---- The side that matches tags
    /// `obstacle`: why the device cannot ("it has no x"); null: it says that it can.
    ucs_status_t choose_matching(const Device& device, bool has_tag_callbacks,
                                 const char* obstacle);
    /// The device cannot make its SRQ after all.
    void match_by_software(const Device& device, const std::string& refusal);
    [[nodiscard]] bool may_match_by_software() const {
        return static_cast<TagMatching>(options.tag_matching) == TagMatching::kAuto;
    }
    /// Why a peer that matches tags the other way cannot be reached.
    [[nodiscard]] std::string differing_matching() const;

    // ---- Depths and sizes
    /// UCS_ERR_EXCEEDS_LIMIT (logged): an option asks for more than the device has.
    ucs_status_t fit_depths(const Device& device);
    void set(const IbMd& md, const Port& port);
    [[nodiscard]] std::uint32_t inline_wanted() const {
        return static_cast<std::uint32_t>(
            std::min<std::uint64_t>(options.inline_bytes, kInlineBytesMax));
    }
    /// UCS_ERR_UNSUPPORTED (logged): fewer bytes within a request than the shortest message has.
    ucs_status_t take_inline(const Device& device, std::uint32_t of_device);
    /// An active message of `bytes` needs a packet less without its prefix.
    [[nodiscard]] bool goes_bare(std::size_t bytes) const {
        return bytes >= kMessageBytesMin && ((bytes - 1) ^ (bytes - 1 + kPrefixBytes)) >= mtu_bytes;
    }
    [[nodiscard]] std::size_t am_header_max() const { return std::min(kZcopyHeaderMax, seg_bytes); }
    [[nodiscard]] std::size_t rndv_header_max() const {
        return rndv_behind_max + (has_device_tags ? kRndvTailBytes : 0);
    }

    void query(uct_iface_attr_t* attr, const Port& port, bool has_tag_callbacks) const;

    MessageOptions options;
    std::string prefix;
    bool has_device_tags = false;
    std::string matching_reason;
    bool has_atomics = false;
    unsigned queue_shares = 1;  // what a send queue's places are divided by
    std::uint32_t cq_places = 0;
    std::uint32_t cq_reserve = 0;  // of them only for what brings completions
    std::uint32_t signal_every = 1;
    std::uint32_t inline_max = 0;
    std::uint32_t credit_step = 1;  // messages per report to the peer
    std::size_t seg_bytes = 0;
    std::size_t mtu_bytes = 4096;  // of the port: a power of two
    unsigned sges_max = 1;
    unsigned reads_max = 1;      // of a peer that a queue pair answers at a time
    unsigned reads_out_max = 1;  // that a queue pair has under way
    std::size_t message_max = 0;
    std::size_t eager_parts_max = 1;
    std::size_t rndv_bytes_max = 0;
    std::size_t rndv_behind_max = 0;  // bytes of a rendezvous header behind the other headers
    std::size_t receive_bytes_min = 0;

  private:
    void query_tags(uct_iface_attr_t* attr) const;
};

}  // namespace tagwire::ib
