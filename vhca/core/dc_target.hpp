// SPDX-License-Identifier: BSD-3-Clause
// A DCT: its sessions with initiators, and its reads for tag matching.
//
// A session of an initiator (node, number, stream) lasts from one connect to the next. An open one
// has a queue pair that responds as that of a reliable connection does.
//
//        connect, newer session                      disconnect, or its place is needed
//   (none) ----------------------> open (queue pair) -----------------------------------> closed
//     ^                              ^                                                      |
//     |                              '------------- connect, newer session ----------------'
//     '----- the oldest of more than kClosedMax
//
// (1) A session is opened at most once: packets that a fabric repeats after the close are dropped,
//     so no request is executed twice. Closed sessions are remembered for this.
// (2) A request of an unknown session is refused, and the initiator connects again, unless it had
//     an answer in that session before.
// (3) At most DeviceConfig::dc_contexts_max are open. When one more is wanted, the initiators that
//     were silent longest are asked: an idle one disconnects, one that does not answer for kSilence
//     loses its place. Until there is room, the new initiator waits (RNR).
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "ucs/datastruct/queue.hpp"
#include "vhca/core/device.hpp"
#include "vhca/core/packet.hpp"

namespace tagwire::vhca {

class QueuePair;

class DcTarget {
  public:
    static constexpr std::size_t kClosedMax = 16384, kReadersMax = 64;
    /// An initiator that waits for an answer connects again before half of this is over, or never.
    static constexpr Time kSilence = 4'000'000'000;

    explicit DcTarget(QueuePair& dct);
    ~DcTarget();

    void receive(Route from, Packet& packet);
    /// Somebody who can read from the DCT that a rendezvous request names; nullptr: all are busy.
    [[nodiscard]] QueuePair* find_reader(Route route, std::uint32_t qpn);
    /// Nobody is served any more; receives that are being filled fail.
    void enter_error();
    /// Before the DCT is destroyed: such receives go back, nothing is read any more.
    void close_all();

  private:
    struct Key {
        std::uint64_t node;
        std::uint32_t source;  // number and stream
        friend bool operator==(const Key&, const Key&) = default;
    };
    struct Hash {
        std::size_t operator()(const Key& key) const {
            return static_cast<std::size_t>((key.node << 32 ^ key.node >> 32 ^ key.source) *
                                            0x9e3779b97f4a7c15);
        }
    };
    struct Context {
        Key key{};
        std::uint32_t session = 0;
        std::unique_ptr<QueuePair> qp;  // nullptr: closed
        Time asked_since = 0;           // inquiries since then were not answered; 0: none was made
        ucs::ListLink<Context> link;    // in open_ or closed_, the longest silent in front
        ucs::List<Context, &Context::link>* in = nullptr;
    };
    using Contexts = ucs::List<Context, &Context::link>;

    void connect(Route from, const Packet& packet, Context* context);
    void open(Route from, const Packet& packet, Context& context);
    void close(Context& context);
    void move_to(Contexts& to, Context& context);
    void request(Route from, Packet& packet, Context* context);
    [[nodiscard]] bool make_room();
    void ask_for_room();
    void inquire(Context& context);
    [[nodiscard]] std::uint8_t busy() const;
    void refuse(Route to, const Packet& packet, std::uint8_t syndrome);
    void send(Route to, Packet& packet);
    [[nodiscard]] std::unique_ptr<QueuePair> new_queue_pair();
    [[nodiscard]] QueuePair* new_reader();
    void delete_readers();

    QueuePair& dct_;
    std::unordered_map<Key, Context, Hash> contexts_;
    Contexts open_, closed_;
    Context* newest_ = nullptr;                       // whose packet came last
    std::vector<std::unique_ptr<QueuePair>> unused_;  // for sessions
    std::vector<QueuePair*> readers_;                 // the device's table has them, too
};

}  // namespace tagwire::vhca
