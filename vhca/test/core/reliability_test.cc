// SPDX-License-Identifier: BSD-3-Clause
// Reliable connections on a fabric that loses, repeats and reorders: whatever it does, the outcome
// is that of a model that executes the requests one after the other.
#include <algorithm>
#include <array>
#include <deque>

#include "common/seeds.hpp"
#include "vhca/test/core/world.hpp"

namespace tagwire::vhca {

namespace {

constexpr std::size_t kRequests = 60;
static_assert(kRequests % 10 == 0);
constexpr std::size_t kBytesMax = 3000;
constexpr std::size_t kTargetBytes = 8192;  // of b, for writes and reads
constexpr std::size_t kWords = 4;           // of b, for atomics
constexpr std::size_t kPairs = 2;

/// Memory of one pair: on a one slot per request; on b the target, the words, one slot per receive.
constexpr std::size_t kSlotBytes = 3072;
constexpr std::size_t kWordsAt = kTargetBytes;
constexpr std::size_t kReceivesAt = kTargetBytes + kWords * 8;
constexpr std::size_t kPairBytes = kReceivesAt + kRequests * kSlotBytes;

struct Posted {
    ibv_wr_opcode opcode;
    std::size_t offset, bytes;
    unsigned flags;
    std::string expected;  // what a's slot holds in the end, if it is read into
};

struct Arrival {
    std::size_t request;
    std::string text;
    bool is_write;
};

std::string describe(World& world) {
    const DeviceCounters& a = world.a.device.counters();
    const DeviceCounters& b = world.b.device.counters();
    return "; a sent " + std::to_string(a.packets_sent) + ", timeouts " +
           std::to_string(a.timeouts) + ", RNR " + std::to_string(a.rnr_naks) + ", NAK " +
           std::to_string(a.sequence_naks) + ", back " + std::to_string(a.retransmits) +
           ", duplicates " + std::to_string(a.duplicates) + "; b sent " +
           std::to_string(b.packets_sent) + ", duplicates " + std::to_string(b.duplicates) +
           "; time " + std::to_string(world.fabric.now());
}

/// One queue pair of a that works, its partner at b, and what must come of it.
class Pair {
  public:
    Pair(World& world, std::size_t number, std::uint64_t seed)
        : world_(world), base_(number * kPairBytes), random_(seed * kPairs + number) {
        if (number == 0) {
            qa_ = world.qa;
            qb_ = world.qb;
        } else {
            qa_ = &world.a.create_qp({.cap = world.options.cap});
            qb_ = &world.b.create_qp({.cap = world.options.cap});
            const auto psn = static_cast<std::uint32_t>(random_.next() & 0xffffff);
            world.connect(*qa_, world.b.route(), qb_->number(), psn, 9);
            world.connect(*qb_, world.a.route(), qa_->number(), 9, psn);
        }
        target_ = world.b.text(base_, kTargetBytes);
    }

    [[nodiscard]] bool is_done() const {
        return requests_.size() == kRequests && completed_ == kRequests &&
               arrived_ == arrivals_.size();
    }

    void work() {
        if (random_.chance(0.7))
            post_receive();
        while (requests_.size() < kRequests && random_.chance(0.8) && post_request()) {
        }
    }

    void take_completion(const Completion& completion) {
        ASSERT_EQ(completion.wc.status, IBV_WC_SUCCESS)
            << "opcode " << completion.wc.opcode << " id " << completion.wc.wr_id
            << describe(world_) << "; access errors "
            << world_.b.events.count(IBV_EVENT_QP_ACCESS_ERR) << ", request errors "
            << world_.b.events.count(IBV_EVENT_QP_REQ_ERR);
        if ((completion.wc.opcode & IBV_WC_RECV) != 0) {
            take_arrival(completion);
            return;
        }
        ASSERT_GE(completion.wc.wr_id, completed_) << "completed twice or out of order";
        for (; completed_ < completion.wc.wr_id; ++completed_)
            ASSERT_EQ(requests_[completed_].flags & IBV_SEND_SIGNALED, 0U) << "was left out";
        const Posted& posted = requests_[completed_++];
        if (!posted.expected.empty()) {
            ASSERT_EQ(world_.a.text(slot(completed_ - 1), posted.bytes), posted.expected)
                << "request " << completed_ - 1 << " opcode " << posted.opcode;
        }
    }

    void check_memory() {
        ASSERT_EQ(world_.b.text(base_, kTargetBytes), target_);
        for (std::size_t word = 0; word < kWords; ++word)
            ASSERT_EQ(world_.b.word(base_ + kWordsAt + 8 * word), words_[word]);
    }

    [[nodiscard]] bool owns(std::uint32_t qpn) const {
        return qpn == qa_->number() || qpn == qb_->number();
    }

  private:
    [[nodiscard]] std::size_t slot(std::size_t request) const {
        return base_ + request * kSlotBytes;
    }

    void post_receive() {
        const ibv_sge sge = world_.b.sge(base_ + kReceivesAt + receives_ * kSlotBytes, kSlotBytes);
        const RecvWork work{receives_, {&sge, 1}};
        if (receives_ < kRequests && qb_->post_recv(work) == 0)
            ++receives_;
    }

    bool post_request() {
        static constexpr ibv_wr_opcode kOpcodes[] = {IBV_WR_SEND,
                                                     IBV_WR_SEND_WITH_IMM,
                                                     IBV_WR_RDMA_WRITE,
                                                     IBV_WR_RDMA_WRITE_WITH_IMM,
                                                     IBV_WR_RDMA_READ,
                                                     IBV_WR_ATOMIC_FETCH_AND_ADD,
                                                     IBV_WR_ATOMIC_CMP_AND_SWP};
        const std::size_t index = requests_.size();
        if (!next_)
            next_ = choose(kOpcodes[random_.below(std::size(kOpcodes))]);
        const ibv_sge sge = world_.a.sge(slot(index), next_->bytes);
        work_.wr_id = index;
        work_.flags = next_->flags;
        work_.opcode = next_->opcode;
        work_.sges = {&sge, 1};
        if (const int error = qa_->post_send(work_, world_.fabric.now()); error != 0) {
            EXPECT_EQ(error, ENOMEM);
            return false;
        }
        requests_.push_back(*std::exchange(next_, std::nullopt));
        return true;
    }

    Posted choose(ibv_wr_opcode opcode) {
        // A queue full of requests that are not signaled stays full.
        const bool is_needed = (requests_.size() + 1) % 10 == 0;
        Posted posted{
            opcode, 0, random_.chance(0.3) ? random_.below(20) : random_.below(kBytesMax), 0, {}};
        posted.flags = is_needed || random_.chance(0.4) ? unsigned{IBV_SEND_SIGNALED} : 0U;
        work_ = {};
        work_.rkey = world_.b.mr->key;
        work_.imm = static_cast<std::uint32_t>(requests_.size());
        if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
            choose_atomic(posted);
            return posted;
        }
        posted.offset = random_.below(kTargetBytes - posted.bytes);
        work_.remote_addr = world_.b.address(base_ + posted.offset);
        if (opcode == IBV_WR_RDMA_READ) {
            posted.expected = target_.substr(posted.offset, posted.bytes);
            has_read_ = true;
        } else {
            choose_data(posted);
        }
        return posted;
    }

    void choose_data(Posted& posted) {
        std::string text(posted.bytes, ' ');
        std::generate(text.begin(), text.end(), [this] { return 'a' + random_.below(26); });
        world_.a.write(slot(requests_.size()), text);
        const bool is_write =
            posted.opcode == IBV_WR_RDMA_WRITE || posted.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
        if (is_write) {
            target_.replace(posted.offset, posted.bytes, text);
            // Without it a read that was posted before may see what was written after.
            posted.flags |= has_read_ ? unsigned{IBV_SEND_FENCE} : 0U;
            has_read_ = false;
        }
        if (posted.opcode != IBV_WR_RDMA_WRITE)
            arrivals_.push_back({requests_.size(), is_write ? std::string{} : text, is_write});
    }

    void choose_atomic(Posted& posted) {
        std::uint64_t& word = words_[random_.below(kWords)];
        posted.bytes = 8;
        work_.remote_addr = world_.b.address(base_ + kWordsAt +
                                             8 * static_cast<std::size_t>(&word - words_.data()));
        posted.expected.assign(reinterpret_cast<const char*>(&word), 8);
        if (posted.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
            work_.compare_add = random_.next();
            word += work_.compare_add;
        } else {
            work_.compare_add = random_.chance(0.5) ? word : word + 1;
            work_.swap = random_.next();
            word = work_.compare_add == word ? work_.swap : word;
        }
    }

    void take_arrival(const Completion& completion) {
        ASSERT_LT(arrived_, arrivals_.size()) << "received more than was sent";
        const Arrival& arrival = arrivals_[arrived_];
        ASSERT_EQ(completion.wc.wr_id, arrived_);
        if (completion.wc.wc_flags == IBV_WC_WITH_IMM) {
            ASSERT_EQ(completion.wc.imm_data, arrival.request);
        }
        ASSERT_EQ(completion.wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM, arrival.is_write);
        if (!arrival.is_write) {
            ASSERT_EQ(completion.wc.byte_len, arrival.text.size());
            ASSERT_EQ(
                world_.b.text(base_ + kReceivesAt + arrived_ * kSlotBytes, arrival.text.size()),
                arrival.text);
        }
        ++arrived_;
    }

    World& world_;
    std::size_t base_;
    SimRandom random_;
    Qp* qa_ = nullptr;
    Qp* qb_ = nullptr;
    std::string target_;
    std::array<std::uint64_t, kWords> words_{};
    std::vector<Posted> requests_;
    std::vector<Arrival> arrivals_;
    std::optional<Posted> next_;
    SendWork work_;
    bool has_read_ = false;
    std::size_t receives_ = 0, completed_ = 0, arrived_ = 0;
};

WorldOptions options_of(std::uint64_t seed) {
    SimRandom random(seed);
    WorldOptions options;
    options.seed = seed;
    options.fabric.loss = random.chance(0.7) ? 0.05 * static_cast<double>(random.below(5)) / 4 : 0;
    options.fabric.duplication = random.chance(0.5) ? 0.05 : 0;
    options.fabric.delay_max = 1000 + random.below(4000);
    options.fabric.reorders_path = random.chance(0.3);
    options.fabric.room_packets = random.chance(0.3) ? 3 : 256;
    options.node.memory_bytes = kPairs * kPairBytes;
    options.node.device.packets_ahead = random.chance(0.3) ? 4 : 128;
    options.node.device.ack_every = random.chance(0.3) ? 3 : 16;
    options.cap = {16, 16, 4, 4, 64};
    options.connection.mtu = random.chance(0.5) ? IBV_MTU_256 : IBV_MTU_1024;
    options.connection.psn = random.chance(0.3) ? 0xfffff0 : 0x10;
    options.connection.timeout = 6;
    options.connection.rd_atomic = static_cast<std::uint8_t>(1 + random.below(4));
    options.node.device.shuffles_reads = random.chance(0.3);
    options.node.device.timer_stretch_max = random.chance(0.3) ? 4 : 1;
    return options;
}

void run_seed(std::uint64_t seed) {
    World world(options_of(seed));
    std::deque<Pair> pairs;
    for (std::size_t number = 0; number < kPairs; ++number)
        pairs.emplace_back(world, number, seed);
    const auto is_done = [&] {
        return std::all_of(pairs.begin(), pairs.end(), [](const Pair& p) { return p.is_done(); });
    };
    constexpr std::size_t kStepsMax = 200'000;
    for (std::size_t step = 0; !is_done() && !testing::Test::HasFatalFailure(); ++step) {
        ASSERT_LT(step, kStepsMax) << "does not end" << describe(world);
        for (Pair& pair : pairs)
            pair.work();
        world.fabric.step();
        for (Host* host : {&world.a, &world.b}) {
            while (const auto completion = host->poll()) {
                for (Pair& pair : pairs)
                    if (pair.owns(completion->wc.qp_num))
                        pair.take_completion(*completion);
            }
        }
    }
    for (Pair& pair : pairs)
        pair.check_memory();
}

TEST(VhcaReliability, outcome_is_that_of_the_model_whatever_the_fabric_does) {
    test::for_each_seed(300, run_seed);
}

}  // namespace

}  // namespace tagwire::vhca
