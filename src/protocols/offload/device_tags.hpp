// SPDX-License-Identifier: BSD-3-Clause
// Receives of tagged messages that a device matches (TAGWIRE_TAG_OFFLOAD).
//
// Every tagged receive is in the worker's list of posted receives; some are with the device too.
// Those that are not are held: only software sees them.
//
//                   allowed                    matched by the device
//        post() ---------------> given --------------------------------> consumed --> delivered
//          |                       | recalled, or matched by software
//          '------> held <---------'
//
// 1. A receive is given only if each peer that could match it sends its tagged messages to this
//    interface (kPeers), and no held one that could match the same message is posted (kOrder). So
//    whatever the device matches is the earliest match of all.
// 2. The device does not match while messages that it has not matched are on their way to software
//    (its phase). So a given receive that such a message matches is not matched meanwhile, and is
//    taken back at once.
// 3. Before a peer can send that may choose another lane, receives that it could match are recalled
//    (may_greet): the greeting waits for that.
// 4. Where a receive has no buffer that the device can write to, or one that is too short, a buffer
//    of ours takes the message (a bounce buffer).
#pragma once

#include <uct/api/uct.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "protocols/index/id_table.hpp"
#include "protocols/match/unexpected.hpp"
#include "protocols/port/worker_port.hpp"
#include "protocols/request/request.hpp"
#include "ucs/memory/reserve.hpp"

namespace tagwire::proto {

struct Arrival;
struct MatchPeer;
struct Placeholder;
class DeviceTags;
class Rail;

/// Calls of the worker as DeviceTags knows it; the first argument of each is the owner.
struct DeviceTagCalls {
    /// nullptr: no peer names itself so.
    MatchPeer* (*find)(void* owner, std::uint32_t sender);
    /// The message has matched `request`; null: it has matched none.
    void (*arrive)(void* owner, MatchPeer& from, const Arrival& arrival, Request* request);
    /// The message may match a receive that no device has.
    void (*arrive_unmatched)(void* owner, MatchPeer& from, const Arrival& arrival);
    /// The message lies in the buffer of `request` already.
    void (*end_in_place)(void* owner, Request& request, MatchPeer& from, const Arrival& arrival);
    /// The place of a message that was announced. False: of none.
    bool (*take_announced)(void* owner, MatchPeer& from, const Placeholder& place,
                           std::uint64_t tag, Request* request);
    /// Messages that are dropped: malformed, or of a sender that has no endpoint. UCS_OK.
    ucs_status_t (*garbage)(void* owner, const char* what, std::size_t length);
    ucs_status_t (*drop_from_unknown)(void* owner, std::uint32_t sender, const char* what,
                                      std::size_t length);
};

/// The world of receives that a device matches.
struct DeviceTagPorts {
    const WorkerPort& worker;
    MatchSpace& tagged;
    const IdCount& peers;
    Rail& rail;  // it matches tags
    void* owner;
    const DeviceTagCalls& calls;
};

/// A receive that is with the device: what the transport knows it by.
struct DeviceReceive : uct_tag_context_t {
    DeviceTags* owner = nullptr;
    Request* request = nullptr;  // null: free
    DeviceReceive* next = nullptr;
    std::byte* bounce = nullptr;  // made at the first use
    uct_mem_h bounce_handle = nullptr;
    bool is_bounced = false;
    std::array<std::byte, 64> before{};    // what the header of a request overwrites
    bool is_wide = false;                  // peers that are not known yet could match it
    bool is_leaving = false;               // its cancel is on the way
    bool is_left = false;                  // nobody waits for it, but its message is being written
    ucs_status_t ending = UCS_INPROGRESS;  // status of a receive with is_left
};

class DeviceTags {
  public:
    /// `sender_mask`: bits of a tag that tell who sent it, 0: none.
    DeviceTags(const DeviceTagPorts& ports, std::uint64_t sender_mask);
    DeviceTags(const DeviceTags&) = delete;
    DeviceTags& operator=(const DeviceTags&) = delete;
    ~DeviceTags();

    // ---- Receives

    /// The receive has just been posted.
    void posted(Request& request);
    /// The receive leaves the list of posted receives, and not through the device.
    void left(Request& request);
    /// False: it is not with the device. True: it ends later, with `status` or with a message.
    static bool cancel(Request& request, ucs_status_t status);
    /// The worker ends: nothing of the device is of interest any more.
    void close();

    // ---- Peers

    /// A peer may be told who we are; false: not yet, ask again.
    bool may_greet();
    /// The peer says to which of our rails it sends tagged messages.
    void on_lane(MatchPeer& peer, std::uint32_t rail);
    /// The peer's name has gone: no more messages of it arrive.
    void gone(MatchPeer& peer);

    // ---- Messages that the device did not match

    ucs_status_t on_eager(const void* data, std::size_t length, unsigned flags, uct_tag_t tag,
                          std::uint64_t imm);
    ucs_status_t on_request(const void* header, std::size_t length, uct_tag_t tag);

    std::string description() const;

  private:
    enum class Rule : std::uint8_t { kGiven, kKind, kOrder, kPeers, kFull };

    Rule rule_for(const Request& request) const;
    bool overlaps_held(const Request& request) const;
    bool is_wide(const Request& request) const;
    bool give(Request& request);
    uct_iov_t target_of(const Request& request, DeviceReceive& receive, bool may_be_direct) const;
    bool make_bounce(DeviceReceive& receive);
    void hold(Request& request, bool is_held);
    Request* detach(DeviceReceive& receive);
    void end_left(DeviceReceive& receive);
    void put_back(DeviceReceive& receive);
    void begin_cancel(DeviceReceive& receive);
    void learn(uct_tag_t tag, MatchPeer& peer);

    void consumed(DeviceReceive& receive);
    void completed(DeviceReceive& receive, uct_tag_t tag, std::uint64_t imm, std::size_t length,
                   const void* inline_data, ucs_status_t status);
    void requested(DeviceReceive& receive, uct_tag_t tag, const void* header, std::size_t length);
    void canceled(DeviceReceive& receive);

    static constexpr std::size_t kHeldBuckets = 256;

    const DeviceTagPorts to_;
    Rail& rail_;
    const uct_md_h md_;  // lives longer than the rail
    const std::uint64_t sender_mask_;
    const std::size_t message_max_;  // bytes of an eager message: what a bounce buffer has
    std::vector<DeviceReceive> receives_;
    DeviceReceive* free_ = nullptr;
    std::size_t given_ = 0;
    std::size_t wide_ = 0;                                    // of these
    std::size_t direct_peers_ = 0;                            // those that send to this interface
    ucs::ReserveHashMap<std::uint64_t, MatchPeer*> senders_;  // by bits of sender_mask_
    // Held receives, exact ones by a hash of their tag.
    std::array<std::uint32_t, kHeldBuckets> held_exact_{};
    std::size_t held_ = 0;
    std::size_t held_wild_ = 0;
};

}  // namespace tagwire::proto
