// SPDX-License-Identifier: BSD-3-Clause
// DCIs, with streams and without, that take turns on more targets than there are DCIs, on a fabric
// that loses, repeats and reorders: every message arrives exactly once, those of one DCI (or
// stream) to one target in order, and memory is as a model says.
#include <map>

#include "common/seeds.hpp"
#include "vhca/test/core/dc_world.hpp"

namespace tagwire::vhca {

namespace {

constexpr std::size_t kTargets = 5, kInitiators = 2, kStreams = 3, kDcRequests = 60;
constexpr std::size_t kDcSlotBytes = 1024, kDcReceives = 64;
// Memory of a: a slot per request; of a target: receive slots, then a slot and a word per channel.
constexpr std::size_t kChannels = kInitiators * kStreams;
constexpr std::size_t kSlotsAt = kDcReceives * kDcSlotBytes;
constexpr std::size_t kDcWordsAt = kSlotsAt + kChannels * kDcSlotBytes;
constexpr std::size_t kMemoryBytes = 1 << 18;
static_assert(kDcWordsAt + kChannels * 8 <= kMemoryBytes);
static_assert(kInitiators * kDcRequests * kDcSlotBytes <= kMemoryBytes);

DcOptions dc_options_of(std::uint64_t seed) {
    SimRandom random(seed);
    DcOptions options;
    options.seed = seed;
    options.targets = kTargets;
    options.fabric.loss = random.chance(0.7) ? 0.05 * static_cast<double>(random.below(5)) / 4 : 0;
    options.fabric.duplication = random.chance(0.5) ? 0.05 : 0;
    options.fabric.delay_max = 1000 + random.below(4000);
    options.fabric.reorders_path = random.chance(0.3);
    options.fabric.room_packets = random.chance(0.3) ? 3 : 256;
    options.node.memory_bytes = kMemoryBytes;
    options.node.device.packets_ahead = random.chance(0.3) ? 4 : 128;
    options.node.device.dc_contexts_max = random.chance(0.3) ? 2 : 64;
    options.connection.mtu = IBV_MTU_256;
    options.connection.psn = random.chance(0.3) ? 0xfffff0 : 0x10;
    options.connection.timeout = 6;
    options.connection.rd_atomic = static_cast<std::uint8_t>(1 + random.below(4));
    options.cap = {16, 0, 1, 0, 64};
    if (random.chance(0.5)) {
        options.dci = {.has_streams = true, .streams_log = 2, .errored_log = 2};
        options.cap.max_send_wr = kDcRequests;  // of streams, none may overwrite what waits
    }
    return options;
}

/// The first bytes of a message.
struct Label {
    std::uint32_t channel, number;
};

class DcRun {
  public:
    explicit DcRun(std::uint64_t seed) : world_(dc_options_of(seed)), random_(seed + 77) {
        dcis_.push_back(world_.dci);
        while (dcis_.size() < kInitiators)
            dcis_.push_back(&world_.make_dci(world_.a()));
        posted_.resize(kInitiators);
        for (std::size_t target = 0; target < kTargets; ++target)
            refill(target);
    }

    void run() {
        constexpr std::size_t kStepsMax = 200'000;
        for (std::size_t step = 0; !is_done() && !testing::Test::HasFailure(); ++step) {
            ASSERT_LT(step, kStepsMax) << "does not end";
            for (std::size_t initiator = 0; initiator < kInitiators; ++initiator) {
                while (posted_[initiator].size() < kDcRequests && random_.chance(0.6) &&
                       post(initiator)) {
                }
            }
            world_.fabric.step();
            poll();
        }
        check_memory();
    }

  private:
    struct Request {
        ibv_wr_opcode opcode;
        std::size_t target, channel, bytes;
        std::string expected;  // what is read
        bool is_done = false;
    };

    [[nodiscard]] bool is_done() const {
        for (const auto& requests : posted_) {
            if (requests.size() != kDcRequests)
                return false;
            for (const Request& request : requests)
                if (!request.is_done)
                    return false;
        }
        return arrived_ == sent_;
    }

    [[nodiscard]] static std::size_t slot(std::size_t initiator, std::size_t request) {
        return (initiator * kDcRequests + request) * kDcSlotBytes;
    }

    void refill(std::size_t target) {
        // Sometimes too late: then senders wait.
        while (world_.receive(target, next_receive_, (next_receive_ % kDcReceives) * kDcSlotBytes,
                              kDcSlotBytes) == 0) {
            ++next_receive_;
        }
    }

    bool post(std::size_t initiator) {
        static constexpr ibv_wr_opcode kOpcodes[] = {IBV_WR_SEND, IBV_WR_SEND, IBV_WR_RDMA_WRITE,
                                                     IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD};
        auto& requests = posted_[initiator];
        const std::uint64_t stream = world_.options.dci.has_streams ? random_.below(kStreams) : 0;
        Request request{kOpcodes[random_.below(std::size(kOpcodes))],
                        random_.below(kTargets),
                        initiator * kStreams + stream,
                        sizeof(Label),
                        {},
                        false};
        const std::size_t at = slot(initiator, requests.size());
        const std::size_t remote = kSlotsAt + request.channel * kDcSlotBytes;
        SendWork work = world_.remote(request.target, request.opcode, remote);
        work.stream = static_cast<std::uint16_t>(stream);
        std::string text;
        std::string& memory = written_[{request.target, request.channel}];
        if (request.opcode == IBV_WR_SEND || request.opcode == IBV_WR_RDMA_WRITE) {
            text = message(request);
            work.flags = IBV_SEND_FENCE;  // a read before must not see it
        } else if (request.opcode == IBV_WR_RDMA_READ) {
            request.expected = memory;
            request.bytes = memory.size();
        } else {
            work.remote_addr =
                world_.target(request.target).address(kDcWordsAt + request.channel * 8);
            work.compare_add = 3;
        }
        world_.a().write(at, text);
        world_.dci = dcis_[initiator];
        const int error =
            world_.send(request.target, initiator << 16 | requests.size(), at, request.bytes, work);
        if (error != 0) {
            EXPECT_EQ(error, ENOMEM);
            return false;
        }
        note_posted(request, text, memory);
        requests.push_back(request);
        return true;
    }

    void note_posted(const Request& request, const std::string& text, std::string& memory) {
        if (request.opcode == IBV_WR_SEND) {
            expected_[{request.target, request.channel}].push_back(text);
            ++sent_;
        } else if (request.opcode == IBV_WR_RDMA_WRITE) {
            memory = text + memory.substr(std::min(memory.size(), text.size()));
        } else if (request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
            ++added_[{request.target, request.channel}];
        }
    }

    std::string message(Request& request) {
        request.bytes = sizeof(Label) + random_.below(700);
        std::string text(request.bytes, static_cast<char>('a' + random_.below(26)));
        const Label label{static_cast<std::uint32_t>(request.channel), next_label_++};
        std::memcpy(text.data(), &label, sizeof label);
        return text;
    }

    void poll() {
        while (const auto completion = world_.a().poll())
            take_sent(completion->wc);
        for (std::size_t target = 0; target < kTargets; ++target) {
            while (const auto completion = world_.target(target).poll())
                take_arrival(target, completion->wc);
            if (random_.chance(0.5))
                refill(target);
        }
    }

    void take_sent(const ibv_wc& wc) {
        Request& request = posted_[wc.wr_id >> 16][wc.wr_id & 0xffff];
        ASSERT_EQ(wc.status, IBV_WC_SUCCESS) << "opcode " << request.opcode << describe();
        ASSERT_FALSE(request.is_done) << "completed twice";
        request.is_done = true;
        if (!request.expected.empty()) {
            ASSERT_EQ(world_.a().text(slot(wc.wr_id >> 16, wc.wr_id & 0xffff), request.bytes),
                      request.expected);
        }
    }

    void take_arrival(std::size_t target, const ibv_wc& wc) {
        ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
        const std::size_t at = (wc.wr_id % kDcReceives) * kDcSlotBytes;
        const std::string text = world_.target(target).text(at, wc.byte_len);
        Label label{};
        std::memcpy(&label, text.data(), sizeof label);
        auto& expected = expected_[{target, label.channel}];
        ASSERT_FALSE(expected.empty()) << "arrived twice";
        ASSERT_EQ(text, expected.front());
        expected.pop_front();
        ++arrived_;
    }

    [[nodiscard]] std::string describe() {
        const DeviceCounters& a = world_.a().device.counters();
        const SimConfig& fabric = world_.options.fabric;
        return "; timeouts " + std::to_string(a.timeouts) + ", RNR " + std::to_string(a.rnr_naks) +
               ", NAK " + std::to_string(a.sequence_naks) + ", back " +
               std::to_string(a.retransmits) + "; loss " + std::to_string(fabric.loss) +
               ", duplication " + std::to_string(fabric.duplication) + ", delay " +
               std::to_string(fabric.delay_max) + (fabric.reorders_path ? ", reorders" : "") +
               ", room " + std::to_string(fabric.room_packets) + ", contexts " +
               std::to_string(world_.options.node.device.dc_contexts_max) + ", time " +
               std::to_string(world_.fabric.now());
    }

    void check_memory() {
        for (const auto& [where, text] : written_) {
            ASSERT_EQ(world_.target(where.first)
                          .text(kSlotsAt + where.second * kDcSlotBytes, text.size()),
                      text);
        }
        for (const auto& [where, count] : added_)
            ASSERT_EQ(world_.target(where.first).word(kDcWordsAt + where.second * 8), 3 * count);
    }

    using Where = std::pair<std::size_t, std::size_t>;  // target, channel
    DcWorld world_;
    SimRandom random_;
    std::vector<Qp*> dcis_;
    std::vector<std::vector<Request>> posted_;
    std::map<Where, std::deque<std::string>> expected_;
    std::map<Where, std::string> written_;
    std::map<Where, std::uint64_t> added_;
    std::size_t sent_ = 0, arrived_ = 0;
    std::uint64_t next_receive_ = 0;
    std::uint32_t next_label_ = 0;
};

void run_dc_seed(std::uint64_t seed) {
    DcRun(seed).run();
}

TEST(VhcaDcModel, every_message_arrives_once_and_in_order_at_its_target) {
    test::for_each_seed(300, run_dc_seed);
}

}  // namespace

}  // namespace tagwire::vhca
